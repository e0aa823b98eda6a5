//! Messages as a listener sees them.
//!
//! A [`Message`] is a view into its [`Batch`]: copying it copies no bytes, and its
//! properties stay in the broker's encoding until one is asked for.

use std::cell::Cell;
use std::str::Utf8Error;
use std::time::Duration;

use crate::bindings::exports::mqlet::listener::concurrent::{BatchContext, Message as Record};
use crate::bindings::mqlet::listener::types::Slice;
use crate::call::{self, MessageDetails};

thread_local! {
    /// Pulls so far: the host knows more only of the messages of the last one.
    static PULLS: Cell<u64> = const { Cell::new(0) };
}

/// Messages of one queue, in offset order.
pub struct Batch {
    context: BatchContext,
    records: Vec<Record>,
    data: Vec<u8>,
    /// Of which pull; `None`: it is what the listener was called with.
    pull: Option<u64>,
}

impl Batch {
    pub(crate) fn new(context: BatchContext, records: Vec<Record>, data: Vec<u8>) -> Self {
        Self {
            context,
            records,
            data,
            pull: None,
        }
    }

    /// The answer to a pull, just now.
    pub(crate) fn pulled(context: BatchContext, records: Vec<Record>, data: Vec<u8>) -> Self {
        let pull = PULLS.get() + 1;
        PULLS.set(pull);
        Self {
            pull: Some(pull),
            ..Self::new(context, records, data)
        }
    }

    /// The messages in offset order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Message<'_>> + Clone {
        self.records
            .iter()
            .enumerate()
            .map(|(index, record)| Message {
                record,
                batch: self,
                index,
            })
    }

    /// The message at this position, from 0.
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        self.iter().nth(index)
    }

    /// How many there are; the host never sends none.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Never true for a batch from the host.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The topic the messages were first sent to.
    pub fn topic(&self) -> &str {
        &self.context.topic
    }

    /// The plugin's consumer group.
    pub fn consumer_group(&self) -> &str {
        &self.context.consumer_group
    }

    /// The broker the messages were pulled from.
    pub fn broker_name(&self) -> &str {
        &self.context.broker_name
    }

    /// The queue they were pulled from; for messages that came back, one of the retry
    /// topic.
    pub fn queue_id(&self) -> u32 {
        self.context.queue_id
    }

    /// Every member of the group gets every message; nothing can be sent back then.
    pub fn is_broadcasting(&self) -> bool {
        self.context.broadcasting
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("topic", &self.topic())
            .field("queue_id", &self.queue_id())
            .field("messages", &self.iter().collect::<Vec<_>>())
            .finish()
    }
}

/// One message. RocketMQ: `MessageExt`.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    record: &'a Record,
    batch: &'a Batch,
    index: usize,
}

