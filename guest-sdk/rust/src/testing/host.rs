//! The host's side of the imports, for native tests: records what a listener does.
//! One for each thread, as tests run in threads of their own.

use std::cell::RefCell;
use std::mem;

use super::{TestMessage, records};
use crate::bindings::mqlet::listener::producer as wit;
use crate::bindings::mqlet::listener::producer::{OutgoingMessage, SendError};
use crate::log::Level;

/// What the clock shows, milliseconds since 1970: always the same.
pub(super) const NOW_MS: u64 = 1_700_000_000_000;

/// A message that a listener sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentMessage {
    /// Where to.
    pub topic: String,
    /// The content.
    pub body: Vec<u8>,
    /// The tag.
    pub tag: Option<String>,
    /// The index keys.
    pub keys: Vec<String>,
    /// The properties.
    pub properties: Vec<(String, String)>,
    /// When it is delivered, if not at once.
    pub delay: Option<Delay>,
    /// The sharding key.
    pub sharding_key: Option<String>,
}

/// When a message is delivered that is not delivered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// One of RocketMQ's delay levels.
    Level(u32),
    /// So many milliseconds after the broker got it.
    Milliseconds(u64),
    /// At this time, milliseconds since 1970.
    UntilMs(u64),
}

impl From<wit::Delay> for Delay {
    fn from(delay: wit::Delay) -> Self {
        match delay {
            wit::Delay::Level(level) => Self::Level(level),
            wit::Delay::Milliseconds(milliseconds) => Self::Milliseconds(milliseconds),
            wit::Delay::UntilMs(unix_ms) => Self::UntilMs(unix_ms),
        }
    }
}

impl From<&OutgoingMessage> for SentMessage {
    fn from(message: &OutgoingMessage) -> Self {
        let message = message.clone();
        Self {
            topic: message.topic,
            body: message.body,
            tag: message.tags,
            keys: message.keys,
            properties: message.properties,
            delay: message.delay.map(Delay::from),
            sharding_key: message.sharding_key,
        }
    }
}

#[derive(Default)]
struct Host {
    messages: usize,
    log: Vec<(Level, String, String)>,
    sent: Vec<SentMessage>,
    refusal: Option<SendError>,
    /// Set while a pull task runs.
    queue: Option<PulledQueue>,
}

/// The queue of a running pull task.
#[derive(Clone, Debug)]
pub(super) struct PulledQueue {
    pub(super) min_offset: u64,
    /// In offset order, without gaps.
    pub(super) messages: Vec<TestMessage>,
    pub(super) consume_offset: Option<u64>,
    /// Why nothing can be asked for.
    pub(super) failure: Option<String>,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Makes every send of this test fail with this error from now on; `None` ends that.
pub fn refuse_sends(error: impl Into<Option<SendError>>) {
    HOST.with_borrow_mut(|host| host.refusal = error.into());
}

pub(super) fn begin(messages: usize) {
    HOST.with_borrow_mut(|host| {
        host.messages = messages;
        host.log.clear();
        host.sent.clear();
    });
}

pub(super) fn end() -> (Vec<(Level, String, String)>, Vec<SentMessage>) {
    HOST.with_borrow_mut(|host| {
        host.messages = 0;
        (mem::take(&mut host.log), mem::take(&mut host.sent))
    })
}

pub(super) fn begin_pull_task(queue: PulledQueue) {
    begin(0);
    HOST.with_borrow_mut(|host| host.queue = Some(queue));
}

/// The queue as the task left it.
pub(super) fn end_pull_task() -> Option<PulledQueue> {
    HOST.with_borrow_mut(|host| host.queue.take())
}

pub(crate) fn log(level: Level, context: &str, text: &str) {
    HOST.with_borrow_mut(|host| host.log.push((level, context.to_owned(), text.to_owned())));
}

pub(crate) mod call {
    use super::{HOST, NOW_MS};
    use crate::call::MessageDetails;

    pub(crate) fn remaining_ms() -> u32 {
        60_000
    }

    pub(crate) fn cancelled() -> bool {
        false
    }

    pub(crate) fn revision() -> String {
        "test".to_owned()
    }

    pub(crate) fn traceparent() -> Option<String> {
        None
    }

    pub(crate) fn now_ms() -> u64 {
        NOW_MS
    }

    pub(crate) fn random(count: u32) -> Vec<u8> {
        (0..count.min(4096))
            .map(|index| index.to_le_bytes()[0])
            .collect()
    }

