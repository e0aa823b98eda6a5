//! A request whose messages are consumed in queue order → calls, and what each of them
//! said.
//!
//! A request is split into calls of `messages_per_call` and `CALL_BYTES_MAX`; the first
//! answer that keeps its messages in the queue ends it. When a call with several messages
//! fails, its messages run again one by one in fresh instances, in order, up to the first
//! that does not succeed alone: what stood before it is done and not repeated, it counts
//! the attempt, and what stands after it was never reached.
//!
//! With auto-commit off the calls of this second try are calls like any other: a commit
//! covers what stands before it, a rollback brings that back, and a failure in between
//! leaves what was consumed before it neither committed nor rolled back, for a later call
//! to decide. A failure never rolls back by itself.

use std::sync::Arc;

use consumer::listener::{CancelSignal, ConsumeRequest, ConsumeResult, OrderlyCall, OrderlyStatus};

use super::Shared;
use super::call::{Called, Part, count, pause};
use crate::failure::FailureRecord;
use crate::outcome::Status;
use crate::run_slots::RunSlot;

const FAILED: OrderlyStatus = OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };

impl Shared {
    pub(super) async fn consume_orderly(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
    ) -> ConsumeResult {
        let mut calls = Calls::default();
        let calling = self.call_in_order(request, cancel, &mut calls);
        match self.ending.cut(calling).await.flatten() {
            Some(result) => result,
            None => calls.into_result(request.len()),
        }
    }

    /// Makes the calls, one after the other; returns the result when one call had the
    /// whole request.
    async fn call_in_order(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        calls: &mut Calls,
    ) -> Option<ConsumeResult> {
        let total = request.len();
        let _permit = self.pool.permit().await?;
        let _ticking = self.engine.ticking();
        let mut slot = self.engine.slots().slot(&self.plugin);
        let mut is_over = self.is_over(cancel);
        while calls.go_on(total) && !is_over {
            let part = Part::from(calls.messages, request);
            slot.give_way();
            match self.call(request, cancel, part, &mut slot).await {
                Called::Answered(status) if part.messages == total => return Some(status.into()),
                Called::Answered(status) => calls.add(status, part.messages),
                Called::Failed(record) if total == 1 => {
                    let reason = (&*record).into();
                    return Some(ConsumeResult::Failed { reason });
                }
                Called::Failed(record) if part.messages == 1 => calls.add_failed(&record),
                Called::Failed(_) => {
                    self.isolate_in_order(request, cancel, part, calls, &mut slot)
                        .await;
                    if calls.messages < part.first + part.messages {
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

    /// Runs the messages of a failed call again, one by one, each in a fresh instance, up
    /// to the first that does not succeed. Ends early when the queue is gone, the revision
    /// drains or is held back, or no instance can be made.
    async fn isolate_in_order(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        batch: Part,
        calls: &mut Calls,
        slot: &mut RunSlot,
    ) {
        let end = batch.first + batch.messages;
        while calls.go_on(end) && !self.is_over_early(cancel) {
            let part = Part::alone(calls.messages);
            slot.give_way();
            match self.call(request, cancel, part, slot).await {
                Called::Answered(status) => calls.add(status, 1),
                Called::Failed(record) => calls.add_failed(&record),
                Called::NoInstance => {
                    pause(slot).await;
                    return;
                }
            }
        }
    }
}

/// What the calls of one request said, in order.
#[derive(Default)]
struct Calls {
    each: Vec<OrderlyCall>,
    messages: usize,
}

impl Calls {
    /// Whether the message after those that were called comes next.
    fn go_on(&self, end: usize) -> bool {
        let kept = self.each.last().is_some_and(|call| match call.status {
            OrderlyStatus::Success | OrderlyStatus::Commit => false,
            OrderlyStatus::SuspendCurrentQueueAMoment { .. } | OrderlyStatus::Rollback => true,
        });
        self.messages < end && !kept
    }

    fn add(&mut self, status: Status, messages: usize) {
        let status = match status {
            Status::Orderly(status) => status,
            // Its instances are all of the other kind.
            Status::Concurrently(_) => FAILED,
        };
        self.messages += messages;
        let messages = count(messages);
        // Neighbours that are done alike are told as one.
        match self.each.last_mut() {
            Some(last) if last.status == status => last.messages += messages,
            _ => self.each.push(OrderlyCall {
                messages,
                status,
                reason: None,
            }),
        }
    }

    /// One message that failed alone: it stays first in its queue.
    fn add_failed(&mut self, record: &FailureRecord) {
        self.messages += 1;
        self.each.push(OrderlyCall {
            messages: 1,
            status: FAILED,
            reason: Some(record.into()),
        });
    }

    fn into_result(mut self, total: usize) -> ConsumeResult {
        match self.each.pop() {
            None => ConsumeResult::NotFinished,
            Some(call) if self.each.is_empty() && self.messages == total => {
                ConsumeResult::Orderly(call.status)
            }
            Some(call) => {
                self.each.push(call);
                ConsumeResult::OrderlyCalls(self.each)
            }
        }
    }
}