impl<'a> Message<'a> {
    /// The id that people search for.
    pub fn message_id(self) -> &'a str {
        // The host never sends anything else.
        std::str::from_utf8(self.part(self.record.message_id)).unwrap_or_default()
    }

    /// The topic it was first sent to.
    pub fn topic(self) -> &'a str {
        &self.batch.context.topic
    }

    /// The content, decompressed.
    pub fn body(self) -> &'a [u8] {
        self.part(self.record.body)
    }

    /// The content as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn body_text(self) -> Result<&'a str, Utf8Error> {
        std::str::from_utf8(self.body())
    }

    /// A property by its name, the sender's own or RocketMQ's. The later one of two with
    /// the same name; `None` also when it is not UTF-8.
    pub fn property(self, name: &str) -> Option<&'a str> {
        self.properties()
            .filter(|(other, _)| *other == name)
            .last()
            .map(|(_, value)| value)
    }

    /// All properties as name and value, in the broker's order.
    pub fn properties(self) -> Properties<'a> {
        Properties {
            rest: self.part(self.record.properties),
        }
    }

    /// RocketMQ has one tag a message.
    pub fn tag(self) -> Option<&'a str> {
        self.property("TAGS")
    }

    /// The index keys.
    pub fn keys(self) -> impl Iterator<Item = &'a str> {
        self.property("KEYS")
            .into_iter()
            .flat_map(|keys| keys.split(' '))
            .filter(|key| !key.is_empty())
    }

    /// How often it was tried before: 0 on the first delivery.
    pub fn reconsume_times(self) -> u32 {
        self.record.reconsume_times
    }

    /// The broker it was pulled from.
    pub fn broker_name(self) -> &'a str {
        &self.batch.context.broker_name
    }

    /// The queue it was pulled from; for a message that came back, one of the retry topic.
    pub fn queue_id(self) -> u32 {
        self.batch.context.queue_id
    }

    /// Its place in that queue.
    pub fn queue_offset(self) -> u64 {
        self.record.queue_offset
    }

    /// Its place in the broker's commit log.
    pub fn commit_log_offset(self) -> u64 {
        self.record.commit_log_offset
    }

    /// The sender's clock when it was made, since 1970.
    pub fn born_timestamp(self) -> Duration {
        Duration::from_millis(self.record.born_timestamp_ms)
    }

    /// The broker's clock when it was stored, since 1970.
    pub fn store_timestamp(self) -> Duration {
        Duration::from_millis(self.record.store_timestamp_ms)
    }

    /// The sender's own 32 bits.
    pub fn flag(self) -> i32 {
        self.record.flag
    }

    /// RocketMQ's bits about the message.
    pub fn sys_flag(self) -> u32 {
        self.record.sys_flag
    }

    /// Bytes that the broker stores for it.
    pub fn store_size(self) -> u32 {
        self.record.store_size
    }

    fn part(self, slice: Slice) -> &'a [u8] {
        let data = &self.batch.data;
        let rest = data.get(slice.offset as usize..).unwrap_or_default();
        rest.get(..slice.size as usize).unwrap_or_default()
    }

    /// What is rarely wanted: hosts, checksum, transaction. Asks the host; `None` when
    /// this message is not part of the running call, and for one that was pulled also
    /// after the next pull.
    pub fn details(self) -> Option<MessageDetails> {
        if self.batch.pull.is_some_and(|pull| pull != PULLS.get()) {
            return None;
        }
        u32::try_from(self.index).ok().and_then(call::details)
    }
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("message_id", &self.message_id())
            .field("topic", &self.topic())
            .field("queue_id", &self.queue_id())
            .field("queue_offset", &self.queue_offset())
            .field("reconsume_times", &self.reconsume_times())
            .field("body_bytes", &self.body().len())
            .field("properties", &self.properties().collect::<Vec<_>>())
            .finish()
    }
}

/// The properties of a message, decoded as the iterator goes. What is no pair of UTF-8
/// texts is left out.
#[derive(Clone, Debug)]
pub struct Properties<'a> {
    rest: &'a [u8],
}

impl<'a> Properties<'a> {
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn new(encoded: &'a [u8]) -> Self {
        Self { rest: encoded }
    }
}

impl Properties<'_> {
    const NAME_VALUE_SEPARATOR: u8 = 1;
    const PROPERTY_SEPARATOR: u8 = 2;
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = self
                .rest
                .iter()
                .position(|byte| *byte == Self::PROPERTY_SEPARATOR);
            let (pair, rest) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &self.rest[self.rest.len()..]),
            };
            self.rest = rest;
            if let Some((name, value)) = std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| pair.split_once(char::from(Self::NAME_VALUE_SEPARATOR)))
            {
                return Some((name, value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(encoded: &[u8]) -> Vec<(&str, &str)> {
        Properties { rest: encoded }.collect()
    }

    #[test]
    fn properties_are_read_with_and_without_a_last_separator() {
        let expected = [("TAGS", "A"), ("k", "v w")];
        assert_eq!(properties(b"TAGS\x01A\x02k\x01v w\x02"), expected);
        assert_eq!(properties(b"TAGS\x01A\x02k\x01v w"), expected);
    }

    #[test]
    fn broken_property_hides_no_other() {
        assert_eq!(
            properties(b"no value\x02\x02a\x01\xff\x02b\x01\x02"),
            [("b", "")]
        );
        assert_eq!(properties(b""), []);
    }

    #[test]
    fn separator_in_a_value_belongs_to_the_value() {
        assert_eq!(properties(b"a\x01b\x01c"), [("a", "b\x01c")]);
    }
}
