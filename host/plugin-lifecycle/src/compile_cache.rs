//! Compiled components on disk, so that a start need not compile.
//!
//! What lies in here is machine code that will be run: only this user may write to the
//! folder, and an entry is taken only when it is ours, whole and made for exactly this
//! component, engine and target. Anything else is a miss; the component is then
//! compiled and the entry written again. A disk that cannot be written costs time, never
//! a start.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::event::{Event, EventKind, Observer};
use crate::revision::Digest;

/// Entries together; the longest unused go first.
pub const CACHE_BYTES_MAX: u64 = 4 << 30;

/// Begins every entry; another layout gets another name.
const MAGIC: &[u8; 8] = b"mqletC01";
/// Magic, key, length, checksum.
const HEADER_BYTES: usize = 8 + 32 + 8 + 32;
const EXTENSION: &str = "cwasm";
/// A temporary file of this age belongs to a process that died.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(3600);
const TEMPORARY_PREFIX: &str = ".writing-";

/// What an entry was made from. Another value of any part is another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheKey(Digest);

impl CacheKey {
    /// `compatibility` names the engine, its version and its settings; `target` the
    /// machine the code is for.
    pub fn new(component: Digest, compatibility: &[u8], target: &str) -> Self {
        let mut sum = Sha256::new();
        for part in [
            component.bytes().as_slice(),
            compatibility,
            target.as_bytes(),
        ] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        Self(Digest::from(<[u8; 32]>::from(sum.finalize())))
    }
}

/// Why there is nothing to take. Only `Absent` is ordinary.
#[derive(Debug, thiserror::Error)]
pub enum CacheMiss {
    /// Never written, or gone.
    #[error("no entry")]
    Absent,
    /// Belongs to another user, may be written by others, or is no plain file.
    #[error("{} is not this user's own file", path.display())]
    Foreign {
        /// The entry.
        path: PathBuf,
    },
    /// Cut, changed, or written for something else.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The entry.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// The system refused.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The entry.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no cache.
    #[error("the cache is not used")]
    Off,
}

/// Why the folder is not used, or an entry was not written.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder could not be made.
    #[error("cannot make the folder {}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else could put code into it.
    #[error(
        "the folder {} belongs to another user or may be written by others; make it yours alone (chmod 700), or set cache_dir",
        path.display()
    )]
    NotPrivate {
        /// The folder.
        path: PathBuf,
    },
    /// The entry could not be written: disk full or read-only.
    #[error("cannot write to the folder {}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The folder, or nothing where it cannot be used.
#[derive(Debug)]
pub struct CompileCache {
    folder: Option<PathBuf>,
    bytes_max: u64,
}

impl CompileCache {
    /// Makes the folder (mode 0700) unless it is there. A folder that others can write
    /// to is not used.
    ///
    /// # Errors
    /// Why it is not used; go on with [`CompileCache::off`].
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        Self::open_bounded(folder, CACHE_BYTES_MAX)
    }

    /// The folder if it can be used, else no cache and an event that says why.
    pub fn open_or_off(folder: &Path, observer: &Observer) -> Self {
        Self::open(folder).unwrap_or_else(|error| {
            let reason = match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            observer(&Event {
                plugin: "".into(),
                kind: EventKind::CacheOff {
                    folder: folder.to_owned(),
                    reason,
                },
            });
            Self::off()
        })
    }

    /// Never has anything.
    pub fn off() -> Self {
        Self {
            folder: None,
            bytes_max: 0,
        }
    }

    fn open_bounded(folder: &Path, bytes_max: u64) -> Result<Self, CacheError> {
        let create = |source| CacheError::Create {
            path: folder.to_owned(),
            source,
        };
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(create)?;
        }
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(create(error)),
            _ => {}
        }
        // Not followed: a link could lead to a folder of somebody else later.
        let metadata = fs::symlink_metadata(folder).map_err(create)?;
        let is_private = metadata.is_dir() && is_ours(&metadata) && metadata.mode() & 0o022 == 0;
        if !is_private {
            return Err(CacheError::NotPrivate {
                path: folder.to_owned(),
            });
        }
        if metadata.mode() & 0o077 != 0 {
            fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(create)?;
        }
        Ok(Self {
            folder: Some(folder.to_owned()),
            bytes_max,
        })
    }

    /// The compiled code of a key. Blocks.
    ///
    /// # Errors
    /// Why it has to be compiled.
    pub fn get(&self, key: CacheKey) -> Result<Vec<u8>, CacheMiss> {
        let path = self.entry(key).ok_or(CacheMiss::Off)?;
        let failed = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => CacheMiss::Absent,
            _ => CacheMiss::Unreadable {
                path: path.clone(),
                source,
            },
        };
        let file = OpenOptions::new()
            .read(true)
            // Never a link, and never a wait for a pipe's writer.
            .custom_flags(
                (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK)
                    .bits()
                    .cast_signed(),
            )
            .open(&path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() || !is_ours(&metadata) || metadata.mode() & 0o022 != 0 {
            return Err(CacheMiss::Foreign { path });
        }
        if metadata.len() > self.bytes_max {
            return Err(CacheMiss::Damaged {
                path,
                what: "larger than the cache",
            });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        (&file)
            .take(metadata.len())
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        check(&bytes, key).map_err(|what| CacheMiss::Damaged {
            path: path.clone(),
            what,
        })?;
        // Only the order of removal suffers when the time cannot be set.
        let _ = file.set_modified(SystemTime::now());
        bytes.drain(..HEADER_BYTES);
        Ok(bytes)
    }

    /// Keeps compiled code: whole and under its name, or not at all. Blocks.
    ///
    /// # Errors
    /// Why it was not kept; nothing else is lost.
    pub fn put(&self, key: CacheKey, code: &[u8]) -> Result<(), CacheError> {
        let (Some(folder), Some(path)) = (&self.folder, self.entry(key)) else {
            return Ok(());
        };
        if (HEADER_BYTES + code.len()) as u64 > self.bytes_max {
            return Ok(());
        }
        let written = || -> std::io::Result<()> {
            let mut temporary = tempfile::Builder::new()
                .prefix(TEMPORARY_PREFIX)
                .tempfile_in(folder)?;
            temporary.write_all(&header(key, code))?;
            temporary.write_all(code)?;
            temporary.as_file().sync_all()?;
            temporary.persist(&path).map_err(|error| error.error)?;
            File::open(folder)?.sync_all()
        };
        written().map_err(|source| CacheError::Write {
            path: folder.clone(),
            source,
        })?;
        self.remove_oldest(folder, &path);
        Ok(())
    }

    fn entry(&self, key: CacheKey) -> Option<PathBuf> {
        let name = format!("{}.{EXTENSION}", key.0);
        Some(self.folder.as_ref()?.join(name))
    }

    /// Keeps the folder under its bound; what cannot be looked at or removed is left.
    fn remove_oldest(&self, folder: &Path, newest: &Path) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        let now = SystemTime::now();
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let is_temporary = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(TEMPORARY_PREFIX));
            if is_temporary {
                let age = now.duration_since(modified).unwrap_or_default();
                if age > TEMPORARY_AGE_MAX {
                    let _ = fs::remove_file(&path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| extension == EXTENSION)
                && path != newest
            {
                kept.push((modified, metadata.len(), path));
            }
        }
        kept.sort();
        let newest_bytes = fs::metadata(newest).map_or(0, |metadata| metadata.len());
        let mut total = newest_bytes + kept.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        for (_, bytes, path) in kept {
            if total <= self.bytes_max {
                break;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
        }
    }
}

