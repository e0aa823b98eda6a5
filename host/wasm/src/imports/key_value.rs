//! `wasi:keyvalue`, store and atomics: buckets that the grant names, kept by the tenant's
//! [`KeyValueStore`](crate::KeyValueStore), within the time that the call has left.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::Resource;

use crate::bindings::reach::wasi::keyvalue::{atomics, store as wit};
use crate::event::Event;
use crate::key_value::{
    BucketKey, KEY_BYTES_MAX, KeyValueError, KeyValueFuture, KeyValueStore, VALUE_BYTES_MAX,
};
use crate::plugin::Plugin;
use crate::store::State;

/// A bucket that was opened.
#[expect(unreachable_pub, reason = "generated code gives it on")]
pub struct Bucket {
    name: Arc<str>,
    store: Arc<dyn KeyValueStore>,
    /// Where a listing goes on; one at a time.
    listing: Option<Listing>,
    listings: u64,
}

/// A page that was given out, and has others behind it.
struct Listing {
    /// What the guest knows it by.
    cursor: u64,
    last: String,
}

impl Bucket {
    fn key(&self, key: String) -> Result<BucketKey, wit::Error> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            return Err(wit::Error::Other(format!(
                "the key has {bytes} bytes; it must have 1 to {KEY_BYTES_MAX}"
            )));
        }
        let bucket = Arc::clone(&self.name);
        Ok(BucketKey { bucket, key })
    }
}

/// What a function of `wasi:keyvalue` comes to; a trap only for a handle that is none.
type Answer<T> = wasmtime::Result<Result<T, wit::Error>>;

impl wit::Host for State {
    async fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>> {
        let config = &self.plugin.config;
        let Some(name) = config
            .grants
            .buckets
            .iter()
            .find(|name| **name == identifier)
        else {
            return Ok(Err(wit::Error::AccessDenied));
        };
        let Some(store) = &config.key_value else {
            return Ok(Err(wit::Error::NoSuchStore));
        };
        let bucket = Bucket {
            name: name.as_str().into(),
            store: Arc::clone(store),
            listing: None,
            listings: 0,
        };
        Ok(Ok(self.table.push(bucket)?))
    }
}

impl State {
    /// What the handle stands for, and who waits for it.
    fn bucket(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<(&Bucket, Waiting)> {
        let bucket = self.table.get(bucket)?;
        let waiting = Waiting {
            // A tenth is left for what the guest makes of an answer that did not come.
            time: self.clock.remaining().mul_f64(0.9),
            plugin: Arc::clone(&self.plugin),
            bucket: Arc::clone(&bucket.name),
        };
        Ok((bucket, waiting))
    }
}

/// A call that waits for its tenant's store.
struct Waiting {
    time: Duration,
    plugin: Arc<Plugin>,
    bucket: Arc<str>,
}

impl Waiting {
    /// The answer. That there is none is the guest's to handle, and an event.
    async fn wait_for<T>(self, asked: KeyValueFuture<T>) -> Result<T, wit::Error> {
        let late = |_| {
            let reason = "it does not answer in the time that the call has left";
            Err(KeyValueError::Storage(reason.to_owned()))
        };
        let answer = tokio::time::timeout(self.time, asked).await;
        answer.unwrap_or_else(late).map_err(|error| {
            if let KeyValueError::Storage(reason) = &error {
                self.plugin.emit(&Event::KeyValueFailed {
                    plugin: self.plugin.name(),
                    revision: self.plugin.revision(),
                    bucket: self.bucket,
                    reason: reason.clone(),
                });
            }
            wit::Error::Other(error.to_string())
        })
    }
}

impl wit::HostBucket for State {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let (bucket, waiting) = self.bucket(&bucket)?;
        let asked = match bucket.key(key) {
            Ok(key) => bucket.store.get(key),
            Err(error) => return Ok(Err(error)),
        };
        Ok(waiting.wait_for(asked).await)
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<()> {
        let (bucket, waiting) = self.bucket(&bucket)?;
        let key = match bucket.key(key) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        if value.len() > VALUE_BYTES_MAX {
            let bytes = value.len();
            return Ok(Err(wit::Error::Other(format!(
                "the value has {bytes} bytes, more than the {VALUE_BYTES_MAX} allowed"
            ))));
        }
        let asked = bucket.store.set(key, value);
        Ok(waiting.wait_for(asked).await)
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<()> {
        let (bucket, waiting) = self.bucket(&bucket)?;
        let asked = match bucket.key(key) {
            Ok(key) => bucket.store.delete(key),
            Err(error) => return Ok(Err(error)),
        };
        Ok(waiting.wait_for(asked).await)
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool> {
        let value = self.get(bucket, key).await?;
        Ok(value.map(|value| value.is_some()))
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<Bucket>,
        cursor: Option<u64>,
    ) -> Answer<wit::KeyResponse> {
        let (opened, waiting) = self.bucket(&bucket)?;
        let after = match (cursor, &opened.listing) {
            (None, _) => None,
            (Some(cursor), Some(listing)) if listing.cursor == cursor => Some(listing.last.clone()),
            (Some(cursor), _) => {
                return Ok(Err(wit::Error::Other(format!(
                    "{cursor} is not the cursor that this bucket's last page came with; begin without one"
                ))));
            }
        };
        let asked = opened.store.keys(Arc::clone(&opened.name), after);
        let (keys, has_more) = match waiting.wait_for(asked).await {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let opened = self.table.get_mut(&bucket)?;
        opened.listing = keys.last().filter(|_| has_more).map(|last| {
            opened.listings += 1;
            Listing {
                cursor: opened.listings,
                last: last.clone(),
            }
        });
        let cursor = opened.listing.as_ref().map(|listing| listing.cursor);
        Ok(Ok(wit::KeyResponse { keys, cursor }))
    }

    async fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for State {
    async fn increment(
        &mut self,
        bucket: Resource<Bucket>,
        key: String,
        delta: u64,
    ) -> Answer<u64> {
        let (bucket, waiting) = self.bucket(&bucket)?;
        let asked = match bucket.key(key) {
            Ok(key) => bucket.store.increment(key, delta),
            Err(error) => return Ok(Err(error)),
        };
        Ok(waiting.wait_for(asked).await)
    }
}
