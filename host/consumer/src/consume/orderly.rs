//! What becomes of the messages of a call when a queue is consumed in order.
//!
//! A queue has at most one call under way, and its next messages wait for it, for the end
//! of a suspension, and for a message before them that is on its way to the dead letters.
//! A failed batch stays first, with its attempts counted here: the broker does not hear
//! of them. After every call a queue goes to the end of its group's line, so nobody waits
//! longer than for the calls of others (RocketMQ gives a queue up to 60 s in a row:
//! `MAX_TIME_CONSUME_CONTINUOUSLY`).
//!
//! RocketMQ: `ConsumeMessageOrderlyService`. Differs from it: of a batch with exhausted
//! messages only the others are put back; a queue that is given back waits for its call,
//! whose answer counts.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::Client;
use crate::consume::Call;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::failure_reason::FailureReason;
use crate::group::{AssignedQueue, ConsumerGroup, Phase};
use crate::listener::{ConsumeMode, ConsumeResult, OrderlyStatus};
use crate::planted_bugs::PlantedBug;
use crate::pull::Pull;
use crate::retry::Verdict;
use crate::timers::Timer;

/// Bounds of a suspension. RocketMQ: `ConsumeMessageOrderlyService#submitConsumeRequestLater`.
const SUSPEND_MIN: Duration = Duration::from_millis(10);
const SUSPEND_MAX: Duration = Duration::from_secs(30);
/// After so many failures in a row a queue is blocked; where order does not matter, the
/// message would be a dead letter now.
const BLOCKED_ATTEMPTS: u32 = 16;
/// The same for failures over so long a time.
const BLOCKED_TIME: Duration = Duration::from_secs(60);

/// What an orderly queue is about.
#[derive(Debug, Default)]
pub(crate) struct OrderlyState {
    /// No call until then.
    pub(crate) suspended_until: Option<Instant>,
    /// Messages on their way to the dead letters.
    dead_letters: u32,
    /// Failures of the first message, in a row.
    pub(crate) row: Option<FailureRow>,
    /// It was given back, and its call is awaited.
    pub(crate) is_leaving: bool,
}

/// A message that keeps failing and holds its queue up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FailureRow {
    pub(crate) offset: QueueOffset,
    /// Calls that failed.
    pub(crate) attempts: u32,
    /// The first of them.
    pub(crate) since: Instant,
    /// There was an event for this row.
    pub(crate) told: bool,
}

impl OrderlyState {
    /// A message is on its way to the dead letters: nothing of its queue is called, and
    /// the queue is not given back, before that has ended.
    pub(crate) fn dead_letter_begins(&mut self) {
        self.dead_letters += 1;
    }
}

/// What a status means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    /// The messages are done, and with them whatever waited for it.
    Done,
    /// They are done if a later call says so.
    Uncommitted,
    /// All since the last commit come again.
    RollBack,
    /// They have failed and stay first.
    Suspend(Option<Duration>),
}

impl Meaning {
    /// RocketMQ: `ConsumeMessageOrderlyService#processConsumeResult`.
    fn of(status: &OrderlyStatus, auto_commit: bool) -> Self {
        match status {
            OrderlyStatus::Success if !auto_commit => Self::Uncommitted,
            OrderlyStatus::Rollback if !auto_commit => Self::RollBack,
            // With auto-commit on, RocketMQ takes a rollback for a success too.
            OrderlyStatus::Success | OrderlyStatus::Commit | OrderlyStatus::Rollback => Self::Done,
            OrderlyStatus::SuspendCurrentQueueAMoment { suspend } => Self::Suspend(*suspend),
        }
    }
}

/// What the calls of a request said, with their numbers of messages.
fn said(result: &ConsumeResult) -> Vec<(u32, &OrderlyStatus)> {
    match result {
        ConsumeResult::NotFinished => Vec::new(),
        ConsumeResult::Orderly(status) => vec![(u32::MAX, status)],
        ConsumeResult::OrderlyCalls(calls) => calls
            .iter()
            .map(|call| (call.messages, &call.status))
            .collect(),
        // An answer of the wrong kind is no answer.
        ConsumeResult::Failed { .. } | ConsumeResult::Concurrently(_) => {
            vec![(u32::MAX, ConsumeResult::SUSPEND)]
        }
    }
}

/// Why the listener broke, if it did in the last call.
fn broke(result: &ConsumeResult) -> Option<&FailureReason> {
    match result {
        ConsumeResult::Failed { reason } => Some(reason),
        ConsumeResult::OrderlyCalls(calls) => calls.last()?.reason.as_ref(),
        ConsumeResult::Concurrently(_) | ConsumeResult::Orderly(_) | ConsumeResult::NotFinished => {
            None
        }
    }
}

