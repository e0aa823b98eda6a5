//! The messages of a pull answer: which are kept, filtered out, bad.
//!
//! Bad records never stop a queue. A body with a wrong CRC and bytes that cannot be read
//! are asked for again, alone, since they may have been damaged on their way; after that
//! the first becomes a dead letter (the broker's own copy) and the second is skipped, with
//! an event. A body that does not open becomes a dead letter with its reason.

use std::sync::Arc;

use protocol::message::MessageBatch;
use protocol::message::batch::{MessageFault, UnreadableReason};
use protocol::{Instant, QueueOffset};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::{BadRecordAction, Event};
use crate::planted_bugs::PlantedBug;
use crate::process_queue::KeptRun;
use crate::pull::Pull;
use crate::request::PullAnswer;
use crate::retry::Verdict;
use crate::timers::PULL_DELAY_WHEN_ERROR;

/// So many times an unreadable record is asked for alone.
const UNREADABLE_TRIES_MAX: u32 = 3;

/// A record that is being asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadRecord {
    offset: QueueOffset,
    /// How often it was asked for alone.
    tries: u32,
}

/// Where reading an answer stopped.
#[derive(Debug)]
enum Stopped {
    /// At a message that may be right the next time.
    AtFault(QueueOffset, MessageFault),
    /// At bytes that are no message.
    AtUnreadable(QueueOffset, UnreadableReason),
}

impl Client {
    /// Keeps the messages of an answer. False when the pull loop has been seen to.
    pub(super) fn keep_answer(&mut self, epoch: Epoch, answer: PullAnswer, now: Instant) -> bool {
        let Some(batch) = answer.batch else {
            return true;
        };
        let bytes = answer.frame_bytes;
        let Some(queue) = self.queues.get(epoch) else {
            return false;
        };
        let (group, topic_index) = (queue.group, queue.topic_index);
        let of_group = self.groups.get(group);
        if let Some(bound) = of_group.and_then(|group| self.memory.is_too_much_for(group, bytes)) {
            // Thrown away and asked for again.
            self.wait_first_for_memory(epoch, bound);
            return false;
        }
        let mut kept = std::mem::take(&mut self.kept_runs);
        let mut faulty = Vec::new();
        let stopped = self.sort_messages(epoch, &batch, &mut kept, &mut faulty);
        if let Some(queue) = self.queues.get_mut(epoch) {
            let before = queue.process_queue.held_bytes();
            queue.process_queue.put(&batch, bytes, &kept);
            let held = queue.process_queue.held_bytes() - before;
            self.hold_memory(group, held);
        }
        kept.clear();
        self.kept_runs = kept;
        for (index, fault) in faulty {
            self.give_up_message(epoch, &batch, index, fault, now);
        }
        let of_group = self.groups.get(group);
        if of_group.is_some_and(|group| group.topics[topic_index].is_retry) {
            self.note_came_back(group, &batch);
        }
        self.queue_ready(epoch);
        let Some(queue) = self.queues.get_mut(epoch) else {
            return false;
        };
        match stopped {
            None => {
                queue.next_offset = answer.next_begin_offset;
                queue.bad_record = None;
                true
            }
            Some(Stopped::AtFault(offset, fault)) => {
                self.ask_again(epoch, offset, &fault.to_string(), now);
                false
            }
            Some(Stopped::AtUnreadable(offset, reason)) => {
                self.unreadable(epoch, offset, reason, answer.next_begin_offset, now)
            }
        }
    }

