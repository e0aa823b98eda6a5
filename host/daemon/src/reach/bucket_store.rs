//! The buckets of one tenant, in one embedded database: what was answered is on the disk.
//!
//! All buckets stand in one table, each key behind the name of its bucket, so that opening
//! one costs nothing. How many keys and bytes there are is kept beside them and changes in
//! the same transaction.

use std::fmt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};
use tokio::sync::Semaphore;
use tracing::warn;
use wasm::{BucketKey, KEYS_PER_PAGE, KeyValueError, KeyValueFuture, KeyValueStore};

use super::quota::Quota;

const VALUES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");
const COUNTS: TableDefinition<'_, &str, u64> = TableDefinition::new("counts");
const KEYS: &str = "keys";
const BYTES: &str = "bytes";
/// Operations of a tenant that hold a thread at once.
const OPERATIONS_MAX: usize = 4;
/// What the database holds in memory.
const CACHE_BYTES: usize = 4 << 20;

/// A tenant's buckets; clones share them.
#[derive(Clone)]
pub(crate) struct BucketStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None`: in memory.
    file: Option<PathBuf>,
    quota: Quota,
    /// Opened with the first operation. Held only to open it.
    database: Mutex<Option<Arc<Database>>>,
    operations: Arc<Semaphore>,
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketStore")
            .field("file", &self.shared.file)
            .field("quota", &self.shared.quota)
            .finish_non_exhaustive()
    }
}

impl BucketStore {
    /// In a file that is made when it is needed.
    pub(crate) fn in_file(file: PathBuf, quota: Quota) -> Self {
        Self::new(Some(file), quota)
    }

    /// Forgotten with the process.
    pub(crate) fn in_memory(quota: Quota) -> Self {
        Self::new(None, quota)
    }

    fn new(file: Option<PathBuf>, quota: Quota) -> Self {
        Self {
            shared: Arc::new(Shared {
                file,
                quota,
                database: Mutex::default(),
                operations: Arc::new(Semaphore::new(OPERATIONS_MAX)),
            }),
        }
    }

    /// Works on the database where blocking is allowed.
    fn operate<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database, Quota) -> Result<T, KeyValueError> + Send + 'static,
    ) -> KeyValueFuture<T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let permit = Arc::clone(&shared.operations).acquire_owned().await;
            let done = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let database = shared.database()?;
                let done = work(&database, shared.quota);
                if let Err(KeyValueError::Storage(reason)) = &done {
                    shared.close(&database, reason);
                }
                done
            });
            done.await.unwrap_or_else(|panic| Err(failed(panic)))
        })
    }
}

impl Shared {
    fn opened(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        // Nothing is half done under it.
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A database that met an error of the disk answers nothing but errors from then on,
    /// whatever becomes of the disk: the next operation opens it anew.
    fn close(&self, failed: &Arc<Database>, reason: &str) {
        let Some(file) = &self.file else {
            // There is nothing to open again.
            return;
        };
        let mut database = self.opened();
        // Others met the same error, and it may be open again.
        if database
            .take_if(|opened| Arc::ptr_eq(opened, failed))
            .is_some()
        {
            warn!(
                target: "mqlet", file = %file.display(),
                "the buckets in {} cannot be read or written: {reason}; they are opened again when a plugin asks next: look for room, permissions and errors of the disk there",
                file.display()
            );
        }
    }

    fn database(&self) -> Result<Arc<Database>, KeyValueError> {
        let mut database = self.opened();
        if let Some(database) = &*database {
            return Ok(Arc::clone(database));
        }
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let opened = match &self.file {
            None => builder.create_with_backend(InMemoryBackend::new()),
            Some(file) => {
                if let Some(folder) = file.parent() {
                    // What plugins keep is no other user's business.
                    let mut private = std::fs::DirBuilder::new();
                    private.recursive(true).mode(0o700);
                    private.create(folder).map_err(failed)?;
                }
                builder.create(file)
            }
        };
        let opened = Arc::new(opened.map_err(failed)?);
        // So that whoever only reads finds its tables.
        let transaction = opened.begin_write().map_err(failed)?;
        transaction.open_table(VALUES).map_err(failed)?;
        transaction.open_table(COUNTS).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(Arc::clone(database.insert(opened)))
    }
}

impl KeyValueStore for BucketStore {
    fn get(&self, key: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        self.operate(move |database, _| {
            let transaction = database.begin_read().map_err(failed)?;
            let values = transaction.open_table(VALUES).map_err(failed)?;
            let value = values.get(stored(&key).as_slice()).map_err(failed)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    fn set(&self, key: BucketKey, value: Vec<u8>) -> KeyValueFuture<()> {
        self.operate(move |database, quota| {
            write(database, |values, counts| {
                insert(values, counts, quota, &stored(&key), &value)
            })
        })
    }

    fn delete(&self, key: BucketKey) -> KeyValueFuture<()> {
        self.operate(move |database, _| {
            write(database, |values, counts| {
                let key = stored(&key);
                let removed = values.remove(key.as_slice()).map_err(failed)?;
                let Some(bytes) = removed.map(|value| key.len() + value.value().len()) else {
                    return Ok(());
                };
                let (keys, all) = (count(counts, KEYS)?, count(counts, BYTES)?);
                set_count(counts, KEYS, keys.saturating_sub(1))?;
                set_count(counts, BYTES, all.saturating_sub(bytes as u64))
            })
        })
    }

    fn keys(&self, bucket: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        self.operate(move |database, _| {
            let transaction = database.begin_read().map_err(failed)?;
            let values = transaction.open_table(VALUES).map_err(failed)?;
            let bucket = of_bucket(&bucket);
            let mut from = bucket.clone();
            if let Some(after) = &after {
                // The next one there can be.
                from.extend_from_slice(after.as_bytes());
                from.push(0);
            }
            let mut keys = Vec::new();
            for entry in values.range(from.as_slice()..).map_err(failed)? {
                let (key, _) = entry.map_err(failed)?;
                let Some(key) = key.value().strip_prefix(bucket.as_slice()) else {
                    break;
                };
                if keys.len() == KEYS_PER_PAGE {
                    return Ok((keys, true));
                }
                keys.push(String::from_utf8_lossy(key).into_owned());
            }
            Ok((keys, false))
        })
    }

    fn increment(&self, key: BucketKey, delta: u64) -> KeyValueFuture<u64> {
        self.operate(move |database, quota| {
            write(database, |values, counts| {
                let key = stored(&key);
                let before = match values.get(key.as_slice()).map_err(failed)? {
                    None => 0,
                    Some(value) => {
                        let bytes = value.value().try_into();
                        u64::from_le_bytes(bytes.map_err(|_| KeyValueError::NotANumber)?)
                    }
                };
                let sum = before.checked_add(delta).ok_or(KeyValueError::Overflow)?;
                insert(values, counts, quota, &key, &sum.to_le_bytes())?;
                Ok(sum)
            })
        })
    }
}

type Values<'t> = Table<'t, &'static [u8], &'static [u8]>;
type Counts<'t> = Table<'t, &'static str, u64>;

/// All of it, or nothing when it fails.
fn write<T>(
    database: &Database,
    work: impl FnOnce(&mut Values<'_>, &mut Counts<'_>) -> Result<T, KeyValueError>,
) -> Result<T, KeyValueError> {
    let transaction = database.begin_write().map_err(failed)?;
    let done = {
        let mut values = transaction.open_table(VALUES).map_err(failed)?;
        let mut counts = transaction.open_table(COUNTS).map_err(failed)?;
        work(&mut values, &mut counts)?
    };
    transaction.commit().map_err(failed)?;
    Ok(done)
}

fn insert(
    values: &mut Values<'_>,
    counts: &mut Counts<'_>,
    quota: Quota,
    key: &[u8],
    value: &[u8],
) -> Result<(), KeyValueError> {
    let before = {
        let before = values.insert(key, value).map_err(failed)?;
        before.map(|value| (key.len() + value.value().len()) as u64)
    };
    let keys = count(counts, KEYS)? + u64::from(before.is_none());
    let bytes = count(counts, BYTES)? + (key.len() + value.len()) as u64;
    let bytes = bytes.saturating_sub(before.unwrap_or(0));
    if before.is_none() && keys > quota.keys {
        return Err(KeyValueError::TooManyKeys(quota.keys));
    }
    if bytes > quota.bytes {
        return Err(KeyValueError::TooManyBytes(quota.bytes));
    }
    set_count(counts, KEYS, keys)?;
    set_count(counts, BYTES, bytes)
}

fn count(counts: &Counts<'_>, name: &str) -> Result<u64, KeyValueError> {
    let count = counts.get(name).map_err(failed)?;
    Ok(count.map_or(0, |count| count.value()))
}

fn set_count(counts: &mut Counts<'_>, name: &str, value: u64) -> Result<(), KeyValueError> {
    counts.insert(name, value).map_err(failed)?;
    Ok(())
}

/// What every key of a bucket begins with. A name has no 0.
fn of_bucket(bucket: &str) -> Vec<u8> {
    let mut bytes = bucket.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn stored(key: &BucketKey) -> Vec<u8> {
    let mut bytes = of_bucket(&key.bucket);
    bytes.extend_from_slice(key.key.as_bytes());
    bytes
}

fn failed(error: impl fmt::Display) -> KeyValueError {
    KeyValueError::Storage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bucket: &str, key: &str) -> BucketKey {
        BucketKey {
            bucket: bucket.into(),
            key: key.to_owned(),
        }
    }

    #[tokio::test]
    async fn what_was_set_is_there_after_it_was_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key-value/shop.redb");
        let store = BucketStore::in_file(file.clone(), Quota::default());
        store.set(key("orders", "a"), b"1".to_vec()).await.unwrap();
        assert_eq!(store.increment(key("orders", "n"), 3).await, Ok(3));
        drop(store);
        let store = BucketStore::in_file(file, Quota::default());
        assert_eq!(store.get(key("orders", "a")).await, Ok(Some(b"1".to_vec())));
        assert_eq!(store.increment(key("orders", "n"), 4).await, Ok(7));
    }

    #[tokio::test]
    async fn buckets_are_apart_and_listed_page_by_page() {
        let store = BucketStore::in_memory(Quota::default());
        // One name begins like the other.
        store.set(key("a", "x"), b"1".to_vec()).await.unwrap();
        store.set(key("ab", "x"), b"2".to_vec()).await.unwrap();
        assert_eq!(store.get(key("ab", "x")).await, Ok(Some(b"2".to_vec())));
        assert_eq!(
            store.keys("a".into(), None).await,
            Ok((vec!["x".into()], false))
        );
        for number in 0..=KEYS_PER_PAGE {
            let key = key("b", &format!("{number:05}"));
            store.set(key, Vec::new()).await.unwrap();
        }
        let (page, has_more) = store.keys("b".into(), None).await.unwrap();
        assert_eq!((page.len(), has_more), (KEYS_PER_PAGE, true));
        // Nothing is skipped when what was listed is deleted meanwhile.
        for name in &page {
            store.delete(key("b", name)).await.unwrap();
        }
        let rest = store.keys("b".into(), page.last().cloned()).await.unwrap();
        assert_eq!(rest, (vec![format!("{KEYS_PER_PAGE:05}")], false));
    }

    #[tokio::test]
    async fn bucket_of_one_name_is_another_one_in_another_tenant() {
        let folder = tempfile::tempdir().unwrap();
        let of = |tenant: &str| {
            let file = folder.path().join(format!("{tenant}.redb"));
            BucketStore::in_file(file, Quota::default())
        };
        let (shop, bank) = (of("shop"), of("bank"));
        shop.set(key("orders", "a"), b"1".to_vec()).await.unwrap();
        bank.set(key("orders", "b"), b"2".to_vec()).await.unwrap();
        assert_eq!(bank.get(key("orders", "a")).await, Ok(None));
        let listed = |store: BucketStore| async move { store.keys("orders".into(), None).await };
        assert_eq!(listed(shop).await, Ok((vec!["a".into()], false)));
        assert_eq!(listed(bank).await, Ok((vec!["b".into()], false)));
    }

    #[tokio::test]
    async fn storage_that_failed_once_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("buckets/shop.redb");
        let store = BucketStore::in_file(file.clone(), Quota::default());
        store.set(key("b", "a"), b"1".to_vec()).await.unwrap();
        let opened = Arc::clone(store.shared.opened().as_ref().unwrap());
        let failing = store.operate(|_, _| Err::<(), _>(failed("the disk is full")));
        assert!(failing.await.is_err());
        assert!(store.shared.opened().is_none(), "the next one opens it");
        drop(opened);
        assert_eq!(store.get(key("b", "a")).await, Ok(Some(b"1".to_vec())));
        // What a plugin asks for wrongly is no reason.
        let wrong = store.operate(|_, _| Err::<(), _>(KeyValueError::Overflow));
        assert_eq!(wrong.await, Err(KeyValueError::Overflow));
        assert!(store.shared.opened().is_some());

        let mode = |path: &std::path::Path| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(file.parent().unwrap()), 0o700);
    }

    #[tokio::test]
    async fn quota_counts_keys_and_bytes_and_what_is_refused_changes_nothing() {
        let quota = Quota { keys: 2, bytes: 20 };
        let store = BucketStore::in_memory(quota);
        let set = |name: &str, bytes| store.set(key("b", name), vec![1; bytes]);
        // A key counts with its bucket's name and a 0.
        set("1", 10).await.unwrap();
        assert_eq!(set("2", 10).await, Err(KeyValueError::TooManyBytes(20)));
        assert_eq!(store.get(key("b", "2")).await, Ok(None));
        set("2", 4).await.unwrap();
        assert_eq!(set("3", 0).await, Err(KeyValueError::TooManyKeys(2)));
        set("1", 1).await.unwrap();
        store.delete(key("b", "2")).await.unwrap();
        store.delete(key("b", "2")).await.unwrap();
        set("3", 12).await.unwrap();
        assert_eq!(
            store.increment(key("b", "3"), 1).await,
            Err(KeyValueError::NotANumber)
        );
    }

    #[tokio::test]
    async fn increments_at_once_all_count() {
        let store = BucketStore::in_memory(Quota::default());
        let mut adding = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            adding.spawn(async move { store.increment(key("b", "n"), 2).await });
        }
        assert!(adding.join_all().await.iter().all(Result::is_ok));
        assert_eq!(store.increment(key("b", "n"), 0).await, Ok(100));
    }
}
