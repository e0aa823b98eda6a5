//! What becomes of the messages of a call, when any of them may be consumed in any order.
//!
//! RocketMQ: `ConsumeMessageConcurrentlyService#processConsumeResult`.

use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;

use crate::client::Client;
use crate::consume::Call;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::failure_reason::FailureReason;
use crate::listener::{ConcurrentlyStatus, ConsumeResult, MessageOutcome};
use crate::planted_bugs::PlantedBug;
use crate::process_queue::Fate;
use crate::retry::Verdict;

/// What a result says about each message of its request.
#[derive(Debug)]
enum Outcomes<'a> {
    AllDone,
    NothingHappened,
    /// Messages before this index are done, the others come again.
    DoneUntil(u32, i32),
    /// The call broke: every message comes again.
    Broke(&'a FailureReason),
    Each(&'a [MessageOutcome]),
}

impl<'a> Outcomes<'a> {
    fn of(result: &'a ConsumeResult, messages: u32) -> Self {
        match result {
            ConsumeResult::NotFinished => Self::NothingHappened,
            ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index }) => {
                let done = ack_index.map_or(messages, |index| {
                    u32::try_from(i64::from(index) + 1).unwrap_or(0)
                });
                if done >= messages {
                    Self::AllDone
                } else {
                    Self::DoneUntil(done, 0)
                }
            }
            ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level }) => {
                Self::DoneUntil(0, delay_level.unwrap_or(0))
            }
            ConsumeResult::Failed { reason } => Self::Broke(reason),
            ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes)) => {
                let all = outcomes.len() >= messages as usize;
                let done = |outcome| matches!(outcome, &MessageOutcome::Done);
                if all && outcomes.iter().take(messages as usize).all(done) {
                    Self::AllDone
                } else {
                    Self::Each(outcomes)
                }
            }
            // An answer of the wrong kind is no answer.
            ConsumeResult::Orderly(_) | ConsumeResult::OrderlyCalls(_) => Self::Each(&[]),
        }
    }

    fn fate(&self, index: u32) -> Fate {
        match self {
            Self::AllDone => Fate::Finished,
            Self::NothingHappened => Fate::Returned,
            Self::DoneUntil(done, _) if index < *done => Fate::Finished,
            Self::DoneUntil(..) | Self::Broke(_) => Fate::Failed,
            Self::Each(outcomes) => match outcomes.get(index as usize) {
                Some(MessageOutcome::Done) => Fate::Finished,
                Some(MessageOutcome::NotFinished) => Fate::Returned,
                _ => Fate::Failed,
            },
        }
    }

    /// What a failed message has coming.
    fn verdict(&self, index: u32) -> Verdict {
        match self {
            Self::DoneUntil(_, delay_level) => Verdict::later(*delay_level),
            Self::Broke(reason) => Verdict::broke(reason),
            Self::Each(outcomes) => match outcomes.get(index as usize) {
                Some(MessageOutcome::DeadLetter { reason }) => Verdict::DeadLetter {
                    reason: reason.clone(),
                },
                Some(MessageOutcome::ReconsumeLater { delay_level }) => {
                    Verdict::later(delay_level.unwrap_or(0))
                }
                Some(MessageOutcome::Failed { reason }) => Verdict::broke(reason),
                _ => Verdict::later(0),
            },
            Self::AllDone | Self::NothingHappened => Verdict::later(0),
        }
    }
}

impl Client {
    pub(crate) fn concurrently_consumed(
        &mut self,
        call_epoch: Epoch,
        call: &Call,
        result: &ConsumeResult,
        elapsed: Duration,
        now: Instant,
    ) {
        let messages = call.span.messages;
        let mut outcomes = Outcomes::of(result, messages);
        if matches!(outcomes, Outcomes::NothingHappened)
            && self.has_bug(PlantedBug::NotFinishedIsDone)
        {
            outcomes = Outcomes::AllDone;
        }
        let Some(queue) = self.queues.get_mut(call.queue) else {
            return;
        };
        let Some(group) = self.groups.get(call.group) else {
            return;
        };
        queue.consumed_at = Some(now);
        let held_before = queue.process_queue.held_bytes();
        let mut failed = std::mem::take(&mut self.failed_messages);
        let mut returned = 0;
        if matches!(outcomes, Outcomes::AllDone) {
            queue.process_queue.finish(call_epoch, call.span);
        } else {
            queue.process_queue.finish_each(
                call_epoch,
                call.span,
                |index| outcomes.fate(index),
                &mut failed,
            );
            let fates = (0..messages).map(|index| outcomes.fate(index));
            returned = fates.filter(|&fate| fate == Fate::Returned).count();
        }
        let held = held_before - queue.process_queue.held_bytes();
        let returned = u32::try_from(returned).unwrap_or(u32::MAX);
        let failures = u32::try_from(failed.len()).unwrap_or(u32::MAX);
        if let Outcomes::Each(each) = outcomes
            && each.len() != messages as usize
        {
            self.events.push_back(Event::OutcomesMismatched {
                consumer_group: Arc::clone(&group.name),
                expected: messages,
                actual: u32::try_from(each.len()).unwrap_or(u32::MAX),
            });
        }
        let done = messages - failures - returned;
        let topic_index = queue.topic_index;
        self.events.push_back(Event::Consumed {
            consumer_group: Arc::clone(&group.name),
            topic: Arc::clone(&call.topic),
            queue: queue.queue.clone(),
            first_offset: call.span.first,
            done,
            failed: failures,
            elapsed,
        });
        if let Some(group) = self.groups.get_mut(call.group) {
            let statistics = &mut group.topics[topic_index].statistics;
            statistics.add_call(done, failures, elapsed, now);
        }
        for message in failed.drain(..) {
            let verdict = outcomes.verdict(message.index);
            self.message_failed(call.queue, message, verdict, now);
        }
        self.failed_messages = failed;
        self.give_memory_back(call.group, held);
        self.finished(call.queue, now);
        self.queue_ready(call.queue);
    }
}
