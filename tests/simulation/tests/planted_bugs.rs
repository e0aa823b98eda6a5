//! The simulation can fail: every deliberate bug in the rules is found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use consumer::testing::PlantedBug;
use simulation::{History, run};

/// Each is found in so many runs.
const SEEDS_MAX: u64 = 40;

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        let found = (0..SEEDS_MAX).find_map(|seed| {
            let history = History::default();
            match catch_unwind(AssertUnwindSafe(|| run(seed, Some(bug), &history))) {
                Ok(Ok(_)) => None,
                Ok(Err(violation)) => Some((seed, violation.to_string())),
                // An assertion in the rules themselves found it.
                Err(_) => Some((seed, "a panic".to_owned())),
            }
        });
        match found {
            Some((seed, how)) => tell(&format!("{bug:?}: seed {seed}: {how}")),
            None => missed.push(bug),
        }
    }
    assert!(
        missed.is_empty(),
        "not found in {SEEDS_MAX} runs: {missed:?}"
    );
}

#[expect(
    clippy::print_stderr,
    reason = "which seed found what, for --nocapture"
)]
fn tell(text: &str) {
    eprintln!("{text}");
}
