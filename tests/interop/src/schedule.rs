//! Seeded cuts, stalls and delays of links: the same seed does the same at the same times.

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

/// A pause so long shows how the clients recover.
pub const LONG_PAUSE: Duration = Duration::from_secs(12);

/// Lets faults happen to all links at once for about so long, and ends with none.
pub fn run(links: &[&FaultyLink], seed: u64, duration: Duration) -> Vec<Happened> {
    let mut random = fastrand::Rng::with_seed(seed);
    let start = Instant::now();
    let mut happened = Vec::new();
    while start.elapsed() < duration {
        let mut milliseconds = |range| Duration::from_millis(random.u64(range));
        let pause = milliseconds(300..3_000);
        let (fault, time) = match happened.len() % 4 {
            0 => (Fault::Cut, Duration::ZERO),
            1 => (Fault::Stall, milliseconds(1_000..8_000)),
            2 => (
                Fault::Delay(milliseconds(50..600)),
                milliseconds(2_000..6_000),
            ),
            _ => (Fault::Down, milliseconds(500..6_000)),
        };
        // Kinds come in turn, with a look at the recovery after each fourth.
        thread::sleep(if happened.len() % 4 == 0 && !happened.is_empty() {
            LONG_PAUSE
        } else {
            pause
        });
        let from = Instant::now();
        links.iter().for_each(|link| link.set(fault));
        thread::sleep(time);
        links.iter().for_each(|link| link.set(Fault::None));
        happened.push(Happened {
            fault,
            from,
            to: Instant::now(),
        });
    }
    happened
}