impl AssignedQueue {
    /// Whether its next messages may be handed out.
    pub(crate) fn may_be_called_in_order(&self) -> bool {
        matches!(self.phase, Phase::Pulling(_))
            && self.orderly.suspended_until.is_none()
            && !self.orderly.is_leaving
            && self.process_queue.has_next_in_order()
    }

    /// Whether they may be now: no other call, and under a live lock.
    pub(crate) fn may_be_called_now(
        &self,
        group: &ConsumerGroup,
        two_calls: bool,
        now: Instant,
    ) -> bool {
        let is_locked = self.lock.as_ref().is_none_or(|lock| lock.is_live(now));
        let free = two_calls || !group.orderly_calls.contains(&self.queue);
        let ordered = two_calls || self.may_be_called_in_order();
        is_locked && free && ordered
    }
}

impl ConsumerGroup {
    pub(crate) fn is_orderly(&self) -> bool {
        matches!(self.config.mode(), ConsumeMode::Orderly { .. })
    }

    /// The assignment of a queue, one that is on its way out included.
    fn assignment_of(&self, queue: &MessageQueue) -> Option<Epoch> {
        let held = self.topics.iter().find_map(|topic| topic.held.get(queue));
        held.or_else(|| self.leaving.get(queue)).copied()
    }

    fn suspend_time(&self, asked: Option<Duration>) -> Duration {
        asked
            .unwrap_or(self.config.suspend_current_queue_time())
            .clamp(SUSPEND_MIN, SUSPEND_MAX)
    }
}

impl Client {
    pub(crate) fn orderly_consumed(
        &mut self,
        call_epoch: Epoch,
        call: &Call,
        result: &ConsumeResult,
        elapsed: Duration,
        now: Instant,
    ) {
        let loses_order = self.has_bug(PlantedBug::LosePutBackOrder);
        let counts = !self.has_bug(PlantedBug::ForgetAttempts);
        let Some(queue) = self.queues.get_mut(call.queue) else {
            return;
        };
        let Some(group) = self.groups.get(call.group) else {
            return;
        };
        let ConsumeMode::Orderly { auto_commit } = group.config.mode() else {
            return;
        };
        queue.consumed_at = Some(now);
        let messages = &mut queue.process_queue;
        let held_before = messages.held_bytes();
        let mut exhausted = std::mem::take(&mut self.failed_messages);
        let (mut done, mut failed) = (0, 0);
        let mut suspension = None;
        for (count, status) in said(result) {
            let Some(span) = messages.first_of_call(call_epoch, call.span, count) else {
                continue;
            };
            let meaning = Meaning::of(status, auto_commit);
            match meaning {
                Meaning::Done => messages.commit(call_epoch, span),
                Meaning::Uncommitted => messages.keep_uncommitted(call_epoch, span),
                Meaning::RollBack => {
                    messages.roll_back(call_epoch, span);
                    suspension = Some(group.suspend_time(None));
                }
                Meaning::Suspend(suspend) => {
                    if counts {
                        let max = group.config.max_reconsume_times();
                        messages.put_back(call_epoch, span, max, &mut exhausted);
                    } else {
                        messages.return_called(call_epoch, span);
                    }
                    failed += span.messages;
                    // Not for messages that are not to come again.
                    if exhausted.len() < span.messages as usize {
                        suspension = Some(group.suspend_time(suspend));
                    }
                    if loses_order {
                        messages.lose_put_back_order(span);
                        suspension = None;
                    }
                }
            }
            if matches!(meaning, Meaning::Suspend(_) | Meaning::RollBack) {
                break;
            }
            done += span.messages;
            if auto_commit && *status != OrderlyStatus::Success {
                self.events.push_back(Event::StatusWithoutMeaning {
                    consumer_group: Arc::clone(&group.name),
                    queue: queue.queue.clone(),
                    status: status.clone(),
                });
            }
        }
        // What was not reached stays where it is, and costs no attempt.
        if !loses_order || failed == 0 {
            messages.return_called(call_epoch, call.span);
        }
        let held = held_before - messages.held_bytes();
        self.events.push_back(Event::Consumed {
            consumer_group: Arc::clone(&group.name),
            topic: Arc::clone(&call.topic),
            queue: queue.queue.clone(),
            first_offset: call.span.first,
            done,
            failed,
            elapsed,
        });
        let topic_index = queue.topic_index;
        if let Some(group) = self.groups.get_mut(call.group) {
            let statistics = &mut group.topics[topic_index].statistics;
            statistics.add_call(done, failed, elapsed, now);
        }
        if let Some(time) = suspension {
            queue.orderly.suspended_until = Some(now + time);
            let timer = Timer::Suspension(call.queue);
            self.timers.set(timer, now + time);
        }
        let first_failed = (failed > 0).then(|| queue.process_queue.head()).flatten();
        self.note_row(call.queue, first_failed, now);
        let mut reason = FailureReason::from(self.exhausted_reason(call.group));
        if let Some(last) = broke(result) {
            let text = format!("{reason}; the last attempt: {last}");
            reason = FailureReason::from(text).with_properties(last.properties().into());
        }
        for message in exhausted.drain(..) {
            let reason = reason.clone();
            self.message_failed(call.queue, message, Verdict::DeadLetter { reason }, now);
        }
        self.failed_messages = exhausted;
        self.give_memory_back(call.group, held);
        self.finished(call.queue, now);
    }