    pub(crate) fn details(index: u32) -> Option<MessageDetails> {
        let within = HOST.with_borrow(|host| (index as usize) < host.messages);
        within.then(|| MessageDetails {
            born_host: "127.0.0.1:40000".to_owned(),
            store_host: "127.0.0.1:10911".to_owned(),
            offset_message_id: format!("7F00000100002A9F{index:016X}"),
            body_crc: 0,
            prepared_transaction_offset: 0,
        })
    }
}

pub(crate) mod producer {
    use super::{HOST, SentMessage};
    use crate::bindings::mqlet::listener::producer::{OutgoingMessage, SendError, SendResult};

    pub(crate) fn send(message: &OutgoingMessage) -> Result<SendResult, SendError> {
        HOST.with_borrow_mut(|host| {
            if let Some(error) = &host.refusal {
                return Err(error.clone());
            }
            let queue_offset = host.sent.len() as u64;
            host.sent.push(SentMessage::from(message));
            Ok(SendResult {
                message_id: format!("SENT-{queue_offset}"),
                stored: None,
            })
        })
    }

    pub(crate) fn send_batch(messages: &[OutgoingMessage]) -> Result<Vec<SendResult>, SendError> {
        messages.iter().map(send).collect()
    }

    pub(crate) fn send_oneway(message: &OutgoingMessage) -> Result<(), SendError> {
        send(message).map(drop)
    }
}

pub(crate) mod pull_consumer {
    use super::{HOST, Host, NOW_MS, PulledQueue, TestMessage, records};
    use crate::bindings::scheduled_pull::mqlet::listener::pull_consumer::{PullResult, PullStatus};
    use crate::message::Properties;

    /// As the host has it.
    const MESSAGES_MAX: u32 = 1024;

    fn with_queue<T>(ask: impl FnOnce(&mut PulledQueue) -> T) -> Result<T, String> {
        HOST.with_borrow_mut(|host| match host {
            Host { queue: None, .. } => Err("no pull task is running".to_owned()),
            Host {
                queue: Some(queue), ..
            } => match &queue.failure {
                Some(failure) => Err(failure.clone()),
                None => Ok(ask(queue)),
            },
        })
    }

    pub(crate) fn pull(
        sub_expression: &str,
        offset: u64,
        messages_max: u32,
    ) -> Result<PullResult, String> {
        if !(1..=MESSAGES_MAX).contains(&messages_max) {
            return Err(format!(
                "max-messages is {messages_max}; it must be 1 to {MESSAGES_MAX}"
            ));
        }
        let result = with_queue(|queue| answer(queue, sub_expression, offset, messages_max))?;
        HOST.with_borrow_mut(|host| host.messages = result.messages.len());
        Ok(result)
    }

    fn answer(queue: &PulledQueue, expression: &str, offset: u64, messages_max: u32) -> PullResult {
        let min_offset = queue.min_offset;
        let max_offset = min_offset + queue.messages.len() as u64;
        let result = |status, next_begin_offset, found: Vec<(u64, TestMessage)>| {
            let (messages, data) = records(found);
            PullResult {
                status,
                next_begin_offset,
                min_offset,
                max_offset,
                messages,
                data,
            }
        };
        if offset < min_offset {
            return result(PullStatus::OffsetIllegal, min_offset, Vec::new());
        }
        if offset > max_offset {
            return result(PullStatus::OffsetIllegal, max_offset, Vec::new());
        }
        if offset == max_offset {
            return result(PullStatus::NoNewMessage, offset, Vec::new());
        }
        let all = (min_offset..).zip(&queue.messages);
        let found: Vec<_> = all
            .filter(|(place, message)| *place >= offset && matches(expression, message))
            .take(messages_max as usize)
            .map(|(place, message)| (place, message.clone()))
            .collect();
        match found.last() {
            // The broker reads on to the end while nothing matches.
            None => result(PullStatus::NoMatchedMessage, max_offset, found),
            Some((last, _)) if found.len() == messages_max as usize => {
                result(PullStatus::Found, last + 1, found)
            }
            Some(_) => result(PullStatus::Found, max_offset, found),
        }
    }

    fn matches(expression: &str, message: &TestMessage) -> bool {
        let mut tags = Properties::new(&message.properties).filter(|(name, _)| *name == "TAGS");
        let tag = tags.next().map(|(_, tag)| tag);
        expression == "*" || expression.split("||").any(|one| Some(one.trim()) == tag)
    }

    pub(crate) fn fetch_consume_offset() -> Result<Option<u64>, String> {
        with_queue(|queue| queue.consume_offset)
    }

