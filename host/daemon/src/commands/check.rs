//! `mqlet check`: validates everything, opens no socket.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::cli::{GlobalArguments, HostArguments};
use crate::exit::{self, Exit};
use crate::output::Output;

/// Validate configuration, manifests and components; connect to nothing
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Validates a configuration file, the manifests it names and their components (are they
components, which world, which imports, are these granted). Opens no socket and changes
nothing. Lists all problems at once, each with file, key, value and remedy, and ends with 3
when there is one.

Examples:
  mqlet check                              mqlet.toml and everything it names
  mqlet check plugins/hello/rust           one plugin
  mqlet check plugins/hello/rust/plugin.toml
  mqlet check mqlet.toml --output json     for a pipeline"
)]
pub(crate) struct CheckArguments {
    /// A configuration file, a plugin's manifest, or a folder with a plugin.toml
    #[arg(default_value = "mqlet.toml")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// See [`CheckArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: CheckArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet check\" is not available yet in this build");
}