    /// Finds the runs to keep, cut where the topic changes, and the messages that no
    /// listener can have.
    fn sort_messages(
        &self,
        epoch: Epoch,
        batch: &Arc<MessageBatch>,
        kept: &mut Vec<KeptRun>,
        faulty: &mut Vec<(u32, MessageFault)>,
    ) -> Option<Stopped> {
        let queue = self.queues.get(epoch)?;
        let topic = &self.groups.get(queue.group)?.topics[queue.topic_index];
        let tags = (!topic.subscription.tags_set.is_empty()).then_some(&topic.subscription);
        let unreadable = batch.unreadable().map(|unreadable| {
            let offset = unreadable
                .previous
                .map_or(queue.next_offset, QueueOffset::next);
            (offset, unreadable.reason)
        });
        for index in 0..u32::try_from(batch.len()).unwrap_or(u32::MAX) {
            let message = batch.message(index);
            let offset = message.queue_offset();
            if let Some((from, reason)) = unreadable
                && offset >= from
            {
                return Some(Stopped::AtUnreadable(from, reason));
            }
            if let Some(fault) = message.fault() {
                let asked_again = queue.bad_record.is_some_and(|bad| bad.offset == offset);
                if fault == MessageFault::CrcMismatch && !asked_again {
                    if self.has_bug(PlantedBug::SkipDamaged) {
                        continue;
                    }
                    return Some(Stopped::AtFault(offset, fault));
                }
                faulty.push((index, fault));
                continue;
            }
            if tags.is_some_and(|tags| !tags.matches_tag(message.tags())) {
                continue;
            }
            let last = kept.last_mut().filter(|run| run.range.end == index);
            // Only retries may differ from their queue's topic.
            let name = match last {
                Some(run) if !topic.is_retry => {
                    run.range.end += 1;
                    continue;
                }
                None if !topic.is_retry => &topic.name,
                last => {
                    let name = message.retry_topic().unwrap_or(&topic.name);
                    if let Some(run) = last.filter(|run| *run.topic == *name) {
                        run.range.end += 1;
                        continue;
                    }
                    name
                }
            };
            kept.push(KeptRun {
                range: index..index + 1,
                topic: if topic.is_retry {
                    self.topic_name(queue.group, name)
                } else {
                    Arc::clone(&topic.name)
                },
            });
        }
        unreadable.map(|(offset, reason)| Stopped::AtUnreadable(offset, reason))
    }

    /// The name that the group's topics have already, if it is one of them.
    fn topic_name(&self, group: Epoch, name: &str) -> Arc<str> {
        let group = self.groups.get(group);
        let known = group.and_then(|group| group.topics.iter().find(|t| *t.name == *name));
        known.map_or_else(|| name.into(), |topic| Arc::clone(&topic.name))
    }

    /// A message that no listener can have goes to the dead letters.
    fn give_up_message(
        &mut self,
        epoch: Epoch,
        batch: &Arc<MessageBatch>,
        index: u32,
        fault: MessageFault,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let topic = Arc::clone(&queue.queue.topic);
        let before = queue.process_queue.held_bytes();
        // The answer's bytes are counted already when another message of it was kept;
        // a little too much is held back then, for a moment.
        let failed = queue
            .process_queue
            .put_failed(batch, batch.bytes() as u64, index, &topic);
        let (group, held) = (queue.group, queue.process_queue.held_bytes() - before);
        self.hold_memory(group, held);
        let Some(message) = failed else { return };
        self.bad_record_event(
            epoch,
            message.offset,
            fault.to_string(),
            BadRecordAction::DeadLetter,
        );
        self.message_failed(epoch, message, Verdict::of_fault(fault), now);
    }

    /// Asks for the record alone, and goes on behind it when that is answered.
    fn ask_again(&mut self, epoch: Epoch, offset: QueueOffset, reason: &str, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let tries = match queue.bad_record {
            Some(bad) if bad.offset == offset => bad.tries + 1,
            _ => 1,
        };
        queue.bad_record = Some(BadRecord { offset, tries });
        queue.next_offset = offset;
        self.finished(epoch, now);
        if tries == 1 {
            let action = BadRecordAction::AskedAgain;
            self.bad_record_event(epoch, offset, reason.to_owned(), action);
            self.pull(epoch, now);
        } else {
            self.pull_later(epoch, Pull::Failed, now + PULL_DELAY_WHEN_ERROR);
        }
    }

    /// False when the pull loop has been seen to.
    fn unreadable(
        &mut self,
        epoch: Epoch,
        offset: QueueOffset,
        reason: UnreadableReason,
        next_begin_offset: QueueOffset,
        now: Instant,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return false;
        };
        if matches!(
            reason,
            UnreadableReason::DecompressedTooMuch | UnreadableReason::TooMany
        ) {
            // Nothing is wrong with it: it was only too much at once.
            queue.next_offset = offset;
            return true;
        }
        let tried_out = queue
            .bad_record
            .is_some_and(|bad| bad.offset == offset && bad.tries >= UNREADABLE_TRIES_MAX);
        if !tried_out {
            self.ask_again(epoch, offset, &reason.to_string(), now);
            return false;
        }
        queue.bad_record = None;
        queue.next_offset = next_begin_offset.max(offset.next());
        self.bad_record_event(epoch, offset, reason.to_string(), BadRecordAction::Skipped);
        true
    }

    fn bad_record_event(
        &mut self,
        epoch: Epoch,
        offset: QueueOffset,
        reason: String,
        action: BadRecordAction,
    ) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        if let Some(group) = self.groups.get(queue.group) {
            self.events.push_back(Event::BadRecord {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                offset,
                reason,
                action,
            });
        }
    }
}
