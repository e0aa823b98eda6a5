//! `mqlet run`: the host, from its configuration file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use plugin_lifecycle::manifest::name::PluginName;
use plugin_lifecycle::{Plugin, preflight};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::app::{App, ServeError, Tenant, TenantSettings};
use crate::cli::{GlobalArguments, HostArguments};
use crate::config::{Config, ControlConfig, TenantConfig, overrides, problem};
use crate::control::directory::PluginState;
use crate::control::socket::SocketError;
use crate::control::{ControlServer, Directory};
use crate::exit::{self, Exit};
use crate::output::Output;
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
    for (_, manifest) in &loaded.manifests {
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
    let control = config.host.control.clone();
    let app = App::new(config.host, Telemetry::default())?;
    let directory = Directory::default();
    // Before anything is opened: two hosts with one socket are a mistake.
    let control = start_control(&control, &directory)?;
    let mut host = Host::start(&app, config.tenants, directory.clone());
    let ended = tokio::select! {
        served = host.serve() => served,
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
    drop(control);
    info!(target: "mqlet", killed_calls, "stopped");
    ended?;
    Ok(if killed_calls == 0 {
        Exit::Done
    } else {
        Exit::CallsKilled
    })
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

/// All tenants, and the plugins of each that serve.
struct Host {
    directory: Directory,
    tenants: Vec<(Arc<Tenant>, Vec<Plugin>)>,
    loading: JoinSet<(usize, PluginName, Result<Plugin, ServeError>)>,
}

impl Host {
    /// Starts the clients, and to load all plugins.
    fn start(app: &App, tenants: Vec<TenantConfig>, directory: Directory) -> Self {
        let mut host = Self {
            directory,
            tenants: Vec::new(),
            loading: JoinSet::new(),
        };
        for config in tenants {
            let number = host.tenants.len();
            let tenant = Arc::new(app.start_tenant(TenantSettings {
                local_offsets: Some(app.local_offsets(&config.name)),
                name: config.name,
                connection: config.connection,
                calls_max: config.calls_max,
                buffer_bytes: config.buffer_bytes,
                weight: config.weight,
                budgets: config.budgets,
            }));
            host.directory.add(&tenant, &config.plugins);
            for manifest in config.plugins {
                let tenant = Arc::clone(&tenant);
                host.loading.spawn(async move {
                    let name = manifest.name().clone();
                    (number, name, tenant.serve(manifest).await)
                });
            }
            host.tenants.push((tenant, Vec::new()));
        }
        host
    }

    /// Until a client fails. One plugin that does not load costs the others nothing; it
    /// is an error when none does.
    async fn serve(&mut self) -> anyhow::Result<()> {
        let mut failed = Vec::new();
        while let Some(ended) = self.loading.join_next().await {
            let (tenant, name, result) = ended.context("loading a plugin ended early")?;
            let (tenant, plugins) = &mut self.tenants[tenant];
            match result {
                Ok(plugin) => {
                    let state = PluginState::Serving;
                    self.directory.set(tenant.name(), name.as_str(), &state);
                    plugins.push(plugin);
                }
                Err(error) => {
                    let tenant = tenant.name();
                    let state = PluginState::Failed(error.to_string());
                    self.directory.set(tenant, name.as_str(), &state);
                    error!(target: "mqlet", %tenant, plugin = %name, "plugin \"{name}\" does not serve: {error}");
                    failed.push(format!("{tenant}/{name}"));
                }
            }
        }
        let plugins: usize = self.tenants.iter().map(|(_, plugins)| plugins.len()).sum();
        let tenants = self.tenants.len();
        if failed.is_empty() {
            info!(
                target: "mqlet", plugins, tenants,
                "serving {} of {}", counted(plugins, "plugin"), counted(tenants, "tenant")
            );
        } else {
            anyhow::ensure!(plugins > 0, "no plugin serves; the log says why of each");
            warn!(
                target: "mqlet", plugins, tenants,
                "serving {} of {}, without {}",
                counted(plugins, "plugin"), counted(tenants, "tenant"), failed.join(", ")
            );
        }
        let mut failures = JoinSet::new();
        for (tenant, _) in &self.tenants {
            let tenant = Arc::clone(tenant);
            failures.spawn(async move {
                let bug = tenant.driver().failed().await;
                (Arc::clone(tenant.name()), bug)
            });
        }
        match failures.join_next().await {
            Some(Ok((tenant, bug))) => {
                anyhow::bail!(
                    "the client of tenant \"{tenant}\" failed, which is a bug of mqlet: {bug}"
                )
            }
            Some(Err(error)) => Err(error).context("a watcher ended early"),
            None => Ok(()),
        }
    }

    /// All tenants at once; how many calls were killed.
    async fn stop(mut self, drain_timeout: Duration) -> u32 {
        // What still loads has no calls.
        self.loading.shutdown().await;
        let mut stopping = JoinSet::new();
        for (tenant, plugins) in self.tenants {
            stopping.spawn(async move { tenant.stop(plugins, drain_timeout).await });
        }
        stopping.join_all().await.iter().sum()
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
