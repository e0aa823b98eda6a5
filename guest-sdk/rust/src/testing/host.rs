//! The host's side of the imports, for native tests: records what a listener does.
//! One for each thread, as tests run in threads of their own.

use std::cell::RefCell;
use std::mem;

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
    /// The delay level.
    pub delay_level: Option<u32>,
    /// The sharding key.
    pub sharding_key: Option<String>,
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
            delay_level: message.delay_level,
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
                offset_message_id: format!("7F00000100002A9F{queue_offset:016X}"),
                broker_name: "broker-a".to_owned(),
                queue_id: 0,
                queue_offset,
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
