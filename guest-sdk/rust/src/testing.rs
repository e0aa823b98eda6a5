//! Unit tests of listeners, natively, without a host.
//!
//! ```
//! # use mqlet_guest::{ConcurrentListener, Error, Message, Outcome, info};
//! # #[derive(Default)]
//! # struct Hello;
//! # impl ConcurrentListener for Hello {
//! #     fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
//! #         info!("hello, {}", message.body_text()?);
//! #         Ok(Outcome::Done)
//! #     }
//! # }
//! use mqlet_guest::testing::{consume, message};
//!
//! let run = consume(&mut Hello, [message("topic").body("world").tag("A")]);
//!
//! assert_eq!(run.outcomes(), [Outcome::Done]);
//! assert_eq!(run.log_texts(), ["hello, world"]);
//! ```
//!
//! [`consume_orderly`] does the same for orderly listeners, [`do_pull_task`] for pull tasks.
//!
//! Sends succeed and are recorded; [`refuse_sends`] makes them fail. [`set_config`],
//! [`grant_bucket`] and [`answer_http`] are what a plugin reaches outside. The host proper does
//! more (limits, retries, order): `mqlet dev` shows that.

pub(crate) mod host;
mod orderly;
mod pull_task;
mod reach;

use crate::bindings::exports::mqlet::listener::concurrent::{BatchContext, Message as Record};
use crate::bindings::mqlet::listener::types::Slice;
use crate::listener::ConcurrentBatchListener;
use crate::log::Level;
use crate::message::Batch;
use crate::outcome::{ConsumeStatus, Outcome};

pub use host::{SentMessage, refuse_sends};
pub use orderly::{OrderlyRun, consume_orderly};
pub use pull_task::{PullRun, TestQueue, do_pull_task, queue};
pub use reach::{answer_http, asked_by_http, bucket, fail_buckets, grant_bucket, set_config};

/// A message to be given to a listener.
#[derive(Clone, Debug)]
pub struct TestMessage {
    topic: String,
    message_id: String,
    body: Vec<u8>,
    properties: Vec<u8>,
    reconsume_times: u32,
    flag: i32,
}

/// A message of a topic, with an empty body and no properties.
pub fn message(topic: &str) -> TestMessage {
    TestMessage {
        topic: topic.to_owned(),
        message_id: String::new(),
        body: Vec::new(),
        properties: Vec::new(),
        reconsume_times: 0,
        flag: 0,
    }
}

impl TestMessage {
    /// The content.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The tag.
    pub fn tag(self, tag: &str) -> Self {
        self.property("TAGS", tag)
    }

    /// The index keys, separated by spaces.
    pub fn keys(self, keys: &str) -> Self {
        self.property("KEYS", keys)
    }

    /// Adds a property.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties
            .extend_from_slice(format!("{name}\u{1}{value}\u{2}").as_bytes());
        self
    }

    /// How often it was tried before.
    pub fn reconsume_times(mut self, times: u32) -> Self {
        self.reconsume_times = times;
        self
    }

    /// The id; `ID-0`, `ID-1`, … by position in the batch when none is given.
    pub fn message_id(mut self, message_id: &str) -> Self {
        message_id.clone_into(&mut self.message_id);
        self
    }

    /// The sender's own 32 bits.
    pub fn flag(mut self, flag: i32) -> Self {
        self.flag = flag;
        self
    }
}

/// Messages with their offsets, as the host hands them over, and the bytes of all.
pub(crate) fn records(
    messages: impl IntoIterator<Item = (u64, TestMessage)>,
) -> (Vec<Record>, Vec<u8>) {
    let mut data = Vec::new();
    let mut add = |bytes: &[u8]| {
        let offset = u32::try_from(data.len()).expect("a batch has less than 4 GiB");
        let size = u32::try_from(bytes.len()).expect("a batch has less than 4 GiB");
        data.extend_from_slice(bytes);
        Slice { offset, size }
    };
    let records = messages.into_iter().map(|(queue_offset, message)| {
        let message_id = match message.message_id.as_str() {
            "" => format!("ID-{queue_offset}"),
            message_id => message_id.to_owned(),
        };
        Record {
            message_id: add(message_id.as_bytes()),
            body: add(&message.body),
            properties: add(&message.properties),
            queue_offset,
            commit_log_offset: 0,
            born_timestamp_ms: host::NOW_MS,
            store_timestamp_ms: host::NOW_MS,
            reconsume_times: message.reconsume_times,
            flag: message.flag,
            sys_flag: 0,
            store_size: 0,
        }
    });
    let records = records.collect();
    (records, data)
}