    fn exhausted_reason(&self, group: Epoch) -> Arc<str> {
        let group = self.groups.get(group);
        let max = group.and_then(|group| group.config.max_reconsume_times());
        format!(
            "max_reconsume_times = {} is reached",
            max.unwrap_or(u32::MAX)
        )
        .into()
    }

    /// Follows the failures of the first message, and tells once when they hold the queue
    /// up for long, and once when that is over.
    fn note_row(&mut self, epoch: Epoch, failed_at: Option<QueueOffset>, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let consumer_group = &group.name;
        let row = &mut queue.orderly.row;
        if let Some(before) = *row
            && queue.process_queue.head() != Some(before.offset)
        {
            *row = None;
            if before.told {
                self.events.push_back(Event::QueueUnblocked {
                    consumer_group: Arc::clone(consumer_group),
                    queue: queue.queue.clone(),
                    offset: before.offset,
                    attempts: before.attempts,
                    lasted: now - before.since,
                });
            }
        }
        let Some(offset) = failed_at else { return };
        let row = row.get_or_insert(FailureRow {
            offset,
            attempts: 0,
            since: now,
            told: false,
        });
        row.attempts += 1;
        let lasted = now - row.since;
        if !row.told && (row.attempts >= BLOCKED_ATTEMPTS || lasted >= BLOCKED_TIME) {
            row.told = true;
            self.events.push_back(Event::QueueBlocked {
                consumer_group: Arc::clone(consumer_group),
                queue: queue.queue.clone(),
                offset,
                attempts: row.attempts,
                lasted,
            });
        }
    }

    /// A message of an orderly queue has become a dead letter, or could not.
    pub(crate) fn orderly_dead_letter_ended(&mut self, epoch: Epoch, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if !self
            .groups
            .get(queue.group)
            .is_some_and(ConsumerGroup::is_orderly)
        {
            return;
        }
        queue.orderly.dead_letters = queue.orderly.dead_letters.saturating_sub(1);
        self.note_row(epoch, None, now);
        self.orderly_queue_further(epoch);
    }

    /// A call of an orderly queue has ended, whatever has become of its assignment.
    pub(crate) fn orderly_call_ended(
        &mut self,
        group_epoch: Epoch,
        queue: &MessageQueue,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(group_epoch) else {
            return;
        };
        group.orderly_calls.remove(queue);
        if let Some(epoch) = group.assignment_of(queue) {
            self.orderly_queue_further(epoch);
        }
        self.unlock_waiting(group_epoch, now);
    }

    /// The end of a suspension.
    pub(crate) fn suspension_ended(&mut self, epoch: Epoch) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.orderly.suspended_until = None;
            self.queue_ready(epoch);
        }
    }

    /// What an orderly queue waited for is over: its next call, or its release.
    fn orderly_queue_further(&mut self, epoch: Epoch) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        if !queue.is_leaving() {
            self.queue_ready(epoch);
        } else if !self.is_busy_in_order(epoch) {
            self.release_queue(epoch);
        }
    }

    /// A queue is no longer wanted. One that is consumed in order goes when nothing of it
    /// is under way any more: its next owner must not begin before.
    pub(crate) fn give_queue_back(&mut self, epoch: Epoch) {
        if !self.is_busy_in_order(epoch) || self.has_bug(PlantedBug::UnlockUnderACall) {
            self.release_queue(epoch);
            return;
        }
        for timer in AssignedQueue::timers(epoch) {
            self.timers.cancel(timer);
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.orderly.is_leaving = true;
        queue.is_ready = false;
        // The answer of a pull under way is thrown away when it comes.
        if let Phase::Pulling(pull) = &mut queue.phase
            && !matches!(pull, Pull::InFlight { .. })
        {
            *pull = Pull::Stopped;
        }
        if let Some(group) = self.groups.get_mut(queue.group) {
            group.topics[queue.topic_index].held.remove(&queue.queue);
            group.releasing.insert(queue.queue.clone());
            group.leaving.insert(queue.queue.clone(), epoch);
        }
    }

    fn is_busy_in_order(&self, epoch: Epoch) -> bool {
        let Some(queue) = self.queues.get(epoch) else {
            return false;
        };
        // One that has not begun has no call of its own; its unlock waits for others.
        let has_begun = matches!(queue.phase, Phase::Pulling(_));
        let group = self.groups.get(queue.group);
        has_begun
            && group.is_some_and(|group| {
                group.orderly_calls.contains(&queue.queue) || queue.orderly.dead_letters > 0
            })
    }
}