    pub(crate) fn update_consume_offset(offset: u64) -> Result<(), String> {
        with_queue(|queue| queue.consume_offset = Some(offset))
    }

    pub(crate) fn min_offset() -> Result<u64, String> {
        with_queue(|queue| queue.min_offset)
    }

    pub(crate) fn max_offset() -> Result<u64, String> {
        with_queue(|queue| queue.min_offset + queue.messages.len() as u64)
    }

    /// Every message was stored at the one time there is.
    pub(crate) fn search_offset(timestamp_ms: u64) -> Result<u64, String> {
        with_queue(|queue| {
            let later = timestamp_ms > NOW_MS;
            let messages = if later {
                queue.messages.len() as u64
            } else {
                0
            };
            queue.min_offset + messages
        })
    }
}

pub(crate) mod config {
    use super::super::reach::OUTSIDE;
    use crate::bindings::reach::wasi::config::store::Error;

    pub(crate) fn get(key: &str) -> Result<Option<String>, Error> {
        OUTSIDE.with_borrow(|outside| {
            let mut all = outside.settings.iter().chain(&outside.secrets);
            Ok(all
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.clone()))
        })
    }

    pub(crate) fn get_all() -> Result<Vec<(String, String)>, Error> {
        OUTSIDE.with_borrow(|outside| Ok(outside.settings.clone()))
    }
}

pub(crate) mod key_value {
    use std::collections::BTreeMap;

    use super::super::reach::OUTSIDE;
    use crate::bindings::reach::wasi::keyvalue::store::{Error, KeyResponse};

    /// A bucket by its name.
    pub(crate) struct Handle(String);

    pub(crate) fn open(name: &str) -> Result<Handle, Error> {
        OUTSIDE.with_borrow(|outside| match outside.buckets.contains_key(name) {
            true => Ok(Handle(name.to_owned())),
            false => Err(Error::AccessDenied),
        })
    }

    impl Handle {
        fn with<T>(
            &self,
            work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> Result<T, Error>,
        ) -> Result<T, Error> {
            OUTSIDE.with_borrow_mut(|outside| match &outside.failure {
                Some(failure) => Err(Error::Other(failure.clone())),
                None => work(outside.buckets.entry(self.0.clone()).or_default()),
            })
        }

        pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
            self.with(|bucket| Ok(bucket.get(key).cloned()))
        }

        pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
            self.with(|bucket| {
                bucket.insert(key.to_owned(), value.to_vec());
                Ok(())
            })
        }

        pub(crate) fn delete(&self, key: &str) -> Result<(), Error> {
            self.with(|bucket| {
                bucket.remove(key);
                Ok(())
            })
        }

        pub(crate) fn exists(&self, key: &str) -> Result<bool, Error> {
            self.with(|bucket| Ok(bucket.contains_key(key)))
        }

        /// Two a page, so that tests see several.
        pub(crate) fn list_keys(&self, cursor: Option<u64>) -> Result<KeyResponse, Error> {
            let after = cursor.unwrap_or(0);
            self.with(|bucket| {
                let place = usize::try_from(after).unwrap_or(usize::MAX);
                let rest = bucket.keys().skip(place);
                let has_more = rest.clone().count() > 2;
                Ok(KeyResponse {
                    keys: rest.take(2).cloned().collect(),
                    cursor: has_more.then_some(after + 2),
                })
            })
        }
    }

    pub(crate) fn increment(bucket: &Handle, key: &str, delta: u64) -> Result<u64, Error> {
        let other = |reason: &str| Error::Other(reason.to_owned());
        bucket.with(|bucket| {
            let number = match bucket.get(key) {
                None => 0,
                Some(value) => {
                    let bytes = value.as_slice().try_into();
                    u64::from_le_bytes(bytes.map_err(|_| other("its value is no number"))?)
                }
            };
            let sum = number.checked_add(delta);
            let sum = sum.ok_or_else(|| other("the sum is larger than 2^64 - 1"))?;
            bucket.insert(key.to_owned(), sum.to_le_bytes().to_vec());
            Ok(sum)
        })
    }
}

pub(crate) mod http {
    use super::super::reach::OUTSIDE;
    use crate::http::{HttpError, Request, Response};

    pub(crate) fn send(request: Request) -> Result<Response, HttpError> {
        OUTSIDE.with_borrow_mut(|outside| {
            outside.asked.push(request);
            outside
                .answers
                .pop_front()
                .unwrap_or(Err(HttpError::Denied))
        })
    }
}
