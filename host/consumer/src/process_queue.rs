//! [`ProcessQueue`]: what was fetched from one queue and is not finished.
//!
//! A ring of runs in offset order. A run is a range of neighbouring messages of one pull
//! answer that are in the same state; it is split when they part ways. What is finished
//! leaves at once, so the head is the lowest unfinished offset, which is what may be
//! committed. Usual work costs the same for a run as for a message: pulled runs go to the
//! end, finished ones leave near the front. It answers as Java's tree of messages does
//! (RocketMQ: `ProcessQueue`), with one exception: an offset that is there already keeps
//! its message instead of being consumed twice at once.

mod in_order;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use protocol::QueueOffset;
use protocol::message::MessageBatch;
use protocol::message::batch::MessageFault;

use crate::epoch::Epoch;
use crate::listener::MessageRun;

/// Fetched and not finished messages of one assignment.
#[derive(Debug, Default)]
pub(crate) struct ProcessQueue {
    runs: VecDeque<Run>,
    messages: u32,
    free_messages: u32,
    body_bytes: u64,
    /// Every run before this offset is taken: where to look for free ones.
    free_from: QueueOffset,
    /// The offset after the highest ever put.
    end: QueueOffset,
    held: HeldBatches,
}

#[derive(Debug)]
struct Run {
    batch: Arc<MessageBatch>,
    held: u32,
    /// Indices in the batch.
    range: Range<u32>,
    first: QueueOffset,
    last: QueueOffset,
    body_bytes: u64,
    topic: Arc<str>,
    state: RunState,
    local_reconsume_times: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunState {
    /// Waits for a call.
    Free,
    /// In a call.
    Called(Epoch),
    /// Goes back to the broker, or waits here for another attempt. Always one message.
    Failed,
    /// Orderly with auto-commit off: consumed, and not committed by the listener.
    Uncommitted,
}

/// Neighbouring messages of a pull answer that are to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeptRun {
    pub(crate) range: Range<u32>,
    /// As the listener sees it.
    pub(crate) topic: Arc<str>,
}

/// Messages for one call.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) runs: Vec<MessageRun>,
    pub(crate) topic: Arc<str>,
    pub(crate) span: TakenSpan,
}

/// Where the messages of a call lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenSpan {
    pub(crate) first: QueueOffset,
    pub(crate) last: QueueOffset,
    pub(crate) messages: u32,
}

/// What becomes of one message of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Leaves.
    Finished,
    /// Stays as failed until the broker has it.
    Failed,
    /// Becomes free again, no attempt counted.
    Returned,
}

/// A message that has to go back to the broker.
#[derive(Clone, Debug)]
pub(crate) struct FailedMessage {
    /// Its place in the call.
    pub(crate) index: u32,
    pub(crate) offset: QueueOffset,
    pub(crate) batch: Arc<MessageBatch>,
    pub(crate) batch_index: u32,
    pub(crate) topic: Arc<str>,
    pub(crate) local_reconsume_times: u32,
}

impl FailedMessage {
    /// Why no listener can have it.
    pub(crate) fn fault(&self) -> Option<MessageFault> {
        self.batch.message(self.batch_index).fault()
    }
}

impl ProcessQueue {
    /// Takes messages in, and the bytes of the answer they lie in. Returns how many are
    /// new. RocketMQ: `ProcessQueue#putMessage`.
    pub(crate) fn put(
        &mut self,
        batch: &Arc<MessageBatch>,
        held_bytes: u64,
        kept: &[KeptRun],
    ) -> u32 {
        let before = self.messages;
        let held = self.held.begin(held_bytes);
        for run in kept {
            let mut rest = run.range.clone();
            while !rest.is_empty() {
                let taken = self.append(batch, held, rest.clone(), &run.topic);
                if taken == 0 {
                    self.insert(batch, held, rest.start, &run.topic);
                }
                rest.start += taken.max(1);
            }
        }
        self.held.end(held);
        self.check();
        self.messages - before
    }

