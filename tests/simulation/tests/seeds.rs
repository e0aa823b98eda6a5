//! Whatever goes wrong, nothing is lost and everything settles: a few seeds here, the
//! fixed budget of 2,000 in `cargo xtask simulate`, which also replays one.

use simulation::batch::run_seeds;
use simulation::{History, run};

/// Enough to notice at once what the whole budget would find.
const SEEDS: u64 = 100;

#[test]
fn whatever_goes_wrong_nothing_is_lost_and_everything_settles() {
    let total = run_seeds(0, 1, &|begun| begun < SEEDS);
    let total = total.unwrap_or_else(|failure| {
        panic!(
            "{failure}\ncargo xtask simulate --seed {} replays it",
            failure.seed
        )
    });
    assert_eq!(total.seeds, SEEDS);
    assert_eq!(total.is_worth_something(), Ok(()));
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    let history = || {
        let history = History::kept();
        let _ = run(7, None, &history);
        history.to_string()
    };
    let first = history();
    assert!(
        first.lines().count() > 1000,
        "{} lines",
        first.lines().count()
    );
    assert!(first == history(), "two runs of one seed differ");
}
