//! The ports of a plugin, twice: as they are, with what goes through them noted for the
//! shadow beside (`watched`); and of a shadow, which notes and does nothing (`sealed`).
//!
//! A shadow's reads are real: keys have the values that the tenant's store has. What it
//! writes it does not read again. A message it sends has a place that does not exist, and a
//! server it asks by HTTP answers 200 with an empty body.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture, SendResult};
use protocol::{MessageQueue, QueueOffset};
use wasm::{BucketKey, HttpTap, HttpTapped, KeyValueError, KeyValueFuture, KeyValueStore};

use super::effects::{Effect, note};

/// Whether what goes through is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// It is, and noted.
    Watched,
    /// It is noted and nothing else.
    Sealed,
}

/// Sends, or does not.
pub(crate) fn producer(doing: Doing, real: Arc<dyn MessageProducer>) -> Arc<dyn MessageProducer> {
    Arc::new(Producer { doing, real })
}

/// Keeps, or does not.
pub(crate) fn store(doing: Doing, real: Arc<dyn KeyValueStore>) -> Arc<dyn KeyValueStore> {
    Arc::new(Store { doing, real })
}

/// Asks, or does not.
pub(crate) fn http(doing: Doing) -> Arc<dyn HttpTap> {
    Arc::new(Http(doing))
}

struct Producer {
    doing: Doing,
    real: Arc<dyn MessageProducer>,
}

impl MessageProducer for Producer {
    fn prepare(&self, messages: &mut [OutgoingMessage]) -> Result<(), SendError> {
        self.real.prepare(messages)
    }

    fn send(&self, mut messages: Vec<OutgoingMessage>, timeout: Duration) -> SendFuture {
        messages
            .iter()
            .for_each(|message| note(|| Effect::sent(message)));
        match self.doing {
            Doing::Watched => self.real.send(messages, timeout),
            Doing::Sealed => {
                let answer = match self.real.prepare(&mut messages) {
                    Ok(()) => Ok(messages.into_iter().map(nowhere).collect()),
                    Err(error) => Err(error),
                };
                Box::pin(std::future::ready(answer))
            }
        }
    }

    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture {
        note(|| Effect::sent(&message));
        match self.doing {
            Doing::Watched => self.real.send_oneway(message),
            Doing::Sealed => Box::pin(std::future::ready(Ok(Vec::new()))),
        }
    }
}

fn nowhere(message: OutgoingMessage) -> SendResult {
    SendResult {
        message_id: message.message_id.unwrap_or_default(),
        offset_message_id: String::new(),
        message_queue: MessageQueue::new(message.topic.as_str(), "shadow", 0),
        queue_offset: QueueOffset(0),
    }
}

struct Store {
    doing: Doing,
    real: Arc<dyn KeyValueStore>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.real, self.doing)
    }
}

impl KeyValueStore for Store {
    fn get(&self, key: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        self.real.get(key)
    }

    fn set(&self, key: BucketKey, value: Vec<u8>) -> KeyValueFuture<()> {
        note(|| Effect::set(&key, &value));
        match self.doing {
            Doing::Watched => self.real.set(key, value),
            Doing::Sealed => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn delete(&self, key: BucketKey) -> KeyValueFuture<()> {
        note(|| Effect::deleted(&key));
        match self.doing {
            Doing::Watched => self.real.delete(key),
            Doing::Sealed => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn keys(&self, bucket: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        self.real.keys(bucket, after)
    }

    fn increment(&self, key: BucketKey, delta: u64) -> KeyValueFuture<u64> {
        note(|| Effect::incremented(&key, delta));
        match self.doing {
            Doing::Watched => self.real.increment(key, delta),
            Doing::Sealed => {
                let now = self.real.get(key);
                Box::pin(async move { sum(now.await?, delta) })
            }
        }
    }
}

/// As a store adds: eight bytes, the lowest first.
fn sum(now: Option<Vec<u8>>, delta: u64) -> Result<u64, KeyValueError> {
    let now = now.unwrap_or_else(|| vec![0; 8]);
    let now = <[u8; 8]>::try_from(now).map_err(|_| KeyValueError::NotANumber)?;
    let sum = u64::from_le_bytes(now).checked_add(delta);
    sum.ok_or(KeyValueError::Overflow)
}

#[derive(Debug)]
struct Http(Doing);

impl HttpTap for Http {
    fn asks(&self, method: &str, uri: &str) -> HttpTapped {
        note(|| Effect::Asked {
            method: method.to_owned(),
            uri: uri.to_owned(),
        });
        match self.0 {
            Doing::Watched => HttpTapped::Send,
            Doing::Sealed => HttpTapped::Answer(200),
        }
    }
}
