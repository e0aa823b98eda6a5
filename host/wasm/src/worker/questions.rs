//! What a worker's guests ask of their host, checked and answered as if they ran here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::frames::{Answer, InstanceId, Outgoing, Question, QuestionId, Sent, Unsent};
use super::host::Shared;
use crate::imports::producer::{Accepted, Sender};
use crate::key_value::{BucketKey, KEY_BYTES_MAX, KeyValueStore, VALUE_BYTES_MAX};
use crate::outbox::Outbox;
use crate::plugin::Plugin;

/// What a call that runs in a worker has at its host.
pub(crate) struct CallAtHost {
    pub(crate) outbox: Outbox,
    /// By the wall clock.
    pub(crate) deadline: Instant,
}

pub(super) async fn answer(shared: Arc<Shared>, id: QuestionId, question: Question, bytes: Bytes) {
    let (answer, bytes) = match question {
        Question::Send {
            instance,
            messages,
            oneway,
            remaining,
        } => {
            let sent = send(&shared, instance, messages, bytes, oneway, remaining).await;
            (Answer::Sent(sent), Bytes::new())
        }
        question => of_buckets(&shared.plugin, question, bytes).await,
    };
    shared.answer(id, answer, bytes).await;
}

async fn send(
    shared: &Shared,
    instance: Option<InstanceId>,
    messages: Vec<Outgoing>,
    mut bodies: Bytes,
    oneway: bool,
    remaining: Duration,
) -> Result<Vec<Sent>, Unsent> {
    let plugin = &*shared.plugin;
    let messages = messages
        .into_iter()
        .map(|message| message.with_body(&mut bodies))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Unsent::Other("a body is missing".to_owned()))?;
    let in_call = instance.and_then(|instance| {
        shared.with_call(instance, |call| {
            let mut sender = Sender {
                plugin,
                outbox: &mut call.outbox,
                is_in_call: true,
            };
            let left = call.deadline.saturating_duration_since(Instant::now());
            (sender.accept(messages.clone(), oneway), left)
        })
    });
    let (accepted, left) = in_call.unwrap_or_else(|| {
        let mut sender = Sender {
            plugin,
            outbox: &mut Outbox::default(),
            is_in_call: false,
        };
        (sender.accept(messages, oneway), plugin.init_time())
    });
    let results = match accepted? {
        Accepted::Waiting(results) => results,
        Accepted::Leaving(messages) => messages.leave(plugin, remaining.min(left)).await?,
    };
    Ok(results.into_iter().map(Into::into).collect())
}

async fn of_buckets(plugin: &Plugin, question: Question, value: Bytes) -> (Answer, Bytes) {
    let nothing = Bytes::new();
    match question {
        Question::Get(bucket, key) => {
            let value = match granted(plugin, bucket, key) {
                Ok((store, key)) => store.get(key).await.map_err(|error| error.to_string()),
                Err(refused) => Err(refused),
            };
            match value {
                Ok(Some(value)) => (Answer::Value(Ok(true)), value.into()),
                Ok(None) => (Answer::Value(Ok(false)), nothing),
                Err(error) => (Answer::Value(Err(error)), nothing),
            }
        }
        Question::Set(bucket, key) => {
            let done = match granted(plugin, bucket, key) {
                Ok(_) if value.len() > VALUE_BYTES_MAX => {
                    Err(format!("a value has at most {VALUE_BYTES_MAX} bytes"))
                }
                Ok((store, key)) => {
                    let setting = store.set(key, value.to_vec());
                    setting.await.map_err(|error| error.to_string())
                }
                Err(refused) => Err(refused),
            };
            (Answer::Done(done), nothing)
        }
        Question::Delete(bucket, key) => {
            let done = match granted(plugin, bucket, key) {
                Ok((store, key)) => store.delete(key).await.map_err(|error| error.to_string()),
                Err(refused) => Err(refused),
            };
            (Answer::Done(done), nothing)
        }
        Question::Keys(bucket, after) => {
            let keys = match granted(plugin, bucket, "-".to_owned()) {
                Ok((store, key)) => {
                    let listing = store.keys(key.bucket, after);
                    listing.await.map_err(|error| error.to_string())
                }
                Err(refused) => Err(refused),
            };
            (Answer::Keys(keys), nothing)
        }
        Question::Increment(bucket, key, delta) => {
            let number = match granted(plugin, bucket, key) {
                Ok((store, key)) => {
                    let adding = store.increment(key, delta);
                    adding.await.map_err(|error| error.to_string())
                }
                Err(refused) => Err(refused),
            };
            (Answer::Number(number), nothing)
        }
        Question::Send { .. } => {
            let nobody = Unsent::Other("it is no question about buckets".to_owned());
            (Answer::Sent(Err(nobody)), nothing)
        }
    }
}

/// The store, and a key that the plugin may use. Guests were checked by their worker
/// already: this is for a worker that is no longer ours.
fn granted(
    plugin: &Plugin,
    bucket: String,
    key: String,
) -> Result<(&dyn KeyValueStore, BucketKey), String> {
    let config = &plugin.config;
    if !config.grants.buckets.contains(&bucket) {
        return Err("the bucket is not granted".to_owned());
    }
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(format!("a key has 1 to {KEY_BYTES_MAX} bytes"));
    }
    let store = config.key_value.as_deref().ok_or("there is no store")?;
    let bucket = bucket.into();
    Ok((store, BucketKey { bucket, key }))
}
