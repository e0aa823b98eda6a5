//! What the calls of a revision came to and how long they took, so that two revisions can
//! be compared.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Four buckets for each power of two of a nanosecond, up to 2^40 (18 minutes): a time is
/// known to a fifth.
const BUCKETS: usize = 160;

/// Of one revision, since it was loaded.
#[derive(Default)]
pub struct CallRecord {
    /// Held for an addition, once a call.
    sums: Mutex<CallSums>,
}

/// Sums of a record, or of a part of it.
#[derive(Clone, PartialEq, Eq)]
pub struct CallSums {
    calls: u64,
    broken: u64,
    /// Messages, by the time of one.
    times: [u64; BUCKETS],
}

impl CallRecord {
    /// A call came back. A pull task's run that pulled nothing counts as one message.
    pub fn finished(&self, messages: u32, wall: Duration) {
        let messages = messages.max(1);
        self.edit(|sums| {
            sums.calls += 1;
            sums.times[bucket(wall / messages)] += u64::from(messages);
        });
    }

    /// A call trapped, broke a limit or ran out of time.
    pub fn broke(&self) {
        self.edit(|sums| {
            sums.calls += 1;
            sums.broken += 1;
        });
    }

    /// So far.
    pub fn sums(&self) -> CallSums {
        self.sums
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn edit(&self, edit: impl FnOnce(&mut CallSums)) {
        edit(&mut self.sums.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.sums(), f)
    }
}

impl Default for CallSums {
    fn default() -> Self {
        Self {
            calls: 0,
            broken: 0,
            times: [0; BUCKETS],
        }
    }
}

impl CallSums {
    /// What was added since.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut times = self.times;
        for (time, earlier) in times.iter_mut().zip(earlier.times) {
            *time = time.saturating_sub(earlier);
        }
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            broken: self.broken.saturating_sub(earlier.broken),
            times,
        }
    }

    /// Calls, broken ones included.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls that trapped, broke a limit or ran out of time.
    pub fn broken(&self) -> u64 {
        self.broken
    }

    /// Messages of the calls that came back.
    pub fn messages(&self) -> u64 {
        self.times.iter().sum()
    }

    /// Of a hundred messages the slowest but one took no longer; of a batch each message
    /// counts with its part of the call's time. `None` without messages.
    pub fn p99(&self) -> Option<Duration> {
        let messages = self.messages();
        let mut above = messages.div_ceil(100).checked_sub(1)?;
        let mut buckets = self.times.iter().enumerate().rev();
        let (slowest, _) = buckets.find(|(_, count)| {
            let is_it = **count > above;
            above = above.saturating_sub(**count);
            is_it
        })?;
        Some(end_of(slowest))
    }
}

impl fmt::Debug for CallSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSums")
            .field("calls", &self.calls)
            .field("broken", &self.broken)
            .field("messages", &self.messages())
            .field("p99", &self.p99())
            .finish()
    }
}

fn bucket(time: Duration) -> usize {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(4);
    let power = nanoseconds.ilog2();
    let quarter = (nanoseconds >> (power - 2)) & 3;
    (power as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn end_of(bucket: usize) -> Duration {
    let (power, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_nanos(((5 + quarter) << power) / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_ninth_of_a_hundred_is_known_to_a_fifth() {
        let record = CallRecord::default();
        assert_eq!(record.sums().p99(), None);
        record.finished(98, Duration::from_micros(98 * 10));
        record.finished(2, Duration::from_millis(2 * 3));
        let p99 = record.sums().p99().expect("messages");
        assert!(p99 >= Duration::from_millis(3), "{p99:?}");
        assert!(p99 <= Duration::from_micros(3_750), "{p99:?}");
        record.finished(100, Duration::from_micros(100 * 10));
        let p99 = record.sums().p99().expect("messages");
        assert!(
            p99 >= Duration::from_millis(3),
            "two of two hundred: {p99:?}"
        );
        record.finished(1, Duration::from_micros(10));
        record.finished(100, Duration::from_micros(100 * 10));
        let p99 = record.sums().p99().expect("messages");
        assert!(p99 <= Duration::from_micros(13), "two of 301: {p99:?}");
    }

    #[test]
    fn part_of_a_record_is_what_came_since() {
        let record = CallRecord::default();
        record.finished(10, Duration::from_secs(10));
        record.broke();
        let earlier = record.sums();
        record.finished(3, Duration::from_millis(3));
        let since = record.sums().since(&earlier);
        assert_eq!((since.calls(), since.broken(), since.messages()), (1, 0, 3));
        assert!(since.p99() < Some(Duration::from_millis(2)));
    }

    #[test]
    fn every_time_has_a_bucket() {
        for time in [0, 1, 7, 1_000, u64::MAX] {
            let time = Duration::from_nanos(time);
            let bucket = bucket(time);
            assert!(bucket < BUCKETS);
            assert!(end_of(bucket) >= time.min(Duration::from_secs(1000)));
        }
    }
}
