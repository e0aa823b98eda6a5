//! What a message costs: benchmark programs, run by `cargo xtask bench`.
//!
//! One file is one benchmark: [`wall`] (native against sandboxed, one call), [`limits`]
//! (guards on against off). They print figures
//! beside their targets and never fail because of one: a figure is true of a machine.
//!
//! Around them: [`messages`], [`listener`] (who is compared), [`machine`] (CPU time,
//! memory), [`report`], [`workspace`].

#![expect(
    clippy::print_stdout,
    reason = "a program for people, who read its output"
)]

mod limits;
mod listener;
mod machine;
mod messages;
mod report;
mod wall;
mod workspace;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// Measures what a message costs.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    /// Which; all when there is none
    #[arg(value_enum)]
    benchmarks: Vec<Benchmark>,
    /// A tenth of the messages and a third of the rounds: to see that it works
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Benchmark {
    /// A sandboxed listener against a native one, call by call
    Wall,
    /// Limits on against off
    Limits,
}

impl Options {
    /// Interleaved rounds of all subjects.
    pub(crate) fn rounds(&self) -> usize {
        self.pick(5, 15)
    }

    pub(crate) fn pick<T>(&self, quick: T, usual: T) -> T {
        if self.quick { quick } else { usual }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    if cfg!(debug_assertions) {
        println!("built without optimisation: these figures say nothing");
    }
    for benchmark in Benchmark::value_variants() {
        if options.benchmarks.is_empty() || options.benchmarks.contains(benchmark) {
            match benchmark {
                Benchmark::Wall => wall::run(&options)?,
                Benchmark::Limits => limits::run(&options)?,
            }
        }
    }
    Ok(())
}
