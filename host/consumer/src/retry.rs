//! Attempts: back to the broker with a delay, to the dead letters, or once more here.
//!
//! A failed message leaves its ProcessQueue only when the broker has it. First the way of
//! RocketMQ (request 36); if that fails, it is published to the group's retry topic, on
//! any broker; if that fails too, it is tried again here after 5 s, with the attempt
//! counted. A dead letter with a reason is published, since that is the only way to carry
//! the reason, and falls back to request 36 with level −1. A bounded number is under way.
//!
//! RocketMQ: `DefaultMQPushConsumerImpl#sendMessageBack`; `ConsumeMessageConcurrentlyService
//! #submitConsumeRequestLater`.

mod by_hand;
pub(crate) mod returns;

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::header::SendMessageRequestHeader;
use protocol::message::Message;
use protocol::message::batch::MessageFault;
use protocol::message::properties::{self, Properties};
use protocol::sys_flag::MessageSysFlag;
use protocol::{Instant, topic};

use crate::client::{Client, Purpose};
use crate::epoch::{Epoch, EpochTable};
use crate::event::{Event, SendBackRoute};
use crate::failure_reason::FailureReason;
use crate::heartbeat::CLIENT_INNER_PRODUCER_GROUP;
use crate::planted_bugs::PlantedBug;
use crate::process_queue::FailedMessage;
use crate::publish::sending::SendOwner;
use crate::publish::shape::Shape;
use crate::request::{Destination, Request, RequestError, SendMessageBack};
use crate::timers::{LOCAL_RETRY, Timer, timeout};

/// Why a message is a dead letter; a property of our own.
const MQLET_REASON: &str = "MQLET_REASON";
/// A longer reason is cut: all properties together have 32 KiB.
const REASON_BYTES_MAX: usize = 1024;
/// Brokers refuse more. RocketMQ: `MessageDecoder#MAX_PROPERTIES_LENGTH`, a short.
const PROPERTIES_BYTES_MAX: usize = 32_767;
/// RocketMQ's first delay level for a retry, 10 s.
const FIRST_RETRY_LEVEL: u32 = 3;

/// What a failed message has coming.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Again, after a while. −1: a dead letter; 0: the broker's schedule.
    Later {
        delay_level: i32,
        /// What broke on it, if that is why.
        failure: Option<FailureReason>,
    },
    /// Never again.
    DeadLetter { reason: FailureReason },
}

impl Verdict {
    pub(crate) fn later(delay_level: i32) -> Self {
        Self::Later {
            delay_level,
            failure: None,
        }
    }

    pub(crate) fn broke(failure: &FailureReason) -> Self {
        Self::Later {
            delay_level: 0,
            failure: Some(failure.clone()),
        }
    }

    /// The last attempt of a message that broke its listener: the broker would make the
    /// same dead letter of it, but without a word of what happened.
    fn at_the_end(self, tried: u32, max_reconsume_times: Option<u32>) -> Self {
        match (self, max_reconsume_times) {
            (
                Self::Later {
                    failure: Some(failure),
                    delay_level: 0,
                },
                Some(max),
            ) if tried >= max => {
                let text =
                    format!("max_reconsume_times = {max} is reached; the last attempt: {failure}");
                let reason = FailureReason::from(text);
                Self::DeadLetter {
                    reason: reason.with_properties(failure.properties().into()),
                }
            }
            (verdict, _) => verdict,
        }
    }

    /// Of a message that no listener can have.
    pub(crate) fn of_fault(fault: MessageFault) -> Self {
        match fault {
            // The body is whole, only nobody can open it: it can be published with a reason.
            MessageFault::UnknownCompression
            | MessageFault::Decompression
            | MessageFault::BodyTooLarge => Self::DeadLetter {
                reason: fault.to_string().into(),
            },
            // What we have is not what the broker has: its own copy is kept.
            _ => Self::later(-1),
        }
    }
}

