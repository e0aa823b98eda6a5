//! What goes wrong, and when: a plan made from the seed before the run begins.
//!
//! Some faults happen at a moment (a crash, a cut); others last a while and make the
//! network or the servers worse. After [`FAULTS_END`] everything is healed.

use std::time::Duration;

use fastrand::Rng;
use protocol::Instant;

/// When the last fault ends.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(480);

/// One thing that goes wrong. Members and servers are chosen when it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A member's process is gone, without a word.
    Crash,
    /// A member stops in order.
    Stop,
    /// A member comes.
    Join,
    /// A member's group leaves and comes back later.
    Resubscribe,
    /// A member's group pauses for a while.
    Pause(Duration),
    /// A member's process does not run for a while; then its clock has jumped.
    Stall(Duration),
    /// A connection breaks, and both sides notice.
    Cut,
    /// A connection swallows everything for a while, then breaks.
    Silence(Duration),
    /// A member's connection breaks, and the broker does not notice for a while.
    HalfOpen(Duration),
    /// A member cannot reach a server.
    Partition(Duration),
    /// A broker is away for a while; perhaps it forgets what was committed lately.
    BrokerRestart { away: Duration, rolled_back: bool },
    /// A name server is away.
    NameServerAway(Duration),
    /// A weather for a while.
    Weather(Weather, Duration),
}

/// What makes everything worse for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weather {
    /// Name servers say less than they should.
    WrongRoutes,
    /// Member lists are empty, wrong or lack the one who asks.
    WrongMembers,
    /// Everything takes up to some seconds.
    SlowNetwork,
    /// Requests and answers get lost.
    LossyNetwork,
    /// Answers come twice.
    RepeatedAnswers,
    /// Brokers refuse what they are asked, before or after having done it.
    Refusals,
    /// Brokers take no message back.
    NoSendBacks,
    /// Listeners are slow.
    SlowListeners,
    /// Listeners fail.
    FailingListeners,
}

impl Weather {
    pub(crate) const ALL: [Self; 9] = [
        Self::WrongRoutes,
        Self::WrongMembers,
        Self::SlowNetwork,
        Self::LossyNetwork,
        Self::RepeatedAnswers,
        Self::Refusals,
        Self::NoSendBacks,
        Self::SlowListeners,
        Self::FailingListeners,
    ];
}

/// The faults of a run.
pub(crate) fn plan(random: &mut Rng) -> Vec<(Instant, Fault)> {
    let mut plan = Vec::new();
    // Some runs are calm, some are wild.
    let pause_max = [4_000, 10_000, 25_000][random.usize(..3)];
    let mut at = Duration::from_secs(10);
    loop {
        at += Duration::from_millis(random.u64(200..pause_max));
        if at >= FAULTS_END {
            return plan;
        }
        plan.push((Instant::after_origin(at), fault(random)));
    }
}

fn fault(random: &mut Rng) -> Fault {
    let seconds = |random: &mut Rng, max: u64| Duration::from_millis(random.u64(100..max * 1000));
    match random.u32(0..30) {
        0..=1 => Fault::Crash,
        2..=3 => Fault::Stop,
        4..=6 => Fault::Join,
        7 => Fault::Resubscribe,
        8 => Fault::Pause(seconds(random, 40)),
        9 => Fault::Stall(seconds(random, 50)),
        10..=12 => Fault::Cut,
        13..=14 => Fault::Silence(seconds(random, 40)),
        15 => Fault::HalfOpen(seconds(random, 130)),
        16 => Fault::Partition(seconds(random, 40)),
        17..=18 => Fault::BrokerRestart {
            away: seconds(random, 20),
            rolled_back: random.bool(),
        },
        19 => Fault::NameServerAway(seconds(random, 60)),
        _ => Fault::Weather(
            Weather::ALL[random.usize(..Weather::ALL.len())],
            seconds(random, 40),
        ),
    }
}
