//! Pull answers out of nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use protocol::message::codec::{MessageVersion, StoredMessage, body_crc};
use protocol::message::{MessageBatch, properties};
use protocol::sys_flag::MessageSysFlag;

/// A message as a broker would store it.
#[derive(Clone, Debug)]
pub struct TestMessage {
    /// Its topic.
    pub topic: String,
    /// Its place in the queue.
    pub queue_offset: u64,
    /// Attempts so far.
    pub reconsume_times: u32,
    /// Its body.
    pub body: Vec<u8>,
    /// In this order.
    pub properties: Vec<(String, String)>,
    /// Stored with a CRC that is not the body's.
    pub wrong_crc: bool,
    /// Says it is compressed, and is not.
    pub wrong_compression: bool,
}

impl TestMessage {
    /// A message whose body and id name its offset.
    pub fn new(topic: &str, queue_offset: u64) -> Self {
        Self {
            topic: topic.to_owned(),
            queue_offset,
            reconsume_times: 0,
            body: format!("body {queue_offset}").into_bytes(),
            properties: vec![("UNIQ_KEY".to_owned(), format!("ID{queue_offset}"))],
            wrong_crc: false,
            wrong_compression: false,
        }
    }

    /// The same with this tag.
    #[must_use]
    pub fn tag(self, tag: &str) -> Self {
        self.property(properties::TAGS, tag)
    }

    /// The same with this property.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The bytes of the stored message. Its commit-log offset is 1000 times the queue
    /// offset, so that the two cannot be mistaken for each other.
    pub fn encode(&self, out: &mut BytesMut) {
        let host = SocketAddr::from((Ipv4Addr::LOCALHOST, 10911));
        let body = Bytes::from(self.body.clone());
        let entries = self.properties.iter();
        let stored = StoredMessage {
            version: MessageVersion::for_topic(&self.topic),
            body_crc: body_crc(&body) ^ i32::from(self.wrong_crc),
            queue_id: 0,
            flag: 0,
            queue_offset: i64::try_from(self.queue_offset).unwrap_or(i64::MAX),
            commit_log_offset: i64::try_from(self.queue_offset * 1000).unwrap_or(i64::MAX),
            sys_flag: MessageSysFlag(i32::from(self.wrong_compression)),
            born_timestamp_ms: 1,
            born_host: host,
            store_timestamp_ms: 2,
            store_host: host,
            reconsume_times: i32::try_from(self.reconsume_times).unwrap_or(i32::MAX),
            prepared_transaction_offset: 0,
            body,
            topic: self.topic.clone(),
            properties: properties::encode(entries.map(|(n, v)| (n.as_str(), v.as_str()))).into(),
        };
        let encoded = stored.encode(out);
        debug_assert!(encoded.is_ok(), "a test message that cannot be stored");
    }
}

/// A message as a broker stores it.
pub fn stored(message: &TestMessage) -> Bytes {
    let mut frame = BytesMut::new();
    message.encode(&mut frame);
    frame.freeze()
}

/// The messages as one pull answer.
pub fn batch(messages: &[TestMessage]) -> Arc<MessageBatch> {
    let mut frame = BytesMut::new();
    for message in messages {
        message.encode(&mut frame);
    }
    Arc::new(MessageBatch::decode(frame.freeze(), &Default::default()))
}

/// The messages, and behind them bytes that are none.
pub fn garbage_after(messages: &[TestMessage]) -> Arc<MessageBatch> {
    let mut frame = BytesMut::new();
    for message in messages {
        message.encode(&mut frame);
    }
    frame.extend_from_slice(&[0x5a; 200]);
    Arc::new(MessageBatch::decode(frame.freeze(), &Default::default()))
}