    /// Appends the messages that ascend beyond the end; returns how many.
    fn append(
        &mut self,
        batch: &Arc<MessageBatch>,
        held: u32,
        range: Range<u32>,
        topic: &Arc<str>,
    ) -> u32 {
        let mut end = self.end;
        let mut body_bytes = 0;
        let mut stop = range.start;
        for index in range.clone() {
            let message = batch.message(index);
            if message.queue_offset() < end {
                break;
            }
            end = message.queue_offset().next();
            body_bytes += message.body().len() as u64;
            stop = index + 1;
        }
        let count = stop - range.start;
        if count == 0 {
            return 0;
        }
        let first = batch.message(range.start).queue_offset();
        let last = batch.message(stop - 1).queue_offset();
        self.held.add(held, count);
        self.messages += count;
        self.free_messages += count;
        self.body_bytes += body_bytes;
        if self.free_messages == count {
            self.free_from = first;
        }
        self.end = end;
        self.runs.push_back(Run {
            batch: Arc::clone(batch),
            held,
            range: range.start..stop,
            first,
            last,
            body_bytes,
            topic: Arc::clone(topic),
            state: RunState::Free,
            local_reconsume_times: 0,
        });
        count
    }

    /// Puts one message in its place among those with higher offsets, unless it is there.
    fn insert(&mut self, batch: &Arc<MessageBatch>, held: u32, index: u32, topic: &Arc<str>) {
        let message = batch.message(index);
        let offset = message.queue_offset();
        let mut at = self.runs.partition_point(|run| run.last < offset);
        if let Some(run) = self.runs.get(at)
            && run.first <= offset
        {
            let within = run.position(offset);
            if run.batch.message(within).queue_offset() == offset {
                return;
            }
            self.split(at, within);
            at += 1;
        }
        let body_bytes = message.body().len() as u64;
        self.held.add(held, 1);
        self.messages += 1;
        self.free_messages += 1;
        self.body_bytes += body_bytes;
        self.free_from = self.free_from.min(offset);
        self.end = self.end.max(offset.next());
        self.runs.insert(
            at,
            Run {
                batch: Arc::clone(batch),
                held,
                range: index..index + 1,
                first: offset,
                last: offset,
                body_bytes,
                topic: Arc::clone(topic),
                state: RunState::Free,
                local_reconsume_times: 0,
            },
        );
    }

    /// Takes up to `messages_max` free messages of one topic for a call, lowest offsets
    /// first.
    pub(crate) fn take(&mut self, messages_max: u32, call: Epoch) -> Option<Taken> {
        let from = self.free_from;
        let mut at = self.runs.partition_point(|run| run.last < from);
        while self.runs.get(at)?.state != RunState::Free {
            at += 1;
        }
        Some(self.take_from(at, messages_max, call, false))
    }

    /// Takes free messages of one topic from this run on, if asked only such as have
    /// failed equally often.
    fn take_from(
        &mut self,
        at: usize,
        messages_max: u32,
        call: Epoch,
        equally_often: bool,
    ) -> Taken {
        let mut at = at;
        let topic = Arc::clone(&self.runs[at].topic);
        let first = self.runs[at].first;
        let times = self.runs[at].local_reconsume_times;
        let mut span = TakenSpan {
            first,
            last: first,
            messages: 0,
        };
        let mut runs = Vec::with_capacity(1);
        while span.messages < messages_max {
            let Some(run) = self.runs.get(at) else { break };
            if run.state != RunState::Free
                || run.topic != topic
                || (equally_often && run.local_reconsume_times != times)
            {
                break;
            }
            let room = messages_max - span.messages;
            if run.len() > room {
                let within = run.range.start + room;
                self.split(at, within);
            }
            let run = &mut self.runs[at];
            run.state = RunState::Called(call);
            span.last = run.last;
            span.messages += run.len();
            runs.push(MessageRun {
                batch: Arc::clone(&run.batch),
                range: run.range.clone(),
                local_reconsume_times: run.local_reconsume_times,
            });
            at += 1;
        }
        self.free_messages -= span.messages;
        self.free_from = span.last.next();
        Taken { runs, topic, span }
    }

    /// A call ended and all its messages are finished. RocketMQ: `removeMessage`.
    pub(crate) fn finish(&mut self, call: Epoch, span: TakenSpan) {
        let mut at = self.runs.partition_point(|run| run.last < span.first);
        while let Some(run) = self.runs.get(at)
            && run.first <= span.last
        {
            if run.state == RunState::Called(call) {
                self.remove_at(at);
            } else {
                at += 1;
            }
        }
    }

