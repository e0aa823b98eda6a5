//! What an orderly queue needs beside the rest: messages are taken from the head only,
//! go back to the head when they failed, and, with auto-commit off, stay until a commit.
//!
//! RocketMQ: `ProcessQueue#takeMessages`, `#commit`, `#rollback`,
//! `#makeMessageToConsumeAgain`.

use std::sync::Arc;

use super::{FailedMessage, ProcessQueue, RunState, Taken, TakenSpan};
use crate::epoch::Epoch;

impl ProcessQueue {
    /// Takes the next messages in order, if nothing before them is in a call or on its
    /// way to the dead letters. Messages that have failed differently often are not
    /// taken together: a failed batch comes again as it was, and costs the messages after
    /// it no attempt.
    pub(crate) fn take_in_order(&mut self, messages_max: u32, call: Epoch) -> Option<Taken> {
        let at = self.next_in_order()?;
        Some(self.take_from(at, messages_max, call, true))
    }

    /// Whether messages could be taken in order.
    pub(crate) fn has_next_in_order(&self) -> bool {
        self.next_in_order().is_some()
    }

    fn next_in_order(&self) -> Option<usize> {
        let consumed = |state| state == RunState::Uncommitted;
        let at = self.runs.iter().position(|run| !consumed(run.state))?;
        (self.runs[at].state == RunState::Free).then_some(at)
    }

    /// The first so many messages of a call that nothing has become of yet, or what there
    /// is of them.
    pub(crate) fn first_of_call(
        &mut self,
        call: Epoch,
        span: TakenSpan,
        messages_max: u32,
    ) -> Option<TakenSpan> {
        let mut at = self.runs.partition_point(|run| run.last < span.first);
        let mut first: Option<TakenSpan> = None;
        while let Some(run) = self.runs.get(at)
            && run.first <= span.last
        {
            let room = messages_max - first.map_or(0, |first| first.messages);
            if room == 0 {
                break;
            }
            if run.state == RunState::Called(call) {
                if run.len() > room {
                    let within = run.range.start + room;
                    self.split(at, within);
                }
                let run = &self.runs[at];
                let first = first.get_or_insert(TakenSpan {
                    first: run.first,
                    last: run.last,
                    messages: 0,
                });
                first.last = run.last;
                first.messages += run.len();
            }
            at += 1;
        }
        first
    }

    /// These messages of a call went well, and a later call will say whether that counts.
    pub(crate) fn keep_uncommitted(&mut self, call: Epoch, span: TakenSpan) {
        let first = self.runs.partition_point(|run| run.last < span.first);
        for run in self.runs.range_mut(first..) {
            if run.first > span.last {
                break;
            }
            if run.state == RunState::Called(call) {
                run.state = RunState::Uncommitted;
            }
        }
    }

    /// These messages of a call are done, and all that went well before them.
    pub(crate) fn commit(&mut self, call: Epoch, span: TakenSpan) {
        let mut at = 0;
        while let Some(run) = self.runs.get(at)
            && run.first <= span.last
        {
            if run.state == RunState::Uncommitted || run.state == RunState::Called(call) {
                self.remove_at(at);
            } else {
                at += 1;
            }
        }
        self.check();
    }

    /// These messages of a call come again, and all that went well since the last commit.
    pub(crate) fn roll_back(&mut self, call: Epoch, span: TakenSpan) {
        for at in 0..self.runs.len() {
            let run = &self.runs[at];
            if run.first > span.last {
                break;
            }
            if run.state == RunState::Uncommitted || run.state == RunState::Called(call) {
                self.free(at);
            }
        }
        self.check();
    }

    /// These messages of a call were not reached.
    pub(crate) fn return_called(&mut self, call: Epoch, span: TakenSpan) {
        let first = self.runs.partition_point(|run| run.last < span.first);
        for at in first..self.runs.len() {
            let run = &self.runs[at];
            if run.first > span.last {
                break;
            }
            if run.state == RunState::Called(call) {
                self.free(at);
            }
        }
        self.check();
    }

    /// These messages of a call have failed. Those that were tried so often before are
    /// returned, and stay as failed; the others become free where they are, with one
    /// attempt more.
    pub(crate) fn put_back(
        &mut self,
        call: Epoch,
        span: TakenSpan,
        max_reconsume_times: Option<u32>,
        exhausted: &mut Vec<FailedMessage>,
    ) {
        let mut at = self.runs.partition_point(|run| run.last < span.first);
        while let Some(run) = self.runs.get(at)
            && run.first <= span.last
        {
            if run.state != RunState::Called(call) {
                at += 1;
                continue;
            }
            let local = run.local_reconsume_times;
            let has_had_enough = |message: u32| {
                let tried = run.batch.message(message).reconsume_times();
                max_reconsume_times.is_some_and(|max| tried.saturating_add(local) >= max)
            };
            let enough = has_had_enough(run.range.start);
            // What goes to the dead letters goes alone.
            let until =
                (run.range.start + 1..run.range.end).find(|&next| enough || has_had_enough(next));
            if let Some(within) = until {
                self.split(at, within);
            }
            let run = &mut self.runs[at];
            if enough {
                run.state = RunState::Failed;
                exhausted.push(FailedMessage {
                    index: 0,
                    offset: run.first,
                    batch: Arc::clone(&run.batch),
                    batch_index: run.range.start,
                    topic: Arc::clone(&run.topic),
                    local_reconsume_times: run.local_reconsume_times,
                });
            } else {
                run.local_reconsume_times = run.local_reconsume_times.saturating_add(1);
                self.free(at);
            }
            at += 1;
        }
        self.check();
    }

    /// The bug of that name: what was put back waits behind what comes after it.
    pub(crate) fn lose_put_back_order(&mut self, span: TakenSpan) {
        self.free_from = span.last.next();
    }
}

#[cfg(test)]
mod tests;
