//! Who may compute now: at most as many guests as there are cores, so that they never
//! hold the runtime's last worker. Tenants share the slots by weight and by the CPU time
//! they had (`fair_queue.rs`); a guest that used up its tick makes way for whoever had
//! less.

mod fair_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::plugin::Plugin;
use fair_queue::{FairQueue, Ticket};

/// CPU time, in nanoseconds, that a slot may have without the queue knowing.
const UNTOLD_MAX: u64 = 1_000_000;

/// The slots of one engine.
#[derive(Debug)]
pub(crate) struct RunSlots {
    /// Held for a few steps of the rules, never across a wait.
    state: Mutex<State>,
    /// As the queue has it, for a look without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    queue: FairQueue,
    wakers: BTreeMap<Ticket, Waker>,
    /// Have a slot and do not know it yet.
    granted: BTreeSet<Ticket>,
}

impl RunSlots {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            state: Mutex::new(State {
                queue: FairQueue::new(slots.max(1)),
                wakers: BTreeMap::new(),
                granted: BTreeSet::new(),
            }),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A slot to be, for one request of a plugin.
    pub(crate) fn slot(self: &Arc<Self>, plugin: &Arc<Plugin>) -> RunSlot {
        RunSlot {
            slots: Arc::clone(self),
            plugin: Arc::clone(plugin),
            is_held: false,
            queued: None,
            untold: 0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics, and what it guards stays well-formed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue; wakes who has a slot by it.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> (T, Option<Ticket>)) -> T {
        let (value, woken) = {
            let mut state = self.state();
            let (value, granted) = change(&mut state);
            let woken = granted.and_then(|ticket| {
                state.granted.insert(ticket);
                state.wakers.remove(&ticket)
            });
            self.waiting.store(state.queue.waiting(), Ordering::Relaxed);
            (value, woken)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
        value
    }
}

/// One request's place: held, queued for, or neither. Dropping it gives everything back.
pub(crate) struct RunSlot {
    slots: Arc<RunSlots>,
    plugin: Arc<Plugin>,
    is_held: bool,
    queued: Option<Queued>,
    /// CPU time that was not told to the queue yet.
    untold: u64,
}

#[derive(Clone, Copy)]
struct Queued {
    ticket: Ticket,
    since: Instant,
}

impl RunSlot {
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Waits for a slot; answers how long that took.
    pub(crate) async fn acquire(&mut self) -> Duration {
        if self.is_held {
            return Duration::ZERO;
        }
        std::future::poll_fn(|cx| self.poll_acquire(cx)).await
    }

    /// The same, to be polled.
    pub(crate) fn poll_acquire(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let tenant = self.plugin.config.tenant.id();
        let mut state = self.slots.state();
        let queued = match self.queued {
            Some(queued) => queued,
            None => {
                if state.queue.try_acquire(tenant) {
                    self.is_held = true;
                    return Poll::Ready(Duration::ZERO);
                }
                let ticket = state.queue.enqueue(tenant);
                let waiting = state.queue.waiting();
                self.slots.waiting.store(waiting, Ordering::Relaxed);
                let since = Instant::now();
                *self.queued.insert(Queued { ticket, since })
            }
        };
        if state.granted.remove(&queued.ticket) {
            self.is_held = true;
            self.queued = None;
            return Poll::Ready(queued.since.elapsed());
        }
        state.wakers.insert(queued.ticket, cx.waker().clone());
        Poll::Pending
    }

    /// Bills CPU time of a poll, in nanoseconds.
    pub(crate) fn charge(&mut self, used: u64) {
        self.plugin.usage.add_computed(used);
        self.untold = self.untold.saturating_add(used);
    }

    /// Gives the slot back while the guest waits.
    pub(crate) fn release(&mut self) {
        if self.is_held {
            self.hand_over(|_| true);
        }
    }

    /// Gives the slot back if another call is to have it.
    pub(crate) fn give_way(&mut self) {
        // The queue hears of what was used even while nobody waits: whoever comes later
        // must not find it all at once.
        let is_alone = self.slots.waiting.load(Ordering::Relaxed) == 0;
        if self.is_held && !(is_alone && self.untold < UNTOLD_MAX) {
            let tenant = self.plugin.config.tenant.id();
            self.hand_over(|queue| queue.must_give_way(tenant));
        }
    }

    fn hand_over(&mut self, gives: impl FnOnce(&FairQueue) -> bool) {
        let tenant = &self.plugin.config.tenant;
        let used = std::mem::take(&mut self.untold);
        self.is_held = self.slots.change(|state| {
            state.queue.charge(tenant.id(), tenant.weight(), used);
            if gives(&state.queue) {
                (false, state.queue.release(tenant.id()))
            } else {
                (true, None)
            }
        });
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.release();
        if let Some(queued) = self.queued.take() {
            let tenant = self.plugin.config.tenant.id();
            self.slots.change(|state| {
                state.wakers.remove(&queued.ticket);
                let has_slot = state.granted.remove(&queued.ticket);
                if has_slot {
                    return ((), state.queue.release(tenant));
                }
                state.queue.cancel(tenant, queued.ticket);
                ((), None)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use super::*;
    use crate::plugin::testing::plugin_with_events;

    fn slot(slots: &Arc<RunSlots>) -> RunSlot {
        slots.slot(&Arc::new(plugin_with_events(|_| {}).0))
    }

    #[tokio::test]
    async fn a_slot_goes_to_who_waited_longest() {
        let slots = Arc::new(RunSlots::new(1));
        let mut first = slot(&slots);
        first.acquire().await;
        let mut second = slot(&slots);
        let mut third = slots.slot(&second.plugin);
        let mut wait_second = Box::pin(second.acquire());
        let mut wait_third = Box::pin(third.acquire());
        assert!(is_pending(&mut wait_second) && is_pending(&mut wait_third));

        first.give_way();

        assert!(is_pending(&mut wait_third));
        assert!(!first.is_held());
        assert!(wait_second.await > Duration::ZERO);
        assert!(is_pending(&mut wait_third));
    }

    #[tokio::test]
    async fn a_slot_is_kept_from_who_had_more() {
        let slots = Arc::new(RunSlots::new(1));
        let mut greedy = slot(&slots);
        greedy.acquire().await;
        let mut modest = slot(&slots);
        assert!(is_pending(&mut Box::pin(modest.acquire())));
        greedy.charge(5_000_000);
        greedy.give_way();
        modest.acquire().await;
        assert!(is_pending(&mut Box::pin(greedy.acquire())));

        modest.charge(4_000_000);
        modest.give_way();
        assert!(modest.is_held());
        modest.charge(2_000_000);
        modest.give_way();
        assert!(!modest.is_held());
        assert_eq!(
            modest.plugin.usage.snapshot().computed,
            Duration::from_millis(6)
        );
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_in_the_queue_leaves_it() {
        let slots = Arc::new(RunSlots::new(1));
        let mut first = slot(&slots);
        first.acquire().await;
        let mut second = slot(&slots);
        assert!(is_pending(&mut Box::pin(second.acquire())));

        drop(second);
        first.give_way();

        assert!(first.is_held(), "nobody waits, so it keeps the slot");
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_with_a_slot_hands_it_on() {
        let slots = Arc::new(RunSlots::new(1));
        let mut first = slot(&slots);
        first.acquire().await;
        let mut second = slot(&slots);
        let mut third = slot(&slots);
        assert!(is_pending(&mut Box::pin(second.acquire())));
        assert!(is_pending(&mut Box::pin(third.acquire())));

        // The slot is the second one's, who never looks again.
        first.release();
        drop(second);

        third.acquire().await;
        assert!(third.is_held());
    }

    fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(future).poll(&mut cx).is_pending()
    }
}
