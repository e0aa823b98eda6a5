//! `MessageBatch`: one pull answer as one piece of memory and a table of records.
//!
//! Nothing is copied out of the frame: a message is a row of numbers and ranges, and
//! [`Message`] is a borrowed view of it. Only a decompressed body has memory of its own.

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;

use super::QueueOffset;

/// The messages of one pull answer.
#[derive(Debug)]
pub struct MessageBatch {
    frame: Bytes,
    records: Vec<Record>,
}

#[derive(Debug)]
struct Record {
    queue_offset: QueueOffset,
    commit_log_offset: u64,
    born_timestamp_ms: u64,
    store_timestamp_ms: u64,
    born_host: SocketAddr,
    store_host: SocketAddr,
    prepared_transaction_offset: i64,
    reconsume_times: u32,
    queue_id: u32,
    flag: i32,
    sys_flag: i32,
    body_crc: i32,
    store_size: u32,
    body: Body,
    topic: Range<u32>,
    properties: Range<u32>,
    tag: Option<Range<u32>>,
}

#[derive(Debug)]
enum Body {
    Stored(Range<u32>),
    Decompressed { stored: Range<u32>, body: Bytes },
}

impl MessageBatch {
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

    fn text(&self, range: &Range<u32>) -> &[u8] {
        &self.frame[range.start as usize..range.end as usize]
    }
}

/// A borrowed view of one message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    batch: &'a MessageBatch,
    record: &'a Record,
}

impl<'a> Message<'a> {
    /// Position in its queue.
    pub fn queue_offset(&self) -> QueueOffset {
        self.record.queue_offset
    }

    /// Position in the broker's commit log; a send-back names it.
    pub fn commit_log_offset(&self) -> u64 {
        self.record.commit_log_offset
    }

    /// Producer's clock.
    pub fn born_timestamp_ms(&self) -> u64 {
        self.record.born_timestamp_ms
    }

    /// Broker's clock.
    pub fn store_timestamp_ms(&self) -> u64 {
        self.record.store_timestamp_ms
    }

    /// The producer.
    pub fn born_host(&self) -> SocketAddr {
        self.record.born_host
    }

    /// The broker that stored it.
    pub fn store_host(&self) -> SocketAddr {
        self.record.store_host
    }

    /// 0 unless transactional.
    pub fn prepared_transaction_offset(&self) -> i64 {
        self.record.prepared_transaction_offset
    }

    /// Attempts the broker counted, 0 on the first delivery.
    pub fn reconsume_times(&self) -> u32 {
        self.record.reconsume_times
    }

    /// Queue id as stored.
    pub fn queue_id(&self) -> u32 {
        self.record.queue_id
    }

    /// The user's own 32 bits.
    pub fn flag(&self) -> i32 {
        self.record.flag
    }

    /// RocketMQ's bits, see `sys_flag`; the compressed bit is cleared once decompressed.
    pub fn sys_flag(&self) -> i32 {
        self.record.sys_flag
    }

    /// CRC as stored, over the stored body.
    pub fn body_crc(&self) -> i32 {
        self.record.body_crc
    }

    /// Bytes it takes in the broker's store.
    pub fn store_size(&self) -> u32 {
        self.record.store_size
    }

    /// The body, decompressed.
    pub fn body(&self) -> &'a [u8] {
        match &self.record.body {
            Body::Stored(range) => self.batch.text(range),
            Body::Decompressed { body, .. } => body,
        }
    }

    /// The body as stored; it goes out again like this.
    pub fn stored_body(&self) -> Bytes {
        let (Body::Stored(range) | Body::Decompressed { stored: range, .. }) = &self.record.body;
        self.batch
            .frame
            .slice(range.start as usize..range.end as usize)
    }

    /// The topic as stored: the retry topic's name for a retry.
    pub fn topic(&self) -> &'a str {
        std::str::from_utf8(self.batch.text(&self.record.topic)).unwrap_or_default()
    }

    /// The properties in the broker's own encoding.
    pub fn raw_properties(&self) -> &'a [u8] {
        self.batch.text(&self.record.properties)
    }

    /// TAGS, found when the batch was decoded.
    pub fn tags(&self) -> Option<&'a str> {
        let range = self.record.tag.as_ref()?;
        std::str::from_utf8(self.batch.text(range)).ok()
    }
}
