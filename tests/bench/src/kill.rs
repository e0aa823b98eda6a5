//! How soon a guest that goes beyond its time is ended, with every core busy with others.
//!
//! A computing guest ends by a tick after its CPU budget, one that waits by the wall clock;
//! what is measured is how much later than promised each of them has ended. The others are
//! calls of another plugin that compute without end, as many as there are cores.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use consumer::listener::{CancelSignal, MessageListener};
use wasm::{ComponentListener, Event, FailureRecord};

use crate::listener::{self, Guest};
use crate::report::{Report, Target};
use crate::{Options, messages};

/// Of CPU time, for each killed call.
const COMPUTE_TIME: Duration = Duration::from_millis(50);
/// Of wall clock, for each that waits.
const CONSUME_TIMEOUT: Duration = Duration::from_millis(200);
/// Two ticks and 5 ms.
const COMPUTED_MS_MAX: f64 = 7.0;
const WAITED_MS_MAX: f64 = 5.0;
/// Before the first kill: those that keep the cores busy have begun.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) fn run(options: &Options) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores + 1)
        .enable_all()
        .build()?;
    // The thread of `block_on` is none of the runtime's: everything is a task of it.
    runtime.block_on(async {
        let kills = options.pick(20, 200);
        tokio::spawn(measure(kills, cores)).await?
    })
}

async fn measure(kills: u32, cores: usize) -> Result<()> {
    let engine = listener::engine(|_| {})?;
    let spins = Guest::compile(&engine, "never_return").await?;
    let waits = Guest::compile(&engine, "wait_forever").await?;

    let busy = spins.load_with(|limits| limits.compute_time = Duration::from_secs(3600));
    let (busy, _) = busy.await?;
    let others: Vec<_> = (0..cores)
        .map(|_| tokio::spawn(call(Arc::clone(&busy), Duration::from_secs(3600))))
        .collect();
    tokio::time::sleep(WARM_UP).await;

    let mut report = Report::new("kill", "ms later than promised");
    let (computes, failures) = spins
        .load_with(|limits| limits.compute_time = COMPUTE_TIME)
        .await?;
    let mut computed_max: f64 = 0.0;
    for _ in 0..kills {
        let wall = call(Arc::clone(&computes), Duration::from_secs(60)).await?;
        let record = failures
            .take()
            .context("no failure of a call that was killed")?;
        let late = record.computed.saturating_sub(COMPUTE_TIME);
        computed_max = computed_max.max(ms(late));
        report.add("computing", vec![("late", ms(late)), ("wall", ms(wall))]);
    }
    let (waiting, failures) = waits.load_with(|_| {}).await?;
    let mut waited_max: f64 = 0.0;
    for _ in 0..kills {
        let wall = call(Arc::clone(&waiting), CONSUME_TIMEOUT).await?;
        let record = failures
            .take()
            .context("no failure of a call that was killed")?;
        let late = record.wall.saturating_sub(CONSUME_TIMEOUT);
        waited_max = waited_max.max(ms(late));
        report.add("waiting", vec![("late", ms(late)), ("wall", ms(wall))]);
    }
    for other in others {
        other.abort();
    }
    let late = |report: &Report, subject: &str| report.median(subject, "late");
    let (computed, waited) = (late(&report, "computing"), late(&report, "waiting"));
    report.judge(
        "computing, median",
        computed,
        Target::AtMost(COMPUTED_MS_MAX),
    );
    report.judge(
        "computing, latest",
        computed_max,
        Target::AtMost(COMPUTED_MS_MAX),
    );
    report.judge("waiting, median", waited, Target::AtMost(WAITED_MS_MAX));
    report.judge("waiting, latest", waited_max, Target::AtMost(WAITED_MS_MAX));
    report.print()?;
    Ok(())
}

/// One call with one message; how long it took.
async fn call(listener: Arc<ComponentListener>, timeout: Duration) -> Result<Duration> {
    let request = messages::request(1, 1)?;
    let mut request = Arc::into_inner(request).context("nobody else has it")?;
    request.consume_timeout = timeout;
    let began = Instant::now();
    let called = listener.consume_message(Arc::new(request), CancelSignal::default());
    // It is killed, whatever its answer.
    let _ = called.await;
    Ok(began.elapsed())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The failures of a listener that nobody has looked at yet.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<Vec<Arc<FailureRecord>>>>);

impl Failures {
    pub(crate) fn observer(&self) -> wasm::Observer {
        let failures = self.clone();
        Arc::new(move |event: &Event| {
            if let Event::CallFailed(record) = event {
                let mut all = failures.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(Arc::clone(record));
            }
        })
    }

    fn take(&self) -> Option<Arc<FailureRecord>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.pop();
        all.clear();
        last
    }
}
