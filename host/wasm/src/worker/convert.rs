//! Frames' types ↔ those of the contract and of the rules.

use std::time::Duration;

use bytes::Bytes;
use consumer::publish::{self, OutgoingMessage};

use super::frames::{
    ConcurrentStatus, Context, Delay, Details, Failure, GuestAnswer, OrderlyStatus, Outcome,
    Outgoing, Record, Sent, Stored, Taken, Unsent,
};
use crate::bindings::exports::mqlet::listener::{concurrent, orderly};
use crate::bindings::mqlet::listener::producer;
use crate::bindings::mqlet::listener::types as wit;
use crate::failure::FailureRecord;
use crate::instance::Said;
use crate::outcome;
use consumer::listener::ConsumeMessage;

impl From<&wit::Message> for Record {
    fn from(message: &wit::Message) -> Self {
        let slice = |slice: wit::Slice| (slice.offset, slice.size);
        Self {
            slices: [message.message_id, message.body, message.properties].map(slice),
            queue_offset: message.queue_offset,
            commit_log_offset: message.commit_log_offset,
            born_timestamp_ms: message.born_timestamp_ms,
            store_timestamp_ms: message.store_timestamp_ms,
            reconsume_times: message.reconsume_times,
            flag: message.flag,
            sys_flag: message.sys_flag,
            store_size: message.store_size,
        }
    }
}

impl From<&Record> for wit::Message {
    fn from(record: &Record) -> Self {
        let [message_id, body, properties] = record
            .slices
            .map(|(offset, size)| wit::Slice { offset, size });
        Self {
            message_id,
            body,
            properties,
            queue_offset: record.queue_offset,
            commit_log_offset: record.commit_log_offset,
            born_timestamp_ms: record.born_timestamp_ms,
            store_timestamp_ms: record.store_timestamp_ms,
            reconsume_times: record.reconsume_times,
            flag: record.flag,
            sys_flag: record.sys_flag,
            store_size: record.store_size,
        }
    }
}

impl From<wit::BatchContext<'_>> for Context {
    fn from(context: wit::BatchContext<'_>) -> Self {
        Self {
            consumer_group: context.consumer_group.to_owned(),
            topic: context.topic.to_owned(),
            broker_name: context.broker_name.to_owned(),
            queue_id: context.queue_id,
            broadcasting: context.broadcasting,
        }
    }
}

impl Context {
    pub(crate) fn as_wit(&self) -> wit::BatchContext<'_> {
        wit::BatchContext {
            consumer_group: &self.consumer_group,
            topic: &self.topic,
            broker_name: &self.broker_name,
            queue_id: self.queue_id,
            broadcasting: self.broadcasting,
        }
    }
}

impl From<&ConsumeMessage<'_>> for Details {
    fn from(consumed: &ConsumeMessage<'_>) -> Self {
        let message = consumed.message;
        Self {
            born_host: message.born_host().to_string(),
            store_host: message.store_host().to_string(),
            offset_message_id: message.offset_message_id(),
            body_crc: message.body_crc().cast_unsigned(),
            prepared_transaction_offset: u64::try_from(message.prepared_transaction_offset())
                .unwrap_or(0),
        }
    }
}

impl From<Said> for GuestAnswer {
    fn from(said: Said) -> Self {
        use concurrent::{ConsumeStatus, Outcome as One};
        match said {
            Said::Concurrent(answer) => Self::Concurrent(answer.map(|status| match status {
                ConsumeStatus::ConsumeSuccess(ack_index) => ConcurrentStatus::Success(ack_index),
                ConsumeStatus::ReconsumeLater(level) => ConcurrentStatus::ReconsumeLater(level),
                ConsumeStatus::Each(outcomes) => {
                    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
                        One::Done => Outcome::Done,
                        One::ReconsumeLater(level) => Outcome::ReconsumeLater(level),
                        One::DeadLetter(reason) => Outcome::DeadLetter(reason),
                    });
                    ConcurrentStatus::Each(outcomes.collect())
                }
            })),
            Said::Orderly(answer) => Self::Orderly(answer.map(|status| match status {
                orderly::ConsumeStatus::Success => OrderlyStatus::Success,
                orderly::ConsumeStatus::SuspendCurrentQueueAMoment(milliseconds) => {
                    OrderlyStatus::Suspend(milliseconds)
                }
                orderly::ConsumeStatus::Commit => OrderlyStatus::Commit,
                orderly::ConsumeStatus::Rollback => OrderlyStatus::Rollback,
            })),
        }
    }
}

impl From<GuestAnswer> for Said {
    fn from(answer: GuestAnswer) -> Self {
        use concurrent::{ConsumeStatus, Outcome as One};
        match answer {
            GuestAnswer::Concurrent(answer) => {
                Self::Concurrent(answer.map(|status| match status {
                    ConcurrentStatus::Success(ack_index) => {
                        ConsumeStatus::ConsumeSuccess(ack_index)
                    }
                    ConcurrentStatus::ReconsumeLater(level) => ConsumeStatus::ReconsumeLater(level),
                    ConcurrentStatus::Each(outcomes) => {
                        let outcomes = outcomes.into_iter().map(|outcome| match outcome {
                            Outcome::Done => One::Done,
                            Outcome::ReconsumeLater(level) => One::ReconsumeLater(level),
                            Outcome::DeadLetter(reason) => One::DeadLetter(reason),
                        });
                        ConsumeStatus::Each(outcomes.collect())
                    }
                }))
            }
            GuestAnswer::Orderly(answer) => Self::Orderly(answer.map(|status| match status {
                OrderlyStatus::Success => orderly::ConsumeStatus::Success,
                OrderlyStatus::Suspend(milliseconds) => {
                    orderly::ConsumeStatus::SuspendCurrentQueueAMoment(milliseconds)
                }
                OrderlyStatus::Commit => orderly::ConsumeStatus::Commit,
                OrderlyStatus::Rollback => orderly::ConsumeStatus::Rollback,
            })),
        }
    }
}

