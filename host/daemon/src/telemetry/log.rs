//! Events as log lines, in text or JSON, on standard error. One file for each crate's
//! events. Lines have fields for what programs look for, and never a message's body.
//!
//! Targets are the names of the parts (`consumer`, `driver`, `wasm`, `plugin`, `broker`,
//! `guest`, `mqlet`), so that `--log-level "info,consumer=debug"` works.

pub(super) mod broker;
pub(super) mod consumer;
pub(super) mod driver;
pub(super) mod plugin;
pub(super) mod wasm;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::config::LogConfig;

/// Starts the log of this process. Later calls change nothing.
///
/// Lines are written where they happen, so that what a guest logged before it answered
/// is out when its answer counts, whatever happens to the process.
pub(crate) fn init(config: &LogConfig) {
    // The level was checked when it was read.
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process would be another test's.
    let _ = match config.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
