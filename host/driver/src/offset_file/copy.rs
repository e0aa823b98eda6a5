//! One copy of a file of offsets: a first line with checksum and length, which tells a
//! whole copy from a damaged one, and JSON.
//!
//! ```text
//! mqlet-offsets 1 a1b2c3d4 212
//! {
//!   "consumer_group": "prices",
//!   "namesrv_addr": ["10.0.0.1:9876"],
//!   "offsets": [{"topic": "T1", "broker_name": "broker-a", "queue_id": 0, "offset": 128}]
//! }
//! ```

use consumer::local_offsets::LocalOffsetTable;
use protocol::{MessageQueue, QueueOffset};
use serde::{Deserialize, Serialize};

use super::Owner;

/// First words of a file; the number is the format's.
pub(super) const MAGIC: &str = "mqlet-offsets 1";
/// A larger file is not read: 65,536 queues with the longest names need less.
pub(super) const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) consumer_group: String,
    pub(super) namesrv_addr: Vec<String>,
    pub(super) offsets: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) topic: String,
    pub(super) broker_name: String,
    pub(super) queue_id: u32,
    pub(super) offset: u64,
}

/// Why a copy cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum CopyProblem {
    #[error("it is not there")]
    Missing,
    #[error("it is empty")]
    Empty,
    #[error("it is no file of offsets, or its first line is damaged")]
    NotOurs,
    #[error("it has {actual} bytes after its first line, {expected} were written")]
    Length { expected: usize, actual: usize },
    #[error("its content does not match its checksum")]
    Checksum,
    #[error("it cannot be read: {0}")]
    Content(String),
    #[error("it is of group \"{0}\"")]
    OtherGroup(String),
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

impl Document {
    /// The next offset wanted of each queue.
    pub(super) fn table(self) -> Result<LocalOffsetTable, CopyProblem> {
        let offsets = self.offsets.into_iter().map(|entry| {
            let queue = MessageQueue::new(&entry.topic, &entry.broker_name, entry.queue_id);
            // More than a broker can hold is no offset.
            let offset = i64::try_from(entry.offset)
                .ok()
                .and_then(QueueOffset::from_wire);
            let offset = offset
                .ok_or_else(|| CopyProblem::Content(format!("{} is no offset", entry.offset)))?;
            Ok((queue, offset))
        });
        offsets.collect()
    }
}

/// A whole copy.
pub(super) fn encode(owner: &Owner, offsets: &LocalOffsetTable) -> Vec<u8> {
    let entries = offsets.iter().map(|(queue, offset)| Entry {
        topic: queue.topic.to_string(),
        broker_name: queue.broker_name.to_string(),
        queue_id: queue.queue_id,
        offset: offset.0,
    });
    let document = Document {
        consumer_group: owner.consumer_group.to_string(),
        namesrv_addr: owner.namesrv_addr.clone(),
        offsets: entries.collect(),
    };
    // Texts and numbers always become JSON.
    let mut content = serde_json::to_vec_pretty(&document).unwrap_or_default();
    content.push(b'\n');
    let checksum = crc32fast::hash(&content);
    let mut bytes = format!("{MAGIC} {checksum:08x} {}\n", content.len()).into_bytes();
    bytes.extend(content);
    bytes
}

/// Whoever's it is.
pub(super) fn decode(bytes: &[u8]) -> Result<Document, CopyProblem> {
    if bytes.is_empty() {
        return Err(CopyProblem::Empty);
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CopyProblem::TooLarge);
    }
    let (checksum, expected, content) = split(bytes).ok_or(CopyProblem::NotOurs)?;
    if content.len() != expected {
        return Err(CopyProblem::Length {
            expected,
            actual: content.len(),
        });
    }
    if crc32fast::hash(content) != checksum {
        return Err(CopyProblem::Checksum);
    }
    serde_json::from_slice(content).map_err(|error| CopyProblem::Content(error.to_string()))
}

/// Checksum, length and content.
fn split(bytes: &[u8]) -> Option<(u32, usize, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let (checksum, length) = line
        .strip_prefix(MAGIC)?
        .strip_prefix(' ')?
        .split_once(' ')?;
    let exact = checksum.len() == 8 && length.bytes().all(|byte| byte.is_ascii_digit());
    if !exact {
        return None;
    }
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    Some((checksum, length.parse().ok()?, &bytes[end + 1..]))
}
