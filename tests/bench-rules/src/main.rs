//! What the consumer's rules cost, alone: without a broker, a socket or a listener, on one
//! core. Run by `cargo xtask bench rules`; `tests/bench/README.md` says how to read it.
//!
//! [`throughput`]: the way of a message, its time and its allocations; [`rebalance`]. Both
//! drive a [`cluster`]'s client as the driver does.

#![expect(
    clippy::print_stdout,
    reason = "a program for people, who read its output"
)]

mod allocations;
mod cluster;
#[path = "../../bench/src/machine.rs"]
#[expect(dead_code, reason = "shared with `bench`, which needs all of it")]
mod machine;
#[path = "../../bench/src/messages.rs"]
#[expect(dead_code, reason = "shared with `bench`, which needs all of it")]
mod messages;
mod rebalance;
#[path = "../../bench/src/report.rs"]
#[expect(dead_code, reason = "shared with `bench`, which needs all of it")]
mod report;
mod throughput;

use anyhow::Result;
use clap::Parser;

/// Measures what the consumer's rules cost.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask bench rules")]
pub(crate) struct Options {
    /// A tenth of the messages and a third of the rounds: to see that it works
    #[arg(long)]
    quick: bool,
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
    throughput::run(&options)?;
    rebalance::run(&options)
}
