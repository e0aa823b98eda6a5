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
    pub(crate) fn new(per_second: u32) -> Self {
        Self::of(per_second.into())
    }

    pub(crate) fn of(per_second: u64) -> Self {
        let per_second = tokens(per_second);
        Self {
            per_second,
            bucket: Mutex::new(Bucket {
                tokens: per_second,
                filled: Instant::now(),
            }),
        }
    }

    /// Takes so many, or none.
    pub(crate) fn take(&self, count: u32) -> bool {
        let mut bucket = self.filled();
        let count = f64::from(count);
        if bucket.tokens < count {
            return false;
        }
        bucket.tokens -= count;
        true
    }

    /// Takes so many, whether they are there or not.
    pub(crate) fn spend(&self, count: u64) {
        self.filled().tokens -= tokens(count);
    }

    /// How long until something is there again; `None`: there is.
    pub(crate) fn owed(&self) -> Option<Duration> {
        let left = self.filled().tokens;
        if left > 0.0 {
            return None;
        }
        let seconds = (1.0 - left) / self.per_second.max(f64::MIN_POSITIVE);
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(3600)))
    }

    /// The bucket as it is now.
    fn filled(&self) -> MutexGuard<'_, Bucket> {
        // Nothing can panic under this lock, so a poisoned one is as good.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(bucket.filled).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + gained).min(self.per_second);
        bucket.filled = now;
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
        let rate = Rate::new(3);
        assert!(rate.take(2));
        assert!(!rate.take(2));
        assert!(rate.take(1));
        assert!(!Rate::new(0).take(1));
    }

    #[test]
    fn what_was_overdrawn_is_owed_for_as_long_as_it_takes() {
        let rate = Rate::new(10);
        assert_eq!(rate.owed(), None);
        rate.spend(30);
        let owed = rate.owed().expect("20 too many");
        assert!(owed > Duration::from_millis(1900) && owed < Duration::from_millis(2200));
        assert!(!rate.take(1));
    }
}
