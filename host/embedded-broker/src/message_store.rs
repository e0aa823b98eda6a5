//! The commit log in memory, and one index for each queue.
//!
//! All messages stand one after the other in segments of bytes, encoded as they go out;
//! a queue is a list of where its messages are. Memory is bounded: the oldest segment is
//! dropped as a whole, and the first offset of every queue that had messages in it rises.
//! Encoding messages is not done here, except for the two offsets that only the store
//! knows. RocketMQ: `CommitLog`, `ConsumeQueue`, `DefaultMessageStore#getMessage`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// Where the two offsets stand in a stored message, in both versions of the format.
const QUEUE_OFFSET_AT: usize = 20;
const PHYSICAL_OFFSET_AT: usize = 28;
/// Everything of a version 1 message but body, topic and properties.
const RECORD_BYTES_MIN: usize = 91;

/// Index entries that one pull scans at least: RocketMQ's `maxFilterMessageSize` 16000 of
/// 20 bytes each.
const SCAN_ENTRIES_MIN: u64 = 800;

/// What an index entry costs, for the bound on memory.
const INDEX_ENTRY_BYTES: u64 = size_of::<IndexEntry>() as u64;

/// All messages of a broker.
#[derive(Debug)]
pub(crate) struct MessageStore {
    segments: VecDeque<Segment>,
    queues: BTreeMap<Arc<str>, Vec<QueueLog>>,
    /// Where the next message goes: bytes ever stored.
    next_physical_offset: u64,
    segment_bytes: usize,
    bytes_max: u64,
    /// Messages in all segments.
    held_messages: u64,
    dropped_messages: u64,
}

#[derive(Debug)]
struct Segment {
    first_physical_offset: u64,
    bytes: Vec<u8>,
    /// Start of every message in `bytes`, ascending: an offset from outside may point
    /// anywhere.
    starts: Vec<u32>,
}

#[derive(Debug, Default)]
struct QueueLog {
    min_offset: u64,
    entries: VecDeque<IndexEntry>,
}

/// Where one message of a queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) physical_offset: u64,
    /// Hash of the tag; in the schedule topic the time of delivery.
    pub(crate) tags_code: i64,
    pub(crate) store_timestamp_ms: u64,
    size: u32,
}

/// Where a message went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Appended {
    pub(crate) queue_offset: u64,
    pub(crate) physical_offset: u64,
}

/// Why a message was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error("a message of {bytes} bytes is larger than the whole store; raise store_bytes_max")]
    LargerThanStore { bytes: usize },
    #[error("{bytes} bytes are no stored message")]
    NotAMessage { bytes: usize },
}

/// What a read found; `status` is `Found` exactly when `body` holds a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReadResult {
    pub(crate) status: ReadStatus,
    pub(crate) next_begin_offset: u64,
    pub(crate) min_offset: u64,
    pub(crate) max_offset: u64,
    pub(crate) body: Bytes,
}

/// RocketMQ: `GetMessageStatus`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadStatus {
    Found,
    NoMatchedMessage,
    NoMessageInQueue,
    OffsetTooSmall,
    OffsetOverflowOne,
    OffsetOverflowBadly,
}

impl ReadStatus {
    /// The remark of the pull answer.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        }
    }
}

/// How much one read may return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) messages: u32,
    /// One message is returned whatever its size.
    pub(crate) bytes: usize,
}

/// Which end of equal timestamps a search wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Boundary {
    Lower,
    Upper,
}

