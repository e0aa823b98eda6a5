//! A token bucket that holds one second's worth.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many a second, all instances of a plugin or a tenant together.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Less than nothing: overdrawn.
    tokens: f64,
    filled: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self::of(per_second.into(), now)
    }

    pub(crate) fn of(per_second: u64, now: Instant) -> Self {
        let per_second = tokens(per_second);
        Self {
            per_second,
            bucket: Mutex::new(Bucket {
                tokens: per_second,
                filled: now,
            }),
        }
    }

    /// Takes so many, or none.
    pub(crate) fn take(&self, count: u32, now: Instant) -> bool {
        let mut bucket = self.filled(now);
        let count = f64::from(count);
        if bucket.tokens < count {
            return false;
        }
        bucket.tokens -= count;
        true
    }

    /// Takes so many, whether they are there or not.
    pub(crate) fn spend(&self, count: u64, now: Instant) {
        self.filled(now).tokens -= tokens(count);
    }

    /// How long until something is there again; `None`: there is.
    pub(crate) fn owed(&self, now: Instant) -> Option<Duration> {
        let left = self.filled(now).tokens;
        if left > 0.0 {
            return None;
        }
        let seconds = (1.0 - left) / self.per_second.max(f64::MIN_POSITIVE);
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(3600)))
    }

    /// The bucket as it is now. Callers race: one that is late finds it filled further.
    fn filled(&self, now: Instant) -> MutexGuard<'_, Bucket> {
        // Nothing can panic under this lock, so a poisoned one is as good.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.saturating_duration_since(bucket.filled).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + gained).min(self.per_second);
        bucket.filled = bucket.filled.max(now);
        bucket
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
fn tokens(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_gives_one_seconds_worth_at_once() {
        let now = Instant::now();
        let rate = Rate::new(3, now);
        assert!(rate.take(2, now));
        assert!(!rate.take(2, now));
        assert!(rate.take(1, now));
        assert!(!rate.take(1, now + Duration::from_millis(300)));
        assert!(rate.take(1, now + Duration::from_millis(400)));
        assert!(!Rate::new(0, now).take(1, now + Duration::from_secs(10)));
    }

    #[test]
    fn what_was_overdrawn_is_owed_for_as_long_as_it_takes() {
        let now = Instant::now();
        let rate = Rate::new(10, now);
        assert_eq!(rate.owed(now), None);
        rate.spend(30, now);
        assert_eq!(rate.owed(now), Some(Duration::from_millis(2100)));
        assert!(!rate.take(1, now + Duration::from_secs(2)));
        assert_eq!(rate.owed(now + Duration::from_millis(2100)), None);
    }

    #[test]
    fn whoever_comes_late_fills_nothing_twice() {
        let now = Instant::now();
        let rate = Rate::new(10, now);
        rate.spend(20, now);
        let later = now + Duration::from_secs(1);
        let owed = rate.owed(later);
        assert_eq!(rate.owed(now), owed);
        assert_eq!(rate.owed(later), owed);
    }
}
