//! Developer tasks: `cargo xtask NAME`.
//!
//! One file for each task. Nothing here is part of the product, and nothing of the
//! product that needs wasmtime is used here, so that the first task of a fresh clone
//! starts after seconds.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people, who read its output"
)]

mod bench;
mod check;
mod guests;
mod process;
mod repository;
mod simulate;
mod soak;
mod wit;

use clap::{Parser, Subcommand};

/// Developer tasks.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Run every check; what this accepts can be merged.
    Check(check::Arguments),
    /// Build the test guests into target/guests.
    Guests(guests::Arguments),
    /// Run the benchmarks.
    Bench(bench::Arguments),
    /// Run the simulation: the fixed budget of seeds, --minutes N of new ones, or --seed S.
    Simulate(simulate::Arguments),
    /// Run 200 plugins of 20 tenants, five of them hostile: MINUTES (10), and NAMESRV_ADDR or
    /// --real for a RocketMQ instead of the embedded broker.
    Soak(soak::Arguments),
    /// Check the contract in wit/ and list its worlds.
    Wit,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Check(arguments) => check::run(&arguments),
        Task::Guests(arguments) => guests::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Simulate(arguments) => simulate::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Wit => wit::run(),
    }
}
