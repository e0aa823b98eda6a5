//! Runs the simulation: a fixed number of seeds, new ones for some minutes, or one seed
//! with everything that happened. `cargo xtask simulate` builds and starts it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people, who read its output"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use consumer::testing::PlantedBug;
use simulation::History;
use simulation::batch::{attempt, run_seeds};

/// Between two lines that tell how far it is.
const PROGRESS: Duration = Duration::from_secs(30);

/// Many clients and brokers, virtual time, and everything that can go wrong.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask simulate")]
struct Arguments {
    /// Run this one seed and print everything that happened.
    #[arg(long, conflicts_with_all = ["minutes", "seeds", "first_seed"])]
    seed: Option<u64>,
    /// Plants this deliberate bug in every client of that seed, for example ForgetUnlock.
    #[arg(long, requires = "seed")]
    bug: Option<String>,
    /// Go on with new seeds for so long.
    #[arg(long, conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Run so many seeds.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed; 0 by default, and one that was never used before with --minutes.
    #[arg(long)]
    first_seed: Option<u64>,
    /// Runs at once; one for each processor by default.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => one(seed, arguments.bug.as_deref()),
        None => many(&arguments),
    }
}

fn one(seed: u64, bug: Option<&str>) -> ExitCode {
    let mut all = PlantedBug::ALL.into_iter();
    let planted = bug.and_then(|name| all.find(|planted| format!("{planted:?}") == name));
    if let (Some(name), None) = (bug, planted) {
        eprintln!(
            "there is no deliberate bug {name}; there are {:?}",
            PlantedBug::ALL
        );
        return ExitCode::FAILURE;
    }
    let history = History::kept();
    let result = attempt(seed, planted, &history);
    println!("{history}");
    match result {
        Ok(summary) => {
            println!("seed {seed}: {summary:?}");
            ExitCode::SUCCESS
        }
        Err(how) => {
            eprintln!("seed {seed}: {how}");
            ExitCode::FAILURE
        }
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let threads = arguments.threads.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    });
    let fresh = || match SystemTime::now().duration_since(UNIX_EPOCH) {
        // Two batches begun in different seconds have no seed in common.
        Ok(since) => since.as_secs() << 20,
        Err(_) => 0,
    };
    let first = match (arguments.first_seed, arguments.minutes) {
        (Some(first), _) => first,
        (None, Some(_)) => fresh(),
        (None, None) => 0,
    };
    let until = arguments
        .minutes
        .map(|minutes| started + Duration::from_secs(60 * minutes));
    println!("seeds from {first} on, {threads} at once");
    let told = AtomicU64::new(0);
    let goes_on = |begun: u64| {
        let periods = started.elapsed().as_secs() / PROGRESS.as_secs();
        if told.fetch_max(periods, Ordering::Relaxed) < periods {
            println!("{} s: {begun} runs begun", started.elapsed().as_secs());
        }
        match until {
            Some(until) => Instant::now() < until,
            None => begun < arguments.seeds,
        }
    };
    match run_seeds(first, threads, &goes_on) {
        Ok(total) => {
            println!("{total}; {:.0} s", started.elapsed().as_secs_f64());
            match total.is_worth_something() {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    eprintln!("{why}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(failure) => {
            eprintln!("{failure}");
            eprintln!(
                "\nrepeat it:        cargo xtask simulate --seed {}",
                failure.seed
            );
            match keep(&failure.history.to_string(), failure.seed) {
                Ok(file) => eprintln!("everything of it: {}", file.display()),
                Err(error) => eprintln!("its history could not be written: {error}"),
            }
            ExitCode::FAILURE
        }
    }
}

/// Writes a history beside the build's other output.
fn keep(history: &str, seed: u64) -> std::io::Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = target.join("simulation");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("seed-{seed}.txt"));
    std::fs::write(&file, history)?;
    Ok(file)
}
