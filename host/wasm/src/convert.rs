//! `protocol` types → WIT types, by reference: the only copy of a body is the one into
//! the guest.

use std::borrow::Cow;

use consumer::listener::{ConsumeMessage, ConsumeRequest, MessageModel};
use protocol::message::Message;
use protocol::message::properties::UNIQ_KEY;

use crate::bindings::mqlet::listener::types as wit;

/// What is the same for the whole request.
pub(crate) fn context(request: &ConsumeRequest) -> wit::BatchContext<'_> {
    wit::BatchContext {
        consumer_group: &request.consumer_group,
        topic: &request.topic,
        broker_name: &request.message_queue.broker_name,
        queue_id: request.message_queue.queue_id,
        broadcasting: request.message_model == MessageModel::Broadcasting,
    }
}

/// The producer's id where it gave one, a slice of the message; else the broker's.
pub(crate) fn message_id(message: Message<'_>) -> Cow<'_, str> {
    match message.property(UNIQ_KEY) {
        Some(id) => Cow::Borrowed(id),
        None => Cow::Owned(message.offset_message_id()),
    }
}

/// A message and its id, as the guest sees them.
pub(crate) fn message<'a>(consumed: &ConsumeMessage<'a>, id: &'a str) -> wit::Message<'a> {
    let message = consumed.message;
    wit::Message {
        message_id: id,
        body: message.body(),
        properties: message.raw_properties(),
        queue_offset: message.queue_offset().0,
        commit_log_offset: message.commit_log_offset(),
        born_timestamp_ms: message.born_timestamp_ms(),
        store_timestamp_ms: message.store_timestamp_ms(),
        reconsume_times: consumed.reconsume_times,
        flag: message.flag(),
        sys_flag: message.sys_flag().cast_unsigned(),
        store_size: message.store_size(),
    }
}
