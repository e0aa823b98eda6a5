//! The file in which a host keeps the offsets of one broadcasting group.
//!
//! Two copies, the latest and the one before. The latest is written beside them, flushed
//! and renamed into place, so that a crash at any moment leaves at least one whole copy.
//! What is damaged falls back to the copy before it, and then to the group's start
//! policy; it is never half used.
//!
//! A copy whose name servers are none of this client's, neither by name nor by address,
//! may be of another cluster, or of this one under a name of before. Only the operator
//! knows: it is an error, which starts nothing and overwrites nothing. A copy that has one
//! in common is rewritten with this client's at once: what a group stores next may be long
//! in coming, and the name in common may be gone by then.
//!
//! Nothing is written without the lock, so that two processes never take turns.
//!
//! Everything here blocks. What a copy looks like is in `copy`. RocketMQ:
//! `LocalFileOffsetStore`, whose file has no checksum and is overwritten in place.

mod copy;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consumer::local_offsets::{
    LoadedOffsets, LocalOffsetTable, LocalOffsetsError, LocalOffsetsSource,
};

use copy::{CopyProblem, Document, FILE_BYTES_MAX, decode, encode};

/// Characters of the group's name that a person finds in the file's.
const READABLE_MAX: usize = 64;
/// Name servers of a file and of a client whose addresses are compared; more are not
/// looked up.
const LOOKUPS_MAX: usize = 16;

/// Whose offsets a file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) consumer_group: Arc<str>,
    /// Of the client; one in common, by name or by address, is the same cluster.
    pub(crate) namesrv_addr: Vec<String>,
}

/// What was read, and what went wrong beside it.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) offsets: LoadedOffsets,
    /// The file still has the name servers of before.
    pub(crate) not_rewritten: Option<LocalOffsetsError>,
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

/// A copy of this group and this cluster.
#[derive(Debug)]
struct UsableCopy {
    offsets: LocalOffsetTable,
    /// Of the client that stored it.
    namesrv_addr: Vec<String>,
}

/// Why nothing may be written.
#[derive(Debug)]
enum LockProblem {
    /// Another process, or another client of this one, has it.
    Taken,
    CannotOpen(io::Error),
    /// Some file systems have no locks.
    CannotLock(io::Error),
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

    /// Reads the latest copy that can be used, and writes this client's name servers into
    /// it if it has others. May look up the addresses of name servers.
    ///
    /// # Errors
    /// Another process has the file, the system cannot say what is in it, or it may be of
    /// another cluster.
    pub(crate) fn load(&mut self) -> Result<Load, LocalOffsetsError> {
        match self.take_lock() {
            // Where no lock can be made nothing can be written either, and that is told
            // of when offsets are stored.
            Ok(()) | Err(LockProblem::CannotOpen(_)) => {}
            Err(problem) => return Err(self.cannot_lock(&problem)),
        }
        let latest = match self.read(&self.latest)? {
            Ok(copy) => return Ok(self.loaded(copy, LocalOffsetsSource::Latest)),
            Err(problem) => problem,
        };
        let name = self.latest.display();
        let source = match self.read(&self.previous)? {
            Ok(copy) => {
                let problem = format!("{name} cannot be used: {latest}");
                return Ok(self.loaded(copy, LocalOffsetsSource::Previous { problem }));
            }
            Err(previous) => match (latest, previous) {
                (CopyProblem::Missing, CopyProblem::Missing) => LocalOffsetsSource::Nothing,
                (latest, CopyProblem::Missing) => LocalOffsetsSource::Lost {
                    problem: format!("{name} cannot be used: {latest}; there is no copy"),
                },
                (latest, previous) => LocalOffsetsSource::Lost {
                    problem: format!("{name} cannot be used: {latest}; nor its copy: {previous}"),
                },
            },
        };
        let offsets = LoadedOffsets {
            offsets: LocalOffsetTable::new(),
            source,
        };
        Ok(Load {
            offsets,
            not_rewritten: None,
        })
    }

    fn loaded(&mut self, copy: UsableCopy, source: LocalOffsetsSource) -> Load {
        let UsableCopy {
            offsets,
            namesrv_addr,
        } = copy;
        let not_rewritten = match namesrv_addr == self.owner.namesrv_addr {
            true => None,
            false => self.store(&offsets).err(),
        };
        Load {
            offsets: LoadedOffsets { offsets, source },
            not_rewritten,
        }
    }

