//! Swaps at any moment of a cluster in which everything goes wrong; and every bug that can be
//! planted in the lifecycle is found.

use plugin_lifecycle::lifecycle::PlantedBug;
use simulation::History;
use swap_simulation::{Counts, run};

/// Enough to notice at once what more would find.
const SEEDS: u64 = 30;
/// Each bug is found in so many runs.
const SEEDS_OF_A_BUG_MAX: u64 = 20;

#[test]
fn swaps_at_any_moment_lose_nothing_and_everything_settles() {
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let history = History::default();
        let (_, counts) = run(seed, None, &history).unwrap_or_else(|violation| {
            panic!("seed {seed}: {violation:?}");
        });
        all.switches += counts.switches;
        all.revived += counts.revived;
        all.canaries += counts.canaries;
        all.taken_back += counts.taken_back;
        all.killed += counts.killed;
        all.under_way += counts.under_way;
    }
    let Counts {
        switches,
        revived,
        canaries,
        taken_back,
        killed,
        under_way,
    } = all;
    let least = [revived, canaries, taken_back, killed, under_way];
    assert!(
        switches > SEEDS * 50 && least.iter().all(|count| *count > SEEDS),
        "these runs prove too little: {all:?}"
    );
}

#[test]
fn every_bug_planted_in_the_lifecycle_is_found() {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        let is_found = |seed| run(seed, Some(bug), &History::default()).is_err();
        if !(0..SEEDS_OF_A_BUG_MAX).any(is_found) {
            missed.push(bug);
        }
    }
    assert!(
        missed.is_empty(),
        "not found in {SEEDS_OF_A_BUG_MAX} runs: {missed:?}"
    );
}
