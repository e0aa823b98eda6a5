//! A request whose messages may be consumed in any order → calls, and what they come to.
//!
//! A request is split into calls of `messages_per_call` and `CALL_BYTES_MAX`. When a call
//! with several messages fails, its messages run again one by one in fresh instances, in
//! order, so that only what fails alone counts an attempt.

use std::sync::Arc;

use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeRequest, ConsumeResult, MessageOutcome,
};

use super::Shared;
use super::call::{Called, Part, pause};
use crate::failure::FailureRecord;
use crate::outcome::Status;
use crate::run_slots::RunSlot;

impl Shared {
    pub(super) async fn consume_concurrently(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
    ) -> ConsumeResult {
        let mut outcomes = Outcomes::new(request.len());
        let calls = self.call_concurrently(request, cancel, &mut outcomes);
        match self.ending.cut(calls).await.flatten() {
            Some(result) => result,
            None => outcomes.into_result(),
        }
    }

    /// Makes the calls, one after the other; returns the result when one call had the
    /// whole request.
    async fn call_concurrently(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        outcomes: &mut Outcomes,
    ) -> Option<ConsumeResult> {
        let total = request.len();
        let _permit = self.pool.permit().await?;
        let _ticking = self.engine.ticking();
        let mut slot = self.engine.slots().slot(&self.plugin);
        let mut is_over = self.is_over(cancel);
        while outcomes.len() < total && !is_over {
            let part = Part::from(outcomes.len(), request);
            slot.give_way();
            match self.call(request, cancel, part, &mut slot).await {
                Called::Answered(status) if part.messages == total => return Some(status.into()),
                Called::Answered(status) => outcomes.add(status, part.messages),
                Called::Failed(record) if total == 1 => {
                    let reason = (&*record).into();
                    return Some(ConsumeResult::Failed { reason });
                }
                Called::Failed(record) if part.messages == 1 => outcomes.add_failed(&record),
                Called::Failed(_) => {
                    self.isolate(request, cancel, part, outcomes, &mut slot)
                        .await;
                    if outcomes.len() < part.first + part.messages {
                        break;
                    }
                }
                Called::NoInstance => {
                    pause(&mut slot).await;
                    break;
                }
            }
            is_over = self.is_over_early(cancel);
        }
        None
    }

    /// Runs the messages of a failed call again, one by one, each in a fresh instance.
    /// Ends early when the consumer stops, the revision drains or is held back, or no
    /// instance can be made.
    async fn isolate(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        batch: Part,
        outcomes: &mut Outcomes,
        slot: &mut RunSlot,
    ) {
        for first in batch.first..batch.first + batch.messages {
            if self.is_over_early(cancel) {
                return;
            }
            slot.give_way();
            match self.call(request, cancel, Part::alone(first), slot).await {
                Called::Answered(status) => outcomes.add(status, 1),
                Called::Failed(record) => outcomes.add_failed(&record),
                Called::NoInstance => {
                    pause(slot).await;
                    return;
                }
            }
        }
    }
}

/// Outcomes of the calls of one request, in order.
struct Outcomes {
    each: Vec<MessageOutcome>,
    total: usize,
}

impl Outcomes {
    fn new(total: usize) -> Self {
        Self {
            each: Vec::new(),
            total,
        }
    }

    fn len(&self) -> usize {
        self.each.len()
    }

    fn add(&mut self, status: Status, messages: usize) {
        if self.each.capacity() == 0 {
            self.each.reserve_exact(self.total);
        }
        let later = |delay_level| MessageOutcome::ReconsumeLater { delay_level };
        let status = match status {
            Status::Concurrently(status) => status,
            // Its instances are all of the other kind.
            Status::Orderly(_) => ConcurrentlyStatus::ReconsumeLater { delay_level: None },
        };
        match status {
            ConcurrentlyStatus::ConsumeSuccess { ack_index } => {
                let done = match ack_index {
                    None => messages,
                    // −1 and below: none.
                    Some(ack_index) => usize::try_from(i64::from(ack_index) + 1)
                        .unwrap_or(0)
                        .min(messages),
                };
                self.each.extend((0..messages).map(|index| {
                    if index < done {
                        MessageOutcome::Done
                    } else {
                        later(None)
                    }
                }));
            }
            ConcurrentlyStatus::ReconsumeLater { delay_level } => {
                self.each.extend((0..messages).map(|_| later(delay_level)));
            }
            ConcurrentlyStatus::Each(outcomes) => self.each.extend(outcomes),
        }
    }

    /// A message that failed alone: an attempt, and the broker's schedule.
    fn add_failed(&mut self, record: &FailureRecord) {
        self.each.push(MessageOutcome::Failed {
            reason: record.into(),
        });
    }

    /// What was not reached is not finished.
    fn into_result(mut self) -> ConsumeResult {
        if self.each.is_empty() {
            return ConsumeResult::NotFinished;
        }
        self.each.resize(self.total, MessageOutcome::NotFinished);
        let all_done = self
            .each
            .iter()
            .all(|outcome| *outcome == MessageOutcome::Done);
        ConsumeResult::Concurrently(if all_done {
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None }
        } else {
            ConcurrentlyStatus::Each(self.each)
        })
    }
}
