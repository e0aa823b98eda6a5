//! [`CallGate`]: a tenant's budgets, as the driver sees them. While it is closed no call
//! begins: messages stay in their ProcessQueues, these reach their thresholds, and pulling
//! stops by itself.

use std::fmt::Debug;
use std::time::Duration;

/// Whether calls of one client may begin. Asked before each, on the client's task: it must
/// be cheap and must not block.
pub trait CallGate: Send + Sync + Debug {
    /// Why no call may begin now; `None` when one may.
    fn closed(&self) -> Option<Closed>;

    /// A call with so many messages begins; of a run of a pull task they are not known,
    /// and it counts as none.
    fn handle_begun(&self, messages: usize);
}

/// Why calls are kept back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// The budget that is used up, in words.
    pub reason: String,
    /// When to ask again, from now; never less than [`ASKED_AGAIN_MIN`].
    pub ask_again: Duration,
}

/// Least time between two questions that nothing else has caused.
pub const ASKED_AGAIN_MIN: Duration = Duration::from_millis(5);
