//! A worker's way to its host, for what a guest asks of it: messages to send, buckets.
//! Nothing is decided here; grants are the host's to check.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};

use super::frames::{
    Answer, Frame, FromWorker, InstanceId, Outgoing, Question, QuestionId, Sent, Unsent,
};
use crate::key_value::{BucketKey, KeyValueError, KeyValueFuture, KeyValueStore};

/// The host, as a worker sees it.
pub(crate) struct HostLink {
    frames: mpsc::Sender<Frame>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: QuestionId,
    answers: BTreeMap<QuestionId, oneshot::Sender<(Answer, Bytes)>>,
}

impl fmt::Debug for HostLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostLink")
    }
}

impl HostLink {
    pub(crate) fn new(frames: mpsc::Sender<Frame>) -> Self {
        Self {
            frames,
            waiting: Mutex::default(),
        }
    }

    /// Tells something without an answer.
    pub(crate) async fn tell(&self, told: &FromWorker) {
        // Without its host a worker ends (`plugin.rs`).
        let _gone = self.frames.send(Frame::new(told, Bytes::new())).await;
    }

    /// The same where nobody may wait; left out when the host is behind.
    pub(crate) fn try_tell(&self, told: &FromWorker) {
        let _left_out = self.frames.try_send(Frame::new(told, Bytes::new()));
    }

    /// `None`: the host is gone, and so is everything soon.
    async fn ask(&self, question: Question, bytes: impl Into<Bytes>) -> Option<(Answer, Bytes)> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let waiting = &mut *self.waiting();
            waiting.next += 1;
            waiting.answers.insert(waiting.next, answer);
            waiting.next
        };
        let frame = Frame::new(&FromWorker::Ask(id, question), bytes);
        self.frames.send(frame).await.ok()?;
        answered.await.ok()
    }

    pub(crate) fn answered(&self, id: QuestionId, answer: Answer, bytes: Bytes) {
        let asked = self.waiting().answers.remove(&id);
        if let Some(asked) = asked {
            // Whoever asked may be gone.
            let _unwanted = asked.send((answer, bytes));
        }
    }

    pub(crate) async fn send(
        &self,
        instance: Option<InstanceId>,
        messages: Vec<(Outgoing, Bytes)>,
        oneway: bool,
        remaining: Duration,
    ) -> Result<Vec<Sent>, Unsent> {
        let mut bodies = BytesMut::new();
        let mut heads = Vec::with_capacity(messages.len());
        for (head, body) in messages {
            bodies.extend_from_slice(&body);
            heads.push(head);
        }
        let question = Question::Send {
            instance,
            messages: heads,
            oneway,
            remaining,
        };
        match self.ask(question, bodies).await {
            Some((Answer::Sent(sent), _)) => sent,
            _ => Err(Unsent::Other("the host gave no answer".to_owned())),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing under this lock panics, and what it guards stays well-formed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tenant's buckets, at the host.
#[derive(Clone, Debug)]
pub(crate) struct BucketsOfHost(pub(crate) Arc<HostLink>);

impl BucketsOfHost {
    fn ask<T: 'static>(
        &self,
        question: Question,
        bytes: Bytes,
        answer: fn(Answer, Bytes) -> Option<Result<T, String>>,
    ) -> KeyValueFuture<T> {
        let host = Arc::clone(&self.0);
        Box::pin(async move {
            let answered = host.ask(question, bytes).await;
            let answered = answered.and_then(|(said, bytes)| answer(said, bytes));
            let nothing = || Err("the host gave no answer".to_owned());
            // The host's words are for the guest as they are.
            answered
                .unwrap_or_else(nothing)
                .map_err(KeyValueError::Said)
        })
    }
}

impl KeyValueStore for BucketsOfHost {
    fn get(&self, BucketKey { bucket, key }: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        let question = Question::Get(bucket.to_string(), key);
        self.ask(question, Bytes::new(), |answer, bytes| match answer {
            Answer::Value(Ok(is_there)) => Some(Ok(is_there.then(|| bytes.to_vec()))),
            Answer::Value(Err(error)) => Some(Err(error)),
            _ => None,
        })
    }

    fn set(&self, BucketKey { bucket, key }: BucketKey, value: Vec<u8>) -> KeyValueFuture<()> {
        let question = Question::Set(bucket.to_string(), key);
        self.ask(question, value.into(), done)
    }

    fn delete(&self, BucketKey { bucket, key }: BucketKey) -> KeyValueFuture<()> {
        let question = Question::Delete(bucket.to_string(), key);
        self.ask(question, Bytes::new(), done)
    }

    fn keys(&self, bucket: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        let question = Question::Keys(bucket.to_string(), after);
        self.ask(question, Bytes::new(), |answer, _| match answer {
            Answer::Keys(keys) => Some(keys),
            _ => None,
        })
    }

    fn increment(&self, BucketKey { bucket, key }: BucketKey, delta: u64) -> KeyValueFuture<u64> {
        let question = Question::Increment(bucket.to_string(), key, delta);
        self.ask(question, Bytes::new(), |answer, _| match answer {
            Answer::Number(number) => Some(number),
            _ => None,
        })
    }
}

fn done(answer: Answer, _: Bytes) -> Option<Result<(), String>> {
    match answer {
        Answer::Done(done) => Some(done),
        _ => None,
    }
}
