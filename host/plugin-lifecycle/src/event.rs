//! Every fact of this crate that a log line, a metric or a test may want.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::BreakerEvent;
use crate::revision::{Digest, RevisionId};
use crate::slot::QueueTrace;

/// Gets every event, where it happens: it must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// One deployment of a plugin; counts up. The same revision deployed twice has two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// What happens to a revision before it serves, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// Its bytes are brought or read, their size and digest compared.
    Fetch,
    /// Who signed it, as far as its tenant asks.
    Verify,
    /// World, imports and grants are looked at.
    Check,
    /// It becomes machine code, or that is found in the cache.
    Compile,
    /// Its first instance is made and `init` runs.
    WarmUp,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fetch => "fetch",
            Self::Verify => "verify",
            Self::Check => "check",
            Self::Compile => "compile",
            Self::WarmUp => "warm-up",
        })
    }
}

/// Something that happened to a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its name; empty for what concerns all.
    pub plugin: Arc<str>,
    /// What.
    pub kind: EventKind,
}

/// Everything worth keeping about one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchReport {
    /// What serves.
    pub generation: Generation,
    /// Its revision.
    pub revision: RevisionId,
    /// Its component.
    pub component: Digest,
    /// Who or what asked for it.
    pub by: Arc<str>,
    /// What served before.
    pub before: Option<RevisionId>,
    /// What was done for it, and what each step took. None for a rollback to a revision
    /// that was warm.
    pub steps: Vec<(Step, Duration)>,
    /// Requests of the old revision that were under way at the switch.
    pub in_flight: u64,
    /// From the switch to the end of the last of them.
    pub drained_after: Duration,
    /// From the switch to the first request of the new revision; `None`: there was none
    /// yet when the old one had ended.
    pub first_call_after: Option<Duration>,
    /// By queue, as the old revision saw it.
    pub queues_before: Vec<QueueTrace>,
    /// By queue, as the new revision saw it when the old one had ended.
    pub queues: Vec<QueueTrace>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A step began.
    StepStarted {
        /// Of which deployment.
        generation: Generation,
        /// Which.
        step: Step,
    },
    /// A step ended well.
    StepDone {
        /// Of which deployment.
        generation: Generation,
        /// Which.
        step: Step,
        /// From its beginning.
        took: Duration,
    },
    /// A deployment failed; what served before serves on.
    DeployFailed {
        /// Which deployment.
        generation: Generation,
        /// Where it stopped.
        step: Step,
        /// All problems, one a line.
        reason: String,
    },
    /// A newer deployment took its place before it served.
    Superseded {
        /// Which deployment.
        generation: Generation,
        /// The newer one.
        by: Generation,
    },
    /// A deployment was given up before it served, because somebody asked for that.
    Cancelled {
        /// Which deployment.
        generation: Generation,
    },
    /// A deployment asks for what serves already; nothing changes.
    Unchanged {
        /// Which deployment.
        generation: Generation,
        /// What serves.
        serving: Generation,
        /// Its revision.
        revision: RevisionId,
    },
    /// A deployment gets a share of the calls beside what serves.
    CanaryStarted {
        /// Which deployment.
        generation: Generation,
        /// Its revision.
        revision: RevisionId,
    },
    /// A canary did not prove itself; what served before has all calls again.
    CanaryAborted {
        /// Which deployment.
        generation: Generation,
        /// Its revision.
        revision: RevisionId,
        /// For people.
        reason: String,
    },
    /// A deployment gets copies of the calls of what serves.
    ShadowStarted {
        /// Which deployment.
        generation: Generation,
        /// Its revision.
        revision: RevisionId,
    },
    /// A deployment gets no more copies.
    ShadowEnded {
        /// Which deployment.
        generation: Generation,
        /// Its revision.
        revision: RevisionId,
        /// For people.
        reason: String,
    },
    /// A revision made trouble soon after its switch; the one before serves again.
    RolledBack {
        /// What makes trouble; refused from now on.
        revision: RevisionId,
        /// What serves again.
        to: RevisionId,
        /// For people.
        reason: String,
    },
    /// A revision serves; the next call is its.
    Activated {
        /// Which deployment.
        generation: Generation,
        /// What serves.
        revision: RevisionId,
        /// What served before.
        before: Option<Generation>,
    },
    /// A revision gets no more calls; those under way may end.
    Draining {
        /// Which deployment.
        generation: Generation,
    },
    /// Calls under way were killed at the drain deadline.
    DrainDeadline {
        /// Of which deployment.
        generation: Generation,
    },
    /// The last call of a revision ended; it stays ready for a rollback.
    KeptWarm {
        /// Which deployment.
        generation: Generation,
    },
    /// Nothing of a revision is left.
    Gone {
        /// Which deployment.
        generation: Generation,
    },
    /// A switch is complete: the revision before has no call left.
    Switched(Box<SwitchReport>),
    /// What became of the breaker of a revision that serves: whether its calls are held
    /// back.
    Breaker {
        /// Which revision.
        revision: RevisionId,
        /// What.
        event: BreakerEvent,
    },
    /// Bytes came from somewhere else.
    Fetched {
        /// What was asked for.
        source: String,
        /// What a registry's tag led to.
        resolved: Option<String>,
        /// Of the bytes.
        component: Digest,
    },
    /// Its signature counts.
    Signed {
        /// Of the bytes.
        component: Digest,
        /// Key or identity.
        by: String,
    },
    /// It has no signature that counts, and is used all the same: its tenant only warns.
    NotSigned {
        /// Of the bytes.
        component: Digest,
        /// For people.
        reason: String,
    },
    /// The compile cache is not used; every start compiles.
    CacheOff {
        /// The folder.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
    /// The component was compiled before; its code came from the cache.
    CacheUsed,
    /// An entry of the cache was no use; it is written again.
    CacheEntryRefused {
        /// Why.
        reason: String,
    },
    /// Compiled code was not kept.
    CacheNotWritten {
        /// Why.
        reason: String,
    },
}
