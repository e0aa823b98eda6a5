//! Builds and runs the benchmark programs of `tests/bench`, with optimisation.
//!
//! The product is built together with them: one benchmark starts it, and features are
//! chosen for what is built together, so apart it would be built a second time.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{guests, process, repository};

/// What `tests/bench` is given.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Names of benchmarks and options of the program; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // One is a program of the interop tests: it needs what they have. Another needs
    // nothing but the rules, and is built in a minute.
    let (package, name, arguments) = match arguments.arguments.split_first() {
        Some((first, rest)) if first == "soundness" => ("interop", "soundness", rest),
        Some((first, rest)) if first == "rules" => return run_rules(rest),
        _ => ("bench", "bench", arguments.arguments.as_slice()),
    };
    guests::build_all()?;
    let mut cargo = process::cargo();
    cargo.args(["build", "--release", "--locked"]);
    process::run(cargo.args(["--package", package, "--package", "daemon"]))?;
    process::run(Command::new(program(name)).args(arguments))
}

fn run_rules(arguments: &[String]) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.args(["build", "--release", "--locked", "--package", "bench-rules"]);
    process::run(&mut cargo)?;
    process::run(Command::new(program("bench-rules")).args(arguments))
}

fn program(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository::root().join("target"), PathBuf::from);
    target.join("release").join(name)
}
