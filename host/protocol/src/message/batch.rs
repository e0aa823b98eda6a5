//! `MessageBatch`: one pull answer as one piece of memory and a table of records.
//!
//! Nothing is copied out of the frame: a record is a row of numbers and ranges, and
//! [`Message`] is a borrowed view that reads the rest from the frame when asked. Only a
//! decompressed body has memory of its own. `decode` fills the table and judges every
//! record by itself: a bad one is one bad message ([`Message::fault`]), and bytes that are
//! no record at all are reported ([`MessageBatch::unreadable`]).

mod decode;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;

use super::QueueOffset;
use super::codec::at;
use super::message_id;
use super::properties;
use crate::sys_flag::MessageSysFlag;

pub use decode::DecodeLimits;

/// The messages of one pull answer.
pub struct MessageBatch {
    frame: Bytes,
    /// Decompressed bodies; a record's source counts from 1.
    bodies: Vec<Bytes>,
    records: Vec<Record>,
    unreadable: Vec<Unreadable>,
}

/// A row of the table: what must be known about a message before anyone asks for it.
/// One cache line; everything else is read from the frame at `start`.
#[derive(Debug, Clone, Copy)]
struct Record {
    queue_offset: QueueOffset,
    /// Where the stored message begins in the frame; for a child its parent.
    start: u32,
    store_size: u32,
    /// As we hand it out: the compressed bit is cleared once the body is open.
    sys_flag: i32,
    /// What the body lies in: 0 the frame, n the nth decompressed body.
    source: u32,
    body: Span,
    properties: Span,
    /// Empty when there is none: a tag is never empty.
    tag: Span,
    /// Always in the frame.
    topic: Span,
    fault: Option<MessageFault>,
    is_child: bool,
}

const _: () = assert!(size_of::<Record>() == 64, "a record is one cache line");

/// A range of bytes, small.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn of(self, source: &[u8]) -> &[u8] {
        let start = self.start as usize;
        source
            .get(start..start + self.len as usize)
            .unwrap_or_default()
    }
}

/// What is wrong with one message. Its offsets are right all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MessageFault {
    /// Damaged on its way: asking again may help.
    #[error("the body does not have the stored CRC")]
    CrcMismatch,
    /// Compression types 4 to 7.
    #[error("the body is compressed in a way that RocketMQ does not define")]
    UnknownCompression,
    /// The body is no stream of its compression type.
    #[error("the compressed body does not open")]
    Decompression,
    /// Over [`DecodeLimits::body_bytes_max`] once decompressed.
    #[error("the body is larger than allowed once decompressed")]
    BodyTooLarge,
    /// Their length reaches beyond the message, or they are not UTF-8.
    #[error("the properties cannot be read")]
    Properties,
    /// Its length reaches beyond the message, or it is not UTF-8.
    #[error("the topic cannot be read")]
    Topic,
    /// The lengths within do not add up.
    #[error("the parts of the message do not fit its size")]
    Layout,
    /// The body should be a batch and is none.
    #[error("the inner batch cannot be unwrapped")]
    InnerBatch,
}

/// Bytes of an answer that hold no message, or more than a batch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// How many bytes.
    pub bytes: u32,
    /// The message before; what is missing begins behind it. `None`: where was asked from.
    pub previous: Option<QueueOffset>,
    /// The message behind. `None`: nothing more was read.
    pub next: Option<QueueOffset>,
    /// What is the matter.
    pub reason: UnreadableReason,
}

/// Why bytes were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnreadableReason {
    /// Fewer than the smallest message has.
    #[error("the answer ends within a message")]
    Cut,
    /// Not a message of either version.
    #[error("{0:#010x} is not the magic number of a message")]
    Magic(i32),
    /// The size cannot be right, nor can the message be read without it.
    #[error("a message of {0} bytes is impossible here")]
    Size(i32),
    /// An offset below zero.
    #[error("a message has an offset below zero")]
    Offset,
    /// Over [`DecodeLimits::decompressed_bytes_max`]: ask again from here.
    #[error("the messages before already fill what one answer may take once decompressed")]
    DecompressedTooMuch,
    /// Over [`DecodeLimits::messages_max`]: ask again from here.
    #[error("the answer has more messages than allowed")]
    TooMany,
}

impl MessageBatch {
    /// Reads the body of a pull answer. Never fails: see [`Message::fault`] and
    /// [`MessageBatch::unreadable`].
    pub fn decode(frame_body: Bytes, limits: &DecodeLimits) -> Self {
        decode::decode(frame_body, limits)
    }

    /// Whether the first message of a pull answer is stored compressed, seen without
    /// decoding anything: decoding such an answer takes much longer than reading it.
    pub fn begins_compressed(frame_body: &[u8]) -> bool {
        frame_body
            .get(at::SYS_FLAG..at::SYS_FLAG + 4)
            .and_then(|flag| flag.try_into().ok())
            .map(|flag| MessageSysFlag(i32::from_be_bytes(flag)))
            .is_some_and(|flag| flag.contains(MessageSysFlag::COMPRESSED))
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// No messages.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The message at this index.
    ///
    /// # Panics
    /// When there is none: indices come from this batch.
    pub fn message(&self, index: u32) -> Message<'_> {
        Message {
            batch: self,
            record: &self.records[index as usize],
        }
    }

