//! What a message costs: benchmark programs, run by `cargo xtask bench`.
//!
//! One file is one benchmark: [`wall`] (native against sandboxed, one call), [`limits`]
//! (guards on against off), [`orderly`] (in order against concurrently), [`end_to_end`]
//! (consumers on a broker), [`idle`] (thousands of plugins that wait), [`kill`] (how soon
//! a guest is ended), [`fresh`] (an instance for each call). They print figures beside
//! their targets and never fail because of one: a figure is true of a machine. `tests/bench-rules` is a program of its own,
//! which needs nothing of what these are built with.
//!
//! Around them: [`messages`], [`listener`] and [`client_process`] (who is compared),
//! [`broker`], [`machine`] (CPU time, memory), [`report`], [`workspace`].

#![expect(
    clippy::print_stdout,
    reason = "a program for people, who read its output"
)]

mod broker;
mod client_process;
mod end_to_end;
mod fresh;
mod idle;
mod kill;
mod limits;
mod listener;
mod machine;
mod messages;
mod orderly;
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
    /// end-to-end: on a real RocketMQ beside Java's client, too (needs a JDK and Maven)
    #[arg(long)]
    real: bool,
    /// end-to-end: messages on each broker [default: 200000, on a real one 500000]
    #[arg(long, value_name = "COUNT")]
    messages: Option<u64>,
    /// idle: plugins in the host [default: 10000, quick 1000]
    #[arg(long, value_name = "COUNT")]
    plugins: Option<usize>,
    /// Be the broker of another benchmark
    #[arg(long, hide = true)]
    embedded_broker: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Benchmark {
    /// A sandboxed listener against a native one, call by call
    Wall,
    /// Limits on against off
    Limits,
    /// Consuming in order against concurrently, on the embedded broker
    Orderly,
    /// Consumers on a broker: native, sandboxed, `mqlet run`, and with --real Java's
    EndToEnd,
    /// Thousands of idle plugins: memory, CPU, the first message, the active few
    Idle,
    /// How soon a guest that goes beyond its time is ended, with all cores busy
    Kill,
    /// A fresh instance for each call: its price, and that nothing is left behind
    Fresh,
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
    if options.embedded_broker {
        return broker::serve();
    }
    if cfg!(debug_assertions) {
        println!("built without optimisation: these figures say nothing");
    }
    for benchmark in Benchmark::value_variants() {
        if options.benchmarks.is_empty() || options.benchmarks.contains(benchmark) {
            match benchmark {
                Benchmark::Wall => wall::run(&options)?,
                Benchmark::Limits => limits::run(&options)?,
                Benchmark::Orderly => orderly::run(&options)?,
                Benchmark::EndToEnd => end_to_end::run(&options)?,
                Benchmark::Idle => idle::run(&options)?,
                Benchmark::Kill => kill::run(&options)?,
                Benchmark::Fresh => fresh::run(&options)?,
            }
        }
    }
    Ok(())
}
