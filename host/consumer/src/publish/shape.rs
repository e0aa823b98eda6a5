//! What is sent: messages checked, given ids and encoded, ready but for their queue.

use bytes::Bytes;
use protocol::header::SendMessageRequestHeader;
use protocol::message::codec::{self, BatchMessage};
use protocol::message::properties;
use protocol::subscription::tag_hash;
use protocol::{Instant, topic};

use crate::client::Client;
use crate::heartbeat::CLIENT_INNER_PRODUCER_GROUP;
use crate::publish::{Delay, OutgoingMessage, SendError, SendMode};

/// Characters of an id with an IPv6 address in it.
const ID_CHARS_MAX: usize = 56;
/// What a message of a batch takes beside body and properties.
const BATCHED_MESSAGE_BYTES: usize = 22;
/// Messages of one batch.
const BATCH_MESSAGES_MAX: usize = 1024;

/// A message or batch, ready but for its queue.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Without topic defaults, queue and broker.
    pub(crate) header: SendMessageRequestHeader,
    pub(crate) body: Bytes,
    /// UNIQ_KEYs, one a message.
    pub(crate) message_ids: Vec<String>,
    /// Hash of the sharding key.
    pub(crate) sharding: Option<u32>,
    pub(crate) oneway: bool,
}

impl Client {
    /// Checks messages and gives them ids.
    pub(super) fn shape(
        &mut self,
        messages: &[OutgoingMessage],
        mode: SendMode,
        now: Instant,
    ) -> Result<Shape, SendError> {
        let first = messages.first().ok_or_else(|| SendError::Illegal {
            reason: "there is no message to send".to_owned(),
        })?;
        check_each(messages, self.config.max_message_size)?;
        let unix_ms = self.clock.unix_ms(now);
        let ids: Vec<String> = messages
            .iter()
            .map(|message| match &message.message_id {
                Some(id) => id.clone(),
                None => self.ids.next_id(unix_ms),
            })
            .collect();
        let header = SendMessageRequestHeader {
            producer_group: CLIENT_INNER_PRODUCER_GROUP.to_owned(),
            topic: topic::wrap_namespace(&self.config.namespace, &first.topic).into_owned(),
            born_timestamp: i64::try_from(unix_ms).unwrap_or(i64::MAX),
            flag: first.flag,
            reconsume_times: Some(0),
            unit_mode: Some(false),
            batch: Some(messages.len() > 1),
            ..SendMessageRequestHeader::default()
        };
        let sharding = first.sharding_key.as_deref();
        let sharding = sharding.map(|key| tag_hash(key).unsigned_abs());
        let oneway = mode == SendMode::Oneway;
        if messages.len() == 1 {
            let encoded = encode_properties(first, &ids[0])?;
            return Ok(Shape {
                header: SendMessageRequestHeader {
                    properties: Some(encoded),
                    ..header
                },
                body: first.body.clone(),
                message_ids: ids,
                sharding,
                oneway,
            });
        }
        check_batch(messages)?;
        let mut batch = Vec::with_capacity(messages.len());
        for (message, id) in messages.iter().zip(&ids) {
            batch.push(BatchMessage {
                flag: message.flag,
                body: message.body.clone(),
                properties: encode_properties(message, id)?.into_bytes().into(),
            });
        }
        let body = codec::encode_batch(&batch).map_err(|error| SendError::Illegal {
            reason: error.to_string(),
        })?;
        if body.len() > self.config.max_message_size as usize {
            return Err(SendError::TooLarge {
                bytes: body.len() as u64,
                bytes_max: self.config.max_message_size.into(),
            });
        }
        // The batch has an id of its own; nobody sees it.
        let batch_id = self.ids.next_id(unix_ms);
        let batch_properties = [
            (properties::UNIQ_KEY, batch_id.as_str()),
            (properties::WAIT_STORE_MSG_OK, "true"),
        ];
        let encoded = properties::encode(batch_properties);
        Ok(Shape {
            header: SendMessageRequestHeader {
                flag: 0,
                properties: String::from_utf8(encoded).ok(),
                ..header
            },
            body: body.into(),
            message_ids: ids,
            sharding,
            oneway,
        })
    }
}