    /// The messages in the order of the answer.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        self.records.iter().map(|record| Message {
            batch: self,
            record,
        })
    }

    /// The stored bytes of neighbouring messages as one piece, when all that
    /// [`Message::body`] and [`Message::raw_properties`] answer for them lies within it.
    /// `None` when a body lies elsewhere (it was decompressed, or unwrapped from an inner
    /// batch), when other bytes lie between two messages, or when there are no such
    /// messages.
    pub fn stored_bytes(&self, range: Range<u32>) -> Option<&[u8]> {
        let records = self.records.get(range.start as usize..range.end as usize)?;
        let start = records.first()?.start;
        let mut end = start;
        for record in records {
            if record.source != 0 || record.is_child || record.start != end {
                return None;
            }
            end = record.start.checked_add(record.store_size)?;
            let holds = |part: Span| {
                let part_end = part.start.checked_add(part.len);
                part.len == 0
                    || (part.start >= record.start && part_end.is_some_and(|last| last <= end))
            };
            if !holds(record.body) || !holds(record.properties) {
                return None;
            }
        }
        self.frame.get(start as usize..end as usize)
    }

    /// The first stretch that could not be read.
    pub fn unreadable(&self) -> Option<Unreadable> {
        self.unreadable.first().copied()
    }

    /// All of them, in order.
    pub fn unreadable_all(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Bytes that this batch keeps in memory, the table not counted.
    pub fn bytes(&self) -> usize {
        self.frame.len() + self.bodies.iter().map(Bytes::len).sum::<usize>()
    }

    fn source(&self, source: u32) -> &Bytes {
        match source.checked_sub(1) {
            None => &self.frame,
            Some(index) => &self.bodies[index as usize],
        }
    }
}

/// Never prints the messages: they are somebody's orders.
impl fmt::Debug for MessageBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBatch")
            .field("messages", &self.records.len())
            .field("first", &self.records.first().map(|r| r.queue_offset))
            .field("bytes", &self.bytes())
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}

/// A borrowed view of one message.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    batch: &'a MessageBatch,
    record: &'a Record,
}

impl<'a> Message<'a> {
    /// What is wrong with it. Offsets, timestamps and hosts are right all the same; the
    /// body is what was stored, or empty.
    pub fn fault(&self) -> Option<MessageFault> {
        self.record.fault
    }

    /// Position in its queue.
    pub fn queue_offset(&self) -> QueueOffset {
        self.record.queue_offset
    }

    /// Position in the broker's commit log; a send-back names it.
    pub fn commit_log_offset(&self) -> u64 {
        u64::from_be_bytes(self.stored(at::PHYSICAL_OFFSET))
    }

    /// Producer's clock. 0 for a time before 1970.
    pub fn born_timestamp_ms(&self) -> u64 {
        self.stored_timestamp(at::BORN_TIMESTAMP)
    }

    /// Broker's clock. 0 for a time before 1970.
    pub fn store_timestamp_ms(&self) -> u64 {
        self.stored_timestamp(at::store_timestamp(self.record.sys_flag))
    }

    /// The producer.
    pub fn born_host(&self) -> SocketAddr {
        let v6 = MessageSysFlag::BORN_HOST_V6;
        self.stored_host(at::BORN_HOST, self.record.sys_flag & v6.0 != 0)
    }

    /// The broker that stored it.
    pub fn store_host(&self) -> SocketAddr {
        let v6 = MessageSysFlag::STORE_HOST_V6;
        let position = at::store_host(self.record.sys_flag);
        self.stored_host(position, self.record.sys_flag & v6.0 != 0)
    }

    /// 0 unless transactional.
    pub fn prepared_transaction_offset(&self) -> i64 {
        if self.record.is_child {
            return 0;
        }
        i64::from_be_bytes(self.stored(at::prepared_transaction_offset(self.record.sys_flag)))
    }

    /// Attempts the broker counted, 0 on the first delivery.
    pub fn reconsume_times(&self) -> u32 {
        if self.record.is_child {
            return 0;
        }
        let times = i32::from_be_bytes(self.stored(at::reconsume_times(self.record.sys_flag)));
        u32::try_from(times).unwrap_or(0)
    }

    /// Queue id as stored; 0 if it is below zero.
    pub fn queue_id(&self) -> u32 {
        u32::try_from(i32::from_be_bytes(self.stored(at::QUEUE_ID))).unwrap_or(0)
    }

    /// The user's own 32 bits.
    pub fn flag(&self) -> i32 {
        if self.record.is_child {
            // A child has its own, 8 bytes before its body.
            let start = self.record.body.start as usize;
            let source = self.batch.source(self.record.source);
            return i32::from_be_bytes(bytes_at(source, start.saturating_sub(8)));
        }
        i32::from_be_bytes(self.stored(at::FLAG))
    }

