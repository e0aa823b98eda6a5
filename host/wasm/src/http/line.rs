//! Leave to do one of a few things at once; so many more wait for theirs, and those beyond
//! are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::Error;

/// For each connection so many requests may wait for one.
const WAITING_PER_CONNECTION: usize = 8;

/// Connections, and who waits for one.
pub(super) struct Line {
    permits: Arc<Semaphore>,
    permits_max: usize,
    waiting: AtomicUsize,
}

impl Line {
    pub(super) fn new(permits_max: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits_max)),
            permits_max,
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) async fn permit(&self, until: Instant) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.before >= self.permits_max * WAITING_PER_CONNECTION {
            return Err(Error::ConnectionLimitReached);
        }
        let waited = timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await;
        match waited {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Error::ConnectionLimitReached),
        }
    }
}

/// One who waits, however it ends.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        let before = count.fetch_add(1, Ordering::Relaxed);
        Self { count, before }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
