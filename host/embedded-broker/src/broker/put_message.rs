//! Storing a message, whoever it came from: delay, time of its own, encoding, arrival; and
//! storing delayed messages again when their time has come.
//!
//! RocketMQ: `HookUtils#handleScheduleMessage`, `ScheduleMessageService#messageTimeUp`.

use std::net::SocketAddr;

use bytes::Bytes;
use protocol::Instant;
use protocol::code::response_code;
use protocol::message::codec::{self, MessageVersion, StoredMessage};
use protocol::message::properties::{self, Properties};
use protocol::subscription::tags_code;
use protocol::sys_flag::MessageSysFlag;
use protocol::topic::SCHEDULE_TOPIC;

use super::{Arrival, Broker, Refusal};
use crate::event::Event;
use crate::message_store::Appended;
use crate::timer::{self, IllegalTimer, TIMER_QUEUE, TIMER_TOPIC};

/// A message that is to be stored. RocketMQ: `MessageExtBrokerInner`.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) topic: String,
    pub(super) queue_id: u32,
    pub(super) flag: i32,
    pub(super) sys_flag: MessageSysFlag,
    pub(super) born_timestamp_ms: i64,
    pub(super) born_host: SocketAddr,
    pub(super) reconsume_times: i32,
    /// As it is stored: compressed if `sys_flag` says so.
    pub(super) body: Bytes,
    /// Encoded.
    pub(super) properties: Bytes,
}

impl Broker {
    /// Stores a message, in the schedule topic when it has a delay level, and with the
    /// timers when it has a time of its own.
    pub(super) fn put_message(
        &mut self,
        mut draft: Draft,
        properties: &mut Properties,
        now: Instant,
    ) -> Result<Appended, Refusal> {
        let level = delay_level(properties)?;
        let unix_ms = self.clock.unix_ms(now);
        let own_time = timer::delivery_time(properties, unix_ms);
        if let Some(due_ms) = own_time.map_err(|IllegalTimer| illegal_timer())? {
            return self.put_timer(draft, properties, due_ms, now);
        }
        if level == 0 {
            draft.properties = properties.encode().into();
            let code = tags_code(properties.get(properties::TAGS));
            return self.append(draft, code, now);
        }
        let level = level.min(self.config.delay_levels.max_level());
        properties.set(properties::DELAY_TIME_LEVEL, level.to_string());
        properties.set(properties::REAL_TOPIC, &*draft.topic);
        properties.set(properties::REAL_QUEUE_ID, draft.queue_id.to_string());
        draft.properties = properties.encode().into();
        draft.topic = SCHEDULE_TOPIC.to_owned();
        draft.queue_id = level - 1;
        let delay_ms = self.config.delay_levels.delay(level).as_millis();
        let due_ms = unix_ms.saturating_add(u64::try_from(delay_ms).unwrap_or(u64::MAX));
        let appended = self.append(draft, i64::try_from(due_ms).unwrap_or(i64::MAX), now)?;
        self.delay.stored(level - 1, appended.queue_offset, due_ms);
        Ok(appended)
    }

    fn put_timer(
        &mut self,
        mut draft: Draft,
        properties: &mut Properties,
        due_ms: u64,
        now: Instant,
    ) -> Result<Appended, Refusal> {
        properties.set(properties::TIMER_OUT_MS, due_ms.to_string());
        properties.set(properties::REAL_TOPIC, &*draft.topic);
        properties.set(properties::REAL_QUEUE_ID, draft.queue_id.to_string());
        draft.properties = properties.encode().into();
        draft.topic = TIMER_TOPIC.to_owned();
        draft.queue_id = TIMER_QUEUE;
        let appended = self.append(draft, i64::try_from(due_ms).unwrap_or(i64::MAX), now)?;
        self.timers.stored(appended.queue_offset, due_ms);
        self.forget_lost_timers();
        Ok(appended)
    }

    /// The store forgets its oldest messages, whether or not their time has come.
    fn forget_lost_timers(&mut self) {
        let first = self.store.min_offset(TIMER_TOPIC, TIMER_QUEUE);
        let messages = self.timers.forget_before(first);
        if messages > 0 {
            self.event(Event::TimerMessagesLost { messages });
        }
    }

    /// Stores a message as it is. RocketMQ: `CommitLog#asyncPutMessage`.
    pub(super) fn append(
        &mut self,
        draft: Draft,
        tags_code: i64,
        now: Instant,
    ) -> Result<Appended, Refusal> {
        if draft.body.len() > self.config.message_bytes_max
            || draft.properties.len() > properties::PROPERTIES_BYTES_MAX
        {
            return Err(self.illegal_message());
        }
        let store_timestamp_ms = self.clock.unix_ms(now);
        let message = StoredMessage {
            version: MessageVersion::for_topic(&draft.topic),
            body_crc: codec::body_crc(&draft.body),
            queue_id: i32::try_from(draft.queue_id).unwrap_or(i32::MAX),
            flag: draft.flag,
            // The store writes both offsets.
            queue_offset: 0,
            commit_log_offset: 0,
            sys_flag: draft.sys_flag,
            born_timestamp_ms: draft.born_timestamp_ms,
            born_host: draft.born_host,
            store_timestamp_ms: i64::try_from(store_timestamp_ms).unwrap_or(i64::MAX),
            store_host: self.config.store_host,
            reconsume_times: draft.reconsume_times,
            prepared_transaction_offset: 0,
            body: draft.body,
            topic: draft.topic,
            properties: draft.properties,
        };
        let mut record = Vec::with_capacity(message.encoded_len());
        message
            .encode(&mut record)
            .map_err(|error| Refusal::new(response_code::MESSAGE_ILLEGAL, error.to_string()))?;
        let appended = self
            .store
            .append(
                &message.topic,
                draft.queue_id,
                &mut record,
                tags_code,
                store_timestamp_ms,
            )
            .map_err(|error| Refusal::new(response_code::MESSAGE_ILLEGAL, error.to_string()))?;
        let messages = self.store.take_dropped_messages();
        if messages > 0 {
            self.event(Event::MessagesDropped { messages });
        }
        self.arrivals.push(Arrival {
            topic: message.topic.into(),
            queue_id: draft.queue_id,
            queue_offset: appended.queue_offset,
            tags_code,
        });
        Ok(appended)
    }

