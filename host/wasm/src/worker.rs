//! Processes of our own: this program, started again for work that must be able to die.
//!
//! A worker is told what to do by a pipe or a socket and has nothing else: no environment,
//! no files, no network, limits of the operating system on top of ours (`sandbox.rs`).
//! Whatever becomes of it, its host goes on.

pub(crate) mod compile;
mod convert;
pub(crate) mod frames;
pub(crate) mod host;
pub(crate) mod host_link;
pub(crate) mod instance;
mod plugin;
mod questions;
mod sandbox;

pub use compile::compile_worker;
pub use plugin::plugin_worker;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// What workers are called in a list of processes.
const NAME: &str = "mqlet";

/// The program whose subcommands `compile-worker` and `plugin-worker` are workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerProgram {
    path: PathBuf,
}

impl WorkerProgram {
    /// A program at some place.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// This program, even when its file was replaced since it started.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn this() -> std::io::Result<Self> {
        let running = Path::new("/proc/self/exe");
        match running.exists() {
            // Read by the child, whose program is still ours then.
            true => Ok(Self::at(running)),
            false => std::env::current_exe().map(Self::at),
        }
    }

    /// A worker that dies with what holds it, without environment.
    pub(crate) fn command(&self, role: &str, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg0(NAME)
            .arg(role)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}
