//! The breaker of one revision at work: it hears what happens in the revision's calls, and
//! answers whoever wants to make another one.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consumer::listener::Dispatch;
use protocol::Instant;
use tokio::sync::Notify;
use wasm::{FailureKind, FailureRecord, Phase};

use super::{Admission, Breaker, BreakerConfig, BreakerEvent};

/// Hears what becomes of a breaker, where it happens: it must not block.
pub type Tell = Box<dyn Fn(&BreakerEvent) + Send + Sync>;

/// See the module. A new revision has a new one.
pub struct WatchedBreaker {
    origin: tokio::time::Instant,
    /// Written under the lock and read without: a call that comes back while nothing has
    /// failed takes no lock.
    is_disturbed: AtomicBool,
    /// Held for the time of a step of the machine.
    breaker: Mutex<Breaker>,
    tripped: Notify,
    tell: Tell,
}

impl WatchedBreaker {
    /// A closed one.
    pub fn new(config: BreakerConfig, tell: Tell) -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            is_disturbed: AtomicBool::new(false),
            breaker: Mutex::new(Breaker::new(config)),
            tripped: Notify::new(),
            tell,
        }
    }

    /// An observer that this breaker listens to, too.
    pub fn watching(self: &Arc<Self>, observer: wasm::Observer) -> wasm::Observer {
        let breaker = Arc::clone(self);
        Arc::new(move |event| {
            observer(event);
            match event {
                wasm::Event::CallFailed(record) if counts(record) => {
                    breaker.step(record.wall, |machine, began, now| {
                        machine.handle_failed(|| record.kind.to_string().into(), began, now);
                    });
                }
                wasm::Event::CallFinished(report)
                    if breaker.is_disturbed.load(Ordering::Acquire) =>
                {
                    breaker.step(report.wall, Breaker::handle_returned);
                }
                _ => {}
            }
        })
    }

    /// Whether the revision may be called.
    pub fn dispatch(&self) -> Dispatch {
        if !self.is_disturbed.load(Ordering::Acquire) {
            return Dispatch::Open;
        }
        match self.lock().admission(self.now()) {
            Admission::Open => Dispatch::Open,
            Admission::Held {
                pause,
                failures,
                reason,
            } => Dispatch::Held {
                pause,
                reason: format!("{failures} calls in a row failed, the last one: {reason}").into(),
            },
        }
    }

    /// Whether calls are held back.
    pub fn is_tripped(&self) -> bool {
        self.is_disturbed.load(Ordering::Acquire)
            && self.lock().admission(self.now()) != Admission::Open
    }

    /// Waits until it has tripped.
    pub async fn tripped(&self) {
        loop {
            let mut tripped = std::pin::pin!(self.tripped.notified());
            // Before looking, so that a trip between the two is not missed.
            tripped.as_mut().enable();
            if self.is_tripped() {
                return;
            }
            tripped.await;
        }
    }

    /// A call that took so long is over: hands on when it began, and the time.
    fn step(&self, took: Duration, step: impl FnOnce(&mut Breaker, Instant, Instant)) {
        let event = {
            let mut breaker = self.lock();
            let now = self.now();
            let began = now.since_origin().saturating_sub(took);
            step(&mut breaker, Instant::after_origin(began), now);
            self.is_disturbed
                .store(!breaker.is_undisturbed(), Ordering::Release);
            breaker.poll_event()
        };
        if let Some(event) = event {
            if let BreakerEvent::Tripped { .. } = event {
                self.tripped.notify_waiters();
            }
            (self.tell)(&event);
        }
    }

    fn now(&self) -> Instant {
        Instant::after_origin(self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        // Nothing panics under it.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WatchedBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

/// A host without room is no fault of the plugin, and the end of an instance none of a
/// message.
fn counts(record: &FailureRecord) -> bool {
    record.phase != Phase::Shutdown && !matches!(record.kind, FailureKind::NoInstance(_))
}
