//! Buckets of keys and values, which outlive calls, instances and hosts: `wasi:keyvalue`.
//!
//! Needs `keyvalue = { buckets = [...] }` in the manifest's `[grants]`. All plugins of a
//! tenant that are granted a bucket share it. A value is there when the answer is: a call
//! that fails afterwards takes nothing back, so what a message writes should be the same
//! when the message comes again.
//!
//! ```no_run
//! # use mqlet_guest::key_value::{Bucket, KeyValueError};
//! # fn main() -> Result<(), KeyValueError> {
//! let orders = Bucket::open("orders")?;
//! orders.set("4711", "paid")?;
//! assert_eq!(orders.get("4711")?.as_deref(), Some(b"paid".as_slice()));
//! let seen = orders.increment("seen", 1)?;
//! # Ok(())
//! # }
//! ```

use std::fmt;

#[cfg(target_family = "wasm")]
use crate::bindings::reach::wasi::keyvalue::{
    atomics,
    store::{self as host, Bucket as Handle},
};
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::key_value::{self as host, self as atomics, Handle};

use crate::bindings::reach::wasi::keyvalue::store::Error as WitError;

/// A bucket that is open.
pub struct Bucket(Handle);

impl Bucket {
    /// Opens a bucket of the tenant; it is made with its first key.
    ///
    /// # Errors
    /// It is not granted, or the tenant has no store.
    pub fn open(name: &str) -> Result<Self, KeyValueError> {
        Ok(Self(host::open(name)?))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The store cannot say.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(self.0.get(key)?)
    }

    /// Gives a key of at most 1024 bytes a value of at most 1 MiB.
    ///
    /// # Errors
    /// The tenant's quota is used up, or the store cannot do it.
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), KeyValueError> {
        Ok(self.0.set(key, value.as_ref())?)
    }

    /// Takes a key out, if it is there.
    ///
    /// # Errors
    /// The store cannot do it.
    pub fn delete(&self, key: &str) -> Result<(), KeyValueError> {
        Ok(self.0.delete(key)?)
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    /// The store cannot say.
    pub fn exists(&self, key: &str) -> Result<bool, KeyValueError> {
        Ok(self.0.exists(key)?)
    }

    /// All keys, page by page; with keys that change meanwhile, some may be missing or
    /// stand there twice.
    pub fn keys(&self) -> impl Iterator<Item = Result<String, KeyValueError>> + '_ {
        let mut page = Vec::new().into_iter();
        let mut next = Some(None);
        std::iter::from_fn(move || {
            loop {
                if let Some(key) = page.next() {
                    return Some(Ok(key));
                }
                match self.0.list_keys(next.take()?) {
                    Ok(found) => {
                        page = found.keys.into_iter();
                        next = found.cursor.map(Some);
                    }
                    Err(error) => return Some(Err(error.into())),
                }
            }
        })
    }

    /// Adds to the number that a key has, 0 when it has none, in one step, whoever else
    /// does; the sum. The value is the number's eight bytes, the lowest first.
    ///
    /// # Errors
    /// The value is no number, the sum too large, the quota used up, or the store cannot
    /// do it. Whether it was done is not known when the store did not answer.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64, KeyValueError> {
        Ok(atomics::increment(&self.0, key, delta)?)
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyValueError {
    /// The tenant keeps no buckets.
    NoSuchStore,
    /// The bucket is not granted.
    AccessDenied,
    /// In words: a quota, a value that is no number, a store that is gone.
    Other(String),
}

impl fmt::Display for KeyValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchStore => f.write_str("there is no store"),
            Self::AccessDenied => {
                f.write_str("the bucket is not granted; add it to keyvalue of [grants]")
            }
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for KeyValueError {}

impl From<WitError> for KeyValueError {
    fn from(error: WitError) -> Self {
        match error {
            WitError::NoSuchStore => Self::NoSuchStore,
            WitError::AccessDenied => Self::AccessDenied,
            WitError::Other(reason) => Self::Other(reason),
        }
    }
}
