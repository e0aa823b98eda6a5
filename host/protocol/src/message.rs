//! Messages as RocketMQ stores them, and the batch that one pull answer is.

pub mod batch;
pub mod codec;
pub mod compression;
pub mod message_id;
pub mod properties;

pub use batch::{DecodeLimits, Message, MessageBatch, MessageFault, Unreadable, UnreadableReason};
pub use codec::StoredMessage;

use std::fmt;
use std::sync::Arc;

/// A position in a message queue. Never negative: "no offset" is an `Option`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct QueueOffset(pub u64);

impl QueueOffset {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// From the wire, where −1 and below mean "none".
    pub fn from_wire(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Self)
    }

    /// For the wire.
    pub fn to_wire(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for QueueOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One queue of a topic on one broker. Ordered by topic, broker name, queue id, as
/// RocketMQ orders them before it allocates.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker's name; an address comes from the route.
    pub broker_name: Arc<str>,
    /// Number of the queue within topic and broker.
    pub queue_id: u32,
}

impl MessageQueue {
    /// A queue by its three parts.
    pub fn new(topic: &str, broker_name: &str, queue_id: u32) -> Self {
        Self {
            topic: topic.into(),
            broker_name: broker_name.into(),
            queue_id,
        }
    }
}

/// `topic@broker:id`, for people.
impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.topic, self.broker_name, self.queue_id)
    }
}

impl fmt::Debug for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