    /// Stores a table in place of what is there.
    ///
    /// # Errors
    /// Another process has the file, or what the system said; what was there can still be
    /// read.
    pub(crate) fn store(&mut self, offsets: &LocalOffsetTable) -> Result<(), LocalOffsetsError> {
        self.take_lock()
            .map_err(|problem| self.cannot_lock(&problem))?;
        let bytes = encode(&self.owner, offsets);
        self.replace(&bytes).map_err(|error| LocalOffsetsError {
            reason: format!(
                "cannot store offsets in {}: {error}; make room, or make the folder writable, or set state_dir of [host]",
                self.latest.display()
            ),
        })
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(&self.new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        // A damaged latest copy must not take the place of a whole one.
        if let Ok(Ok(_)) = self.read_document(&self.latest) {
            fs::rename(&self.latest, &self.previous)?;
        }
        fs::rename(&self.new, &self.latest)?;
        sync_folder(&self.folder)
    }

    /// A process that ends gives it back by itself.
    fn take_lock(&mut self) -> Result<(), LockProblem> {
        if self.locked.is_some() {
            return Ok(());
        }
        let open = || {
            make_folder(&self.folder)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.open(&self.lock)
        };
        let file = open().map_err(LockProblem::CannotOpen)?;
        match file.try_lock() {
            Ok(()) => {
                self.locked = Some(file);
                Ok(())
            }
            Err(TryLockError::WouldBlock) => Err(LockProblem::Taken),
            Err(TryLockError::Error(error)) => Err(LockProblem::CannotLock(error)),
        }
    }

    fn cannot_lock(&self, problem: &LockProblem) -> LocalOffsetsError {
        let group = &self.owner.consumer_group;
        let reason = match problem {
            LockProblem::Taken => format!(
                "another process keeps its offsets of group \"{group}\" in {}; stop it, or give each host a state_dir of its own",
                self.folder.display()
            ),
            LockProblem::CannotOpen(error) => format!(
                "cannot store offsets of group \"{group}\": {} cannot be opened: {error}; make room, or make the folder writable, or set state_dir of [host]",
                self.lock.display()
            ),
            LockProblem::CannotLock(error) => format!(
                "cannot keep other processes from the offsets of group \"{group}\": {} cannot be locked: {error}; set state_dir of [host] to a folder on a disk of this machine",
                self.lock.display()
            ),
        };
        LocalOffsetsError { reason }
    }

    /// A copy of this group and this cluster.
    fn read(&self, path: &Path) -> Result<Result<UsableCopy, CopyProblem>, LocalOffsetsError> {
        let document = match self.read_document(path)? {
            Ok(document) => document,
            Err(problem) => return Ok(Err(problem)),
        };
        if *document.consumer_group != *self.owner.consumer_group {
            return Ok(Err(CopyProblem::OtherGroup(document.consumer_group)));
        }
        if !is_same_cluster(&document.namesrv_addr, &self.owner.namesrv_addr) {
            return Err(LocalOffsetsError {
                reason: format!(
                    "the offsets of group \"{}\" in {} are of the cluster with name servers {}, and this client has others: {}; when it is the same cluster, add one of those to namesrv_addr until the host has run once; when it is another, remove {} and {}, or give the host another state_dir",
                    self.owner.consumer_group,
                    path.display(),
                    document.namesrv_addr.join(", "),
                    self.owner.namesrv_addr.join(", "),
                    self.latest.display(),
                    self.previous.display()
                ),
            });
        }
        let namesrv_addr = document.namesrv_addr.clone();
        Ok(document.table().map(|offsets| UsableCopy {
            offsets,
            namesrv_addr,
        }))
    }

    /// Whoever's it is.
    fn read_document(
        &self,
        path: &Path,
    ) -> Result<Result<Document, CopyProblem>, LocalOffsetsError> {
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(decode(&bytes)),
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

/// A name server in common, however it is spelled.
fn is_same_cluster(theirs: &[String], ours: &[String]) -> bool {
    let is_ours = |name: &String| ours.iter().any(|our| our.eq_ignore_ascii_case(name));
    if theirs.iter().any(is_ours) {
        return true;
    }
    // What cannot be looked up is not known to be the same.
    let look_up = |names: &[String]| -> Vec<SocketAddr> {
        let names = names.iter().take(LOOKUPS_MAX);
        names
            .filter_map(|name| name.to_socket_addrs().ok())
            .flatten()
            .collect()
    };
    let ours = look_up(ours);
    look_up(theirs).iter().any(|address| ours.contains(address))
}

/// With all that are above it; what was made is there after a crash, too.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = match folder.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return fs::create_dir(folder),
    };
    make_folder(above)?;
    match fs::create_dir(folder) {
        // Another client's, at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made?,
    }
    sync_folder(above)
}

/// Its entries are on the disk: new names, and names that a rename has changed.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
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

#[cfg(test)]
mod tests;
