//! `mqlet send`: messages from the command line to the embedded broker or any cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use protocol::Address;

use crate::cli::{self, GlobalArguments};
use crate::exit::{self, Exit};
use crate::output::Output;

/// Send messages to a topic
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Sends messages to a topic, of the embedded broker or of any RocketMQ cluster, and prints
where each one went.

The body is the argument, the whole content of --file, or comes from standard input, one
message a line.

Examples:
  mqlet send hello \"good morning\"
  mqlet send hello \"good morning\" --tag greeting --key 4711 --property region=eu
  mqlet send hello --file picture.png
  seq 1 1000 | mqlet send hello
  mqlet send hello hi --count 100 --delay-level 3
  mqlet send hello hi --namesrv-addr \"10.0.0.1:9876;10.0.0.2:9876\""
)]
pub(crate) struct SendArguments {
    /// Where to
    pub(crate) topic: String,
    /// Body of the message, as text
    #[arg(conflicts_with = "file")]
    pub(crate) body: Option<String>,
    /// File whose content is the body of one message
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Tag of the messages; RocketMQ has one
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Index key of the messages; can be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Property of the messages; can be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = cli::property)]
    pub(crate) properties: Vec<(String, String)>,
    /// Send every message this many times
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// RocketMQ's delay level: 1 is 1s, 2 5s, 3 10s, 4 30s, 5 1m … 18 2h; 0 sends at once
    #[arg(long, default_value_t = 0, value_name = "LEVEL")]
    pub(crate) delay_level: u32,
    /// Name servers of the cluster, separated by ";"
    #[arg(
        long,
        env = "NAMESRV_ADDR",
        default_value = "127.0.0.1:9876",
        value_delimiter = ';',
        value_name = "HOST:PORT"
    )]
    pub(crate) namesrv_addr: Vec<Address>,
    /// How long to wait for the broker's answer to one message
    #[arg(long, default_value = "3s", value_parser = cli::duration, value_name = "TIME")]
    pub(crate) timeout: Duration,
}

/// See [`SendArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: SendArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet send\" is not available yet in this build");
}
