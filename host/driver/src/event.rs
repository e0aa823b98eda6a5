//! What happens in the shell, and what the rules say happened.
//!
//! One enum for the observer of a driver: connections, calls that went wrong, and the
//! rules' own events unchanged.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, MessageQueue};

/// Something that happened in a driver.
#[derive(Debug)]
pub enum Event {
    /// The rules say.
    Client(consumer::Event),
    /// A connection stands.
    Connected {
        /// To whom.
        address: Address,
    },
    /// A connection ended. Its requests failed and told the rules so.
    Disconnected {
        /// To whom.
        address: Address,
        /// Why, causes included.
        reason: String,
        /// Whether anything that was asked on it was answered.
        has_answered: bool,
    },
    /// A connection did not come about; tried again with growing waits.
    ConnectFailed {
        /// To whom.
        address: Address,
        /// Why, causes included.
        reason: String,
    },
    /// A one-way request could not be sent; nobody waits for it.
    OnewayNotSent {
        /// To whom.
        address: Address,
        /// Why, causes included.
        reason: String,
    },
    /// A peer asks faster than it is answered; its request was turned away.
    ServerRequestsOverloaded {
        /// Who.
        address: Address,
    },
    /// Offsets of a broadcasting group were read, and the file could not be rewritten with
    /// the name servers that the client has now: it is known by those of before.
    LocalOffsetsNotRewritten {
        /// The group.
        consumer_group: Arc<str>,
        /// Why, and what to do.
        reason: String,
    },
    /// A listener call panicked: its messages come again.
    ListenerPanicked {
        /// The group.
        consumer_group: Arc<str>,
        /// Where its messages came from.
        queue: MessageQueue,
        /// What the panic said.
        message: String,
    },
    /// A listener call took longer than its group's `consume_timeout`.
    CallSlow {
        /// The group.
        consumer_group: Arc<str>,
        /// Where its messages came from.
        queue: MessageQueue,
        /// How long it took.
        elapsed: Duration,
    },
    /// Calls did not end in time when their group or the client stopped. Nothing of
    /// them counts.
    CallsKilled {
        /// The group; `None`: of the whole client.
        consumer_group: Option<Arc<str>>,
        /// How many.
        calls: u32,
    },
    /// The stop was given up before the last commits were answered.
    StopIncomplete,
    /// The task that owns the client panicked. It is not started again: what it held is
    /// lost, and the brokers give its queues to others once it is gone.
    ClientTaskPanicked {
        /// What the panic said.
        message: String,
    },
}
