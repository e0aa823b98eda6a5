//! Sending messages to the cluster that the plugin consumes from.
//!
//! Needs `producer` in the manifest's `[grants]`; without it every send returns
//! [`SendError::NotGranted`].

use crate::bindings::mqlet::listener::producer as wit;
#[cfg(target_family = "wasm")]
use crate::bindings::mqlet::listener::producer as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::producer as host;

pub use wit::{BrokerError, SendError, SendResult};

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
            delay_level: None,
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
        self.0.delay_level = Some(delay_level);
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

    /// Sends it and waits until the broker has it.
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
