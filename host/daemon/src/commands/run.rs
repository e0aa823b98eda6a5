//! `mqlet run`: the host, from its configuration file.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::cli::{GlobalArguments, HostArguments};
use crate::exit::{self, Exit};
use crate::output::Output;

/// Run the plugins of a configuration file against their RocketMQ clusters
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Runs every plugin of a configuration file as an ordinary member of an ordinary consumer
group of a RocketMQ cluster. Configuration, manifests and components are checked first, as
\"mqlet check\" does; when anything is refused, no connection is opened.

Settings come from the file, then from the environment (MQLET_HOST__CALLS_MAX=64 is
calls_max of [host]), then from flags; the last one wins.

SIGTERM and Ctrl-C stop in order: no more pulling, calls under way may end within the drain
timeout, offsets are committed, the group is left. A second Ctrl-C stops at once.

A smallest mqlet.toml:

  [tenants.shop]
  namesrv_addr = [\"10.0.0.1:9876\"]
  plugins = \"plugins\"                # a folder of manifests

Examples:
  mqlet run
  mqlet run /etc/mqlet/mqlet.toml --log-format json
  mqlet run mqlet.toml --calls-max 64 --drain-timeout 10s"
)]
pub(crate) struct RunArguments {
    /// The configuration file
    #[arg(default_value = "mqlet.toml")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// See [`RunArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: RunArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet run\" is not available yet in this build");
}