/// Every rule that a broker need not be asked for; several messages are one batch.
pub(super) fn check_all(messages: &[OutgoingMessage], bytes_max: u32) -> Result<(), SendError> {
    check_each(messages, bytes_max)?;
    if messages.len() > 1 {
        check_batch(messages)?;
    }
    let mut bytes: usize = 0;
    for message in messages {
        let properties = encode_properties(message, &"0".repeat(ID_CHARS_MAX))?;
        bytes = bytes.saturating_add(message.body.len());
        if messages.len() > 1 {
            bytes = bytes.saturating_add(properties.len() + BATCHED_MESSAGE_BYTES);
        }
    }
    if bytes > bytes_max as usize {
        return Err(SendError::TooLarge {
            bytes: bytes as u64,
            bytes_max: bytes_max.into(),
        });
    }
    Ok(())
}

fn check_each(messages: &[OutgoingMessage], bytes_max: u32) -> Result<(), SendError> {
    messages
        .iter()
        .try_for_each(|message| check(message, bytes_max))
}

/// RocketMQ: `Validators#checkMessage`.
fn check(message: &OutgoingMessage, bytes_max: u32) -> Result<(), SendError> {
    let illegal = |reason: String| Err(SendError::Illegal { reason });
    if let Err(error) = topic::check_topic_name(&message.topic) {
        return illegal(error.to_string());
    }
    if topic::is_not_allowed_send_topic(&message.topic) {
        return illegal(format!("topic \"{}\" is RocketMQ's own", message.topic));
    }
    if message.body.is_empty() {
        return illegal("the body is empty, which brokers refuse".to_owned());
    }
    if message.body.len() > bytes_max as usize {
        return Err(SendError::TooLarge {
            bytes: message.body.len() as u64,
            bytes_max: bytes_max.into(),
        });
    }
    for (name, value) in &message.properties {
        if let Err(error) = properties::check_user_property(name, value) {
            return illegal(error.to_string());
        }
    }
    let texts = message.tags.iter().chain(&message.keys);
    for text in texts.chain(&message.sharding_key) {
        if text.is_empty() || text.contains(['\u{1}', '\u{2}']) {
            return illegal(
                "tags, keys and sharding key are not empty, and have no control character 1 or 2"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// RocketMQ: `MessageBatch#generateFromList`.
fn check_batch(messages: &[OutgoingMessage]) -> Result<(), SendError> {
    let topic = &messages[0].topic;
    let reason = if messages.len() > BATCH_MESSAGES_MAX {
        format!("a batch has at most {BATCH_MESSAGES_MAX} messages")
    } else if messages.iter().any(|message| message.topic != *topic) {
        "a batch has one topic".to_owned()
    } else if messages
        .iter()
        .any(|message| message.delay.is_some_and(|delay| !delay.is_at_once()))
    {
        "a batch cannot be delayed; send delayed messages one by one".to_owned()
    } else if topic::is_retry_topic(topic) {
        "a batch cannot go to a retry topic".to_owned()
    } else {
        return Ok(());
    };
    Err(SendError::Illegal { reason })
}

fn encode_properties(message: &OutgoingMessage, id: &str) -> Result<String, SendError> {
    let keys = message.keys.join(" ");
    let delay = message.delay.filter(|delay| !delay.is_at_once());
    // RocketMQ: Message#setDelayTimeLevel, #setDelayTimeMs, #setDeliverTimeMs.
    let delay = delay.map(|delay| match delay {
        Delay::Level(level) => (properties::DELAY_TIME_LEVEL, level.to_string()),
        Delay::For(delay) => (properties::TIMER_DELAY_MS, delay.as_millis().to_string()),
        Delay::UntilUnixMs(until) => (properties::TIMER_DELIVER_MS, until.to_string()),
    });
    let (delay_name, delay) = delay.unzip();
    let own = message.properties.iter();
    let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
    let optional = [
        (
            properties::KEYS,
            Some(keys.as_str()).filter(|keys| !keys.is_empty()),
        ),
        (properties::UNIQ_KEY, Some(id)),
        (properties::WAIT_STORE_MSG_OK, Some("true")),
        (properties::TAGS, message.tags.as_deref()),
        (
            delay_name.unwrap_or(properties::DELAY_TIME_LEVEL),
            delay.as_deref(),
        ),
        (properties::SHARDING_KEY, message.sharding_key.as_deref()),
    ];
    let given = optional
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let encoded = properties::encode(own.chain(given));
    if encoded.len() > properties::PROPERTIES_BYTES_MAX {
        return Err(SendError::Illegal {
            reason: format!(
                "all properties together take {} bytes, at most {} are allowed",
                encoded.len(),
                properties::PROPERTIES_BYTES_MAX
            ),
        });
    }
    // All parts were texts.
    String::from_utf8(encoded).map_err(|error| SendError::Illegal {
        reason: error.to_string(),
    })
}
