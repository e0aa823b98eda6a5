//! Sending: what goes out, what comes back, and the port that guests send through.

pub(crate) mod prepare;
pub(crate) mod sending;
pub(crate) mod shape;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use protocol::{MessageQueue, QueueOffset};

pub use prepare::Preparer;

/// A message to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutgoingMessage {
    /// Where to.
    pub topic: String,
    /// At most the broker's `maxMessageSize` (4 MiB by default).
    pub body: Bytes,
    /// RocketMQ has one tag a message.
    pub tags: Option<String>,
    /// Index keys.
    pub keys: Vec<String>,
    /// User properties; RocketMQ's reserved names are refused.
    pub properties: Vec<(String, String)>,
    /// When it is delivered; `None`: at once.
    pub delay: Option<Delay>,
    /// Messages with one sharding key go to one queue, in order.
    pub sharding_key: Option<String>,
    /// The user's own 32 bits.
    pub flag: i32,
    /// Its UNIQ_KEY, from a [`Preparer`]; `None`: it is given one when it is sent.
    pub message_id: Option<String>,
}

/// When a message is delivered that is not delivered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// RocketMQ's delay level, 1 to 18 by default; 0 is at once.
    Level(u32),
    /// So long after the broker got it: a timer message of RocketMQ 5. Sent in whole
    /// milliseconds.
    For(Duration),
    /// At this Unix time: a timer message of RocketMQ 5.
    UntilUnixMs(u64),
}

impl Delay {
    /// Level 0 is none.
    fn is_at_once(self) -> bool {
        self == Self::Level(0)
    }
}

/// Whether the sender waits for the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// Until the broker has stored it, tried again elsewhere if it did not.
    Sync,
    /// Handed to a connection and forgotten.
    Oneway,
}

/// Where a sent message went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendResult {
    /// UNIQ_KEY, the id that people search for.
    pub message_id: String,
    /// The broker's own id (host, port and commit-log offset).
    pub offset_message_id: String,
    /// The queue it is in.
    pub message_queue: MessageQueue,
    /// Its place there.
    pub queue_offset: QueueOffset,
}

/// Why a message was not sent, or not known to be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// No name server knows the topic and the broker does not create it.
    #[error("topic \"{topic}\" does not exist and no broker creates it")]
    NoRoute {
        /// The topic.
        topic: String,
    },
    /// The message breaks a rule before anything was sent.
    #[error("message refused: {reason}")]
    Illegal {
        /// Which rule.
        reason: String,
    },
    /// Body over the limit.
    #[error("message of {bytes} bytes is larger than the {bytes_max} allowed")]
    TooLarge {
        /// Size given.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// No answer in time; the message may have been stored.
    #[error("no answer from the broker within {timeout:?}; the message may have been stored")]
    Timeout {
        /// How long was waited.
        timeout: Duration,
    },
    /// No connection.
    #[error("no broker of topic \"{topic}\" can be reached: {reason}")]
    Unreachable {
        /// The topic.
        topic: String,
        /// The last error.
        reason: String,
    },
    /// The broker's refusal.
    #[error("the broker refused the message with code {code}: {remark}")]
    Broker {
        /// Response code.
        code: i32,
        /// Its text.
        remark: String,
    },
    /// Too many sends under way.
    #[error("too many sends are under way (at most {sends_max})")]
    Overloaded {
        /// The bound.
        sends_max: usize,
    },
    /// The client stops.
    #[error("the client is stopping")]
    Stopped,
}

/// A send under way.
pub type SendFuture = Pin<Box<dyn Future<Output = Result<Vec<SendResult>, SendError>> + Send>>;

/// Sends on behalf of guests and of `mqlet send`.
pub trait MessageProducer: Send + Sync + 'static {
    /// Looks for everything that `send` would refuse before it asks a broker, and gives
    /// each message the id it will be sent with. Several messages are one batch.
    ///
    /// # Errors
    /// [`SendError::Illegal`] or [`SendError::TooLarge`].
    fn prepare(&self, messages: &mut [OutgoingMessage]) -> Result<(), SendError>;

    /// Sends one message, or several of one topic as one batch. One result a message.
    fn send(&self, messages: Vec<OutgoingMessage>, timeout: Duration) -> SendFuture;

    /// Sends without waiting for an answer: an empty list once it was handed over.
    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture;
}