impl MessageStore {
    pub(crate) fn new(bytes_max: u64, segment_bytes: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            queues: BTreeMap::new(),
            next_physical_offset: 0,
            // Start offsets within a segment are 32 bits.
            segment_bytes: segment_bytes.clamp(RECORD_BYTES_MIN, 1 << 30),
            bytes_max,
            held_messages: 0,
            dropped_messages: 0,
        }
    }

    /// Stores one encoded message at the end of a queue, after writing its two offsets
    /// into it. Old segments go when the memory is used up.
    pub(crate) fn append(
        &mut self,
        topic: &str,
        queue_id: u32,
        record: &mut [u8],
        tags_code: i64,
        store_timestamp_ms: u64,
    ) -> Result<Appended, AppendError> {
        let size = match u32::try_from(record.len()) {
            Ok(size) if record.len() >= RECORD_BYTES_MIN => size,
            _ => {
                return Err(AppendError::NotAMessage {
                    bytes: record.len(),
                });
            }
        };
        if u64::from(size) + INDEX_ENTRY_BYTES > self.bytes_max {
            return Err(AppendError::LargerThanStore {
                bytes: record.len(),
            });
        }
        let physical_offset = self.next_physical_offset;
        let log = self.log_mut(topic, queue_id);
        let queue_offset = log.max_offset();
        record[QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 8].copy_from_slice(&queue_offset.to_be_bytes());
        record[PHYSICAL_OFFSET_AT..PHYSICAL_OFFSET_AT + 8]
            .copy_from_slice(&physical_offset.to_be_bytes());
        log.entries.push_back(IndexEntry {
            physical_offset,
            tags_code,
            store_timestamp_ms,
            size,
        });
        self.next_physical_offset += u64::from(size);
        self.open_segment(record.len()).push(record);
        self.held_messages += 1;
        while self.bytes() > self.bytes_max && self.segments.len() > 1 {
            self.drop_oldest_segment();
        }
        Ok(Appended {
            queue_offset,
            physical_offset,
        })
    }

    /// First offset that a queue still has; 0 for a queue that was never written.
    pub(crate) fn min_offset(&self, topic: &str, queue_id: u32) -> u64 {
        self.log(topic, queue_id).map_or(0, |log| log.min_offset)
    }

    /// Offset of the next message.
    pub(crate) fn max_offset(&self, topic: &str, queue_id: u32) -> u64 {
        self.log(topic, queue_id).map_or(0, QueueLog::max_offset)
    }

    /// Where a message of a queue is.
    pub(crate) fn entry(&self, topic: &str, queue_id: u32, offset: u64) -> Option<IndexEntry> {
        self.log(topic, queue_id)?.entry(offset)
    }

    /// The messages from an offset on whose tag code passes, one after the other.
    pub(crate) fn read(
        &self,
        topic: &str,
        queue_id: u32,
        offset: i64,
        limits: ReadLimits,
        matches: impl Fn(i64) -> bool,
    ) -> ReadResult {
        let empty = QueueLog::default();
        let log = self.log(topic, queue_id).unwrap_or(&empty);
        let (min_offset, max_offset) = (log.min_offset, log.max_offset());
        let answer = |status, next_begin_offset| ReadResult {
            status,
            next_begin_offset,
            min_offset,
            max_offset,
            body: Bytes::new(),
        };
        if max_offset == 0 {
            return answer(ReadStatus::NoMessageInQueue, 0);
        }
        let Some(offset) = u64::try_from(offset)
            .ok()
            .filter(|offset| *offset >= min_offset)
        else {
            return answer(ReadStatus::OffsetTooSmall, min_offset);
        };
        if offset == max_offset {
            return answer(ReadStatus::OffsetOverflowOne, offset);
        }
        if offset > max_offset {
            return answer(ReadStatus::OffsetOverflowBadly, max_offset);
        }
        let scan_max = SCAN_ENTRIES_MIN.max(u64::from(limits.messages));
        let mut found: Vec<IndexEntry> = Vec::new();
        let mut found_bytes = 0;
        let mut next = offset;
        while next < max_offset && next - offset < scan_max {
            let Some(entry) = log.entry(next) else { break };
            let is_full = !found.is_empty()
                && (found.len() >= limits.messages as usize
                    || found_bytes + entry.size as usize > limits.bytes);
            if is_full {
                break;
            }
            next += 1;
            if matches(entry.tags_code) {
                found_bytes += entry.size as usize;
                found.push(entry);
            }
        }
        if found.is_empty() {
            return answer(ReadStatus::NoMatchedMessage, next);
        }
        let mut body = BytesMut::with_capacity(found_bytes);
        for entry in found {
            body.extend_from_slice(self.message(entry.physical_offset).unwrap_or_default());
        }
        ReadResult {
            body: body.freeze(),
            ..answer(ReadStatus::Found, next)
        }
    }

    /// The encoded message that starts exactly at this place of the commit log.
    pub(crate) fn message(&self, physical_offset: u64) -> Option<&[u8]> {
        let index = self
            .segments
            .partition_point(|segment| segment.first_physical_offset <= physical_offset)
            .checked_sub(1)?;
        self.segments.get(index)?.message(physical_offset)
    }

    /// The offset for a time. Lower: the first message stored at that time or later.
    /// Upper: the last one stored at that time or earlier. Beyond either end, that end.
    pub(crate) fn search_offset(
        &self,
        topic: &str,
        queue_id: u32,
        timestamp_ms: i64,
        boundary: Boundary,
    ) -> u64 {
        let Some(log) = self.log(topic, queue_id) else {
            return 0;
        };
        let Ok(timestamp_ms) = u64::try_from(timestamp_ms) else {
            return log.min_offset;
        };
        let index = match boundary {
            Boundary::Lower => log
                .entries
                .partition_point(|entry| entry.store_timestamp_ms < timestamp_ms),
            Boundary::Upper => log
                .entries
                .partition_point(|entry| entry.store_timestamp_ms <= timestamp_ms)
                .saturating_sub(1),
        };
        log.min_offset + index as u64
    }

    /// When the first message that a queue still has was stored.
    pub(crate) fn earliest_store_timestamp(&self, topic: &str, queue_id: u32) -> Option<u64> {
        let first = self.log(topic, queue_id)?.entries.front()?;
        Some(first.store_timestamp_ms)
    }

    /// The messages of a topic, encoded, newest first within each queue.
    pub(crate) fn messages_of(&self, topic: &str) -> impl Iterator<Item = (IndexEntry, &[u8])> {
        self.queues
            .get(topic)
            .into_iter()
            .flatten()
            .flat_map(|log| log.entries.iter().rev())
            .filter_map(|entry| Some((*entry, self.message(entry.physical_offset)?)))
    }

    /// Forgets the queues of a topic; the memory comes back with its segments.
    pub(crate) fn remove_topic(&mut self, topic: &str) {
        self.queues.remove(topic);
    }

    /// Messages that went with their segment since the last time this was asked.
    pub(crate) fn take_dropped_messages(&mut self) -> u64 {
        std::mem::take(&mut self.dropped_messages)
    }

    /// Memory that counts against the bound.
    pub(crate) fn bytes(&self) -> u64 {
        let first = self
            .segments
            .front()
            .map_or(self.next_physical_offset, |s| s.first_physical_offset);
        self.next_physical_offset - first + self.held_messages * INDEX_ENTRY_BYTES
    }

    fn log(&self, topic: &str, queue_id: u32) -> Option<&QueueLog> {
        self.queues.get(topic)?.get(queue_id as usize)
    }

    /// Callers bound `queue_id` by the number of queues a topic may have.
    fn log_mut(&mut self, topic: &str, queue_id: u32) -> &mut QueueLog {
        if !self.queues.contains_key(topic) {
            self.queues.insert(topic.into(), Vec::new());
        }
        let logs = self.queues.get_mut(topic).expect("inserted above");
        let index = queue_id as usize;
        if logs.len() <= index {
            logs.resize_with(index + 1, QueueLog::default);
        }
        &mut logs[index]
    }

    /// The last segment, or a new one when this many more bytes do not fit.
    fn open_segment(&mut self, bytes: usize) -> &mut Segment {
        let fits = self.segments.back().is_some_and(|segment| {
            segment.bytes.is_empty() || segment.bytes.len() + bytes <= self.segment_bytes
        });
        if !fits {
            self.segments.push_back(Segment {
                first_physical_offset: self.next_physical_offset - bytes as u64,
                bytes: Vec::new(),
                starts: Vec::new(),
            });
        }
        self.segments.back_mut().expect("pushed above")
    }

    fn drop_oldest_segment(&mut self) {
        let Some(dropped) = self.segments.pop_front() else {
            return;
        };
        let first_kept = dropped.first_physical_offset + dropped.bytes.len() as u64;
        self.held_messages -= dropped.starts.len() as u64;
        self.dropped_messages += dropped.starts.len() as u64;
        for log in self.queues.values_mut().flatten() {
            log.drop_before(first_kept);
        }
    }
}

