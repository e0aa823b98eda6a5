//! Running other programs.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository;

/// Runs a command to its end with our own output, in the top folder unless the
/// command says otherwise. Anything but success is an error that shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if command.get_current_dir().is_none() {
        command.current_dir(repository::root());
    }
    let line = line(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` failed ({status})");
    Ok(())
}

/// The cargo that runs us, so that its toolchain is kept.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Installs one part of the toolchain; quick when it is there.
pub(crate) fn install(part: &str) -> Result<()> {
    run(Command::new(repository::install_script()).arg(part))
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
