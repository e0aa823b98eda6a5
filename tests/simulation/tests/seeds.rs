//! Whatever goes wrong, nothing is lost and everything settles: a fixed number of seeds.
//!
//! `MQLET_SEED=n cargo test -p simulation` replays one and prints what happened;
//! `MQLET_SEEDS=n` runs so many, `MQLET_FIRST_SEED=n` begins elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};

use simulation::{History, Summary, run};

/// Runs without being asked for more.
const SEEDS: u64 = 250;

#[test]
fn whatever_goes_wrong_nothing_is_lost_and_everything_settles() {
    if let Some(seed) = number("MQLET_SEED") {
        replay(seed);
        return;
    }
    let first = number("MQLET_FIRST_SEED").unwrap_or(0);
    let seeds = number("MQLET_SEEDS").unwrap_or(SEEDS);
    let mut all = Summary::default();
    let mut slowest = (0, 0);
    for seed in first..first + seeds {
        match catch_unwind(|| run(seed, None, &History::default())) {
            Ok(Ok(summary)) => {
                all.sent += summary.sent;
                all.deliveries += summary.deliveries;
                all.repeats += summary.repeats;
                all.dead += summary.dead;
                all.seconds += summary.seconds;
                all.steps += summary.steps;
                slowest = slowest.max((summary.seconds, seed));
            }
            _ => fail(seed),
        }
    }
    // A simulation in which nothing happens proves nothing.
    let per_seed = |count: usize| count as u64 / seeds.max(1);
    assert!(per_seed(all.sent) > 300, "{all:?}");
    assert!(all.dead > 0 && all.repeats > 0, "{all:?}");
    assert!(all.repeats < all.deliveries / 4, "{all:?}");
    assert!(all.seconds / seeds.max(1) >= 600, "{all:?}");
    eprint(&format!(
        "{seeds} seeds: {all:?}; seed {} took longest to settle, {} s",
        slowest.1, slowest.0
    ));
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

/// Runs it again, this time with its history.
fn fail(seed: u64) -> ! {
    let history = History::kept();
    let again = catch_unwind(AssertUnwindSafe(|| run(seed, None, &history)));
    let how = match again {
        Ok(Err(violation)) => violation.to_string(),
        Ok(Ok(_)) => "it did not fail again".to_owned(),
        Err(_) => "it panicked".to_owned(),
    };
    panic!(
        "{}\n\nseed {seed}: {how}\nMQLET_SEED={seed} cargo test -p simulation replays it",
        history.last(300)
    );
}

fn replay(seed: u64) {
    let history = History::kept();
    let result = catch_unwind(AssertUnwindSafe(|| run(seed, None, &history)));
    eprint(&history.to_string());
    match result {
        Ok(Ok(summary)) => eprint(&format!("seed {seed}: {summary:?}")),
        Ok(Err(violation)) => panic!("seed {seed}: {violation}"),
        Err(_) => panic!("seed {seed}: panicked"),
    }
}

#[expect(clippy::print_stderr, reason = "for whoever asked for a seed")]
fn eprint(text: &str) {
    eprintln!("{text}");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
    )
}
