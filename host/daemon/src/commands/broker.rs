//! `mqlet broker`: the embedded name server and broker alone.

use std::net::SocketAddr;

use anyhow::bail;
use clap::Args;

use crate::cli::GlobalArguments;
use crate::exit::{self, Exit};
use crate::output::Output;

/// Run the embedded name server and broker alone
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Runs a name server and a broker in one process and on one port, in memory: for development
and tests on one machine. RocketMQ's own clients can use it. Messages are gone when it stops.

Examples:
  mqlet broker
  mqlet broker --listen 127.0.0.1:19876 --topic orders --topic payments --queues 8
  mqlet send orders \"4711\" --namesrv-addr 127.0.0.1:9876"
)]
pub(crate) struct BrokerArguments {
    /// Where to listen; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:9876", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Create this topic; can be repeated. Others are created when first sent to
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Queues of a topic
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) queues: u32,
}

/// See [`BrokerArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: BrokerArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet broker\" is not available yet in this build");
}
