//! Waiting for a condition with a generous bound, never for a duration.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `condition` gives a value.
///
/// # Panics
/// When `bound` has passed; the text says what was waited for.
pub fn eventually<T>(what: &str, bound: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < bound, "waited {bound:?} for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
