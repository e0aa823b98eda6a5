//! The port to where a tenant's buckets are kept. Who keeps them decides on quotas and
//! durability; names and sizes are checked here.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Keys in one answer.
pub const KEYS_PER_PAGE: usize = 1_000;

/// Why something was not done. `Display` is for the guest's author.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyValueError {
    /// The tenant may have no more keys.
    #[error("the tenant's buckets have {0} keys together, which is all it may have")]
    TooManyKeys(u64),
    /// The tenant may keep no more bytes.
    #[error("the tenant's buckets may have {0} bytes together, keys and values")]
    TooManyBytes(u64),
    /// What is there cannot be added to.
    #[error("its value is no number: eight bytes, the lowest first")]
    NotANumber,
    /// The sum is larger than its type.
    #[error("the sum is larger than 2^64 - 1")]
    Overflow,
    /// It could not be read or written.
    #[error("the store failed: {0}")]
    Storage(String),
    /// What another process said of it.
    #[error("{0}")]
    Said(String),
}

/// Something that a store does.
pub type KeyValueFuture<T> = Pin<Box<dyn Future<Output = Result<T, KeyValueError>> + Send>>;

/// One key of one bucket.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BucketKey {
    /// Checked, and granted.
    pub bucket: Arc<str>,
    /// At most [`KEY_BYTES_MAX`].
    pub key: String,
}

/// Keeps the buckets of one tenant. What is answered has happened, and is there after the
/// host was killed.
pub trait KeyValueStore: fmt::Debug + Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, key: BucketKey) -> KeyValueFuture<Option<Vec<u8>>>;

    /// Gives a key a value of at most [`VALUE_BYTES_MAX`].
    fn set(&self, key: BucketKey, value: Vec<u8>) -> KeyValueFuture<()>;

    /// Takes a key out, if it is there.
    fn delete(&self, key: BucketKey) -> KeyValueFuture<()>;

    /// At most [`KEYS_PER_PAGE`] keys in their order, those after this one or the first, and
    /// whether there are more. Costs no more for what stands before them.
    fn keys(&self, bucket: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)>;

    /// Adds to the number that a key has, 0 when it has none, in one step: eight bytes, the
    /// lowest first.
    fn increment(&self, key: BucketKey, delta: u64) -> KeyValueFuture<u64>;
}
