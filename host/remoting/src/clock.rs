//! tokio's clock as the pure parts see it, mapped once.

use protocol::Instant;

/// Maps tokio's time (which tests may pause) to [`Instant`] and back. Copies share
/// their origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock whose origin is now.
    pub fn start() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }

    /// Time since the origin.
    pub fn now(self) -> Instant {
        Instant::after_origin(self.origin.elapsed())
    }

    /// The instant on tokio's clock.
    pub fn to_tokio(self, instant: Instant) -> tokio::time::Instant {
        self.origin + instant.since_origin()
    }
}
