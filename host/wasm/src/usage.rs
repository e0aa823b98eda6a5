//! What a plugin has used since the host started: one set of counters for all its
//! instances and revisions, for `mqlet usage` and for bills.
//!
//! Counters only grow. They are fed where it happens: CPU time by every poll of a guest
//! (`deadline.rs`), memory by every growth (`limits.rs`), messages where a call begins,
//! what became of calls where it is told ([`Usage::hear`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::event::Event;
use crate::failure::Phase;

/// The counters of one plugin.
#[derive(Debug, Default)]
pub struct Usage {
    computed: AtomicU64,
    messages: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    calls: AtomicU64,
    memory: Mutex<MemoryTime>,
    kills: Mutex<BTreeMap<&'static str, u64>>,
}

/// What was used up to a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UsageSnapshot {
    /// CPU time in guest code: making instances, `init`, calls, `shutdown`.
    pub computed: Duration,
    /// Linear memories of all instances, idle ones too, times how long they were held.
    pub memory_byte_seconds: f64,
    /// Linear memories of all instances now.
    pub memory_bytes: u64,
    /// Messages handed to the guest; one that comes again counts again.
    pub messages: u64,
    /// Bodies and properties handed to the guest.
    pub bytes_in: u64,
    /// Bodies and properties that the guest sent.
    pub bytes_out: u64,
    /// Calls that came back or failed, and runs of pull tasks.
    pub calls: u64,
    /// Failed phases by what ended them, and `"stopped"` for calls that were dropped
    /// while they ran.
    pub kills: BTreeMap<&'static str, u64>,
}

/// Memory held, and its integral.
#[derive(Debug)]
struct MemoryTime {
    bytes: u64,
    byte_seconds: f64,
    since: Instant,
}

impl Default for MemoryTime {
    fn default() -> Self {
        Self {
            bytes: 0,
            byte_seconds: 0.0,
            since: Instant::now(),
        }
    }
}

impl MemoryTime {
    fn advance(&mut self) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a bill needs no single bytes")]
        let bytes = self.bytes as f64;
        self.byte_seconds += bytes * elapsed;
        self.since = now;
    }
}

impl Usage {
    /// How it is now.
    pub fn snapshot(&self) -> UsageSnapshot {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (memory_bytes, memory_byte_seconds) = {
            let mut memory = lock(&self.memory);
            memory.advance();
            (memory.bytes, memory.byte_seconds)
        };
        UsageSnapshot {
            computed: Duration::from_nanos(count(&self.computed)),
            memory_byte_seconds,
            memory_bytes,
            messages: count(&self.messages),
            bytes_in: count(&self.bytes_in),
            bytes_out: count(&self.bytes_out),
            calls: count(&self.calls),
            kills: lock(&self.kills).clone(),
        }
    }

    /// CPU time of one poll, in nanoseconds.
    pub(crate) fn add_computed(&self, nanoseconds: u64) {
        self.computed.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Messages that a guest gets.
    pub(crate) fn add_handed(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that a guest sends, whatever becomes of them.
    pub(crate) fn add_bytes_out(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A linear memory grew.
    pub(crate) fn add_memory(&self, bytes: usize) {
        let mut memory = lock(&self.memory);
        memory.advance();
        memory.bytes = memory.bytes.saturating_add(bytes as u64);
    }

    /// Memory that is no longer held.
    pub(crate) fn remove_memory(&self, bytes: usize) {
        let mut memory = lock(&self.memory);
        memory.advance();
        debug_assert!(
            memory.bytes >= bytes as u64,
            "given back more than was held"
        );
        memory.bytes = memory.bytes.saturating_sub(bytes as u64);
    }

    /// Counts what an event says.
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::CallFinished(_) => {
                self.calls.fetch_add(1, Ordering::Relaxed);
            }
            Event::CallFailed(record) => {
                if matches!(record.phase, Phase::Call | Phase::PullTask) {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                }
                self.add_kill(record.kind.name());
            }
            Event::CallKilled { .. } => self.add_kill("stopped"),
            _ => {}
        }
    }

    fn add_kill(&self, reason: &'static str) {
        *lock(&self.kills).entry(reason).or_default() += 1;
    }
}

impl UsageSnapshot {
    /// Adds another one, as of a tenant's plugins.
    pub fn add(&mut self, other: &Self) {
        self.computed += other.computed;
        self.memory_byte_seconds += other.memory_byte_seconds;
        self.memory_bytes += other.memory_bytes;
        self.messages += other.messages;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.calls += other.calls;
        for (reason, kills) in &other.kills {
            *self.kills.entry(reason).or_default() += kills;
        }
    }
}

/// CPU time of this process, all its threads together, since it started: what the
/// plugins' rows and the host's own must come to.
pub fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// Nothing can panic under these locks, so a poisoned one is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_billed_for_as_long_as_it_is_held() {
        let usage = Usage::default();
        usage.add_memory(3000);
        std::thread::sleep(Duration::from_millis(5));
        usage.remove_memory(1000);
        let held = usage.snapshot();
        assert_eq!(held.memory_bytes, 2000);
        assert!(held.memory_byte_seconds >= 3000.0 * 0.005, "{held:?}");

        usage.remove_memory(2000);
        let given_back = usage.snapshot().memory_byte_seconds;
        std::thread::sleep(Duration::from_millis(1));
        let later = usage.snapshot();
        assert_eq!(later.memory_bytes, 0);
        assert!((later.memory_byte_seconds - given_back).abs() < f64::EPSILON);
    }

    #[test]
    fn rows_add_up() {
        let usage = Usage::default();
        usage.add_computed(1_000);
        usage.add_handed(2, 200);
        usage.add_bytes_out(30);
        usage.add_kill("trap");
        let mut sum = usage.snapshot();
        sum.add(&usage.snapshot());
        assert_eq!(sum.computed, Duration::from_nanos(2_000));
        assert_eq!((sum.messages, sum.bytes_in, sum.bytes_out), (4, 400, 60));
        assert_eq!(sum.kills, BTreeMap::from([("trap", 2)]));
    }
}
