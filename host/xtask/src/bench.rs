//! Runs the benchmark programs of `tests/bench`, with optimisation.

use anyhow::Result;

use crate::{guests, process};

/// What `tests/bench` is given.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Arguments of the benchmark program, such as the names of benchmarks.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    guests::build_all()?;
    let mut cargo = process::cargo();
    cargo.args(["run", "--release", "--locked", "--package", "bench", "--"]);
    process::run(cargo.args(&arguments.arguments))
}
