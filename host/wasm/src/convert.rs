//! `protocol` types → WIT types. The bytes of a call's messages enter the guest as one
//! list: a piece of the broker's answer as it stands, or else laid end to end.

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
pub(crate) struct Messages<'a> {
    pub(crate) records: Vec<wit::Message>,
    pub(crate) data: Cow<'a, [u8]>,
}

impl<'a> Messages<'a> {
    /// Messages of a request. Where they lie side by side as the broker stored them, that
    /// piece of its answer is `data`, and the only copy is the guest's own; a stored
    /// message has about 100 bytes beside its body and properties.
    pub(crate) fn of_request(request: &'a ConsumeRequest, first: usize, count: usize) -> Self {
        let messages = request.iter().skip(first).take(count);
        stored_bytes(request, first, count)
            .and_then(|data| Self::lying_in(data, messages.clone(), count))
            .unwrap_or_else(|| Self::laid_end_to_end(messages))
    }

    fn lying_in(
        data: &'a [u8],
        messages: impl Iterator<Item = ConsumeMessage<'a>>,
        count: usize,
    ) -> Option<Self> {
        let mut records = Vec::with_capacity(count);
        for consumed in messages {
            let message = consumed.message;
            let message_id = part(data, message.property(UNIQ_KEY)?.as_bytes())?;
            let body = part(data, message.body())?;
            let properties = part(data, message.raw_properties())?;
            records.push(record(&consumed, message_id, body, properties));
        }
        Some(Self {
            records,
            data: Cow::Borrowed(data),
        })
    }

    /// Messages from anywhere, copied.
    pub(crate) fn laid_end_to_end<'b>(
        messages: impl Iterator<Item = ConsumeMessage<'b>> + Clone,
    ) -> Self {
        let sizes = messages.clone().map(|consumed| size(consumed.message));
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        let mut records = Vec::with_capacity(count);
        let mut data = Vec::with_capacity(bytes);
        for consumed in messages {
            let message = consumed.message;
            let body = append(&mut data, message.body());
            let raw_properties = message.raw_properties();
            let properties = append(&mut data, raw_properties);
            let message_id = match message.property(UNIQ_KEY) {
                // It stands in the properties.
                Some(id) => wit::Slice {
                    offset: properties.offset + distance(raw_properties, id.as_bytes()),
                    size: small(id.len()),
                },
                None => append(&mut data, message.offset_message_id().as_bytes()),
            };
            records.push(record(&consumed, message_id, body, properties));
        }
        Self {
            records,
            data: Cow::Owned(data),
        }
    }
}

fn record(
    consumed: &ConsumeMessage<'_>,
    message_id: wit::Slice,
    body: wit::Slice,
    properties: wit::Slice,
) -> wit::Message {
    let message = consumed.message;
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

/// The piece of a broker's answer in which these messages lie, if they lie side by side.
fn stored_bytes(request: &ConsumeRequest, first: usize, count: usize) -> Option<&[u8]> {
    let mut before = 0;
    for run in &request.runs {
        let messages = run.range.len();
        if first < before + messages {
            let start = run.range.start + u32::try_from(first - before).ok()?;
            let end = start.checked_add(u32::try_from(count).ok()?)?;
            return (end <= run.range.end)
                .then(|| run.batch.stored_bytes(start..end))
                .flatten();
        }
        before += messages;
    }
    None
}

/// Where a part of a list lies; `None` if it lies elsewhere.
fn part(data: &[u8], part: &[u8]) -> Option<wit::Slice> {
    let nothing = wit::Slice { offset: 0, size: 0 };
    if part.is_empty() {
        return Some(nothing);
    }
    let offset = part.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    let fits = offset.checked_add(part.len())? <= data.len();
    fits.then(|| wit::Slice {
        offset: small(offset),
        size: small(part.len()),
    })
}

fn append(data: &mut Vec<u8>, bytes: &[u8]) -> wit::Slice {
    let slice = wit::Slice {
        offset: small(data.len()),
        size: small(bytes.len()),
    };
    data.extend_from_slice(bytes);
    slice
}

/// Bytes of the message that a guest gets, nearly.
pub(crate) fn size(message: Message<'_>) -> usize {
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
