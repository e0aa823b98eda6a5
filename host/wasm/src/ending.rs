//! The end of a revision, as its requests under way see it.
//!
//! A request takes several calls of the guest. When its revision drains, it ends with the
//! call that runs: the messages behind it are for whoever serves next. When the revision
//! is killed, the call that runs is gone at once, and what the calls before it came to
//! stands.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

/// Shared by the requests of a revision.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    is_draining: AtomicBool,
    is_killed: AtomicBool,
    killed: Notify,
}

impl Ending {
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    pub(crate) fn kill(&self) {
        self.drain();
        self.is_killed.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// No request makes another call.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Runs some work, to its end or to that of the revision. Work that has ended is
    /// never thrown away.
    pub(crate) async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if self.is_killed.load(Ordering::Acquire) {
            return None;
        }
        let mut work = pin!(work);
        // Most calls are over with their first poll: then nobody need wait for a kill,
        // which costs more than the rest of this function.
        let done = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = done.await {
            return Some(done);
        }
        let mut killed = pin!(self.killed.notified());
        // Before looking, so that a kill between the two is not missed.
        killed.as_mut().enable();
        if self.is_killed.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = killed => None,
        }
    }
}
