//! `protocol` types → WIT types. The bytes of a call's messages are laid end to end,
//! so that they enter the guest as one list.

use std::borrow::Cow;

use consumer::listener::{ConsumeMessage, ConsumeRequest, MessageModel};
use consumer::pull_task::PullTaskRequest;
use protocol::message::Message;
use protocol::message::properties::UNIQ_KEY;

use crate::bindings::mqlet::listener::types as wit;
use crate::bindings::scheduled_pull::mqlet::listener::types as pulled;

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

/// What is the same for a whole run of a pull task.
pub(crate) fn pull_context(request: &PullTaskRequest) -> pulled::BatchContext {
    pulled::BatchContext {
        consumer_group: request.consumer_group.to_string(),
        topic: request.message_queue.topic.to_string(),
        broker_name: request.message_queue.broker_name.to_string(),
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

/// The messages of a call as the guest sees them.
pub(crate) struct Messages {
    pub(crate) records: Vec<wit::Message>,
    pub(crate) data: Vec<u8>,
}

impl Messages {
    pub(crate) fn of<'a>(messages: impl Iterator<Item = ConsumeMessage<'a>> + Clone) -> Self {
        let sizes = messages.clone().map(|consumed| size(consumed.message));
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        let mut all = Self {
            records: Vec::with_capacity(count),
            data: Vec::with_capacity(bytes),
        };
        for consumed in messages {
            let record = all.append_message(&consumed);
            all.records.push(record);
        }
        all
    }

    fn append_message(&mut self, consumed: &ConsumeMessage<'_>) -> wit::Message {
        let message = consumed.message;
        let body = self.append(message.body());
        let raw_properties = message.raw_properties();
        let properties = self.append(raw_properties);
        let message_id = match message.property(UNIQ_KEY) {
            // It stands in the properties.
            Some(id) => wit::Slice {
                offset: properties.offset + distance(raw_properties, id.as_bytes()),
                size: small(id.len()),
            },
            None => self.append(message.offset_message_id().as_bytes()),
        };
        wit::Message {
            message_id,
            body,
            properties,
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

    fn append(&mut self, bytes: &[u8]) -> wit::Slice {
        let slice = wit::Slice {
            offset: small(self.data.len()),
            size: small(bytes.len()),
        };
        self.data.extend_from_slice(bytes);
        slice
    }
}

/// Bytes of the message that a guest gets, nearly.
fn size(message: Message<'_>) -> usize {
    message.body().len() + message.raw_properties().len()
}

/// How far into the whole its part begins.
fn distance(whole: &[u8], part: &[u8]) -> u32 {
    small(part.as_ptr().addr() - whole.as_ptr().addr())
}

/// Positions in a list that no guest could hold are cut; the list itself is refused.
fn small(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// A message that a guest pulled: the same numbers in a type of their own.
pub(crate) fn pulled_message(record: &wit::Message) -> pulled::Message {
    let slice = |slice: wit::Slice| pulled::Slice {
        offset: slice.offset,
        size: slice.size,
    };
    pulled::Message {
        message_id: slice(record.message_id),
        body: slice(record.body),
        properties: slice(record.properties),
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