    /// A call ended and its messages part ways; those that failed are returned.
    pub(crate) fn finish_each(
        &mut self,
        call: Epoch,
        span: TakenSpan,
        mut fate: impl FnMut(u32) -> Fate,
        failed: &mut Vec<FailedMessage>,
    ) {
        let mut at = self.runs.partition_point(|run| run.last < span.first);
        let mut index = 0;
        while let Some(run) = self.runs.get(at)
            && run.first <= span.last
        {
            if run.state != RunState::Called(call) {
                at += 1;
                continue;
            }
            let this = fate(index);
            let same = (1..run.len())
                .take_while(|&next| this != Fate::Failed && fate(index + next) == this)
                .count();
            let count = 1 + u32::try_from(same).unwrap_or(u32::MAX);
            if count < run.len() {
                let within = run.range.start + count;
                self.split(at, within);
            }
            match this {
                Fate::Finished => self.remove_at(at),
                Fate::Failed => {
                    let run = &mut self.runs[at];
                    run.state = RunState::Failed;
                    failed.push(FailedMessage {
                        index,
                        offset: run.first,
                        batch: Arc::clone(&run.batch),
                        batch_index: run.range.start,
                        topic: Arc::clone(&run.topic),
                        local_reconsume_times: run.local_reconsume_times,
                    });
                    at += 1;
                }
                Fate::Returned => {
                    self.free(at);
                    at += 1;
                }
            }
            index += count;
        }
        self.check();
    }

    /// The broker has this failed message.
    pub(crate) fn remove_failed(&mut self, offset: QueueOffset) -> bool {
        let Some(at) = self.find_failed(offset) else {
            return false;
        };
        self.remove_at(at);
        true
    }

    /// A failed message is to be tried again here; the attempt counts.
    pub(crate) fn retry_failed(&mut self, offset: QueueOffset) -> bool {
        let Some(at) = self.find_failed(offset) else {
            return false;
        };
        self.runs[at].local_reconsume_times += 1;
        self.free(at);
        true
    }

    /// Puts one message in that never goes to a listener, as failed. False when it is
    /// there already.
    pub(crate) fn put_failed(
        &mut self,
        batch: &Arc<MessageBatch>,
        held_bytes: u64,
        index: u32,
        topic: &Arc<str>,
    ) -> Option<FailedMessage> {
        let kept = KeptRun {
            range: index..index + 1,
            topic: Arc::clone(topic),
        };
        if self.put(batch, held_bytes, std::slice::from_ref(&kept)) == 0 {
            return None;
        }
        let offset = batch.message(index).queue_offset();
        let at = self.runs.partition_point(|run| run.last < offset);
        self.runs[at].state = RunState::Failed;
        self.free_messages -= 1;
        Some(FailedMessage {
            index: 0,
            offset,
            batch: Arc::clone(batch),
            batch_index: index,
            topic: Arc::clone(topic),
            local_reconsume_times: 0,
        })
    }

    /// A message that is marked as failed.
    pub(crate) fn failed(&self, offset: QueueOffset) -> Option<FailedMessage> {
        let run = &self.runs[self.find_failed(offset)?];
        Some(FailedMessage {
            index: 0,
            offset,
            batch: Arc::clone(&run.batch),
            batch_index: run.range.start,
            topic: Arc::clone(&run.topic),
            local_reconsume_times: run.local_reconsume_times,
        })
    }

    /// The lowest unfinished offset.
    pub(crate) fn head(&self) -> Option<QueueOffset> {
        self.runs.front().map(|run| run.first)
    }

    /// The highest unfinished offset.
    pub(crate) fn last(&self) -> Option<QueueOffset> {
        self.runs.back().map(|run| run.last)
    }

    /// Everything below is finished: the head, or the offset after the highest one ever
    /// put. `None` before anything was put. RocketMQ: `removeMessage`'s return value.
    pub(crate) fn finished_offset(&self) -> Option<QueueOffset> {
        self.head()
            .or_else(|| (self.end > QueueOffset(0)).then_some(self.end))
    }

    /// Distance between the lowest and the highest unfinished offset. RocketMQ:
    /// `getMaxSpan`.
    pub(crate) fn span(&self) -> u64 {
        match (self.runs.front(), self.runs.back()) {
            (Some(first), Some(last)) => last.last.0 - first.first.0,
            _ => 0,
        }
    }