/// Messages on their way back to the broker.
#[derive(Debug, Default)]
pub(crate) struct SendBacks {
    table: EpochTable<SendBack>,
    waiting: VecDeque<Epoch>,
    in_flight: usize,
}

#[derive(Debug)]
struct SendBack {
    queue: Epoch,
    group: Epoch,
    message: FailedMessage,
    verdict: Verdict,
    way: Way,
    /// Ways that failed, and why.
    failures: Vec<String>,
}

/// How a message is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    SendBack,
    Publish,
}

impl SendBacks {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl SendBack {
    /// The way after this one; the order depends on the verdict.
    fn next_way(&self) -> Option<Way> {
        match (&self.verdict, self.way) {
            // What we have is not what was sent.
            (Verdict::Later { .. }, _) if self.message.fault().is_some() => None,
            (Verdict::Later { .. }, Way::SendBack) => Some(Way::Publish),
            (Verdict::DeadLetter { .. }, Way::Publish) => Some(Way::SendBack),
            _ => None,
        }
    }
}

impl SendBack {
    /// What has made a dead letter of a message that was to come again: the broker
    /// compares so itself. RocketMQ: `AbstractSendMessageProcessor#consumerSendMsgBack`.
    fn dead_letter(&self, max_reconsume_times: Option<u32>) -> Option<Arc<str>> {
        let Verdict::Later { delay_level, .. } = self.verdict else {
            return None;
        };
        if delay_level < 0 {
            return Some("sent back with delay level -1, no further attempt".into());
        }
        let max = max_reconsume_times?;
        (self.tried() >= max).then(|| format!("max_reconsume_times = {max} is reached").into())
    }

    /// Attempts before the one that failed.
    fn tried(&self) -> u32 {
        self.message.tried()
    }
}

impl FailedMessage {
    /// Attempts before the one that failed.
    fn tried(&self) -> u32 {
        let message = self.batch.message(self.batch_index);
        let at_the_broker = message.reconsume_times();
        at_the_broker.saturating_add(self.local_reconsume_times)
    }
}

impl Client {
    /// Gives a message back to the broker. It is failed in its ProcessQueue until then.
    pub(crate) fn send_back(
        &mut self,
        queue_epoch: Epoch,
        message: FailedMessage,
        verdict: Verdict,
    ) {
        let Some(queue) = self.queues.get(queue_epoch) else {
            return;
        };
        let Some(group) = self.groups.get_mut(queue.group) else {
            return;
        };
        group.send_backs += 1;
        let max = group.config.max_reconsume_times();
        let verdict = match message.fault() {
            None => verdict.at_the_end(message.tried(), max),
            Some(_) => verdict,
        };
        let way = match verdict {
            Verdict::Later { .. } => Way::SendBack,
            Verdict::DeadLetter { .. } => Way::Publish,
        };
        let epoch = self.send_backs.table.insert(SendBack {
            queue: queue_epoch,
            group: queue.group,
            message,
            verdict,
            way,
            failures: Vec::new(),
        });
        self.send_backs.waiting.push_back(epoch);
    }

    /// Starts what waits, as far as the bound allows.
    pub(crate) fn send_waiting_back(&mut self, now: Instant) {
        while self.send_backs.in_flight < self.config.send_backs_max
            && let Some(epoch) = self.send_backs.waiting.pop_front()
        {
            self.send_backs.in_flight += 1;
            self.try_way(epoch, now);
        }
    }

    fn try_way(&mut self, epoch: Epoch, now: Instant) {
        let Some(back) = self.send_backs.table.get(epoch) else {
            return;
        };
        // A queue that is gone: its next owner gets the message again.
        if !self.queues.contains(back.queue) {
            let group = back.group;
            self.end_send_back(epoch);
            self.leave_further(group);
            return;
        }
        // What is damaged here is whole at the broker: its own copy is the dead letter.
        let waits_here = matches!(back.verdict, Verdict::Later { .. })
            && back.message.fault().is_none()
            && self.is_assigned_by_hand(back.group);
        if waits_here {
            self.keep_for_retry(epoch, now);
            return;
        }
        match back.way {
            Way::SendBack => self.request_send_back(epoch, now),
            Way::Publish => self.publish_to_retry_topic(epoch, now),
        }
    }

