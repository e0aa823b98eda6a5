//! Two guards over everything a guest does (instantiate, `init`, call): the epoch
//! callback for computing, the wall clock for waiting.
//!
//! [`CallClock`] is shared by the store (whose epoch callback asks it every
//! millisecond of guest code) and by [`guarded`], which polls the guest's future: it
//! takes a run slot before the guest is entered, reads the thread's CPU clock around
//! every poll, gives the slot back while an import waits, and wakes itself when the wall
//! clock has run out. What was spent waiting for a slot is not billed.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::UpdateDeadline;

use crate::run_slots::RunSlot;

/// What one phase of a guest may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// CPU time.
    pub(crate) compute: Duration,
    /// Wall clock.
    pub(crate) wall: Duration,
}

/// Time used and left by the running phase of one instance. All fields are written by
/// the task that polls the guest; atomics only because two owners share them.
#[derive(Debug)]
pub(crate) struct CallClock {
    origin: Instant,
    started: AtomicU64,
    wall_deadline: AtomicU64,
    compute_budget: AtomicU64,
    computed: AtomicU64,
    entered_at: AtomicU64,
    yielded: AtomicBool,
}

/// The budget that ran out; travels as the error of the guest's call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exceeded {
    Compute,
    Wall,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "computed for too long",
            Self::Wall => "took too long",
        })
    }
}

impl std::error::Error for Exceeded {}

/// Why a guarded future has no value.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The guest trapped, or an epoch tick found a budget used up ([`Exceeded`]).
    Guest(wasmtime::Error),
    /// The wall clock ran out while an import waited.
    Waited,
}

impl CallClock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            started: AtomicU64::new(0),
            wall_deadline: AtomicU64::new(0),
            compute_budget: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            entered_at: AtomicU64::new(0),
            yielded: AtomicBool::new(false),
        }
    }

    /// Begins a phase.
    pub(crate) fn arm(&self, budget: Budget) {
        let now = self.now();
        self.started.store(now, Ordering::Relaxed);
        self.wall_deadline.store(
            now.saturating_add(nanoseconds(budget.wall)),
            Ordering::Relaxed,
        );
        self.compute_budget
            .store(nanoseconds(budget.compute), Ordering::Relaxed);
        self.computed.store(0, Ordering::Relaxed);
        self.yielded.store(false, Ordering::Relaxed);
    }

    /// Wall clock since the phase began, slot waits included.
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_nanos(
            self.now()
                .saturating_sub(self.started.load(Ordering::Relaxed)),
        )
    }

    /// CPU time of the phase so far.
    pub(crate) fn computed(&self) -> Duration {
        Duration::from_nanos(self.computed.load(Ordering::Relaxed))
    }

    /// Wall clock that is left.
    pub(crate) fn remaining(&self) -> Duration {
        let deadline = self.wall_deadline.load(Ordering::Relaxed);
        Duration::from_nanos(deadline.saturating_sub(self.now()))
    }

    /// The epoch callback: runs in the guest's thread about every millisecond of guest
    /// code. Each tick yields to the runtime, so that a computing guest never holds the
    /// tasks that were queued behind it.
    pub(crate) fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        let entered_at = self.entered_at.load(Ordering::Relaxed);
        let computed = self
            .computed
            .load(Ordering::Relaxed)
            .saturating_add(thread_cpu().saturating_sub(entered_at));
        if computed >= self.compute_budget.load(Ordering::Relaxed) {
            return Err(wasmtime::Error::new(Exceeded::Compute));
        }
        if self.now() >= self.wall_deadline.load(Ordering::Relaxed) {
            return Err(wasmtime::Error::new(Exceeded::Wall));
        }
        self.yielded.store(true, Ordering::Relaxed);
        Ok(UpdateDeadline::Yield(1))
    }

    fn enter(&self) {
        self.entered_at.store(thread_cpu(), Ordering::Relaxed);
    }

    /// Whether the poll ended because of an epoch tick.
    fn leave(&self) -> bool {
        let used = thread_cpu().saturating_sub(self.entered_at.load(Ordering::Relaxed));
        self.computed.fetch_add(used, Ordering::Relaxed);
        self.yielded.swap(false, Ordering::Relaxed)
    }

    fn not_billed(&self, waited: Duration) {
        self.wall_deadline
            .fetch_add(nanoseconds(waited), Ordering::Relaxed);
    }

    fn deadline(&self) -> Instant {
        self.origin + Duration::from_nanos(self.wall_deadline.load(Ordering::Relaxed))
    }

    fn now(&self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }
}

/// Polls a guest's future within the clock's budgets. The clock was armed just before.
pub(crate) async fn guarded<T>(
    slot: &mut RunSlot,
    clock: &CallClock,
    guest: impl Future<Output = wasmtime::Result<T>>,
) -> Result<T, Interruption> {
    let mut guest = pin!(guest);
    // Made only when the guest really waits: most calls never touch the timer.
    let mut alarm = pin!(None::<tokio::time::Sleep>);
    poll_fn(|cx| {
        if !slot.is_held() {
            match slot.poll_acquire(cx) {
                Poll::Ready(waited) => clock.not_billed(waited),
                Poll::Pending => return Poll::Pending,
            }
        }
        clock.enter();
        let polled = guest.as_mut().poll(cx);
        let yielded = clock.leave();
        match polled {
            Poll::Ready(Ok(value)) => return Poll::Ready(Ok(value)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Interruption::Guest(error))),
            Poll::Pending if yielded => {
                slot.give_way();
                return Poll::Pending;
            }
            Poll::Pending => slot.release(),
        }
        loop {
            if alarm.is_none() {
                alarm.set(Some(tokio::time::sleep_until(clock.deadline().into())));
            }
            let Some(sleep) = alarm.as_mut().as_pin_mut() else {
                continue;
            };
            if sleep.poll(cx).is_pending() {
                return Poll::Pending;
            }
            alarm.set(None);
            if clock.remaining().is_zero() {
                return Poll::Ready(Err(Interruption::Waited));
            }
        }
    })
    .await
}

/// CPU time of this thread. A guest's poll begins and ends in one thread.
fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
