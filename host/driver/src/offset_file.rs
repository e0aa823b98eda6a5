//! The file in which a host keeps the offsets of one broadcasting group.
//!
//! Two copies, the latest and the one before. The latest is written beside them, flushed
//! and renamed into place, so that a crash at any moment leaves at least one whole copy.
//! A first line with length and checksum tells a whole copy from a damaged one; a copy
//! that names another group, or shares no name server with this client, is of another
//! cluster and is not used. What cannot be used falls back to the copy before it, and
//! then to the group's start policy; it is never an error, and never half used.
//!
//! ```text
//! mqlet-offsets 1 a1b2c3d4 212
//! {
//!   "consumer_group": "prices",
//!   "namesrv_addr": ["10.0.0.1:9876"],
//!   "offsets": [{"topic": "T1", "broker_name": "broker-a", "queue_id": 0, "offset": 128}]
//! }
//! ```
//!
//! Everything here blocks. RocketMQ: `LocalFileOffsetStore`, whose file has no checksum
//! and is overwritten in place.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consumer::local_offsets::{
    LoadedOffsets, LocalOffsetTable, LocalOffsetsError, LocalOffsetsSource,
};
use protocol::{MessageQueue, QueueOffset};
use serde::{Deserialize, Serialize};

/// First words of a file; the number is the format's.
const MAGIC: &str = "mqlet-offsets 1";
/// A larger file is not read: 65,536 queues with the longest names need less.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Characters of the group's name that a person finds in the file's.
const READABLE_MAX: usize = 64;

/// Whose offsets a file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) consumer_group: Arc<str>,
    /// Of the client; one in common is the same cluster.
    pub(crate) namesrv_addr: Vec<String>,
}

/// The files of one group. Locked against other processes from the first load on.
#[derive(Debug)]
pub(crate) struct OffsetFile {
    owner: Owner,
    folder: PathBuf,
    latest: PathBuf,
    previous: PathBuf,
    new: PathBuf,
    lock: PathBuf,
    locked: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    consumer_group: String,
    namesrv_addr: Vec<String>,
    offsets: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    topic: String,
    broker_name: String,
    queue_id: u32,
    offset: u64,
}

/// Why a copy cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum CopyProblem {
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
    #[error("it is of the cluster with name servers {0}")]
    OtherCluster(String),
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

impl OffsetFile {
    /// Opens nothing yet.
    pub(crate) fn new(folder: &Path, owner: Owner) -> Self {
        let name = file_name(&owner.consumer_group);
        let path = |ending| folder.join(format!("{name}.{ending}"));
        Self {
            owner,
            folder: folder.to_owned(),
            latest: path("offsets"),
            previous: path("offsets.previous"),
            new: path("offsets.new"),
            lock: path("lock"),
            locked: None,
        }
    }

    /// Reads the latest copy that can be used.
    ///
    /// # Errors
    /// Another process has the file, or the system cannot say what is in it.
    pub(crate) fn load(&mut self) -> Result<LoadedOffsets, LocalOffsetsError> {
        self.take_lock()?;
        let latest = match self.read(&self.latest)? {
            Ok(offsets) => {
                let source = LocalOffsetsSource::Latest;
                return Ok(LoadedOffsets { offsets, source });
            }
            Err(problem) => problem,
        };
        let name = self.latest.display();
        match self.read(&self.previous)? {
            Ok(offsets) => Ok(LoadedOffsets {
                offsets,
                source: LocalOffsetsSource::Previous {
                    problem: format!("{name} cannot be used: {latest}"),
                },
            }),
            Err(previous) => Ok(LoadedOffsets {
                offsets: LocalOffsetTable::new(),
                source: match (latest, previous) {
                    (CopyProblem::Missing, CopyProblem::Missing) => LocalOffsetsSource::Nothing,
                    (latest, CopyProblem::Missing) => LocalOffsetsSource::Lost {
                        problem: format!("{name} cannot be used: {latest}; there is no copy"),
                    },
                    (latest, previous) => LocalOffsetsSource::Lost {
                        problem: format!(
                            "{name} cannot be used: {latest}; nor its copy: {previous}"
                        ),
                    },
                },
            }),
        }
    }