    /// Stores every delayed message whose time has come under its own topic.
    pub(super) fn deliver_due_messages(&mut self, now: Instant) {
        let unix_ms = self.clock.unix_ms(now);
        while let Some(due) = self.delay.due(unix_ms) {
            let first = self.store.min_offset(SCHEDULE_TOPIC, due.queue_id);
            if first > due.offset {
                self.event(Event::DelayedMessagesLost {
                    level: due.queue_id + 1,
                    messages: first - due.offset,
                });
            }
            let offset = first.max(due.offset);
            // The first of the queue may be a later one, not yet due.
            let is_due = self
                .store
                .entry(SCHEDULE_TOPIC, due.queue_id, offset)
                .is_some_and(|entry| u64::try_from(entry.tags_code).unwrap_or(0) <= unix_ms);
            let next = if is_due { offset + 1 } else { offset };
            if is_due {
                self.deliver(SCHEDULE_TOPIC, due.queue_id, offset, now);
            }
            let next = self
                .store
                .entry(SCHEDULE_TOPIC, due.queue_id, next)
                .map(|entry| (next, u64::try_from(entry.tags_code).unwrap_or(0)));
            self.delay.delivered(due.queue_id, next);
        }
    }

    /// Stores every message whose own time has come under its own topic.
    pub(super) fn deliver_due_timers(&mut self, now: Instant) {
        let unix_ms = self.clock.unix_ms(now);
        self.forget_lost_timers();
        while let Some(offset) = self.timers.take_due(unix_ms) {
            self.deliver(TIMER_TOPIC, TIMER_QUEUE, offset, now);
        }
    }

    /// Everything of the message stays, its `DELAY` too; only where it is stored and
    /// what it is indexed by is another.
    fn deliver(&mut self, waiting_in: &str, queue_id: u32, offset: u64, now: Instant) {
        let Some(message) = self
            .store
            .entry(waiting_in, queue_id, offset)
            .and_then(|entry| self.stored_message(entry.physical_offset))
        else {
            return;
        };
        let property = |name| properties::get(&message.properties, name);
        let (Some(topic), Some(Ok(queue_id))) = (
            property(properties::REAL_TOPIC),
            property(properties::REAL_QUEUE_ID).map(str::parse),
        ) else {
            return;
        };
        let code = tags_code(property(properties::TAGS));
        let draft = Draft {
            topic: topic.to_owned(),
            queue_id,
            flag: message.flag,
            sys_flag: message.sys_flag,
            born_timestamp_ms: message.born_timestamp_ms,
            born_host: message.born_host,
            reconsume_times: message.reconsume_times,
            properties: message.properties.clone(),
            body: message.body,
        };
        // It was stored once, so nothing can be wrong with it but its deleted topic.
        if self.topics.get(&draft.topic).is_some() {
            let _ = self.append(draft, code, now);
        }
    }

    /// The message that starts exactly at this place of the commit log.
    pub(crate) fn stored_message(&self, commit_log_offset: u64) -> Option<StoredMessage> {
        let record = self.store.message(commit_log_offset)?;
        StoredMessage::decode(&mut Bytes::copy_from_slice(record)).ok()
    }

    pub(super) fn illegal_message(&self) -> Refusal {
        Refusal::new(
            response_code::MESSAGE_ILLEGAL,
            format!(
                "the message is illegal, maybe msg body or properties length not matched. \
                 msg body length limit {}B, msg properties length limit 32KB.",
                self.config.message_bytes_max
            ),
        )
    }
}

/// RocketMQ: `PutMessageStatus#WHEEL_TIMER_MSG_ILLEGAL`.
fn illegal_timer() -> Refusal {
    Refusal::new(
        response_code::MESSAGE_ILLEGAL,
        format!(
            "timer message illegal, the delay time should be a number and not be bigger than the max delay {}ms",
            timer::DELAY_MAX.as_millis()
        ),
    )
}

/// What the `DELAY` property asks for; levels below 1 are none.
fn delay_level(properties: &Properties) -> Result<u32, Refusal> {
    let Some(text) = properties.get(properties::DELAY_TIME_LEVEL) else {
        return Ok(0);
    };
    match text.parse::<i32>() {
        Ok(level) => Ok(u32::try_from(level).unwrap_or(0)),
        Err(_) => Err(Refusal::new(
            response_code::SYSTEM_ERROR,
            format!(
                "the property DELAY is \"{}\", which is no delay level; write a whole number",
                text.escape_debug()
            ),
        )),
    }
}