impl From<FailureRecord> for Failure {
    fn from(record: FailureRecord) -> Self {
        Self {
            phase: record.phase,
            kind: record.kind,
            backtrace: record.backtrace,
            last_log_lines: record.last_log_lines,
            taken: Taken {
                wall: record.wall,
                computed: record.computed,
                memory_bytes: record.memory_bytes,
                log_lines: 0,
                log_lines_dropped: record.log_lines_dropped,
            },
        }
    }
}

impl Outgoing {
    pub(crate) fn of(message: &OutgoingMessage) -> Self {
        Self {
            topic: message.topic.clone(),
            body_bytes: u32::try_from(message.body.len()).unwrap_or(u32::MAX),
            tags: message.tags.clone(),
            keys: message.keys.clone(),
            properties: message.properties.clone(),
            delay: message.delay.map(|delay| match delay {
                publish::Delay::Level(level) => Delay::Level(level),
                publish::Delay::For(delay) => {
                    Delay::Milliseconds(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
                }
                publish::Delay::UntilUnixMs(unix_ms) => Delay::UntilMs(unix_ms),
            }),
            sharding_key: message.sharding_key.clone(),
            flag: message.flag,
        }
    }

    /// With its body, the next of these.
    pub(crate) fn with_body(self, bodies: &mut Bytes) -> Option<OutgoingMessage> {
        let bytes = usize::try_from(self.body_bytes).ok()?;
        let body = (bytes <= bodies.len()).then(|| bodies.split_to(bytes))?;
        Some(OutgoingMessage {
            topic: self.topic,
            body,
            tags: self.tags,
            keys: self.keys,
            properties: self.properties,
            delay: self.delay.map(|delay| match delay {
                Delay::Level(level) => publish::Delay::Level(level),
                Delay::Milliseconds(delay) => publish::Delay::For(Duration::from_millis(delay)),
                Delay::UntilMs(unix_ms) => publish::Delay::UntilUnixMs(unix_ms),
            }),
            sharding_key: self.sharding_key,
            flag: self.flag,
            message_id: None,
        })
    }
}

impl From<producer::SendResult> for Sent {
    fn from(result: producer::SendResult) -> Self {
        Self {
            message_id: result.message_id,
            stored: result.stored.map(|stored| Stored {
                offset_message_id: stored.offset_message_id,
                broker_name: stored.broker_name,
                queue_id: stored.queue_id,
                queue_offset: stored.queue_offset,
            }),
        }
    }
}

impl From<Sent> for producer::SendResult {
    fn from(sent: Sent) -> Self {
        Self {
            message_id: sent.message_id,
            stored: sent.stored.map(|stored| producer::StoredAt {
                offset_message_id: stored.offset_message_id,
                broker_name: stored.broker_name,
                queue_id: stored.queue_id,
                queue_offset: stored.queue_offset,
            }),
        }
    }
}

impl From<producer::SendError> for Unsent {
    fn from(error: producer::SendError) -> Self {
        use producer::SendError as Error;
        match error {
            Error::NotGranted(what) => Self::NotGranted(what),
            Error::Illegal(reason) => Self::Illegal(reason),
            Error::TooLarge(bytes_max) => Self::TooLarge(bytes_max),
            Error::RateLimited => Self::RateLimited,
            Error::NoRoute => Self::NoRoute,
            Error::Unreachable(reason) => Self::Unreachable(reason),
            Error::Timeout => Self::Timeout,
            Error::Broker(producer::BrokerError { code, remark }) => Self::Broker { code, remark },
            Error::Other(text) => Self::Other(text),
        }
    }
}

impl From<Unsent> for producer::SendError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::NotGranted(what) => Self::NotGranted(what),
            Unsent::Illegal(reason) => Self::Illegal(reason),
            Unsent::TooLarge(bytes_max) => Self::TooLarge(bytes_max),
            Unsent::RateLimited => Self::RateLimited,
            Unsent::NoRoute => Self::NoRoute,
            Unsent::Unreachable(reason) => Self::Unreachable(reason),
            Unsent::Timeout => Self::Timeout,
            Unsent::Broker { code, remark } => Self::Broker(producer::BrokerError { code, remark }),
            Unsent::Other(text) => Self::Other(text),
        }
    }
}

impl Failure {
    /// As it is kept, whatever the worker has made of it.
    pub(crate) fn bounded(mut self) -> Self {
        self.backtrace = outcome::bounded_frames(self.backtrace.iter().map(String::as_str));
        self.last_log_lines
            .truncate(crate::log_lines::LAST_LOG_LINES_MAX);
        for line in &mut self.last_log_lines {
            line.bound();
        }
        self.kind.bound();
        self
    }
}
