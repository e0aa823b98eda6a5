//! Limits of queues, and finding single messages: by place, by time, by key.
//!
//! There is no index of keys: a query by key reads the topic's messages, newest first.
//! RocketMQ: `AdminBrokerProcessor#getMaxOffset` and its like, `QueryMessageProcessor`.

use bytes::{Bytes, BytesMut};
use protocol::RemotingCommand;
use protocol::code::response_code;
use protocol::header::{
    GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader, Header, QueryMessageRequestHeader, QueryMessageResponseHeader,
    SearchOffsetRequestHeader, SearchOffsetResponseHeader, ViewMessageRequestHeader,
};
use protocol::message::codec::StoredMessage;
use protocol::message::properties;

use super::{Answer, Broker, Refusal, header, queue_id, success, success_with};
use crate::message_store::Boundary;

/// Most messages that one query by key returns. RocketMQ: `maxMsgsNumBatch`.
const QUERY_MESSAGES_MAX: usize = 64;
/// What a query by unique key returns at most, whatever it asks for.
const UNIQUE_KEY_MESSAGES_MAX: usize = 32;

fn wire(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

impl Broker {
    pub(super) fn search_offset(&mut self, request: &RemotingCommand) -> Answer {
        let header: SearchOffsetRequestHeader = header(request)?;
        let is_upper = header
            .boundary_type
            .is_some_and(|boundary| boundary.eq_ignore_ascii_case("UPPER"));
        let boundary = if is_upper {
            Boundary::Upper
        } else {
            Boundary::Lower
        };
        let offset = queue_id(header.queue_id).map_or(0, |queue_id| {
            self.store
                .search_offset(&header.topic, queue_id, header.timestamp, boundary)
        });
        Ok(success_with(
            request,
            &SearchOffsetResponseHeader {
                offset: wire(offset),
            },
        ))
    }

    pub(super) fn get_max_offset(&mut self, request: &RemotingCommand) -> Answer {
        let header: GetMaxOffsetRequestHeader = header(request)?;
        let offset = queue_id(header.queue_id)
            .map_or(0, |queue_id| self.store.max_offset(&header.topic, queue_id));
        Ok(success_with(
            request,
            &GetMaxOffsetResponseHeader {
                offset: wire(offset),
            },
        ))
    }

    pub(super) fn get_min_offset(&mut self, request: &RemotingCommand) -> Answer {
        let header: GetMinOffsetRequestHeader = header(request)?;
        let offset = queue_id(header.queue_id)
            .map_or(0, |queue_id| self.store.min_offset(&header.topic, queue_id));
        Ok(success_with(
            request,
            &GetMinOffsetResponseHeader {
                offset: wire(offset),
            },
        ))
    }

    pub(super) fn earliest_store_time(&mut self, request: &RemotingCommand) -> Answer {
        let header: GetEarliestMsgStoretimeRequestHeader = header(request)?;
        let timestamp = queue_id(header.queue_id)
            .and_then(|queue_id| self.store.earliest_store_timestamp(&header.topic, queue_id));
        Ok(success_with(
            request,
            &GetEarliestMsgStoretimeResponseHeader {
                timestamp: timestamp.map_or(-1, wire),
            },
        ))
    }

    pub(super) fn view_message_by_id(&mut self, request: &RemotingCommand) -> Answer {
        let header: ViewMessageRequestHeader = header(request)?;
        let message = u64::try_from(header.offset)
            .ok()
            .and_then(|offset| self.store.message(offset));
        match message {
            Some(message) => Ok(success(request).with_body(Bytes::copy_from_slice(message))),
            None => Err(Refusal::new(
                response_code::SYSTEM_ERROR,
                format!("can not find message by the offset, {}", header.offset),
            )),
        }
    }

    pub(super) fn query_message(&mut self, request: &RemotingCommand) -> Answer {
        let header: QueryMessageRequestHeader = header(request)?;
        let is_unique = header.unique_key_query == Some(true);
        let asked = usize::try_from(header.max_num).unwrap_or(0);
        let max = if is_unique {
            UNIQUE_KEY_MESSAGES_MAX
        } else {
            asked.min(QUERY_MESSAGES_MAX)
        };
        let times = header.begin_timestamp..=header.end_timestamp;
        let mut found: Vec<_> = self
            .store
            .messages_of(&header.topic)
            .filter(|(entry, _)| times.contains(&wire(entry.store_timestamp_ms)))
            .filter(|(_, message)| has_key(message, &header.key, is_unique))
            .collect();
        // The newest ones, given in the order they were stored.
        found.sort_by_key(|(entry, _)| entry.physical_offset);
        let found = &found[found.len().saturating_sub(max)..];
        let Some((last, _)) = found.last() else {
            let header = QueryMessageResponseHeader::default();
            return Ok(
                RemotingCommand::response_to(request, response_code::QUERY_NOT_FOUND)
                    .with_remark("can not find message, maybe time range not correct")
                    .with_ext_fields(header.encode()),
            );
        };
        let header = QueryMessageResponseHeader {
            index_last_update_timestamp: wire(last.store_timestamp_ms),
            index_last_update_phyoffset: wire(last.physical_offset),
        };
        let mut body = BytesMut::new();
        for (_, message) in found {
            body.extend_from_slice(message);
        }
        Ok(success_with(request, &header).with_body(body.freeze()))
    }
}

/// Whether one of the message's keys, or its unique key, is this one.
fn has_key(message: &[u8], key: &str, is_unique: bool) -> bool {
    let Ok(message) = StoredMessage::decode(&mut Bytes::copy_from_slice(message)) else {
        return false;
    };
    let property = |name| properties::get(&message.properties, name);
    if is_unique {
        property(properties::UNIQ_KEY) == Some(key)
    } else {
        property(properties::KEYS).is_some_and(|keys| keys.split(' ').any(|known| known == key))
    }
}
