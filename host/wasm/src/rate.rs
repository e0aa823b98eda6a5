//! A token bucket that holds one second's worth.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// So many a second, all instances of a plugin together.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
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
        // Nothing can panic under this lock, so a poisoned one is as good.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(bucket.filled).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + gained).min(self.per_second);
        bucket.filled = now;
        let count = f64::from(count);
        if bucket.tokens < count {
            return false;
        }
        bucket.tokens -= count;
        true
    }
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
}