    /// Unfinished messages.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// Messages that wait for a call.
    pub(crate) fn free_messages(&self) -> u32 {
        self.free_messages
    }

    /// Bytes of their bodies, decompressed.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Bytes of the answers they lie in.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.bytes
    }

    fn find_failed(&self, offset: QueueOffset) -> Option<usize> {
        let at = self.runs.partition_point(|run| run.last < offset);
        let run = self.runs.get(at)?;
        (run.first == offset && run.state == RunState::Failed).then_some(at)
    }

    fn free(&mut self, at: usize) {
        let run = &mut self.runs[at];
        run.state = RunState::Free;
        self.free_messages += run.len();
        self.free_from = self.free_from.min(run.first);
    }

    fn remove_at(&mut self, at: usize) {
        if let Some(run) = self.runs.remove(at) {
            debug_assert_ne!(run.state, RunState::Free, "a message left without a call");
            self.messages -= run.len();
            self.body_bytes -= run.body_bytes;
            self.held.remove(run.held, run.len());
        }
    }

    /// Cuts the run so that the message `within` begins a run of its own.
    fn split(&mut self, at: usize, within: u32) {
        let run = &mut self.runs[at];
        debug_assert!(run.range.start < within && within < run.range.end);
        let mut tail = Run {
            batch: Arc::clone(&run.batch),
            topic: Arc::clone(&run.topic),
            range: within..run.range.end,
            first: run.batch.message(within).queue_offset(),
            body_bytes: 0,
            ..*run
        };
        run.range.end = within;
        run.last = run.batch.message(within - 1).queue_offset();
        // The bodies of the shorter part are counted.
        if tail.len() < run.len() {
            tail.body_bytes = count_body_bytes(&tail.batch, tail.range.clone());
            run.body_bytes -= tail.body_bytes;
        } else {
            let head = count_body_bytes(&run.batch, run.range.clone());
            tail.body_bytes = run.body_bytes - head;
            run.body_bytes = head;
        }
        self.runs.insert(at + 1, tail);
    }

    /// Counters derive from contents.
    fn check(&self) {
        if cfg!(debug_assertions) && self.runs.len() <= 64 {
            let count = |free_only: bool| {
                let counted = |run: &&Run| !free_only || run.state == RunState::Free;
                self.runs.iter().filter(counted).map(Run::len).sum::<u32>()
            };
            debug_assert_eq!(self.messages, count(false));
            debug_assert_eq!(self.free_messages, count(true));
        }
    }
}

impl Run {
    fn len(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// Index of the first message at this offset or beyond.
    fn position(&self, offset: QueueOffset) -> u32 {
        let (mut low, mut high) = (self.range.start, self.range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.batch.message(middle).queue_offset() < offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn count_body_bytes(batch: &MessageBatch, range: Range<u32>) -> u64 {
    range
        .map(|index| batch.message(index).body().len() as u64)
        .sum()
}

/// Which answers are held, and how many unfinished messages lie in each. A frame is
/// held until its last message is finished.
#[derive(Debug, Default)]
struct HeldBatches {
    slots: Vec<HeldBatch>,
    unused: Vec<u32>,
    bytes: u64,
}

#[derive(Debug)]
struct HeldBatch {
    bytes: u64,
    messages: u32,
}

impl HeldBatches {
    /// A slot for an answer that counts from now on; `end` gives it back when no message
    /// was added.
    fn begin(&mut self, bytes: u64) -> u32 {
        self.bytes += bytes;
        let batch = HeldBatch { bytes, messages: 0 };
        if let Some(slot) = self.unused.pop() {
            self.slots[slot as usize] = batch;
            return slot;
        }
        self.slots.push(batch);
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    fn add(&mut self, slot: u32, messages: u32) {
        self.slots[slot as usize].messages += messages;
    }

    fn end(&mut self, slot: u32) {
        self.remove(slot, 0);
    }

    fn remove(&mut self, slot: u32, messages: u32) {
        let batch = &mut self.slots[slot as usize];
        batch.messages -= messages;
        if batch.messages == 0 {
            self.bytes -= batch.bytes;
            batch.bytes = 0;
            self.unused.push(slot);
        }
    }
}

#[cfg(test)]
mod tests;
