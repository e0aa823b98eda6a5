//! Feature `testing`: what must hold for any bytes at all.
//!
//! The targets of `tests/fuzz` call these; so does a test with mutated recordings,
//! which runs everywhere. A violation is a panic.

use bytes::{Bytes, BytesMut};

use crate::command::RemotingCommand;
use crate::ext_fields::ExtFields;
use crate::message::batch::DecodeLimits;
use crate::message::codec::{self, StoredMessage};
use crate::message::{MessageBatch, properties::Properties};
use crate::{body, header};

/// A frame without its length field. What decodes can be encoded, and from then on
/// stays the same. Typed headers and bodies decode or refuse.
pub fn command(frame: &[u8]) {
    let Ok(command) = RemotingCommand::decode(Bytes::copy_from_slice(frame)) else {
        return;
    };
    let mut first = BytesMut::new();
    // Replacing what is not UTF-8 can make a name too long for the binary form.
    if command.encode(&mut first).is_ok() {
        let first = first.freeze();
        let again = RemotingCommand::decode(first.slice(4..)).expect("what we encoded");
        let mut second = BytesMut::new();
        again.encode(&mut second).expect("what we encoded before");
        assert_eq!(first, second, "encoding changes what it encoded");
    }
    headers(&command.ext_fields.unwrap_or_default());
    bodies(&command.body);
}

macro_rules! decode_each {
    ($input:expr, $($type:ty),* $(,)?) => {$({
        if let Ok(decoded) = <$type>::decode($input) {
            let encoded = decoded.encode();
            let again = <$type>::decode(&encoded).expect("what we encoded");
            assert_eq!(again, decoded);
        }
    })*};
}

fn headers(fields: &ExtFields) {
    use header::*;
    decode_each!(
        fields,
        ConsumerSendMsgBackRequestHeader,
        CreateTopicRequestHeader,
        EndTransactionRequestHeader,
        PullMessageRequestHeader,
        PullMessageResponseHeader,
        ResetOffsetRequestHeader,
        SendMessageRequestHeader,
        SendMessageRequestHeaderV2,
        SendMessageResponseHeader,
    );
}

fn bodies(bytes: &[u8]) {
    use body::*;
    decode_each!(
        bytes,
        ClusterInfo,
        ConsumerConnection,
        ConsumerList,
        GetConsumerStatusBody,
        HeartbeatData,
        LockBatchRequestBody,
        ResetOffsetBody,
        TopicConfig,
        TopicRouteData,
    );
    // These hold doubles, and no double equals NaN.
    let _ = ConsumerRunningInfo::decode(bytes).map(|body| body.encode());
    let _ = ConsumeStats::decode(bytes).map(|body| body.encode());
    let _ = TopicStatsTable::decode(bytes).map(|body| body.encode());
}

/// The body of a pull answer, and of a batch that a producer sends.
pub fn message(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let batch = MessageBatch::decode(bytes.clone(), &DecodeLimits::default());
    for message in batch.iter() {
        let _ = (message.fault(), message.topic(), message.tags());
        let _ = (message.message_id(), message.offset_message_id());
        assert!(message.stored_body().len() <= batch.bytes());
        properties(message.raw_properties());
    }
    let _ = codec::decode_batch(bytes.clone());
    let mut rest = bytes;
    if let Ok(message) = StoredMessage::decode(&mut rest) {
        let mut encoded = BytesMut::new();
        if message.encode(&mut encoded).is_ok() {
            let again = StoredMessage::decode(&mut encoded.freeze()).expect("what we encoded");
            assert_eq!(again, message);
        }
    }
}

/// Encoded properties. RocketMQ stores at most 32767 bytes of them.
pub fn properties(raw: &[u8]) {
    let raw = &raw[..raw.len().min(32767)];
    let decoded = Properties::decode(raw);
    let encoded = decoded.encode();
    assert!(
        encoded.len() <= raw.len() + 1,
        "at most the last separator is new"
    );
    assert_eq!(Properties::decode(&encoded), decoded);
    for (name, value) in decoded.iter() {
        assert_eq!(crate::message::properties::get(raw, name), Some(value));
    }
}

#[cfg(test)]
mod tests;