    fn request_send_back(&mut self, epoch: Epoch, now: Instant) {
        let Some(back) = self.send_backs.table.get(epoch) else {
            return;
        };
        let (Some(queue), Some(group)) = (self.queues.get(back.queue), self.groups.get(back.group))
        else {
            return;
        };
        let message = back.message.batch.message(back.message.batch_index);
        let request = Request::SendMessageBack(Box::new(SendMessageBack {
            consumer_group: Arc::clone(&group.name),
            broker_name: Arc::clone(&queue.queue.broker_name),
            commit_log_offset: message.commit_log_offset(),
            delay_level: match back.verdict {
                Verdict::Later { delay_level, .. } => delay_level,
                Verdict::DeadLetter { .. } => -1,
            },
            message_id: message.message_id(),
            origin_topic: Arc::clone(&back.message.topic),
            max_reconsume_times: if self.has_bug(PlantedBug::DeadLetterTooEarly) {
                0
            } else {
                wire_number(group.config.max_reconsume_times())
            },
        }));
        let master = self.routes.master(queue.broker);
        match master.filter(|replica| self.refused_until(replica.peer).is_none()) {
            Some(replica) => {
                self.request(
                    Purpose::SendBack(epoch),
                    Destination::Broker(replica.address),
                    Some(replica.peer),
                    request,
                    timeout::SEND_BACK,
                );
            }
            None => self.way_failed(
                epoch,
                "no master of the broker is known, or it refuses us".to_owned(),
                now,
            ),
        }
    }

    pub(crate) fn handle_send_back(
        &mut self,
        epoch: Epoch,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        match result {
            Ok(()) => self.sent_back(epoch, now),
            Err(_) if self.has_bug(PlantedBug::BelieveFailedSendBack) => self.sent_back(epoch, now),
            Err(error) => self.way_failed(epoch, error.to_string(), now),
        }
    }

