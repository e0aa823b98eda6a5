//! `App`: builds the parts of a host in order, and stops them in reverse.
//!
//! What tenants share (engine, compile cache, permits) is made once; a [`Tenant`] has one
//! client for its cluster and a plugin for each manifest. Which tenants and plugins there
//! are, and when to stop, is the commands' business (`run`, `dev`).

mod budget_gate;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use consumer::GroupConfig;
use consumer::listener::MessageListener;
use consumer::pull_task::PullTaskCallback;
use driver::{Driver, DriverError, HostPermits};
use plugin_lifecycle::compile_cache::CompileCache;
use plugin_lifecycle::runner::LOADS_MAX;
use plugin_lifecycle::signature::SignaturePolicy;
use plugin_lifecycle::source::Fetcher;
use plugin_lifecycle::{Event, EventKind, Manifest, Plugin, Reach, RunnerConfig};
use tokio::sync::Semaphore;
use tracing::warn;

use budget_gate::BudgetGate;

use crate::config::HostConfig;
use crate::config::connection::ConnectionConfig;
use crate::failures::Failures;
use crate::telemetry::Telemetry;

/// What is left of a plugin when its client has stopped: no calls, guests to shut down.
const PLUGIN_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What the tenants of a host share.
#[derive(Debug)]
pub(crate) struct App {
    host: HostConfig,
    telemetry: Telemetry,
    engine: wasm::Engine,
    cache: Arc<CompileCache>,
    permits: HostPermits,
    loads: Arc<Semaphore>,
    fetcher: Arc<Fetcher>,
}

/// One client and its plugins.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: Arc<str>,
    driver: Driver,
    runner: RunnerConfig,
    failures: Failures,
}

/// A cluster, and how much of the host it may use.
#[derive(Clone)]
pub(crate) struct TenantSettings {
    pub(crate) name: Arc<str>,
    pub(crate) connection: ConnectionConfig,
    pub(crate) calls_max: u32,
    pub(crate) buffer_bytes: u64,
    /// Its part of the CPU.
    pub(crate) weight: NonZeroU32,
    /// What its plugins may use together.
    pub(crate) budgets: wasm::Budgets,
    /// What its plugins reach the outside by.
    pub(crate) reach: Reach,
    /// Who must have signed its plugins' components.
    pub(crate) signatures: Arc<SignaturePolicy>,
    /// Folder for the offsets of its broadcasting groups; `None`: they are forgotten.
    pub(crate) local_offsets: Option<PathBuf>,
    /// Hears of its plugins, too.
    pub(crate) plugin_observer: Option<plugin_lifecycle::event::Observer>,
}

impl App {
    /// Starts the engine and opens the compile cache. A cache that cannot be used costs
    /// time only.
    ///
    /// # Errors
    /// When WebAssembly does not run on this machine.
    pub(crate) fn new(host: HostConfig, telemetry: Telemetry) -> anyhow::Result<Self> {
        let everybody = Arc::from("");
        let program = wasm::WorkerProgram::this().context("cannot find this program's file")?;
        let config = wasm::EngineConfig {
            instances_max: host.instances_max,
            compiling: wasm::Compiling::InWorker(program.clone(), host.compile.clone()),
            worker: Some(program),
            ..wasm::EngineConfig::default()
        };
        let engine = wasm::Engine::new(&config, &telemetry.wasm_observer(&everybody))
            .context("cannot run WebAssembly")?;
        let observer = telemetry.plugin_observer(&everybody);
        let cache = Arc::new(CompileCache::open_or_off(&host.cache_dir, &observer));
        let permits = HostPermits::new(usize::try_from(host.calls_max).unwrap_or(usize::MAX));
        let fetcher = Arc::new(Fetcher::new(host.sources.clone()));
        Ok(Self {
            fetcher,
            host,
            telemetry,
            engine,
            cache,
            permits,
            loads: Arc::new(Semaphore::new(LOADS_MAX)),
        })
    }

    /// Where a tenant's offsets of broadcasting groups outlive the process.
    pub(crate) fn local_offsets(&self, tenant: &str) -> PathBuf {
        self.host.state_dir.join("offsets").join(tenant)
    }

    /// Where the buckets of all tenants are.
    pub(crate) fn buckets(&self) -> PathBuf {
        self.host.state_dir.join("buckets")
    }

