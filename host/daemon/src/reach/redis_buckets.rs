//! The buckets of one tenant in a Redis that several hosts share.
//!
//! A bucket is a hash of values and a sorted set of its keys' names, so that a listing
//! carries no values and goes on behind a key; how many keys and bytes there are is a hash
//! beside them. What changes several of these is one script, which Redis runs in one step.
//! All names of a tenant begin with `mqlet:{TENANT}:`; the braces keep them in one slot of
//! a cluster.
//!
//! There is one connection, made when it is wanted. When it fails, what was asked over it
//! has failed, and is not asked again: nobody knows whether it was done. For a moment after
//! an attempt that failed everything fails at once, so that calls do not queue up for a
//! server that is gone.

mod scripts;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo as _, RedisError,
};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use wasm::{BucketKey, KEYS_PER_PAGE, KeyValueError, KeyValueFuture, KeyValueStore};

use super::quota::Quota;

/// Connecting and logging in. Host calls end sooner when their call has less time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// One answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// After an attempt to connect that failed.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Operations of a tenant under way at once; others wait for one of them.
const OPERATIONS_MAX: usize = 64;

/// A Redis, and who we are there.
#[derive(Clone)]
pub(crate) struct RedisPlace(ConnectionInfo);

impl RedisPlace {
    /// Of a text like `redis://10.0.0.1:6379/0`; what is wrong with it otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with("redis://") {
            return Err("is no address of a Redis");
        }
        let Ok(info) = text.into_connection_info() else {
            return Err("is no address of a Redis");
        };
        let settings = info.redis_settings();
        if settings.password().is_some() || settings.username().is_some() {
            return Err("has a user or a password in it, which everybody reads");
        }
        Ok(Self(info))
    }

    /// The same, as somebody.
    pub(crate) fn logged_in(self, username: Option<&str>, password: Option<&str>) -> Self {
        let mut settings = self.0.redis_settings().clone();
        if let Some(username) = username {
            settings = settings.set_username(username);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        Self(self.0.set_redis_settings(settings))
    }

    fn address(&self) -> &ConnectionAddr {
        self.0.addr()
    }
}

impl PartialEq for RedisPlace {
    fn eq(&self, other: &Self) -> bool {
        let of = |place: &Self| {
            let settings = place.0.redis_settings();
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let who = (owned(settings.username()), owned(settings.password()));
            (settings.db(), who)
        };
        self.address() == other.address() && of(self) == of(other)
    }
}

impl Eq for RedisPlace {}

impl fmt::Debug for RedisPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisPlace({})", self.address())
    }
}

/// A tenant's buckets; clones share them.
#[derive(Clone)]
pub(crate) struct RedisBuckets {
    shared: Arc<Shared>,
}

struct Shared {
    place: RedisPlace,
    /// What every name of the tenant begins with.
    prefix: String,
    quota: Quota,
    /// Held while a connection is made: whoever comes meanwhile gets the same one.
    link: Mutex<Link>,
    operations: Semaphore,
}

#[derive(Default)]
struct Link {
    connection: Option<MultiplexedConnection>,
    /// Why there is none, and until when no other attempt is made.
    refused: Option<(Instant, String)>,
}

impl fmt::Debug for RedisBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuckets")
            .field("place", &self.shared.place)
            .field("prefix", &self.shared.prefix)
            .field("quota", &self.shared.quota)
            .finish_non_exhaustive()
    }
}

impl RedisBuckets {
    /// Connects when it is needed.
    pub(crate) fn new(place: RedisPlace, tenant: &str, quota: Quota) -> Self {
        Self {
            shared: Arc::new(Shared {
                place,
                prefix: format!("mqlet:{{{tenant}}}:"),
                quota,
                link: Mutex::default(),
                operations: Semaphore::new(OPERATIONS_MAX),
            }),
        }
    }

    /// Asks one question over the connection.
    fn ask<T: FromRedisValue + Send + 'static>(
        &self,
        command: impl FnOnce(&Shared) -> redis::Cmd + Send + 'static,
    ) -> KeyValueFuture<T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let permit = shared.operations.acquire().await;
            let _permit = permit.map_err(|closed| shared.failed(closed))?;
            let mut connection = shared.connection().await?;
            match command(&shared).query_async(&mut connection).await {
                Ok(answer) => Ok(answer),
                Err(error) => {
                    if error.is_unrecoverable_error() || error.is_timeout() {
                        shared.link.lock().await.connection = None;
                    }
                    Err(shared.refused(&error))
                }
            }
        })
    }
}

