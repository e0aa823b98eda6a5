//! Two guards over everything a guest does (instantiate, `init`, call): the epoch
//! callback for computing, the wall clock for waiting.
//!
//! [`CallClock`] is shared by the store (whose epoch callback asks it every
//! millisecond of guest code) and by [`guarded`], which polls the guest's future: it
//! takes a run slot before the guest is entered, meters every poll, gives the slot back
//! while an import waits, and wakes itself when the wall clock has run out. What was
//! spent waiting for a slot is not billed.
//!
//! CPU time is the thread's CPU clock around each poll. That clock costs a system call
//! (0.1 to 0.6 µs), which a call of a few microseconds would feel: an instance whose
//! calls are short is metered by the wall clock, which differs only when the thread was
//! taken off its core, and then by little ([`Meter`]).

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::UpdateDeadline;

use crate::engine::Guards;
use crate::run_slots::RunSlot;

/// A poll longer than this is worth the thread's CPU clock.
const SHORT_POLL: Duration = Duration::from_micros(100);
/// Most that a poll metered by the wall clock is billed: beyond it the thread was
/// certainly not running all the time. A poll that ended with an epoch tick had up to
/// that tick.
const SHORT_POLL_BILLED_MAX: Duration = Duration::from_micros(200);
const TICK_POLL_BILLED_MAX: Duration = Duration::from_millis(1);
/// Phases metered exactly after a poll that was not short.
const EXACT_PHASES: u32 = 64;

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
    guards: Guards,
    origin: Instant,
    started: AtomicU64,
    wall_deadline: AtomicU64,
    compute_budget: AtomicU64,
    computed: AtomicU64,
    meter: Meter,
    yielded: AtomicBool,
}

/// Where the poll under way began, on which clock.
#[derive(Debug, Default)]
struct Meter {
    entered_at: AtomicU64,
    /// More than 0: the thread's CPU clock, for so many phases; else the wall clock.
    exact_phases: AtomicU32,
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
    pub(crate) fn new(guards: Guards) -> Self {
        Self {
            guards,
            origin: Instant::now(),
            started: AtomicU64::new(0),
            wall_deadline: AtomicU64::new(0),
            compute_budget: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            meter: Meter::default(),
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
        self.meter.begin_phase();
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

    /// Since it was made.
    pub(crate) fn age(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When the phase began, at this age.
    pub(crate) fn begun(&self) -> Duration {
        Duration::from_nanos(self.started.load(Ordering::Relaxed))
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
        let now = self.now();
        let computed = self
            .computed
            .load(Ordering::Relaxed)
            .saturating_add(self.meter.used_at_tick(now));
        if computed >= self.compute_budget.load(Ordering::Relaxed) {
            return Err(wasmtime::Error::new(Exceeded::Compute));
        }
        if now >= self.wall_deadline.load(Ordering::Relaxed) {
            return Err(wasmtime::Error::new(Exceeded::Wall));
        }
        self.yielded.store(true, Ordering::Relaxed);
        Ok(UpdateDeadline::Yield(1))
    }

    fn enter(&self) {
        if self.guards == Guards::On {
            self.meter.enter(self.now());
        }
    }

    /// What the poll is billed, in nanoseconds, and whether it ended because of an epoch
    /// tick.
    fn leave(&self) -> (u64, bool) {
        if self.guards == Guards::OffForBenchmarks {
            return (0, false);
        }
        let yielded = self.yielded.swap(false, Ordering::Relaxed);
        let used = self.meter.leave(self.now(), yielded);
        self.computed.fetch_add(used, Ordering::Relaxed);
        (used, yielded)
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

impl Meter {
    fn begin_phase(&self) {
        let exact_phases = self.exact_phases.load(Ordering::Relaxed);
        self.exact_phases
            .store(exact_phases.saturating_sub(1), Ordering::Relaxed);
    }

    fn is_exact(&self) -> bool {
        self.exact_phases.load(Ordering::Relaxed) > 0
    }

    fn enter(&self, now: u64) {
        let entered_at = if self.is_exact() { thread_cpu() } else { now };
        self.entered_at.store(entered_at, Ordering::Relaxed);
    }

    /// Of the poll under way, so far.
    fn used(&self, now: u64) -> u64 {
        let at = if self.is_exact() { thread_cpu() } else { now };
        at.saturating_sub(self.entered_at.load(Ordering::Relaxed))
    }

    /// A tick that came late is not the guest's fault.
    fn used_at_tick(&self, now: u64) -> u64 {
        let used = self.used(now);
        if self.is_exact() {
            used
        } else {
            used.min(nanoseconds(TICK_POLL_BILLED_MAX))
        }
    }

    /// What the poll is billed.
    fn leave(&self, now: u64, yielded: bool) -> u64 {
        let used = self.used(now);
        if self.is_exact() {
            return used;
        }
        if yielded || used > nanoseconds(SHORT_POLL) {
            self.exact_phases.store(EXACT_PHASES, Ordering::Relaxed);
        }
        let billed_max = if yielded {
            TICK_POLL_BILLED_MAX
        } else {
            SHORT_POLL_BILLED_MAX
        };
        used.min(nanoseconds(billed_max))
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
        let (used, yielded) = clock.leave();
        slot.charge(used);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_polls_are_metered_by_the_wall_clock() {
        let meter = Meter::default();
        meter.begin_phase();
        meter.enter(1_000);
        assert_eq!(meter.leave(21_000, false), 20_000);
        assert!(!meter.is_exact());
    }

    #[test]
    fn long_poll_is_billed_little_once_and_exactly_from_then_on() {
        let meter = Meter::default();
        meter.enter(0);
        // The thread was taken off its core for 10 ms.
        assert_eq!(meter.leave(10_000_000, false), 200_000);
        for _ in 0..EXACT_PHASES - 1 {
            meter.begin_phase();
            assert!(meter.is_exact());
        }
        meter.begin_phase();
        assert!(!meter.is_exact(), "short calls are short again");
    }

    #[test]
    fn poll_that_ended_with_a_tick_had_at_most_the_tick() {
        let meter = Meter::default();
        meter.enter(0);
        assert_eq!(meter.leave(900_000, true), 900_000);
        meter.exact_phases.store(0, Ordering::Relaxed);
        meter.enter(0);
        assert_eq!(meter.leave(9_000_000, true), 1_000_000);
    }
}