    /// RocketMQ's bits, see `sys_flag`; the compressed bit is cleared once decompressed.
    pub fn sys_flag(&self) -> i32 {
        self.record.sys_flag
    }

    /// CRC as stored, over the stored body. 0 for a message of an inner batch.
    pub fn body_crc(&self) -> i32 {
        if self.record.is_child {
            return 0;
        }
        i32::from_be_bytes(self.stored(at::BODY_CRC))
    }

    /// Bytes it takes in the broker's store. 0 for a message of an inner batch.
    pub fn store_size(&self) -> u32 {
        self.record.store_size
    }

    /// It was unwrapped from an inner batch: it shares offsets in the store with others.
    pub fn is_from_inner_batch(&self) -> bool {
        self.record.is_child
    }

    /// The body, decompressed.
    pub fn body(&self) -> &'a [u8] {
        self.record.body.of(self.batch.source(self.record.source))
    }

    /// The body as stored; it goes out again like this.
    pub fn stored_body(&self) -> Bytes {
        let Record {
            source,
            body,
            sys_flag,
            is_child,
            ..
        } = *self.record;
        if source == 0 || is_child {
            let start = body.start as usize;
            return self
                .batch
                .source(source)
                .slice(start..start + body.len as usize);
        }
        let start = self.record.start as usize + at::body(sys_flag);
        let length = u32::from_be_bytes(self.stored(at::body_length(sys_flag)));
        self.batch.frame.slice(start..start + length as usize)
    }

    /// The bits as stored: says how [`Message::stored_body`] is compressed.
    pub fn stored_sys_flag(&self) -> i32 {
        i32::from_be_bytes(self.stored(at::SYS_FLAG))
    }

    /// The topic as stored: the retry topic's name for a retry.
    pub fn topic(&self) -> &'a str {
        std::str::from_utf8(self.record.topic.of(&self.batch.frame)).unwrap_or_default()
    }

    /// The properties in the broker's own encoding.
    pub fn raw_properties(&self) -> &'a [u8] {
        self.record.properties.of(self.text_source())
    }

    /// The properties in the order of the wire; of two with one name the later counts.
    pub fn properties(&self) -> properties::Iter<'a> {
        properties::Iter::new(self.raw_properties())
    }

    /// The value of a property, searched for.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties::get(self.raw_properties(), name)
    }

    /// TAGS, found when the batch was decoded.
    pub fn tags(&self) -> Option<&'a str> {
        let tag = self.record.tag.of(self.text_source());
        if tag.is_empty() {
            return None;
        }
        std::str::from_utf8(tag).ok()
    }

    /// KEYS: index keys, separated by spaces.
    pub fn keys(&self) -> Option<&'a str> {
        self.property(properties::KEYS)
    }

    /// The topic that a retried message was first sent to.
    pub fn retry_topic(&self) -> Option<&'a str> {
        self.property(properties::RETRY_TOPIC)
    }

    /// The id that people know: UNIQ_KEY, else the broker's.
    pub fn message_id(&self) -> String {
        match self.property(properties::UNIQ_KEY) {
            Some(id) => id.to_owned(),
            None => self.offset_message_id(),
        }
    }

    /// The broker's id. Messages of an inner batch share that of the batch.
    pub fn offset_message_id(&self) -> String {
        message_id::offset_message_id(self.store_host(), self.commit_log_offset())
    }

    /// What properties lie in: only a child's move with the body.
    fn text_source(&self) -> &'a [u8] {
        if self.record.is_child {
            self.batch.source(self.record.source)
        } else {
            &self.batch.frame
        }
    }

    fn stored<const N: usize>(&self, position: usize) -> [u8; N] {
        bytes_at(&self.batch.frame, self.record.start as usize + position)
    }

    fn stored_timestamp(&self, position: usize) -> u64 {
        u64::try_from(i64::from_be_bytes(self.stored(position))).unwrap_or(0)
    }

    fn stored_host(&self, position: usize, v6: bool) -> SocketAddr {
        let (ip, port) = if v6 {
            let ip = Ipv6Addr::from(self.stored::<16>(position));
            (IpAddr::V6(ip), position + 16)
        } else {
            let ip = Ipv4Addr::from(self.stored::<4>(position));
            (IpAddr::V4(ip), position + 4)
        };
        let port = u32::from_be_bytes(self.stored(port));
        SocketAddr::new(ip, u16::try_from(port).unwrap_or(0))
    }
}

/// Never prints body or properties.
impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("queue_offset", &self.queue_offset())
            .field("commit_log_offset", &self.commit_log_offset())
            .field("reconsume_times", &self.reconsume_times())
            .field("body_bytes", &self.body().len())
            .field("fault", &self.fault())
            .finish_non_exhaustive()
    }
}

/// Zeros where the frame ends: only for a message with a fault.
fn bytes_at<const N: usize>(source: &[u8], position: usize) -> [u8; N] {
    source
        .get(position..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}
