//! Who may compute now: at most as many guests as there are cores, so that they never
//! hold the runtime's last worker. A fair queue: a guest that used up its tick goes to
//! the end when others wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of one engine.
#[derive(Debug)]
pub(crate) struct RunSlots {
    semaphore: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl RunSlots {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            semaphore: Arc::new(Semaphore::new(slots.max(1))),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A slot to be, for one call.
    pub(crate) fn slot(self: &Arc<Self>) -> RunSlot {
        RunSlot {
            slots: Arc::clone(self),
            permit: None,
            queued: None,
        }
    }
}

/// One call's place: held, queued for, or neither. Dropping it gives everything back.
pub(crate) struct RunSlot {
    slots: Arc<RunSlots>,
    permit: Option<OwnedSemaphorePermit>,
    queued: Option<Queued>,
}

struct Queued {
    slots: Arc<RunSlots>,
    since: Instant,
    acquire: Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RunSlot {
    pub(crate) fn is_held(&self) -> bool {
        self.permit.is_some()
    }

    /// Waits for a slot; answers how long that took.
    pub(crate) async fn acquire(&mut self) -> Duration {
        if self.is_held() {
            return Duration::ZERO;
        }
        std::future::poll_fn(|cx| self.poll_acquire(cx)).await
    }

    /// The same, to be polled.
    pub(crate) fn poll_acquire(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let queued = match &mut self.queued {
            Some(queued) => queued,
            None => {
                // Never overtakes: a permit is free only when nobody queues.
                if let Ok(permit) = Arc::clone(&self.slots.semaphore).try_acquire_owned() {
                    self.permit = Some(permit);
                    return Poll::Ready(Duration::ZERO);
                }
                self.slots.waiting.fetch_add(1, Ordering::Relaxed);
                let semaphore = Arc::clone(&self.slots.semaphore);
                self.queued.insert(Queued {
                    slots: Arc::clone(&self.slots),
                    since: Instant::now(),
                    acquire: Box::pin(async move { semaphore.acquire_owned().await.ok() }),
                })
            }
        };
        match queued.acquire.as_mut().poll(cx) {
            Poll::Ready(permit) => {
                let waited = queued.since.elapsed();
                self.queued = None;
                // `None` only if the semaphore were closed, and nobody closes it.
                self.permit = permit;
                Poll::Ready(waited)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Gives the slot back while the guest waits.
    pub(crate) fn release(&mut self) {
        self.permit = None;
    }

    /// Gives the slot back if another call waits for one.
    pub(crate) fn give_way(&mut self) {
        if self.slots.waiting.load(Ordering::Relaxed) > 0 {
            self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_goes_to_who_waited_longest() {
        let slots = Arc::new(RunSlots::new(1));
        let mut first = slots.slot();
        first.acquire().await;
        let mut second = slots.slot();
        let mut third = slots.slot();
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
    async fn a_call_that_is_dropped_in_the_queue_leaves_it() {
        let slots = Arc::new(RunSlots::new(1));
        let mut first = slots.slot();
        first.acquire().await;
        let mut second = slots.slot();
        assert!(is_pending(&mut Box::pin(second.acquire())));

        drop(second);
        first.give_way();

        assert!(first.is_held(), "nobody waits, so it keeps the slot");
    }

    fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(future).poll(&mut cx).is_pending()
    }
}