impl Segment {
    fn push(&mut self, record: &[u8]) {
        // A segment is at most 1 GiB, or one message.
        self.starts
            .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(record);
    }

    fn message(&self, physical_offset: u64) -> Option<&[u8]> {
        let start = u32::try_from(physical_offset - self.first_physical_offset).ok()?;
        let index = self.starts.binary_search(&start).ok()?;
        let end = self
            .starts
            .get(index + 1)
            .map_or(self.bytes.len(), |next| *next as usize);
        self.bytes.get(start as usize..end)
    }
}

impl QueueLog {
    fn max_offset(&self) -> u64 {
        self.min_offset + self.entries.len() as u64
    }

    fn entry(&self, offset: u64) -> Option<IndexEntry> {
        let index = usize::try_from(offset.checked_sub(self.min_offset)?).ok()?;
        self.entries.get(index).copied()
    }

    fn drop_before(&mut self, physical_offset: u64) {
        while self
            .entries
            .front()
            .is_some_and(|entry| entry.physical_offset < physical_offset)
        {
            self.entries.pop_front();
            self.min_offset += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ReadLimits = ReadLimits {
        messages: 32,
        bytes: 1 << 20,
    };

    /// A record of this many bytes that begins with `name`.
    fn record(name: u8, bytes: usize) -> Vec<u8> {
        let mut record = vec![0; bytes];
        record[0] = name;
        record
    }

    fn store() -> MessageStore {
        MessageStore::new(1 << 20, 1000)
    }

    fn append(
        store: &mut MessageStore,
        queue_id: u32,
        name: u8,
        tags_code: i64,
        at: u64,
    ) -> Appended {
        store
            .append("T", queue_id, &mut record(name, 100), tags_code, at)
            .unwrap()
    }

    /// First byte of every message in an answer of messages of 100 bytes.
    fn names(result: &ReadResult) -> Vec<u8> {
        result.body.chunks(100).map(|message| message[0]).collect()
    }

    #[test]
    fn queue_offsets_count_per_queue_and_physical_ones_over_all() {
        let mut store = store();
        append(&mut store, 0, 1, 0, 1);
        let second = append(&mut store, 3, 2, 0, 1);
        let third = append(&mut store, 0, 3, 0, 1);
        assert_eq!((second.queue_offset, second.physical_offset), (0, 100));
        assert_eq!((third.queue_offset, third.physical_offset), (1, 200));
        let stored = store.message(200).unwrap();
        assert_eq!(
            stored[QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 8],
            1u64.to_be_bytes()
        );
        assert_eq!(
            stored[PHYSICAL_OFFSET_AT..PHYSICAL_OFFSET_AT + 8],
            200u64.to_be_bytes()
        );
    }

    #[test]
    fn read_answers_for_every_place_of_the_offset() {
        let mut store = store();
        let read = |store: &MessageStore, offset| {
            let result = store.read("T", 0, offset, ALL, |_| true);
            (result.status, result.next_begin_offset)
        };
        assert_eq!(read(&store, 5), (ReadStatus::NoMessageInQueue, 0));
        for name in 0..3 {
            append(&mut store, 0, name, 0, 1);
        }
        assert_eq!(read(&store, -5), (ReadStatus::OffsetTooSmall, 0));
        assert_eq!(read(&store, 0), (ReadStatus::Found, 3));
        assert_eq!(read(&store, 2), (ReadStatus::Found, 3));
        assert_eq!(read(&store, 3), (ReadStatus::OffsetOverflowOne, 3));
        assert_eq!(read(&store, 50), (ReadStatus::OffsetOverflowBadly, 3));
    }

    #[test]
    fn read_skips_what_does_not_match_and_says_how_far_it_came() {
        let mut store = store();
        for (name, tag) in [(1, 7), (2, 8), (3, 7), (4, 8)] {
            append(&mut store, 0, name, tag, 1);
        }
        let sevens = store.read("T", 0, 0, ALL, |code| code == 7);
        assert_eq!((names(&sevens), sevens.next_begin_offset), (vec![1, 3], 4));
        let none = store.read("T", 0, 1, ALL, |code| code == 9);
        assert_eq!(
            (none.status, none.next_begin_offset),
            (ReadStatus::NoMatchedMessage, 4)
        );
    }

    #[test]
    fn sparse_filter_makes_progress_in_steps_of_its_scan() {
        let mut store = store();
        for _ in 0..1000 {
            append(&mut store, 0, 1, 1, 1);
        }
        let result = store.read("T", 0, 0, ALL, |_| false);
        assert_eq!(
            (result.status, result.next_begin_offset),
            (ReadStatus::NoMatchedMessage, 800)
        );
    }

    #[test]
    fn read_keeps_its_limits_but_always_returns_one_message() {
        let mut store = store();
        for name in 0..5 {
            append(&mut store, 0, name, 0, 1);
        }
        let limited = |messages, bytes| {
            names(&store.read("T", 0, 1, ReadLimits { messages, bytes }, |_| true))
        };
        assert_eq!(limited(2, 1000), [1, 2]);
        assert_eq!(limited(9, 299), [1, 2]);
        assert_eq!(limited(9, 300), [1, 2, 3]);
        assert_eq!(limited(9, 5), [1]);
        assert_eq!(limited(0, 0), [1]);
    }

    #[test]
    fn offset_that_is_no_start_of_a_message_finds_nothing() {
        let mut store = store();
        append(&mut store, 0, 1, 0, 1);
        for offset in [1, 99, 100, u64::MAX] {
            assert_eq!(store.message(offset), None, "{offset}");
        }
        assert_eq!(store.message(0).map(<[u8]>::len), Some(100));
    }

    #[test]
    fn oldest_segment_goes_first_and_minimum_offsets_rise() {
        let mut store = MessageStore::new(4000, 1000);
        for name in 0..200 {
            append(&mut store, u32::from(name % 2), name, 0, u64::from(name));
        }
        assert!(store.bytes() <= 4000, "{}", store.bytes());
        let min = store.min_offset("T", 0);
        assert!(min > 0);
        assert_eq!(store.max_offset("T", 0), 100);
        assert_eq!(
            store.read("T", 0, 0, ALL, |_| true).status,
            ReadStatus::OffsetTooSmall
        );
        let kept = store.read("T", 0, i64::try_from(min).unwrap(), ALL, |_| true);
        assert_eq!(u64::from(names(&kept)[0]), 2 * min);
        assert_eq!(kept.next_begin_offset, 100);
        let held = (100 - min) + (100 - store.min_offset("T", 1));
        assert_eq!(store.take_dropped_messages(), 200 - held);
        assert_eq!(store.earliest_store_timestamp("T", 0), Some(2 * min));
    }

    #[test]
    fn message_larger_than_a_segment_has_one_of_its_own() {
        let mut store = store();
        append(&mut store, 0, 1, 0, 1);
        let large = store.append("T", 0, &mut record(2, 5000), 0, 1).unwrap();
        append(&mut store, 0, 3, 0, 1);
        assert_eq!(
            store.message(large.physical_offset).map(<[u8]>::len),
            Some(5000)
        );
        let mut tiny = MessageStore::new(4000, 1000);
        assert_eq!(
            tiny.append("T", 0, &mut record(2, 5000), 0, 1),
            Err(AppendError::LargerThanStore { bytes: 5000 })
        );
        assert!(tiny.append("T", 0, &mut [0; 90], 0, 1).is_err());
        assert_eq!(tiny.max_offset("T", 0), 0);
    }

    #[test]
    fn search_finds_the_first_or_last_of_equal_times_and_clamps_to_the_ends() {
        let mut store = store();
        for at in [10, 20, 20, 20, 30] {
            append(&mut store, 0, 1, 0, at);
        }
        let search = |at, boundary| store.search_offset("T", 0, at, boundary);
        assert_eq!(search(20, Boundary::Lower), 1);
        assert_eq!(search(20, Boundary::Upper), 3);
        assert_eq!(search(21, Boundary::Lower), 4);
        assert_eq!(search(29, Boundary::Upper), 3);
        assert_eq!(search(1, Boundary::Lower), 0);
        assert_eq!(search(-1, Boundary::Lower), 0);
        assert_eq!(search(31, Boundary::Lower), 5);
        assert_eq!(search(i64::MAX, Boundary::Upper), 4);
        assert_eq!(store.search_offset("none", 0, 1, Boundary::Lower), 0);
    }
}
