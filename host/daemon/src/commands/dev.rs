//! `mqlet dev`: one plugin against an embedded broker, rebuilt and reloaded on save.

mod outcomes;
mod pulls;
mod samples;
mod session;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use plugin_lifecycle::Manifest;
use plugin_lifecycle::manifest::folder;

use crate::cli::{GlobalArguments, HostArguments};
use crate::config::{self, HostConfig, overrides, problem};
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::plugin_build;
use crate::runtime;
use crate::signals::Signals;
use crate::telemetry;
use session::Session;

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
    /// Where the embedded name server listens, the broker after it; port 0 takes free ones
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

/// What is shown of the log when nobody asks for more: the plugin's own lines, its way to
/// serving, and what goes wrong.
const LOG_LEVEL: &str = "warn,guest=info,plugin=info,mqlet=info";

/// See [`DevArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: DevArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let overrides = overrides::collect(global, &arguments.host);
    let is_level_given = overrides.iter().any(|one| one.key == "log.level");
    let (host, mut log) =
        config::without_file(overrides).map_err(|problems| problem::refused(&problems.0))?;
    if !is_level_given {
        LOG_LEVEL.clone_into(&mut log.level);
    }
    let file = folder::find(&arguments.plugin).map_err(|problem| problem::refused(&[problem]))?;
    let manifest = session::manifest(&file)?;
    telemetry::log::init(&log);
    runtime::block_on(host.worker_threads, dev(arguments, host, manifest, output))
}

async fn dev(
    arguments: DevArguments,
    host: HostConfig,
    manifest: Manifest,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let starting = async {
        if manifest.build().is_some() && !arguments.no_build {
            output.note(format_args!("building plugin \"{}\" …", manifest.name()))?;
            if let Some(toolchain) = plugin_build::slow_toolchain(&manifest) {
                output.note(format_args!(
                    "with {toolchain}; the first build takes some minutes"
                ))?;
            }
            session::build(&manifest, true).await?;
        }
        Session::start(&arguments, host, manifest).await
    };
    let mut session = tokio::select! {
        session = starting => session?,
        () = signals.next() => return Ok(Exit::Done),
    };
    session.announce(output)?;
    let ended = tokio::select! {
        ended = serve(&mut session, &arguments, output) => ended,
        () = signals.next() => Ok(()),
    };
    // Whoever closed standard output still gets an orderly stop.
    let _ = output.note("stopping: calls under way may end; another Ctrl-C stops at once");
    let stopped = tokio::select! {
        stopped = session.stop(output) => stopped,
        () = signals.next() => return Ok(Exit::Interrupted),
    };
    ended?;
    Ok(match stopped? {
        0 => Exit::Done,
        _ => Exit::CallsKilled,
    })
}

async fn serve(
    session: &mut Session,
    arguments: &DevArguments,
    output: &mut Output,
) -> anyhow::Result<()> {
    session.send_samples(arguments.samples, output).await?;
    session.run(output).await
}
