//! Pull answer, ProcessQueue, dispatch, result, offset: what a message costs.
//!
//! A client is driven as the driver drives it, against a cluster that always has the next
//! messages. What comes back from the broker is decoded beforehand, as the driver does on
//! other tasks, and is not counted; all else is, timers included: for every pull answer
//! the clock moves on by what it may cost.

use std::time::Duration;

use anyhow::{Result, ensure};
use consumer::listener::{ConcurrentlyStatus, ConsumeRequestId, ConsumeResult};

use crate::cluster::{ClusterSize, SimulatedClient};
use crate::report::{Report, Sample, Target};
use crate::{Options, allocations, machine};

/// Messages in one pull answer, and in one call.
const PER_PULL: u32 = 32;
/// Calls under way, which end in any order.
const CALLS: usize = 16;
/// Pull answers that are decoded before the clock of a chunk starts: they are in the
/// processor's cache, as those are that another core has just decoded.
const CHUNK: usize = 1024;

const RATE_MIN: f64 = 2.0;
const TIMES_MAX: f64 = 1.3;
const MORE_ALLOCATIONS_MAX: f64 = 0.0;

pub(crate) fn run(options: &Options) -> Result<()> {
    throughput(options)?;
    allocation(options)
}

/// What a message costs, with few and with many queues and groups.
fn throughput(options: &Options) -> Result<()> {
    let sizes = [(1, 8), (1, 64), (1, 512), (1, 4096), (100, 4), (1000, 4)];
    let mut report = Report::new(
        &format!("rules, {PER_PULL} messages a pull"),
        "CPU ns for one message, millions a second, allocations for one pull",
    );
    let mut subjects = Vec::new();
    for (groups, queues) in sizes {
        let size = ClusterSize { groups, queues };
        subjects.push((size.to_string(), Subject::new(size, PER_PULL)?));
    }
    for _ in 0..options.rounds() {
        for (name, subject) in &mut subjects {
            let sample = subject.round(options.pick(2, 12) * CHUNK)?;
            report.add(name, sample);
        }
    }
    let names: Vec<String> = subjects.into_iter().map(|(name, _)| name).collect();
    for name in &names {
        let rate = report.median(name, "M/s");
        let what = format!("{name}: million messages a second");
        report.judge(what, rate, Target::AtLeast(RATE_MIN));
    }
    for name in &names[1..] {
        let times = report.paired((name, &names[0]), "cpu", |many, few| many / few);
        let what = format!("{name}: CPU for one message, as a multiple of {}", names[0]);
        report.judge(what, times, Target::AtMost(TIMES_MAX));
    }
    report.print()?;
    Ok(())
}

/// What is allocated for a pull and its call, and whether more messages need more.
fn allocation(options: &Options) -> Result<()> {
    let mut report = Report::new(
        "rules, allocations beside the decoded messages",
        "for one pull and its call",
    );
    let counts = [PER_PULL, 4 * PER_PULL];
    let size = ClusterSize {
        groups: 1,
        queues: 8,
    };
    for count in counts {
        let mut subject = Subject::new(size, count)?;
        for _ in 0..options.pick(2, 5) {
            report.add(&format!("{count} messages a pull"), subject.round(CHUNK)?);
        }
    }
    let [few, many] = counts.map(|count| {
        let name = format!("{count} messages a pull");
        report.median(&name, "allocations")
    });
    let more = (many - few) / f64::from(counts[1] - counts[0]);
    report.judge(
        "allocations for each further message of a pull",
        more,
        Target::AtMost(MORE_ALLOCATIONS_MAX),
    );
    report.print()?;
    Ok(())
}

/// A client at work.
struct Subject {
    client: SimulatedClient,
    calls: Vec<ConsumeRequestId>,
    per_pull: u32,
    random: fastrand::Rng,
}

impl Subject {
    fn new(size: ClusterSize, per_pull: u32) -> Result<Self> {
        let mut subject = Self {
            client: SimulatedClient::new(size, per_pull)?,
            calls: Vec::new(),
            per_pull,
            random: fastrand::Rng::with_seed(1),
        };
        // Every queue once, so that all that grows has grown.
        subject.round(size.all_queues().max(CHUNK))?;
        Ok(subject)
    }

    /// Answers about so many pulls and consumes what they bring.
    fn round(&mut self, pulls: usize) -> Result<Sample> {
        let mut spent = Duration::ZERO;
        let mut allocated = 0;
        let mut consumed = 0;
        let chunks = pulls.div_ceil(CHUNK);
        for _ in 0..chunks {
            let answers = self.client.decode_answers(CHUNK)?;
            let (began, count_before) = (machine::thread_cpu(), allocations::of_thread());
            for answer in answers {
                self.client.answer_pull(answer)?;
                consumed += self.call_listeners()?;
            }
            allocated += allocations::of_thread() - count_before;
            spent += machine::thread_cpu() - began;
        }
        let messages = (chunks * CHUNK) as f64 * f64::from(self.per_pull);
        ensure!(
            consumed as f64 > messages / 2.0,
            "{consumed} of {messages} messages were consumed"
        );
        let cpu = spent.as_secs_f64() * 1e9 / messages;
        Ok(vec![
            ("cpu", cpu),
            ("M/s", 1e3 / cpu),
            ("allocations", allocated as f64 / (chunks * CHUNK) as f64),
        ])
    }

    /// Hands out what may be called, and ends what is above [`CALLS`]. Returns how many
    /// messages were consumed.
    fn call_listeners(&mut self) -> Result<usize> {
        let mut consumed = 0;
        loop {
            while self.calls.len() <= CALLS
                && let Some(request) = self.client.poll_consume_request()
            {
                consumed += request.len();
                self.calls.push(request.id);
            }
            if self.calls.len() <= CALLS {
                return Ok(consumed);
            }
            let call = self.random.usize(..self.calls.len());
            let call = self.calls.swap_remove(call);
            let status = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
            self.client
                .end_call(call, ConsumeResult::Concurrently(status))?;
        }
    }
}
