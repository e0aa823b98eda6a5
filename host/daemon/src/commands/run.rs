//! `mqlet run`: the host, from its configuration file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use plugin_lifecycle::preflight;
use tracing::{error, info, warn};

use crate::app::App;
use crate::cli::{GlobalArguments, HostArguments};
use crate::config::{Config, ControlConfig, overrides, problem};
use crate::control::socket::SocketError;
use crate::control::{ApiServer, ControlServer, Directory};
use crate::exit::{self, Exit};
use crate::host::{Host, Journal, Store};
use crate::output::Output;
use crate::revisions::book::Book;
use crate::revisions::components::Components;
use crate::revisions::ledger::Ledger;
use crate::runtime;
use crate::signals::Signals;
use crate::telemetry::{self, Telemetry};

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

Manifests are watched: a new one is served, a changed one (or a changed component) is
deployed under live traffic, one that is gone leaves its group. What is wrong in a file is
in the log and changes nothing.

A name server or topic that is not there yet is waited for. A plugin that does not load is
left out, and the log says why; when none loads, it ends with 1.

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
    global: &GlobalArguments,
    arguments: &RunArguments,
    _output: &mut Output,
) -> anyhow::Result<Exit> {
    let overrides = overrides::collect(global, &arguments.host);
    let loaded = Config::load(&arguments.config, overrides);
    let mut problems = loaded.problems;
    let state_dir = loaded.config.as_ref().map(|config| &config.host.state_dir);
    for (tenant, manifest) in &loaded.manifests {
        // It has a revision to serve whatever has become of its component.
        if state_dir.is_some_and(|state_dir| {
            let components = Components::new(state_dir);
            let name = manifest.name().as_str();
            let (book, _) = Book::open(state_dir, tenant, name, &components);
            book.serving().is_some()
        }) {
            continue;
        }
        if manifest.component().is_remote() {
            continue;
        }
        for problem in preflight::check(manifest).err().unwrap_or_default() {
            // Two tenants may share a folder; what is wrong in it is said once.
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    let config = match loaded.config {
        Some(config) if problems.is_empty() => config,
        _ => return Err(problem::refused(&problems).into()),
    };
    telemetry::log::init(&config.log);
    runtime::block_on(config.host.worker_threads, run(config))
}

async fn run(config: Config) -> anyhow::Result<Exit> {
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let drain_timeout = config.host.drain_timeout;
    let control_config = config.host.control.clone();
    let state_dir = config.host.state_dir.clone();
    let app = App::new(config.host, Telemetry::default())?;
    let directory = Directory::default();
    // Before anything is opened: two hosts with one socket are a mistake.
    let control = start_control(&control_config, &directory)?;
    let api = match &control_config.api {
        Some(api) => {
            let server = ApiServer::start(api, directory.clone()).await?;
            info!(target: "mqlet", "the API listens on {}", server.address());
            Some(server)
        }
        None => None,
    };
    let (journal, journal_thread) = Journal::start(open_ledger(&state_dir));
    let store = Store {
        components: Components::new(&state_dir),
        state_dir,
        journal,
    };
    let host = Host::start(&app, &config.tenants, &directory, &store);
    let ended = tokio::select! {
        served = Arc::clone(&host).serve(config.tenants) => served,
        () = signals.next() => Ok(()),
    };
    info!(
        target: "mqlet",
        "stopping: calls under way may end within {}; another Ctrl-C stops at once",
        humantime::format_duration(drain_timeout)
    );
    let killed_calls = tokio::select! {
        killed_calls = host.stop(drain_timeout) => killed_calls,
        () = signals.next() => return Ok(Exit::Interrupted),
    };
    directory.clear();
    drop((control, api));
    tokio::task::spawn_blocking(move || journal_thread.end())
        .await
        .context("the ledger ended early")?;
    info!(target: "mqlet", killed_calls, "stopped");
    ended?;
    Ok(if killed_calls == 0 {
        Exit::Done
    } else {
        Exit::CallsKilled
    })
}

/// Without one nothing is kept of what happens, and everything else works.
fn open_ledger(state_dir: &Path) -> Option<Ledger> {
    match Ledger::open(state_dir) {
        Ok((ledger, opened)) => {
            if opened.mended > 0 {
                warn!(target: "mqlet", bytes = opened.mended, "the last line of the ledger was cut by a crash and is taken away");
            }
            for damage in opened.damage {
                error!(target: "mqlet", "the ledger is damaged: {damage}; mqlet history --verify says more");
            }
            Some(ledger)
        }
        Err(error) => {
            warn!(target: "mqlet", "what happens to revisions is not written down: {error:#}");
            None
        }
    }
}

/// A host whose default place cannot be written runs without a control socket.
fn start_control(
    config: &ControlConfig,
    directory: &Directory,
) -> anyhow::Result<Option<ControlServer>> {
    match ControlServer::start(&config.socket, directory.clone()) {
        Ok(control) => {
            let path = control.path().display();
            info!(target: "mqlet", "commands reach this host at {path}");
            Ok(Some(control))
        }
        Err(error @ (SocketError::Io { .. } | SocketError::TooLong { .. }))
            if config.is_default =>
        {
            let error = anyhow::Error::from(error);
            warn!(target: "mqlet", "{error:#}; until then no command reaches this host");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
