//! `mqlet`: parse the arguments, run the command, show the error, exit.
//!
//! Everything that happens is in `commands/`, one file a command; what a command may
//! end with is in `exit`.

use std::process::ExitCode;

use clap::Parser as _;

mod app;
mod cli;
mod commands;
mod config;
mod control;
mod exit;
mod failures;
mod host;
mod identity;
mod message_json;
mod output;
mod plugin_build;
mod printable;
mod reach;
mod revisions;
mod runtime;
mod signals;
mod table;
mod telemetry;
mod watch;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::execute(cli) {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}
