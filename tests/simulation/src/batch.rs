//! Many seeds at once, on as many threads as wanted; each run is alone on its own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use consumer::testing::PlantedBug;

use crate::{History, Summary, run};

/// Lines of history that a failure shows; the whole is for whoever asks for the seed.
const HISTORY_SHOWN: usize = 300;

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// Runs.
    pub seeds: u64,
    /// Of all runs together.
    pub all: Summary,
    /// The run that took longest to settle, and its virtual seconds.
    pub slowest: (u64, u64),
}

/// A run that did not go well.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// The rule that was broken and how, or that it panicked.
    pub how: String,
    /// Everything that happened.
    pub history: History,
}

impl Total {
    fn add(&mut self, seed: u64, summary: &Summary) {
        self.seeds += 1;
        self.all.add(summary);
        self.slowest = self.slowest.max((summary.seconds, seed));
    }

    /// What a simulation in which nothing happens would not do.
    ///
    /// # Errors
    /// What is missing.
    pub fn is_worth_something(&self) -> Result<(), String> {
        let Self { seeds, all, .. } = self;
        let sent = all.sent as u64 / (*seeds).max(1);
        let seconds = all.seconds / (*seeds).max(1);
        let worth = sent > 300
            && seconds >= 600
            && all.dead > 0
            && all.repeats > 0
            && all.repeats < all.deliveries / 4
            && all.kinds.named().iter().all(|(_, times)| *times > 0);
        match worth {
            true => Ok(()),
            false => Err(format!("the runs prove too little: {self}")),
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seeds,
            all,
            slowest,
        } = self;
        write!(
            f,
            "{seeds} seeds, {} virtual hours, {} messages sent, {} deliveries ({} repeats), \
             {} dead letters, {} million steps; seed {} took longest, {} s",
            all.seconds / 3600,
            all.sent,
            all.deliveries,
            all.repeats,
            all.dead,
            all.steps / 1_000_000,
            slowest.1,
            slowest.0,
        )?;
        let mut kinds = all.kinds.named().into_iter();
        kinds.try_for_each(|(name, times)| write!(f, ", {times} {name}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.history.last(HISTORY_SHOWN))?;
        write!(f, "seed {}: {}", self.seed, self.how)
    }
}

/// Runs one seed; an assertion of the rules themselves counts as well.
///
/// # Errors
/// What went wrong, without a history.
pub fn attempt(seed: u64, bug: Option<PlantedBug>, history: &History) -> Result<Summary, String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed, bug, history))) {
        Ok(Ok(summary)) => Ok(summary),
        Ok(Err(violation)) => Err(violation.to_string()),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// Runs seeds from `first` on, in threads, while `goes_on` says so; it is asked with the
/// number of runs begun. After a failure no further run begins.
///
/// # Errors
/// The failure with the lowest seed, run again with its history.
pub fn run_seeds(
    first: u64,
    threads: usize,
    goes_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Total, Box<Failure>> {
    let begun = AtomicU64::new(0);
    let total = Mutex::new(Total::default());
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let work = || {
        loop {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if !goes_on(number) || lock(&failed).is_some() {
                return;
            }
            let seed = first.wrapping_add(number);
            match attempt(seed, None, &History::default()) {
                Ok(summary) => lock(&total).add(seed, &summary),
                Err(_) => {
                    let mut failed = lock(&failed);
                    *failed = Some(failed.map_or(seed, |before| before.min(seed)));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        None => Ok(total.into_inner().unwrap_or_else(|e| e.into_inner())),
        Some(seed) => Err(Box::new(repeat(seed))),
    }
}

/// Runs a failed seed again, this time with its history.
fn repeat(seed: u64) -> Failure {
    let history = History::kept();
    let how = match attempt(seed, None, &history) {
        Ok(_) => "it did not fail again".to_owned(),
        Err(how) => how,
    };
    Failure { seed, how, history }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
