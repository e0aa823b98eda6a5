//! What a revision was given and what it finished, queue by queue: the ledger of a switch
//! is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use consumer::listener::{
    ConcurrentlyStatus, ConsumeRequest, ConsumeResult, MessageOutcome, OrderlyStatus,
};
use protocol::MessageQueue;

/// Offsets of one queue that are remembered as given and not finished; beyond it a repeat
/// may be counted that is none.
const UNFINISHED_MAX: usize = 10_000;
/// Queues of one revision that are traced.
const QUEUES_MAX: usize = 10_000;

/// One queue, as a revision saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueTrace {
    /// Which.
    pub queue: MessageQueue,
    /// The first offset that it was given.
    pub first_given: Option<u64>,
    /// The highest offset that it finished.
    pub last_finished: Option<u64>,
    /// Messages that it was given although the revision before had finished them.
    pub repeats: u64,
}

#[derive(Default)]
struct Seen {
    first_given: Option<u64>,
    last_finished: Option<u64>,
    unfinished: BTreeSet<u64>,
    repeats: u64,
}

/// Of one revision.
#[derive(Default)]
pub(super) struct Traces {
    /// Held for a look or an entry, once before and once after a request.
    queues: Mutex<BTreeMap<MessageQueue, Seen>>,
    /// The revision that served before, while it drains.
    before: Mutex<Option<Arc<Traces>>>,
}

impl Traces {
    /// Looks for repeats from now on, until [`Traces::stop_comparing`].
    pub(super) fn compare_with(&self, before: &Arc<Self>) {
        *lock(&self.before) = Some(Arc::clone(before));
    }

    pub(super) fn stop_comparing(&self) {
        *lock(&self.before) = None;
    }

    pub(super) fn given(&self, request: &ConsumeRequest) {
        let Some(first) = request.iter().next() else {
            return;
        };
        let first = first.message.queue_offset().0;
        let before = lock(&self.before).clone();
        let repeats = before.map_or(0, |before| before.finished_of(request));
        self.with(&request.message_queue, |seen| {
            let earlier = seen.first_given.unwrap_or(first);
            seen.first_given = Some(earlier.min(first));
            seen.repeats += repeats;
        });
    }

    pub(super) fn ended(&self, request: &ConsumeRequest, result: &ConsumeResult) {
        self.with(&request.message_queue, |seen| {
            for (index, message) in request.iter().enumerate() {
                let offset = message.message.queue_offset().0;
                if is_done(result, index) {
                    seen.unfinished.remove(&offset);
                    seen.last_finished = seen.last_finished.max(Some(offset));
                } else if seen.unfinished.len() < UNFINISHED_MAX {
                    seen.unfinished.insert(offset);
                }
            }
        });
    }

    pub(super) fn queues(&self) -> Vec<QueueTrace> {
        let queues = lock(&self.queues);
        let traces = queues.iter().map(|(queue, seen)| QueueTrace {
            queue: queue.clone(),
            first_given: seen.first_given,
            last_finished: seen.last_finished,
            repeats: seen.repeats,
        });
        traces.collect()
    }

    /// Messages of a request that this revision had finished.
    fn finished_of(&self, request: &ConsumeRequest) -> u64 {
        let queues = lock(&self.queues);
        let Some(seen) = queues.get(&request.message_queue) else {
            return 0;
        };
        let (Some(first), Some(last)) = (seen.first_given, seen.last_finished) else {
            return 0;
        };
        let offsets = request.iter().map(|one| one.message.queue_offset().0);
        let finished = offsets
            .filter(|offset| (first..=last).contains(offset) && !seen.unfinished.contains(offset));
        finished.count() as u64
    }

    fn with(&self, queue: &MessageQueue, edit: impl FnOnce(&mut Seen)) {
        let mut queues = lock(&self.queues);
        if let Some(seen) = queues.get_mut(queue) {
            edit(seen);
        } else if queues.len() < QUEUES_MAX {
            edit(queues.entry(queue.clone()).or_default());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_done(result: &ConsumeResult, index: usize) -> bool {
    match result {
        ConsumeResult::Concurrently(status) => match status {
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None } => true,
            ConcurrentlyStatus::ConsumeSuccess {
                ack_index: Some(last),
            } => i64::try_from(index).is_ok_and(|index| index <= i64::from(*last)),
            ConcurrentlyStatus::ReconsumeLater { .. } => false,
            ConcurrentlyStatus::Each(outcomes) => matches!(
                outcomes.get(index),
                Some(MessageOutcome::Done | MessageOutcome::DeadLetter { .. })
            ),
        },
        _ => matches!(
            result.orderly_status(index),
            Some(OrderlyStatus::Success | OrderlyStatus::Commit)
        ),
    }
}