    /// Stores a table in place of what is there.
    ///
    /// # Errors
    /// What the system said; what was there can still be read.
    pub(crate) fn store(&mut self, offsets: &LocalOffsetTable) -> Result<(), LocalOffsetsError> {
        let bytes = encode(&self.owner, offsets);
        self.replace(&bytes).map_err(|error| LocalOffsetsError {
            reason: format!(
                "cannot store offsets in {}: {error}; make room, or make the folder writable, or set state_dir of [host]",
                self.latest.display()
            ),
        })
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = File::create(&self.new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        // A damaged latest copy must not take the place of a whole one.
        if let Ok(Ok(_)) = self.read(&self.latest) {
            fs::rename(&self.latest, &self.previous)?;
        }
        fs::rename(&self.new, &self.latest)?;
        File::open(&self.folder)?.sync_all()
    }

    /// A process that ends gives it back by itself.
    fn take_lock(&mut self) -> Result<(), LocalOffsetsError> {
        if self.locked.is_some() {
            return Ok(());
        }
        let open = || {
            fs::create_dir_all(&self.folder)?;
            File::create(&self.lock)
        };
        // A folder that cannot be written is told of when offsets are stored.
        let Ok(file) = open() else {
            return Ok(());
        };
        match file.try_lock() {
            Ok(()) => self.locked = Some(file),
            Err(TryLockError::WouldBlock) => {
                return Err(LocalOffsetsError {
                    reason: format!(
                        "another process keeps its offsets of group \"{}\" in {}; stop it, or give each host a state_dir of its own",
                        self.owner.consumer_group,
                        self.folder.display()
                    ),
                });
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        Ok(())
    }

    fn read(
        &self,
        path: &Path,
    ) -> Result<Result<LocalOffsetTable, CopyProblem>, LocalOffsetsError> {
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(decode(&bytes, &self.owner)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(CopyProblem::Missing)),
            // A folder of the path is a file: nothing was ever stored there.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Ok(Err(CopyProblem::Missing))
            }
            Err(error) => Err(LocalOffsetsError {
                reason: format!(
                    "cannot read the offsets of group \"{}\" from {}: {error}; make the file readable, or remove it to begin as consume_from_where says",
                    self.owner.consumer_group,
                    path.display()
                ),
            }),
        }
    }
}

/// Readable, the same on every system, and no way out of the folder. The checksum keeps
/// names apart that look alike then.
fn file_name(consumer_group: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let readable: String = consumer_group
        .chars()
        .take(READABLE_MAX)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    format!(
        "{readable}-{:08x}",
        crc32fast::hash(consumer_group.as_bytes())
    )
}

fn encode(owner: &Owner, offsets: &LocalOffsetTable) -> Vec<u8> {
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

fn decode(bytes: &[u8], owner: &Owner) -> Result<LocalOffsetTable, CopyProblem> {
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
    let document: Document =
        serde_json::from_slice(content).map_err(|error| CopyProblem::Content(error.to_string()))?;
    if *document.consumer_group != *owner.consumer_group {
        return Err(CopyProblem::OtherGroup(document.consumer_group));
    }
    let known = |address| owner.namesrv_addr.contains(address);
    if !document.namesrv_addr.iter().any(known) {
        return Err(CopyProblem::OtherCluster(document.namesrv_addr.join(", ")));
    }
    let offsets = document.offsets.into_iter().map(|entry| {
        let queue = MessageQueue::new(&entry.topic, &entry.broker_name, entry.queue_id);
        // More than a broker can hold is no offset.
        let offset = i64::try_from(entry.offset)
            .ok()
            .and_then(QueueOffset::from_wire);
        let offset =
            offset.ok_or_else(|| CopyProblem::Content(format!("{} is no offset", entry.offset)))?;
        Ok((queue, offset))
    });
    offsets.collect()
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

#[cfg(test)]
mod tests;