fn is_ours(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

fn header(key: CacheKey, code: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(key.0.bytes());
    header.extend_from_slice(&(code.len() as u64).to_le_bytes());
    header.extend_from_slice(Digest::of(code).bytes());
    header
}

fn check(entry: &[u8], key: CacheKey) -> Result<(), &'static str> {
    let Some((found, code)) = entry.split_at_checked(HEADER_BYTES) else {
        return Err("shorter than its header");
    };
    let wanted = header(key, code);
    if found[..8] != wanted[..8] {
        Err("not written by this version")
    } else if found[8..40] != wanted[8..40] {
        Err("written for another component or engine")
    } else if found[40..48] != wanted[40..48] {
        Err("cut or longer than written")
    } else if found[48..] != wanted[48..] {
        Err("its checksum does not fit")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        root: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                root: tempfile::tempdir().expect("a folder for the test"),
            }
        }

        fn folder(&self) -> PathBuf {
            self.root.path().join("cache/compiled")
        }

        fn cache(&self) -> CompileCache {
            CompileCache::open(&self.folder()).expect("a folder of our own")
        }

        fn entry(&self) -> PathBuf {
            let entries = fs::read_dir(self.folder()).expect("it exists");
            let paths: Vec<_> = entries.map(|entry| entry.expect("listed").path()).collect();
            assert_eq!(paths.len(), 1, "{paths:?}");
            paths[0].clone()
        }
    }

    fn key(component: &[u8]) -> CacheKey {
        CacheKey::new(Digest::of(component), b"engine 1", "x86_64")
    }

    #[test]
    fn code_is_found_again_by_another_process() {
        let fixture = Fixture::new();
        fixture
            .cache()
            .put(key(b"a"), b"machine code")
            .expect("written");

        assert_eq!(
            fixture.cache().get(key(b"a")).expect("hit"),
            b"machine code"
        );
        assert_eq!(
            fs::metadata(fixture.folder()).expect("there").mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let fixture = Fixture::new();
        let cache = fixture.cache();
        cache.put(key(b"a"), b"machine code").expect("written");

        for other in [
            key(b"b"),
            CacheKey::new(Digest::of(b"a"), b"engine 2", "x86_64"),
            CacheKey::new(Digest::of(b"a"), b"engine 1", "aarch64"),
            CacheKey::new(Digest::of(b"a"), b"engine 1x", "86_64"),
        ] {
            assert!(matches!(cache.get(other), Err(CacheMiss::Absent)));
        }
    }

    #[test]
    fn damaged_entry_is_a_miss_and_is_written_again() {
        type Damage = fn(&mut Vec<u8>);
        let damages: [(&str, Damage); 6] = [
            ("empty", |bytes| bytes.clear()),
            ("cut header", |bytes| bytes.truncate(20)),
            ("cut code", |bytes| bytes.truncate(HEADER_BYTES + 3)),
            ("longer", |bytes| bytes.push(0)),
            ("one bit of the code", |bytes| {
                *bytes.last_mut().expect("not empty") ^= 1;
            }),
            ("another version", |bytes| bytes[7] = b'9'),
        ];
        for (name, damage) in damages {
            let fixture = Fixture::new();
            let cache = fixture.cache();
            cache.put(key(b"a"), b"machine code").expect("written");
            let mut bytes = fs::read(fixture.entry()).expect("readable");
            damage(&mut bytes);
            fs::write(fixture.entry(), bytes).expect("writable");

            let miss = cache.get(key(b"a")).expect_err(name);
            assert!(matches!(miss, CacheMiss::Damaged { .. }), "{name}: {miss}");

            cache.put(key(b"a"), b"machine code").expect(name);
            assert_eq!(cache.get(key(b"a")).expect(name), b"machine code");
        }
    }

    #[test]
    fn entry_renamed_to_another_key_is_a_miss() {
        let fixture = Fixture::new();
        let cache = fixture.cache();
        cache.put(key(b"a"), b"machine code").expect("written");
        let other = cache.entry(key(b"b")).expect("it has a folder");
        fs::rename(fixture.entry(), other).expect("renamed");

        assert!(matches!(
            cache.get(key(b"b")),
            Err(CacheMiss::Damaged { .. })
        ));
    }

    #[test]
    fn entry_that_others_can_write_or_that_is_a_link_is_a_miss() {
        let fixture = Fixture::new();
        let cache = fixture.cache();
        cache.put(key(b"a"), b"machine code").expect("written");
        let entry = fixture.entry();
        fs::set_permissions(&entry, Permissions::from_mode(0o666)).expect("ours");
        assert!(matches!(
            cache.get(key(b"a")),
            Err(CacheMiss::Foreign { .. })
        ));

        fs::set_permissions(&entry, Permissions::from_mode(0o600)).expect("ours");
        let elsewhere = fixture.root.path().join("elsewhere");
        fs::rename(&entry, &elsewhere).expect("renamed");
        std::os::unix::fs::symlink(&elsewhere, &entry).expect("linked");
        assert!(matches!(
            cache.get(key(b"a")),
            Err(CacheMiss::Unreadable { .. })
        ));
    }

    #[test]
    fn folder_that_others_can_write_is_not_used() {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.folder()).expect("made");
        fs::set_permissions(fixture.folder(), Permissions::from_mode(0o777)).expect("ours");

        let error = CompileCache::open(&fixture.folder()).expect_err("open to all");
        assert!(matches!(error, CacheError::NotPrivate { .. }), "{error}");
    }

    #[test]
    fn folder_that_cannot_be_made_is_an_error_and_no_cache_is_no_hindrance() {
        let fixture = Fixture::new();
        let file = fixture.root.path().join("file");
        fs::write(&file, b"").expect("written");

        let error = CompileCache::open(&file.join("compiled")).expect_err("below a file");
        assert!(matches!(error, CacheError::Create { .. }), "{error}");

        let off = CompileCache::off();
        off.put(key(b"a"), b"machine code")
            .expect("nothing to write");
        assert!(matches!(off.get(key(b"a")), Err(CacheMiss::Off)));
    }

    #[test]
    fn entry_that_cannot_be_written_is_an_error() {
        let fixture = Fixture::new();
        let cache = fixture.cache();
        // Root may write to a read-only folder, but nobody to one that is gone.
        fs::remove_dir(fixture.folder()).expect("empty");

        let error = cache
            .put(key(b"a"), b"machine code")
            .expect_err("no folder");
        assert!(matches!(error, CacheError::Write { .. }), "{error}");
    }

    #[test]
    fn longest_unused_entries_go_when_the_folder_is_full() {
        let fixture = Fixture::new();
        let entry_bytes = (HEADER_BYTES + 100) as u64;
        let cache = CompileCache::open_bounded(&fixture.folder(), 2 * entry_bytes)
            .expect("a folder of our own");
        let age = |name: &[u8], seconds| {
            let path = cache.entry(key(name)).expect("it has a folder");
            let file = File::options().write(true).open(path).expect("written");
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
                .expect("ours");
        };
        cache.put(key(b"a"), &[1; 100]).expect("written");
        cache.put(key(b"b"), &[2; 100]).expect("written");
        age(b"a", 20);
        age(b"b", 10);
        cache.get(key(b"a")).expect("hit");

        cache.put(key(b"c"), &[3; 100]).expect("written");

        assert!(cache.get(key(b"a")).is_ok(), "used last");
        assert!(matches!(cache.get(key(b"b")), Err(CacheMiss::Absent)));
        assert!(cache.get(key(b"c")).is_ok(), "the newest stays");
        cache.put(key(b"d"), &[4; 1000]).expect("left out");
        assert!(matches!(cache.get(key(b"d")), Err(CacheMiss::Absent)));
    }
}
