//! The clocks that a guest sees, as its grant has them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use crate::deadline::CallClock;
use crate::grants::ClockGrant;

/// Both clocks of one instance.
#[derive(Clone)]
pub(crate) struct Clocks {
    grant: ClockGrant,
    call: Arc<CallClock>,
    /// The wall clock at the call clock's origin.
    unix_origin: Duration,
}

impl Clocks {
    pub(crate) fn new(grant: ClockGrant, call: &Arc<CallClock>) -> Self {
        let unix_now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            grant,
            call: Arc::clone(call),
            unix_origin: unix_now.unwrap_or_default().saturating_sub(call.age()),
        }
    }

    /// Gives a guest these clocks; those of the machine are WASI's own default.
    pub(crate) fn attach(&self, wasi: &mut WasiCtxBuilder) {
        if self.grant != ClockGrant::Exact {
            wasi.wall_clock(self.clone());
            wasi.monotonic_clock(self.clone());
        }
    }

    /// Since 1970.
    pub(crate) fn unix_now(&self) -> Duration {
        match self.grant {
            ClockGrant::Exact => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            ClockGrant::Coarse => coarse(self.unix_origin + self.call.age()),
            ClockGrant::Frozen => self.unix_origin + self.call.begun(),
        }
    }

    fn step(&self) -> Duration {
        match self.grant {
            ClockGrant::Exact => Duration::from_nanos(1),
            ClockGrant::Coarse | ClockGrant::Frozen => {
                Duration::from_millis(ClockGrant::COARSE_STEP_MS)
            }
        }
    }
}

fn coarse(time: Duration) -> Duration {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(milliseconds - milliseconds % ClockGrant::COARSE_STEP_MS)
}

impl HostWallClock for Clocks {
    fn resolution(&self) -> Duration {
        self.step()
    }

    fn now(&self) -> Duration {
        self.unix_now()
    }
}

impl HostMonotonicClock for Clocks {
    fn resolution(&self) -> u64 {
        u64::try_from(self.step().as_nanos()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        let now = match self.grant {
            ClockGrant::Exact => self.call.age(),
            ClockGrant::Coarse => coarse(self.call.age()),
            ClockGrant::Frozen => self.call.begun(),
        };
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    }
}