    /// Starts a tenant's client; it connects when a group or a message asks for it.
    /// Needs a tokio runtime.
    pub(crate) fn start_tenant(&self, settings: TenantSettings) -> Tenant {
        let TenantSettings {
            name,
            connection,
            calls_max,
            buffer_bytes,
            weight,
            budgets,
            reach,
            signatures,
            local_offsets,
            plugin_observer,
        } = settings;
        if connection.tls_is_insecure {
            warn!(
                target: "mqlet", tenant = %name,
                "tenant \"{name}\" trusts any server: with tls.mode = \"insecure\" no certificate is verified, and whoever is in between can read and change everything; set \"verify\""
            );
        }
        let mut config = connection.driver_config();
        config.client.buffer_bytes = buffer_bytes;
        // One line for each pull and call: only for whoever reads them.
        config.client.tells_steps = tracing::enabled!(target: "consumer", tracing::Level::TRACE);
        config.permits = self.permits.clone();
        config.calls_max = usize::try_from(calls_max).unwrap_or(usize::MAX);
        config.drain_timeout = self.host.drain_timeout;
        config.local_offsets = local_offsets;
        let has_budgets = budgets != wasm::Budgets::default();
        let tenant = wasm::Tenant::new(wasm::TenantConfig {
            name: Arc::clone(&name),
            weight,
            budgets,
        });
        config.gate = has_budgets.then(|| BudgetGate::of(&tenant));
        let driver = Driver::start(config, self.telemetry.driver_observer(&name));
        let failures = Failures::default();
        let to_log = self.telemetry.plugin_observer(&name);
        let dispatch_changed = driver.dispatch_changed();
        let observer: plugin_lifecycle::event::Observer = Arc::new(move |event: &Event| {
            // The revision before may have been held back.
            if let EventKind::Activated { .. } = event.kind {
                dispatch_changed.tell();
            }
            to_log(event);
            if let Some(other) = &plugin_observer {
                other(event);
            }
        });
        let runner = RunnerConfig {
            engine: self.engine.clone(),
            cache: Arc::clone(&self.cache),
            tenant,
            producer: driver.producer(),
            reach,
            fetcher: Arc::clone(&self.fetcher),
            signatures,
            drain_timeout: self.host.drain_timeout,
            rollback_window: self.host.rollback_window,
            observer,
            wasm_observer: failures.keeping(self.telemetry.wasm_observer(&name)),
            loads: Arc::clone(&self.loads),
        };
        Tenant {
            name,
            driver,
            runner,
            failures,
        }
    }
}

impl Tenant {
    /// As the configuration has it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The tenant's client.
    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The failed calls of its plugins that are remembered.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// What its plugins have used, by name.
    pub(crate) fn usage(&self) -> Vec<(Arc<str>, wasm::UsageSnapshot)> {
        self.runner.tenant.usage()
    }

    /// How long calls under way may take to end.
    pub(crate) fn drain_timeout(&self) -> Duration {
        self.runner.drain_timeout
    }

    /// A plugin without a revision.
    pub(crate) fn start_plugin(&self, manifest: &Manifest) -> Plugin {
        Plugin::start(manifest.name().clone(), self.runner.clone())
    }

    /// Takes a group in.
    ///
    /// # Errors
    /// When it is there already, or the client stops.
    pub(crate) async fn subscribe(
        &self,
        group: GroupConfig,
        listener: Arc<dyn MessageListener>,
        pull_task: Arc<dyn PullTaskCallback>,
    ) -> Result<(), DriverError> {
        match group.pull_task_interval() {
            Some(_) => self.driver.subscribe_pull_tasks(group, pull_task).await,
            None => self.driver.subscribe(group, listener).await,
        }
    }

    /// Stops in order: no more pulls and calls, calls under way may end within the drain
    /// timeout, offsets are committed, groups are left; then the plugins end. Returns how
    /// many calls were killed.
    pub(crate) async fn stop(&self, plugins: Vec<Plugin>, drain_timeout: Duration) -> u32 {
        let report = self.driver.stop(drain_timeout).await;
        let deadline = tokio::time::Instant::now() + PLUGIN_STOP_TIMEOUT;
        for plugin in plugins {
            plugin.stop(deadline).await;
        }
        report.killed_calls
    }
}