impl Shared {
    /// The one there is, or a new one.
    async fn connection(&self) -> Result<MultiplexedConnection, KeyValueError> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection {
            return Ok(connection.clone());
        }
        if let Some((until, reason)) = &link.refused
            && Instant::now() < *until
        {
            return Err(KeyValueError::Storage(reason.clone()));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let connected = async {
            let client = Client::open(self.place.0.clone())?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        match connected.await {
            Ok(connection) => {
                link.refused = None;
                Ok(link.connection.insert(connection).clone())
            }
            Err(error) => {
                let failed = self.refused(&error);
                let until = Instant::now() + CONNECT_PAUSE;
                link.refused = Some((until, said(&error, self.place.address())));
                Err(failed)
            }
        }
    }

    fn refused(&self, error: &RedisError) -> KeyValueError {
        KeyValueError::Storage(said(error, self.place.address()))
    }

    fn failed(&self, error: impl fmt::Display) -> KeyValueError {
        let address = self.place.address();
        KeyValueError::Storage(format!("Redis at {address}: {error}"))
    }

    fn values(&self, bucket: &str) -> String {
        format!("{}values:{bucket}", self.prefix)
    }

    fn names(&self, bucket: &str) -> String {
        format!("{}keys:{bucket}", self.prefix)
    }

    fn counts(&self) -> String {
        format!("{}counts", self.prefix)
    }

    /// A script on one key of a bucket.
    fn script(&self, script: &str, key: &BucketKey) -> redis::Cmd {
        let mut command = redis::cmd("EVAL");
        command
            .arg(script)
            .arg(3)
            .arg(self.values(&key.bucket))
            .arg(self.names(&key.bucket))
            .arg(self.counts())
            .arg(&key.key)
            // As the embedded store counts: the bucket's name and a byte, for each key.
            .arg(key.bucket.len() + 1);
        command
    }

    fn within_quota(&self, script: &str, key: &BucketKey) -> redis::Cmd {
        let mut command = self.script(script, key);
        command.arg(self.quota.keys).arg(self.quota.bytes);
        command
    }
}

/// For the guest's author and the log.
fn said(error: &RedisError, address: &ConnectionAddr) -> String {
    if error.is_timeout() {
        return format!("Redis at {address} does not answer in time");
    }
    format!("Redis at {address}: {error}")
}

impl KeyValueStore for RedisBuckets {
    fn get(&self, key: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        self.ask(move |shared| {
            let mut command = redis::cmd("HGET");
            command.arg(shared.values(&key.bucket)).arg(&key.key);
            command
        })
    }

    fn set(&self, key: BucketKey, value: Vec<u8>) -> KeyValueFuture<()> {
        let quota = self.shared.quota;
        let done = self.ask::<i64>(move |shared| {
            let mut command = shared.within_quota(scripts::SET, &key);
            command.arg(value);
            command
        });
        Box::pin(async move { scripts::outcome(done.await?, quota) })
    }

    fn delete(&self, key: BucketKey) -> KeyValueFuture<()> {
        self.ask(move |shared| shared.script(scripts::DELETE, &key))
    }

    fn keys(&self, bucket: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        let names = self.ask::<Vec<Vec<u8>>>(move |shared| {
            let mut command = redis::cmd("ZRANGEBYLEX");
            let from = after.map_or("-".to_owned(), |after| format!("({after}"));
            command.arg(shared.names(&bucket)).arg(from).arg("+");
            // One more than a page shows whether there is another.
            command.arg("LIMIT").arg(0).arg(KEYS_PER_PAGE + 1);
            command
        });
        Box::pin(async move {
            let mut names = names.await?;
            let has_more = names.len() > KEYS_PER_PAGE;
            names.truncate(KEYS_PER_PAGE);
            let names = names.iter();
            let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
            Ok((names.collect(), has_more))
        })
    }

    fn increment(&self, key: BucketKey, delta: u64) -> KeyValueFuture<u64> {
        let quota = self.shared.quota;
        let place = Arc::clone(&self.shared);
        let done = self.ask::<(i64, Vec<u8>)>(move |shared| {
            let mut command = shared.within_quota(scripts::INCREMENT, &key);
            command.arg(&delta.to_le_bytes()[..]);
            command
        });
        Box::pin(async move {
            let (outcome, sum) = done.await?;
            scripts::outcome(outcome, quota)?;
            let sum = sum.try_into();
            let sum = sum.map_err(|_| place.failed("it answered no number"))?;
            Ok(u64::from_le_bytes(sum))
        })
    }
}

#[cfg(test)]
mod tests;
