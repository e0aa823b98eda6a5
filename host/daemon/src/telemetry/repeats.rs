//! A fault that repeats: its first lines are told, the rest of a while is counted, and
//! the next line says how many there were. A fault that lasts is told ever more rarely.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one fault in one [`WINDOW`].
const LINES_MAX: u32 = 5;
/// How long lines are counted together, at first; twice as long after each window in
/// which some were not told.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest window. One line is told in it.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// Faults that are told apart; more share one place.
const FAULTS_MAX: usize = 1000;

/// How many were not told since the last line; `None`: all were.
pub(super) type Untold = Option<u64>;

/// What was told lately.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// A lock for the time of a look-up; faults are told from many tasks.
    faults: Mutex<BTreeMap<String, Fault>>,
}

#[derive(Debug)]
struct Fault {
    since: Instant,
    window: Duration,
    told: u32,
    untold: u64,
}

impl Repeats {
    /// Whether to tell this fault now: then with the number of those that were not told
    /// since the last line.
    pub(super) fn admit(&self, fault: &str) -> Option<Untold> {
        self.admit_at(fault, Instant::now())
    }

    /// Whether this is the first of a row that [`Repeats::end`] ends; the others are
    /// counted.
    pub(super) fn first(&self, fault: &str) -> bool {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = faults.get_mut(fault) {
            known.untold += 1;
            return false;
        }
        if faults.len() < FAULTS_MAX {
            let entry = Fault {
                since: Instant::now(),
                window: WINDOW,
                told: 1,
                untold: 0,
            };
            faults.insert(fault.to_owned(), entry);
        }
        true
    }

    /// Whether a row of this fault was begun and not ended.
    pub(super) fn is_in_a_row(&self, fault: &str) -> bool {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.contains_key(fault)
    }

    /// Forgets a fault that has ended; how many of it were not told.
    pub(super) fn end(&self, fault: &str) -> Untold {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        untold(faults.remove(fault)?.untold)
    }

    fn admit_at(&self, fault: &str, now: Instant) -> Option<Untold> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() >= FAULTS_MAX && !faults.contains_key(fault) {
            faults.retain(|_, fault| now.saturating_duration_since(fault.since) < fault.window);
        }
        let key = if faults.len() >= FAULTS_MAX && !faults.contains_key(fault) {
            "others"
        } else {
            fault
        };
        let entry = faults.entry(key.to_owned()).or_insert(Fault {
            since: now,
            window: WINDOW,
            told: 0,
            untold: 0,
        });
        let age = now.saturating_duration_since(entry.since);
        if age >= entry.window {
            let lasts = entry.untold > 0 && age < 2 * entry.window;
            entry.window = if lasts {
                (2 * entry.window).min(WINDOW_MAX)
            } else {
                WINDOW
            };
            entry.since = now;
            entry.told = 0;
        }
        let lines_max = if entry.window == WINDOW { LINES_MAX } else { 1 };
        if entry.told < lines_max {
            entry.told += 1;
            Some(untold(std::mem::take(&mut entry.untold)))
        } else {
            entry.untold += 1;
            None
        }
    }
}

fn untold(count: u64) -> Untold {
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_over_the_bound_are_counted_in_the_next_window() {
        let repeats = Repeats::default();
        let start = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(repeats.admit_at("a", start), Some(None));
        }
        assert_eq!(repeats.admit_at("a", start), None);
        assert_eq!(repeats.admit_at("a", start), None);
        assert_eq!(repeats.admit_at("b", start), Some(None));

        assert_eq!(repeats.admit_at("a", start + WINDOW), Some(Some(2)));
    }

    #[test]
    fn a_fault_that_lasts_is_told_ever_more_rarely_until_it_was_quiet() {
        let repeats = Repeats::default();
        let start = Instant::now();
        let told = |seconds: std::ops::Range<u64>| {
            let times = seconds.map(|second| start + Duration::from_secs(second));
            times
                .filter(|at| repeats.admit_at("a", *at).is_some())
                .count()
        };
        let first_hour = told(0..3600);
        assert!((10..=15).contains(&first_hour), "{first_hour}");
        assert_eq!(told(9000..9010), LINES_MAX as usize);
    }

    #[test]
    fn more_faults_than_there_is_room_for_share_one_place() {
        let repeats = Repeats::default();
        let start = Instant::now();
        for number in 0..2 * FAULTS_MAX {
            repeats.admit_at(&number.to_string(), start);
        }
        let faults = repeats.faults.lock().expect("no panic");
        assert!(faults.len() <= FAULTS_MAX + 1, "{}", faults.len());
    }
}
