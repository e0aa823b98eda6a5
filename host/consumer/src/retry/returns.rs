//! What was sent back comes again: counted, and missed when it does not.
//!
//! A broker keeps a message that was sent back until its delay is over, and puts it into
//! the group's retry topic then. When its schedule stands still nothing fails, and the
//! messages are simply not there. So each one is expected, as long as all queues of the
//! retry topic are ours: else it may come to another member.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;
use protocol::message::{Message, MessageBatch, properties};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::{ConsumerGroup, GroupTopic, Phase};
use crate::route::RouteState;

/// RocketMQ: the default of `messageDelayLevel`, in seconds.
const DELAYS: [u64; 18] = [
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
];
/// Beyond twice its delay: a busy broker is late, and its levels may be set otherwise.
const GRACE: Duration = Duration::from_secs(120);
/// So many messages are expected at once; more are only counted.
const EXPECTED_MAX: usize = 1_000;

/// What is known of a group's messages on their way through the retry topic.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// That brokers took back, to come again.
    pub(crate) sent_back: u64,
    /// That came here from the retry topic, whoever had sent them back.
    pub(crate) came_back: u64,
    /// By the id of the first of all copies: from when on it is missed.
    expected: BTreeMap<String, Instant>,
    is_told: bool,
}

/// Messages that should have come again by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    pub(crate) messages: usize,
    /// Since the first of them is missed.
    pub(crate) lasted: Duration,
}

impl Returns {
    /// Nobody knows any more to whom they come.
    pub(crate) fn forget_expected(&mut self) {
        self.expected.clear();
    }
}

impl Client {
    /// A broker has taken a message back, to come again after the delay of this level, or
    /// of the level for so many attempts.
    pub(super) fn note_sent_back(
        &mut self,
        group: Epoch,
        message: Message<'_>,
        (delay_level, tried): (i32, u32),
        now: Instant,
    ) {
        let Some(group) = self.groups.get(group).and_then(|g| {
            let is_ours = self.has_all_retry_queues(g);
            is_ours.then_some(group)
        }) else {
            if let Some(group) = self.groups.get_mut(group) {
                group.returns.sent_back += 1;
                group.returns.forget_expected();
            }
            return;
        };
        let Some(group) = self.groups.get_mut(group) else {
            return;
        };
        group.returns.sent_back += 1;
        if group.returns.expected.len() < EXPECTED_MAX {
            let level = match u32::try_from(delay_level) {
                Ok(level) if level > 0 => level,
                _ => super::FIRST_RETRY_LEVEL.saturating_add(tried),
            };
            let index = (level as usize).clamp(1, DELAYS.len()) - 1;
            let missed_at = now + Duration::from_secs(2 * DELAYS[index]) + GRACE;
            group.returns.expected.insert(first_id(message), missed_at);
        }
    }

    /// Messages of the retry topic have come.
    pub(crate) fn note_came_back(&mut self, group: Epoch, batch: &MessageBatch) {
        let Some(group) = self.groups.get_mut(group) else {
            return;
        };
        let returns = &mut group.returns;
        let messages = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        returns.came_back += u64::from(messages);
        if returns.expected.is_empty() {
            return;
        }
        for index in 0..messages {
            returns.expected.remove(&first_id(batch.message(index)));
        }
    }

    /// What should have come again, when everything that the brokers have was fetched.
    pub(crate) fn missed(&self, group: &ConsumerGroup, now: Instant) -> Option<Missed> {
        let late = group.returns.expected.values().filter(|&&at| at <= now);
        let messages = late.clone().count();
        let first = late.min()?;
        let is_known = self.has_all_retry_queues(group) && self.has_fetched_all_retries(group);
        is_known.then(|| Missed {
            messages,
            lasted: now - *first,
        })
    }

    /// Tells once that something is missed, and looks again with each rebalance.
    pub(crate) fn look_for_missed(&mut self, epoch: Epoch, now: Instant) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let missed = self.missed(group, now);
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let was_told = std::mem::replace(&mut group.returns.is_told, missed.is_some());
        if let Some(missed) = missed.filter(|_| !was_told) {
            self.events.push_back(Event::RetriesMissed {
                consumer_group: Arc::clone(&group.name),
                messages: missed.messages,
                lasted: missed.lasted,
            });
        }
    }

    fn has_all_retry_queues(&self, group: &ConsumerGroup) -> bool {
        retry_topic(group).is_some_and(|topic| {
            let route = self.routes.topics.get(topic.topic);
            route.is_some_and(|route| {
                route.state == RouteState::Known
                    && !topic.held.is_empty()
                    && topic.held.len() == route.read_queues.len()
            })
        })
    }

    fn has_fetched_all_retries(&self, group: &ConsumerGroup) -> bool {
        let held = retry_topic(group).into_iter();
        let mut held = held.flat_map(|topic| topic.held.values());
        held.all(|&epoch| {
            self.queues.get(epoch).is_some_and(|queue| {
                matches!(queue.phase, Phase::Pulling(_))
                    && queue.failures == 0
                    && queue.max_offset.is_some_and(|max| queue.next_offset >= max)
            })
        })
    }
}

fn retry_topic(group: &ConsumerGroup) -> Option<&GroupTopic> {
    group.topics.iter().find(|topic| topic.is_retry)
}

/// The id of the message as it was first stored, which its copies carry.
fn first_id(message: Message<'_>) -> String {
    match message.property(properties::ORIGIN_MESSAGE_ID) {
        Some(id) => id.to_owned(),
        None => message.offset_message_id(),
    }
}
