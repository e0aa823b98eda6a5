//! Wall clock derived from `now` and one start value, so that the rules read no clock.

use std::time::Duration;

use protocol::Instant;

/// Maps the caller's monotonic clock to Unix time and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnixClock {
    started_at: Instant,
    unix_start: Duration,
}

impl UnixClock {
    pub(crate) fn new(started_at: Instant, unix_start: Duration) -> Self {
        Self {
            started_at,
            unix_start,
        }
    }

    /// Milliseconds since 1970 at this instant.
    pub(crate) fn unix_ms(&self, now: Instant) -> u64 {
        let unix = self
            .unix_start
            .saturating_add(now.saturating_since(self.started_at));
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }

    /// The first instant whose Unix time is this or later.
    pub(crate) fn instant_of(&self, unix_ms: u64) -> Instant {
        self.started_at + Duration::from_millis(unix_ms).saturating_sub(self.unix_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_of_a_time_is_the_first_that_reads_it() {
        let clock = UnixClock::new(
            Instant::after_origin(Duration::from_secs(5)),
            Duration::from_nanos(1_700_000_000_000_400_000),
        );
        let instant = clock.instant_of(1_700_000_000_250);
        assert_eq!(clock.unix_ms(instant), 1_700_000_000_250);
        let before = Instant::after_origin(instant.since_origin() - Duration::from_nanos(1));
        assert_eq!(clock.unix_ms(before), 1_700_000_000_249);
    }
}
