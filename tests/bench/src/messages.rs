//! The messages of every benchmark: 1 KiB of text, eight properties, as a producer of
//! orders might send them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use consumer::listener::{ConsumeMode, ConsumeRequest, ConsumeRequestId, MessageModel, MessageRun};
use consumer::publish::OutgoingMessage;
use protocol::MessageQueue;
use protocol::message::codec::{MessageVersion, StoredMessage, body_crc};
use protocol::message::{MessageBatch, batch::DecodeLimits, properties};
use protocol::sys_flag::MessageSysFlag;

/// Size of a body.
pub(crate) const BODY_BYTES: usize = 1024;

/// What a producer sets beside tag and key.
const USER_PROPERTIES: [(&str, &str); 5] = [
    ("traceId", "0af7651916cd43dd8448eb211c80319c"),
    ("tenant", "tenant-7"),
    ("kind", "created"),
    ("schema", "orders.v1"),
    ("source", "bench"),
];

/// Printable text, the same in every run.
pub(crate) fn body() -> Bytes {
    // Numbers of Knuth's generator, folded into the printable characters.
    let mut state: u64 = 1;
    (0..BODY_BYTES)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            b' ' + (state >> 56) as u8 % 95
        })
        .collect()
}

/// A message to send; the client adds UNIQ_KEY and the broker its own properties.
pub(crate) fn outgoing(topic: &str, number: u64, body: &Bytes) -> OutgoingMessage {
    OutgoingMessage {
        topic: topic.to_owned(),
        body: body.clone(),
        tags: Some("TagA".to_owned()),
        keys: vec![format!("order-{number}")],
        properties: USER_PROPERTIES
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..OutgoingMessage::default()
    }
}

/// A pull answer of `messages` messages as one consume request.
///
/// # Errors
/// When what was encoded is not read back whole: a bug of the codec.
pub(crate) fn request(messages: u32, messages_per_call: u32) -> Result<Arc<ConsumeRequest>> {
    let batch = batch(0, messages, &body())?;
    Ok(Arc::new(ConsumeRequest {
        id: ConsumeRequestId(1),
        consumer_group: "bench".into(),
        message_queue: MessageQueue::new("orders", "broker-a", 0),
        topic: "orders".into(),
        message_model: MessageModel::Clustering,
        mode: ConsumeMode::Concurrently,
        runs: vec![MessageRun {
            batch: Arc::new(batch),
            range: 0..messages,
            local_reconsume_times: 0,
        }],
        messages_per_call,
        consume_timeout: Duration::from_secs(60),
    }))
}

/// A pull answer with `messages` messages from an offset on, each with eight properties:
/// the five above, TAGS, KEYS and UNIQ_KEY.
///
/// # Errors
/// When what was encoded is not read back whole: a bug of the codec.
pub(crate) fn batch(from: u64, messages: u32, body: &Bytes) -> Result<MessageBatch> {
    let host: SocketAddr = ([127, 0, 0, 1], 10911).into();
    let from = i64::try_from(from)?;
    let mut frame = BytesMut::new();
    for number in from..from + i64::from(messages) {
        let key = format!("order-{number}");
        let unique = format!("7F0000010B1C18B4AAC2{number:012X}");
        let own = [
            (properties::TAGS, "TagA"),
            (properties::KEYS, key.as_str()),
            (properties::UNIQ_KEY, unique.as_str()),
        ];
        let properties = properties::encode(USER_PROPERTIES.into_iter().chain(own));
        let stored = StoredMessage {
            version: MessageVersion::V1,
            body_crc: body_crc(body),
            queue_id: 0,
            flag: 0,
            queue_offset: number,
            commit_log_offset: number * 1300,
            sys_flag: MessageSysFlag(0),
            born_timestamp_ms: 1_700_000_000_000,
            born_host: host,
            store_timestamp_ms: 1_700_000_000_001,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: body.clone(),
            topic: "orders".to_owned(),
            properties: properties.into(),
        };
        stored.encode(&mut frame)?;
    }
    let batch = MessageBatch::decode(frame.freeze(), &DecodeLimits::default());
    ensure!(
        batch.len() == messages as usize && batch.unreadable().is_none(),
        "{} of {messages} messages were read back",
        batch.len()
    );
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_what_its_description_says() {
        let request = request(32, 32).expect("a good request");
        assert_eq!(request.len(), 32);
        for consumed in request.iter() {
            assert_eq!(consumed.message.body().len(), BODY_BYTES);
            assert_eq!(consumed.message.properties().count(), 8);
        }
    }
}
