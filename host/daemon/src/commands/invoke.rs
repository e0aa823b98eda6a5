//! `mqlet invoke`: one plugin and one message or batch, no broker.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use crate::cli::{self, GlobalArguments};
use crate::exit::{self, Exit};
use crate::output::Output;

/// Call a plugin with a message or a batch; no broker
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Calls a plugin once, with one message or with a batch, inside the limits of its manifest and
without a broker. Prints the outcome of each message, the time, CPU time and memory of the
call, and the plugin's log lines. Ends with 5 when an outcome is not \"done\".

The messages come from --body, from --message, or from standard input, one body a line.
Nothing is built: the component has to be there (\"mqlet dev\" builds it).

A message as JSON, every field optional:

  {\"topic\": \"orders\", \"tags\": \"paid\", \"keys\": [\"4711\"], \"properties\": {\"region\": \"eu\"},
   \"body\": \"text\", \"body_base64\": \"…\", \"reconsume_times\": 0,
   \"broker_name\": \"broker-a\", \"queue_id\": 0, \"queue_offset\": 0}

Examples:
  mqlet invoke plugins/hello/rust --body hi
  mqlet invoke plugins/hello/rust --body hi --tag paid --key 4711 --property region=eu
  mqlet invoke plugins/hello/rust --body hi --count 32          a batch
  mqlet invoke plugins/hello/rust --message message.json        an object, an array, or JSON lines
  seq 1 100 | mqlet invoke plugins/hello/rust"
)]
pub(crate) struct InvokeArguments {
    /// Folder with a plugin.toml, or the manifest itself
    pub(crate) plugin: PathBuf,
    /// Body of the message, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "message")]
    pub(crate) body: Option<String>,
    /// File with a message as JSON, an array of them, or one a line; "-" is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) message: Option<PathBuf>,
    /// Topic of the message [default: the first subscription of the plugin]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Tag of the message; RocketMQ has one
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Key of the message; can be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Property of the message; can be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = cli::property)]
    pub(crate) properties: Vec<(String, String)>,
    /// How often the message was delivered before
    #[arg(long, value_name = "COUNT")]
    pub(crate) reconsume_times: Option<u32>,
    /// The same message this many times, in batches as the manifest says
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
}

/// See [`InvokeArguments`].
pub(crate) fn execute(
    _global: &GlobalArguments,
    _arguments: InvokeArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    bail!("\"mqlet invoke\" is not available yet in this build");
}
