//! Every fact of this crate that a log line, a metric or a test may want.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::revision::RevisionId;

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
    /// Its bytes are read, their size and digest compared.
    Fetch,
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
    /// The last call of a revision ended; nothing of it is left.
    Gone {
        /// Which deployment.
        generation: Generation,
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
