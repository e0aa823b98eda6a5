//! The wall clock, derived from the monotonic one and a single reading at the start: a
//! step of the system's clock changes nothing here.

use std::time::Duration;

use protocol::Instant;

/// Tells Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnixClock {
    start: Instant,
    unix_start: Duration,
}

impl UnixClock {
    pub(crate) fn new(start: Instant, unix_start: Duration) -> Self {
        Self { start, unix_start }
    }

    pub(crate) fn unix_ms(self, now: Instant) -> u64 {
        let unix = self.unix_start + (now - self.start);
        u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
    }
}
