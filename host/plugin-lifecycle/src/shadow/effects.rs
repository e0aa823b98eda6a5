//! What a guest does outside in the course of one request. It is told by the ports
//! (`ports.rs`), which are asked in the task of the request: that is how an effect finds its
//! request.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use consumer::publish::OutgoingMessage;
use wasm::BucketKey;

use crate::revision::Digest;

/// Effects of one request that are compared; more are counted.
const EFFECTS_MAX: usize = 1_000;
/// Of a text that is shown.
const SHOWN_CHARS: usize = 80;

tokio::task_local! {
    static CURRENT: Arc<Effects>;
}

/// Something that others can see. Bodies and values are compared by their sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A message.
    Sent {
        /// Everything but body and message id.
        head: String,
        /// Where to.
        topic: String,
        /// Bytes of its body.
        bytes: usize,
        /// Of its body.
        body: Digest,
    },
    /// A request by HTTP.
    Asked {
        /// `GET` and so on.
        method: String,
        /// Whom and what.
        uri: String,
    },
    /// A key got a value.
    Set {
        /// Bucket and key.
        key: String,
        /// Of the value.
        value: Digest,
    },
    /// A key went.
    Deleted {
        /// Bucket and key.
        key: String,
    },
    /// A number grew.
    Incremented {
        /// Bucket and key.
        key: String,
        /// By so much.
        delta: u64,
    },
}

impl Effect {
    pub(super) fn sent(message: &OutgoingMessage) -> Self {
        let OutgoingMessage {
            topic,
            body,
            tags,
            keys,
            properties,
            delay,
            sharding_key,
            flag,
            message_id: _,
        } = message;
        Self::Sent {
            head: format!("{tags:?} {keys:?} {properties:?} {delay:?} {sharding_key:?} {flag}"),
            topic: topic.clone(),
            bytes: body.len(),
            body: Digest::of(body),
        }
    }

    pub(super) fn set(key: &BucketKey, value: &[u8]) -> Self {
        Self::Set {
            key: named(key),
            value: Digest::of(value),
        }
    }

    pub(super) fn deleted(key: &BucketKey) -> Self {
        Self::Deleted { key: named(key) }
    }

    pub(super) fn incremented(key: &BucketKey, delta: u64) -> Self {
        Self::Incremented {
            key: named(key),
            delta,
        }
    }
}

fn named(key: &BucketKey) -> String {
    format!("{}/{}", key.bucket, key.key)
}

/// For people: one line.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(SHOWN_CHARS).collect::<String>();
        match self {
            Self::Sent {
                head,
                topic,
                bytes,
                body,
            } => write!(
                f,
                "sends to {topic}: {bytes} bytes ({}), {}",
                body.short(),
                short(head)
            ),
            Self::Asked { method, uri } => write!(f, "asks {method} {}", short(uri)),
            Self::Set { key, value } => write!(f, "sets {} ({})", short(key), value.short()),
            Self::Deleted { key } => write!(f, "deletes {}", short(key)),
            Self::Incremented { key, delta } => write!(f, "adds {delta} to {}", short(key)),
        }
    }
}

/// Those of one request.
#[derive(Default, Debug)]
pub(crate) struct Effects {
    /// Held for an entry.
    seen: Mutex<(Vec<Effect>, u64)>,
}

impl Effects {
    /// What happens in this future belongs to this request.
    pub(super) async fn of<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(Arc::clone(self), future).await
    }

    pub(super) fn count(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    pub(super) fn list(&self) -> Vec<Effect> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0.clone()
    }
}

/// Notes what the request of this task does; nothing where nobody looks.
pub(super) fn note(effect: impl FnOnce() -> Effect) {
    // Outside a request that is looked at there is none.
    let _ = CURRENT.try_with(|effects| {
        let mut seen = effects.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1 += 1;
        if seen.0.len() < EFFECTS_MAX {
            seen.0.push(effect());
        }
    });
}