/// What came of a call.
#[derive(Debug)]
pub struct Run {
    /// The listener's answer; an error as its text.
    pub status: Result<ConsumeStatus, String>,
    /// What it logged: level, context, text.
    pub log: Vec<(Level, String, String)>,
    /// What it sent.
    pub sent: Vec<SentMessage>,
    messages: usize,
}

impl Run {
    /// One outcome for each message, as the host reads the answer.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let later = Outcome::reconsume_later();
        match &self.status {
            Ok(ConsumeStatus::ConsumeSuccess) => vec![Outcome::Done; self.messages],
            Ok(ConsumeStatus::AckIndex(last)) => {
                let done = usize::try_from(i64::from(*last) + 1)
                    .unwrap_or(0)
                    .min(self.messages);
                let mut outcomes = vec![Outcome::Done; done];
                outcomes.resize(self.messages, later);
                outcomes
            }
            Ok(ConsumeStatus::ReconsumeLater { delay_level }) => {
                vec![
                    Outcome::ReconsumeLater {
                        delay_level: *delay_level
                    };
                    self.messages
                ]
            }
            Ok(ConsumeStatus::Each(outcomes)) => {
                let mut outcomes = outcomes.clone();
                outcomes.resize(self.messages, later);
                outcomes
            }
            Err(_) => vec![later; self.messages],
        }
    }

    /// The texts of the log lines.
    pub fn log_texts(&self) -> Vec<&str> {
        self.log.iter().map(|(_, _, text)| text.as_str()).collect()
    }
}

/// Calls a listener with a batch, as the host would.
///
/// # Panics
/// When there is no message, or they are of several topics: the host never does that.
pub fn consume(
    listener: &mut impl ConcurrentBatchListener,
    messages: impl IntoIterator<Item = TestMessage>,
) -> Run {
    let batch = batch(messages);
    host::begin(batch.len());
    let status = listener
        .consume_batch(&batch)
        .map_err(|error| error.to_string());
    let (log, sent) = host::end();
    Run {
        status,
        log,
        sent,
        messages: batch.len(),
    }
}

/// A batch as the host hands it over.
fn batch(messages: impl IntoIterator<Item = TestMessage>) -> Batch {
    let messages: Vec<_> = messages.into_iter().collect();
    let topic = messages
        .first()
        .expect("a batch has a message")
        .topic
        .clone();
    assert!(
        messages.iter().all(|message| message.topic == topic),
        "the messages of a batch have one topic"
    );
    let (records, data) = records((0..).zip(messages));
    Batch::new(context(topic), records, data)
}

fn context(topic: String) -> BatchContext {
    BatchContext {
        consumer_group: "test-group".to_owned(),
        topic,
        broker_name: "broker-a".to_owned(),
        queue_id: 0,
        broadcasting: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::OutgoingMessage;
    use crate::{ConcurrentListener, Error, Message};

    struct Forward;

    impl ConcurrentListener for Forward {
        fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
            OutgoingMessage::new("out", message.body())
                .tag("forwarded")
                .property("from", message.message_id())
                .send()?;
            Ok(Outcome::Done)
        }
    }

    #[test]
    fn sent_messages_are_recorded_and_refused_when_asked() {
        let run = consume(&mut Forward, [message("in").body("a")]);
        assert_eq!(run.outcomes(), [Outcome::Done]);
        assert_eq!(run.sent.len(), 1);
        assert_eq!(run.sent[0].topic, "out");
        assert_eq!(
            run.sent[0].properties,
            [("from".to_owned(), "ID-0".to_owned())]
        );

        refuse_sends(crate::producer::SendError::RateLimited);
        let run = consume(&mut Forward, [message("in").body("a")]);
        assert_eq!(run.outcomes(), [Outcome::reconsume_later()]);
        assert!(run.sent.is_empty());
    }

    #[test]
    fn answers_are_read_as_the_host_reads_them() {
        let run = |status| Run {
            status,
            log: Vec::new(),
            sent: Vec::new(),
            messages: 2,
        };
        let (done, later) = (Outcome::Done, Outcome::reconsume_later());
        for (status, expected) in [
            (
                Ok(ConsumeStatus::AckIndex(-7)),
                [later.clone(), later.clone()],
            ),
            (
                Ok(ConsumeStatus::AckIndex(0)),
                [done.clone(), later.clone()],
            ),
            (Ok(ConsumeStatus::AckIndex(9)), [done.clone(), done.clone()]),
            (
                Ok(ConsumeStatus::Each(vec![done.clone()])),
                [done, later.clone()],
            ),
            (Err("no".to_owned()), [later.clone(), later]),
        ] {
            assert_eq!(run(status).outcomes(), expected);
        }
    }
}