    fn publish_to_retry_topic(&mut self, epoch: Epoch, now: Instant) {
        let Some(back) = self.send_backs.table.get(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(back.group) else {
            return;
        };
        let shape = retry_message(
            back,
            &group.name,
            group.config.max_reconsume_times(),
            group.config.dead_letter_properties(),
        );
        self.send_shape(shape, SendOwner::SendBack(epoch), timeout::SEND, now);
    }

    pub(crate) fn handle_published_back(
        &mut self,
        epoch: Epoch,
        result: Result<(), String>,
        now: Instant,
    ) {
        match result {
            Ok(()) => self.sent_back(epoch, now),
            Err(reason) => self.way_failed(epoch, reason, now),
        }
    }

    fn sent_back(&mut self, epoch: Epoch, now: Instant) {
        let Some(back) = self.end_send_back(epoch) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(back.queue) else {
            self.leave_further(back.group);
            return;
        };
        let before = queue.process_queue.held_bytes();
        let removed = queue.process_queue.remove_failed(back.message.offset);
        debug_assert!(removed, "a message went back twice");
        let held = before - queue.process_queue.held_bytes();
        let offset = back.message.offset;
        let mut returns_with = None;
        if let Some(group) = self.groups.get(back.group) {
            let consumer_group = Arc::clone(&group.name);
            let queue = queue.queue.clone();
            let dead = back.dead_letter(group.config.max_reconsume_times());
            let message_id = || {
                let message = &back.message;
                message.batch.message(message.batch_index).message_id()
            };
            let dead_lettered = |reason| Event::DeadLettered {
                consumer_group: Arc::clone(&consumer_group),
                queue: queue.clone(),
                offset,
                message_id: message_id(),
                reason,
            };
            let event = match (dead, &back.verdict) {
                (Some(reason), _) => dead_lettered(reason),
                (None, Verdict::DeadLetter { reason }) => dead_lettered(Arc::clone(reason.text())),
                (None, Verdict::Later { delay_level, .. }) => {
                    returns_with = Some(*delay_level);
                    Event::SentBack {
                        consumer_group: Arc::clone(&consumer_group),
                        queue: queue.clone(),
                        offset,
                        delay_level: *delay_level,
                        route: match back.way {
                            Way::SendBack => SendBackRoute::SendBack,
                            Way::Publish => SendBackRoute::Published,
                        },
                    }
                }
            };
            self.events.push_back(event);
        }
        if let Some(level) = returns_with {
            let message = back.message.batch.message(back.message.batch_index);
            self.note_sent_back(back.group, message, (level, back.tried()), now);
        }
        self.give_memory_back(back.group, held);
        self.finished(back.queue, now);
        self.orderly_dead_letter_ended(back.queue, now);
        self.leave_further(back.group);
    }

    fn way_failed(&mut self, epoch: Epoch, reason: String, now: Instant) {
        let Some(back) = self.send_backs.table.get_mut(epoch) else {
            return;
        };
        back.failures.push(reason);
        if let Some(way) = back.next_way() {
            back.way = way;
            self.try_way(epoch, now);
            return;
        }
        let Some(back) = self.end_send_back(epoch) else {
            return;
        };
        if self.has_bug(PlantedBug::ForgetLocalRetry) {
            return;
        }
        if self.has_bug(PlantedBug::DropFailedSendBack)
            && let Some(queue) = self.queues.get_mut(back.queue)
        {
            queue.process_queue.remove_failed(back.message.offset);
            self.finished(back.queue, now);
            return;
        }
        if let Some(queue) = self.queues.get_mut(back.queue) {
            let at = now + LOCAL_RETRY;
            queue.retry_at(at, back.message.offset);
            self.timers.set_earliest(Timer::LocalRetry(back.queue), at);
            if let Some(group) = self.groups.get(back.group) {
                self.events.push_back(Event::SendBackFailed {
                    consumer_group: Arc::clone(&group.name),
                    queue: queue.queue.clone(),
                    offset: back.message.offset,
                    reason: back.failures.join("; then: "),
                });
            }
        }
        self.orderly_dead_letter_ended(back.queue, now);
        self.leave_further(back.group);
    }

    fn end_send_back(&mut self, epoch: Epoch) -> Option<SendBack> {
        let back = self.send_backs.table.remove(epoch)?;
        self.send_backs.in_flight -= 1;
        if let Some(group) = self.groups.get_mut(back.group) {
            group.send_backs -= 1;
        }
        Some(back)
    }

    /// Messages that could not be sent back become free again; those that no listener can
    /// have are given up again.
    pub(crate) fn retry_here(&mut self, epoch: Epoch, now: Instant) {
        let mut faulty = Vec::new();
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        while let Some(&(at, offset)) = queue.local_retries.front() {
            if at > now {
                self.timers.set(Timer::LocalRetry(epoch), at);
                break;
            }
            queue.local_retries.pop_front();
            let failed = queue.process_queue.failed(offset);
            if let Some((fault, failed)) = failed.and_then(|failed| Some((failed.fault()?, failed)))
            {
                faulty.push((fault, failed));
                continue;
            }
            let retried = queue.process_queue.retry_failed(offset);
            debug_assert!(retried, "a message to be retried is gone");
        }
        for (fault, message) in faulty {
            self.message_failed(epoch, message, Verdict::of_fault(fault), now);
        }
        self.queue_ready(epoch);
    }
}

/// The message as it goes to the retry topic: its own body and properties, and what the
/// broker needs to count and to delay. With more attempts than allowed the broker makes
/// it a dead letter (broker-behaviour: a send to the retry topic is compared by
/// "greater than", by "at least" in 4.9).
fn retry_message(
    back: &SendBack,
    consumer_group: &str,
    max_reconsume_times: Option<u32>,
    dead_letter_properties: &[(String, String)],
) -> Shape {
    let message = back.message.batch.message(back.message.batch_index);
    let tried = back.tried();
    let dead = match back.verdict {
        Verdict::DeadLetter { .. } => true,
        Verdict::Later { delay_level, .. } => delay_level < 0,
    };
    let max = if dead {
        Some(tried)
    } else {
        max_reconsume_times
    };
    let level = match back.verdict {
        Verdict::Later { delay_level, .. } if delay_level > 0 => {
            u32::try_from(delay_level).unwrap_or(FIRST_RETRY_LEVEL)
        }
        _ => FIRST_RETRY_LEVEL.saturating_add(tried),
    };
    let reconsume_times = wire_number(Some(tried.saturating_add(1)));
    let max_reconsume_times = wire_number(max);
    let mut all = Properties::decode(message.raw_properties());
    if all.get(properties::ORIGIN_MESSAGE_ID).is_none() {
        all.set(properties::ORIGIN_MESSAGE_ID, message.offset_message_id());
    }
    all.set(properties::RETRY_TOPIC, &*back.message.topic);
    all.set(properties::RECONSUME_TIME, reconsume_times.to_string());
    all.set(
        properties::MAX_RECONSUME_TIMES,
        max_reconsume_times.to_string(),
    );
    all.set(properties::DELAY_TIME_LEVEL, level.to_string());
    all.remove(properties::TRANSACTION_PREPARED);
    if let Verdict::DeadLetter { reason } = &back.verdict {
        let text = readable(reason.text());
        if !text.is_empty() {
            all.set(MQLET_REASON, text);
        }
        for (name, value) in dead_letter_properties {
            all.set(name.as_str(), value.as_str());
        }
        let mut room = PROPERTIES_BYTES_MAX.saturating_sub(all.encode().len());
        for (name, value) in reason.properties() {
            let value = readable(value);
            let bytes = name.len() + value.len() + 2;
            if bytes <= room {
                room -= bytes;
                all.set(name.as_str(), value);
            }
        }
    }
    let encoded = String::from_utf8_lossy(&all.encode()).into_owned();
    Shape {
        header: SendMessageRequestHeader {
            producer_group: CLIENT_INNER_PRODUCER_GROUP.to_owned(),
            topic: topic::retry_topic(consumer_group),
            sys_flag: sent_sys_flag(message),
            born_timestamp: i64::try_from(message.born_timestamp_ms()).unwrap_or(i64::MAX),
            flag: message.flag(),
            properties: Some(encoded),
            reconsume_times: Some(reconsume_times),
            unit_mode: Some(false),
            max_reconsume_times: Some(max_reconsume_times),
            batch: Some(false),
            ..SendMessageRequestHeader::default()
        },
        body: message.stored_body(),
        message_ids: Vec::new(),
        sharding: None,
        oneway: false,
    }
}

/// Says how the body is compressed, and nothing else: hosts and batches are others now.
fn sent_sys_flag(message: Message<'_>) -> i32 {
    if message.is_from_inner_batch() {
        return 0;
    }
    let compression = MessageSysFlag::COMPRESSED.0 | MessageSysFlag::COMPRESSION_TYPE.0;
    message.stored_sys_flag() & compression
}

/// A text that can be the value of a property: cut, and without RocketMQ's separators.
fn readable(reason: &str) -> String {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    reason[..end].chars().map(printable).collect()
}

/// "For ever" is the largest number.
fn wire_number(value: Option<u32>) -> i32 {
    value.map_or(i32::MAX, |value| i32::try_from(value).unwrap_or(i32::MAX))
}
