//! Seeded cuts, stalls and delays of links: the same seed has the same faults in the same
//! order.

use std::thread;
use std::time::{Duration, Instant};

use end_to_end::faulty_link::{Fault, FaultyLink};

/// A fault as it was.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// What.
    pub fault: Fault,
    /// From when.
    pub from: Instant,
    /// To when.
    pub to: Instant,
}

/// How many kinds of faults there are; they come in turn.
pub const KINDS: usize = 4;
/// A pause so long shows how the clients recover.
const LONG_PAUSE: Duration = Duration::from_secs(12);

/// What happens next.
#[derive(Debug)]
pub struct Schedule {
    random: fastrand::Rng,
    happened: usize,
}

impl Schedule {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            happened: 0,
        }
    }

    /// How long all is well before the next fault: short, and after all kinds once as long
    /// as a recovery may take.
    pub fn pause(&mut self) -> Duration {
        let short = self.milliseconds(300..3_000);
        if self.happened > 0 && self.happened.is_multiple_of(KINDS) {
            LONG_PAUSE
        } else {
            short
        }
    }

    /// Lets the next fault happen to all links at once, and ends it.
    pub fn happen(&mut self, links: &[&FaultyLink]) -> Happened {
        let (fault, time) = match self.happened % KINDS {
            0 => (Fault::Cut, Duration::ZERO),
            1 => (Fault::Stall, self.milliseconds(1_000..8_000)),
            2 => (
                Fault::Delay(self.milliseconds(50..600)),
                self.milliseconds(2_000..6_000),
            ),
            _ => (Fault::Down, self.milliseconds(500..6_000)),
        };
        self.happened += 1;
        let from = Instant::now();
        links.iter().for_each(|link| link.set(fault));
        thread::sleep(time);
        links.iter().for_each(|link| link.set(Fault::None));
        Happened {
            fault,
            from,
            to: Instant::now(),
        }
    }

    fn milliseconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }
}
