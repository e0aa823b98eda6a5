//! `mqlet dev`: one plugin against an embedded broker, rebuilt and reloaded on save.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::cli::{GlobalArguments, HostArguments};
use crate::exit::{self, Exit};
use crate::output::Output;

/// Build a plugin and run it against a broker of its own, reload on save
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Builds a plugin, starts an embedded name server and broker on loopback, creates the
plugin's topics, sends sample messages, and shows the outcome of every message: plugin,
queue, offset, attempt, time. Saving a source file or the manifest builds and reloads the
plugin; when a build fails the running revision stays.

Nothing else has to be installed or configured: there is no RocketMQ and no mqlet.toml.
The plugin starts at the first message of a queue, whatever its manifest says.

Ctrl-C ends the calls under way, prints a summary and stops; a second Ctrl-C stops at once.

Examples:
  mqlet dev plugins/hello/rust
  mqlet dev plugins/hello/rust --listen 127.0.0.1:9876
  mqlet send hello \"good morning\" --namesrv-addr 127.0.0.1:9876     from a second terminal"
)]
pub(crate) struct DevArguments {
    /// Folder with a plugin.toml, or the manifest itself
    pub(crate) plugin: PathBuf,
    /// Where the embedded name server and broker listen; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Send this many sample messages instead of all of them; 0 sends none
    #[arg(long, value_name = "COUNT")]
    pub(crate) samples: Option<u32>,
    /// Build and load once, take no notice of changes
    #[arg(long)]
    pub(crate) no_reload: bool,
    /// Use the component as it is
    #[arg(long)]
    pub(crate) no_build: bool,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// See [`DevArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: DevArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet dev\" is not available yet in this build");
}
