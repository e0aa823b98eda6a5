//! Sending messages to the cluster that the plugin consumes from.
//!
//! Needs `producer` in the manifest's `[grants]`; without it every send returns
//! [`SendError::NotGranted`].
//!
//! Messages of a call that fails never leave, unless the grant says `mode = "immediate"`;
//! those of one that succeeds leave before the offset of what it consumed is committed. The
//! contract's README says what that means for a batch of which only a part is done.

use std::time::Duration;

use crate::bindings::mqlet::listener::producer as wit;
#[cfg(target_family = "wasm")]
use crate::bindings::mqlet::listener::producer as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::producer as host;

pub use wit::{BrokerError, SendError, SendResult, StoredAt};

/// A message to be sent. RocketMQ: `Message`.
///
/// ```no_run
/// # use mqlet_guest::producer::{OutgoingMessage, SendError};
/// # fn main() -> Result<(), SendError> {
/// OutgoingMessage::new("hello-out", "hi").tag("greeting").send()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a message is sent by `send` or `send_oneway`"]
pub struct OutgoingMessage(wit::OutgoingMessage);

impl OutgoingMessage {
    /// A message without tag, keys or properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self(wit::OutgoingMessage {
            topic: topic.into(),
            body: body.into(),
            tags: None,
            keys: Vec::new(),
            properties: Vec::new(),
            delay: None,
            sharding_key: None,
            flag: 0,
        })
    }

    /// RocketMQ has one tag a message.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.0.tags = Some(tag.into());
        self
    }

    /// Adds an index key, without spaces.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.keys.push(key.into());
        self
    }

    /// Adds a property. RocketMQ's reserved names are refused.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.properties.push((name.into(), value.into()));
        self
    }

    /// Delivered after one of RocketMQ's delay levels, from 1.
    pub fn delay_level(mut self, delay_level: u32) -> Self {
        self.0.delay = Some(wit::Delay::Level(delay_level));
        self
    }

    /// Delivered so long after the broker got it, in whole milliseconds: a timer message of
    /// RocketMQ 5.
    pub fn delay(mut self, delay: Duration) -> Self {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.0.delay = Some(wit::Delay::Milliseconds(milliseconds));
        self
    }

    /// Delivered at this time, milliseconds since 1970: a timer message of RocketMQ 5.
    pub fn deliver_at_ms(mut self, unix_ms: u64) -> Self {
        self.0.delay = Some(wit::Delay::UntilMs(unix_ms));
        self
    }

    /// Messages with one sharding key go to one queue, in order.
    pub fn sharding_key(mut self, sharding_key: impl Into<String>) -> Self {
        self.0.sharding_key = Some(sharding_key.into());
        self
    }

    /// The sender's own 32 bits.
    pub fn flag(mut self, flag: i32) -> Self {
        self.0.flag = flag;
        self
    }

    /// Sends it. By default it waits in the outbox and leaves when the call has succeeded;
    /// then only its id is known. With `mode = "immediate"` in the grant this waits until the
    /// broker has it.
    ///
    /// # Errors
    /// After [`SendError::Timeout`] the message may have been stored.
    pub fn send(&self) -> Result<SendResult, SendError> {
        host::send(&self.0)
    }

    /// Hands it over without waiting for the broker; it may be lost.
    ///
    /// # Errors
    /// When it was not even handed over.
    pub fn send_oneway(&self) -> Result<(), SendError> {
        host::send_oneway(&self.0)
    }
}

/// Sends messages of one topic as one batch: all or none. One result a message.
///
/// # Errors
/// As [`OutgoingMessage::send`].
pub fn send_batch(
    messages: impl IntoIterator<Item = OutgoingMessage>,
) -> Result<Vec<SendResult>, SendError> {
    let messages: Vec<_> = messages.into_iter().map(|message| message.0).collect();
    host::send_batch(&messages)
}
