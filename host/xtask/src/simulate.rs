//! Runs the simulation of `tests/simulation`: many clients, virtual time, faults.

use anyhow::Result;

use crate::process;

/// What `tests/simulation` is given.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Options of the program; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    run_with(&arguments.arguments)
}

/// The fixed budget of seeds.
pub(crate) fn fixed_budget() -> Result<()> {
    run_with(&[])
}

fn run_with(arguments: &[String]) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.args(["run", "--quiet", "--locked", "--package", "simulation"]);
    cargo.args(["--bin", "simulate", "--"]).args(arguments);
    process::run(&mut cargo)
}
