//! Subcommands, the flags they share, and the values flags can have.
//!
//! The flags of one command stand in its own file in `commands/`; texts here and there
//! are the help that people work from.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::config;
use crate::exit;
use crate::output::OutputFormat;

/// Runs Apache RocketMQ consumers whose listeners are sandboxed WebAssembly components.
#[derive(Parser, Debug)]
#[command(
    name = "mqlet",
    version = version(),
    arg_required_else_help = true,
    after_help = exit::HELP,
    long_about = "\
mqlet runs Apache RocketMQ consumers whose listeners are sandboxed WebAssembly
components (\"plugins\").

First steps:
  mqlet dev plugins/hello/rust       build a plugin, run it on a broker of its own, reload on save
  mqlet send hello \"good morning\"    send a message to it, from a second terminal
  mqlet invoke plugins/hello/rust --body hi    one message, no broker
  mqlet check mqlet.toml             validate everything, open nothing
  mqlet run mqlet.toml               consume from a RocketMQ cluster
  mqlet explain hello-group          why a running host does what it does"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The engine's version too: whoever reads its advisories must know it.
fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), wasm::ENGINE_VERSION));
    &VERSION
}

/// Flags of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArguments {
    /// How results are printed on standard output: text for people, or JSON, one value a line
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) output: OutputFormat,
    /// How log lines are written to standard error [default: text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Least level of log lines: error, warn, info, debug, trace; parts apart as in
    /// "info,remoting=debug" [default: info]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// `--log-format` and `[log] format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Dev(commands::dev::DevArguments),
    Run(commands::run::RunArguments),
    Check(commands::check::CheckArguments),
    Invoke(commands::invoke::InvokeArguments),
    Broker(commands::broker::BrokerArguments),
    Send(commands::send::SendArguments),
    Groups(commands::groups::GroupsArguments),
    Queues(commands::queues::QueuesArguments),
    Explain(commands::explain::ExplainArguments),
    Pause(commands::pause::PauseArguments),
    Drain(commands::pause::DrainArguments),
    Resume(commands::pause::ResumeArguments),
    Seek(commands::seek::SeekArguments),
    Failures(commands::failures::FailuresArguments),
    Usage(commands::usage::UsageArguments),
    Plugins(commands::plugins::PluginsArguments),
    #[command(visible_alias = "swap")]
    Deploy(commands::deploy::DeployArguments),
    Shadow(commands::shadow::ShadowArguments),
    Rollback(commands::deploy::RollbackArguments),
    Promote(commands::deploy::PromoteArguments),
    Abort(commands::deploy::AbortArguments),
    Cancel(commands::deploy::CancelArguments),
    Remove(commands::deploy::RemoveArguments),
    History(commands::history::HistoryArguments),
    #[command(hide = true)]
    CompileWorker(commands::worker::CompileWorkerArguments),
    /// Run the instances of one plugin
    #[command(hide = true)]
    PluginWorker,
}

/// Flags that override `[host]` of `mqlet.toml`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Host options, stronger than [host] in mqlet.toml")]
pub(crate) struct HostArguments {
    /// Threads of the runtime [default: cores + 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) worker_threads: Option<String>,
    /// Calls under way at once, all tenants together [default: 256]
    #[arg(long, value_name = "COUNT")]
    pub(crate) calls_max: Option<String>,
    /// Messages fetched and not finished, in bytes, all tenants together [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer_bytes: Option<String>,
    /// Slots of the instance pool [default: 1000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) instances_max: Option<String>,
    /// Folder of compiled components, for this user alone [default: ~/.cache/mqlet/compiled]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<String>,
    /// Folder of what must outlive the process [default: ~/.local/state/mqlet]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<String>,
    /// How long calls under way may take to end when the host stops [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) drain_timeout: Option<String>,
}

/// How a command finds the running host.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which host")]
pub(crate) struct ControlArguments {
    /// The host's control socket [default: as its configuration says]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The host's configuration file, which says where its control socket is
    /// [default: mqlet.toml, if there is one]
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub(crate) config: Option<PathBuf>,
}

impl ControlArguments {
    /// Where the host listens.
    ///
    /// # Errors
    /// The configuration does not say.
    pub(crate) fn socket(&self, global: &GlobalArguments) -> anyhow::Result<PathBuf> {
        match &self.socket {
            Some(socket) => Ok(socket.clone()),
            None => config::control_socket(self.config.as_deref(), global),
        }
    }
}

/// Parses `key=value`; a property of a message.
pub(crate) fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value, for example --property region=eu".to_owned()),
    }
}

/// Parses a time with its unit, such as `3s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a time with its unit, for example 3s or 500ms"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_exit_codes_in_its_help() {
        let commands = Cli::command();
        let for_people = commands.get_subcommands().filter(|one| !one.is_hide_set());
        for command in for_people {
            let name = command.get_name();
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{name} has no examples");
            assert!(help.contains("Exit codes:"), "{name} names no exit codes");
        }
    }

    #[test]
    fn property_needs_a_key_and_an_equals_sign() {
        assert_eq!(property("k=v=w"), Ok(("k".into(), "v=w".into())));
        assert_eq!(property("k="), Ok(("k".into(), String::new())));
        assert!(property("=v").is_err());
        assert!(property("k").is_err());
    }
}
