//! One run of `mqlet dev`: a broker, a tenant, a plugin, and its replacement on save.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use consumer::ConsumeFromWhere;
use driver::DriverError;
use embedded_broker::{EmbeddedBroker, ServerConfig};
use plugin_lifecycle::{Generation, Manifest, Plugin, preflight};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::info;

use super::DevArguments;
use super::outcomes::{Counts, Line, Sink, Totals};
use super::samples;
use crate::app::{App, Tenant, TenantSettings};
use crate::config::connection::ConnectionConfig;
use crate::config::{ControlConfig, HostConfig, problem};
use crate::control::directory::PluginState;
use crate::control::{ControlServer, Directory};
use crate::output::Output;
use crate::plugin_build;
use crate::reach;
use crate::telemetry::Telemetry;
use crate::watch::Watch;

/// Queues of the plugin's topics.
const QUEUES: u32 = 4;
/// How long the embedded broker may take for a sample.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that runs.
pub(super) struct Session {
    parts: Arc<Parts>,
    manifest: Manifest,
    build: bool,
    lines: mpsc::Receiver<Vec<Line>>,
    counts: Arc<Counts>,
    telemetry: Telemetry,
    watch: Option<Watch>,
    /// At most one.
    reloading: JoinSet<anyhow::Result<Reloaded>>,
    reloads: u64,
    drain_timeout: Duration,
    directory: Directory,
    /// Dropped last: a session is explained while it stops.
    control: Option<ControlServer>,
}

/// What a reload works on, too.
struct Parts {
    broker: EmbeddedBroker,
    tenant: Arc<Tenant>,
    plugin: Plugin,
    sink: Sink,
    /// Not after a change of groups that failed half-way.
    is_subscribed: AtomicBool,
}

/// What a reload came to.
enum Reloaded {
    Unchanged,
    Serves(Box<Manifest>, Generation),
}

/// Reads the manifest as `dev` runs it.
///
/// # Errors
/// All its problems.
pub(super) fn manifest(file: &std::path::Path) -> anyhow::Result<Manifest> {
    let manifest = Manifest::load(file).map_err(|problems| problem::refused(&problems.0))?;
    Ok(manifest.starting_from(ConsumeFromWhere::FirstOffset))
}

/// Builds the component, if the manifest says how and it is wanted.
///
/// # Errors
/// When it is not built.
pub(super) async fn build(manifest: &Manifest, wanted: bool) -> anyhow::Result<()> {
    let Some(build) = manifest.build().filter(|_| wanted).cloned() else {
        return Ok(());
    };
    let manifest = manifest.clone();
    tokio::task::spawn_blocking(move || plugin_build::build(&manifest, &build))
        .await
        .context("the build ended early")?
        .context("the plugin is not built")
}

/// Looks at the component.
async fn check(manifest: &Manifest) -> anyhow::Result<preflight::Preflight> {
    let manifest = manifest.clone();
    let found = tokio::task::spawn_blocking(move || preflight::check(&manifest))
        .await
        .context("the check ended early")?;
    found.map_err(|problems| problem::refused(&problems).into())
}

impl Session {
    /// Starts everything, in order, up to a plugin that is called as messages come.
    ///
    /// # Errors
    /// What did not start; nothing runs then.
    pub(super) async fn start(
        arguments: &DevArguments,
        mut host: HostConfig,
        manifest: Manifest,
    ) -> anyhow::Result<Self> {
        // What was saved last is what its author wants to see fail.
        host.rollback_window = Duration::ZERO;
        check(&manifest).await?;
        let telemetry = Telemetry::default();
        let mut config = ServerConfig::listening_on(arguments.listen);
        config.observer = telemetry.broker_observer();
        let broker = EmbeddedBroker::start(config).await?;
        add_topics(&broker, &manifest)?;
        let drain_timeout = host.drain_timeout;
        let settings = TenantSettings {
            name: Arc::from("dev"),
            connection: ConnectionConfig::plain(vec![broker.namesrv_addr().clone()]),
            calls_max: host.calls_max,
            buffer_bytes: host.buffer_bytes,
            weight: wasm::WEIGHT_DEFAULT,
            budgets: wasm::Budgets::default(),
            reach: reach::in_memory(),
            // Its author runs it.
            signatures: Arc::default(),
            // Its broker forgets everything too.
            local_offsets: None,
            plugin_observer: None,
        };
        let control = host.control.clone();
        let app = App::new(host, telemetry.clone())?;
        let tenant = Arc::new(app.start_tenant(settings));
        let directory = Directory::default();
        directory.add(&tenant, [&manifest]);
        directory.set("dev", manifest.name().as_str(), &PluginState::Serving);
        let control = start_control(&control, &directory);
        let plugin = tenant.start_plugin(&manifest);
        plugin
            .deploy(Arc::new(manifest.clone()))
            .await
            .context("the plugin does not start")?;
        let (sink, counts, lines) = Sink::new();
        let parts = Parts {
            broker,
            tenant,
            plugin,
            sink,
            is_subscribed: AtomicBool::new(false),
        };
        parts.subscribe(&manifest).await?;
        let mut session = Self {
            parts: Arc::new(parts),
            manifest,
            build: !arguments.no_build,
            lines,
            counts,
            telemetry,
            watch: None,
            reloading: JoinSet::new(),
            reloads: 0,
            drain_timeout,
            directory,
            control,
        };
        if !arguments.no_reload {
            let mut watch = Watch::new()?;
            watch.add(session.watched())?;
            session.watch = Some(watch);
        }
        Ok(session)
    }

    /// Files whose change asks for a reload.
    fn watched(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.manifest.file().to_owned()];
        match self.manifest.build().filter(|_| self.build) {
            Some(build) => paths.extend(build.watch.iter().cloned()),
            None => paths.extend(self.manifest.component().file().map(Path::to_owned)),
        }
        paths
    }

    /// Says what serves and how to send to it.
    pub(super) fn announce(&self, output: &mut Output) -> anyhow::Result<()> {
        let namesrv_addr = self.parts.broker.namesrv_addr().to_string();
        let group = self.manifest.group_config();
        let topics: BTreeSet<&str> = group
            .subscriptions()
            .iter()
            .map(|one| one.topic.as_str())
            .collect();
        let started = Started {
            send: send_line(&self.manifest, &namesrv_addr),
            namesrv_addr,
            plugin: self.manifest.name().as_str(),
            consumer_group: self.manifest.consumer_group(),
            topics: topics.into_iter().map(str::to_owned).collect(),
        };
        let text = format!(
            "serving plugin \"{}\": topics {}, group {}\nnamesrv_addr={}\n\
             send more from a second terminal: {}",
            started.plugin,
            started.topics.join(", "),
            started.consumer_group,
            started.namesrv_addr,
            started.send,
        );
        output.result(text, &started)?;
        Ok(())
    }

    /// Sends the samples, one by one.
    ///
    /// # Errors
    /// When they cannot be read or sent.
    pub(super) async fn send_samples(
        &self,
        count: Option<u32>,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let samples = samples::samples(&self.manifest, count)?;
        if samples.is_empty() {
            return Ok(());
        }
        output.note(format_args!("sending {} sample messages", samples.len()))?;
        let producer = self.parts.tenant.driver().producer();
        for message in samples {
            producer
                .send(vec![message], SEND_TIMEOUT)
                .await
                .context("a sample message was not sent")?;
        }
        Ok(())
    }

    /// Shows outcomes and reloads on save, until the client fails.
    ///
    /// # Errors
    /// When it fails, or standard output is closed.
    pub(super) async fn run(&mut self, output: &mut Output) -> anyhow::Result<()> {
        let mut change_waits = false;
        let parts = Arc::clone(&self.parts);
        loop {
            if change_waits && self.reloading.is_empty() {
                change_waits = false;
                output.note("changed, building and loading again …")?;
                self.reload();
            }
            let changed = async {
                match &mut self.watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(lines) = self.lines.recv() => show(&lines, output)?,
                () = changed => change_waits = true,
                Some(reloaded) = self.reloading.join_next() => {
                    self.reloaded(reloaded.context("a reload ended early")?, output)?;
                }
                bug = parts.tenant.driver().failed() => {
                    anyhow::bail!("the client failed, which is a bug of mqlet: {bug}");
                }
            }
        }
    }

    fn reload(&mut self) {
        let (parts, before, wanted) = (Arc::clone(&self.parts), self.manifest.clone(), self.build);
        self.reloading
            .spawn(async move { parts.reload(before, wanted).await });
    }

    fn reloaded(
        &mut self,
        reloaded: anyhow::Result<Reloaded>,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        match reloaded {
            Ok(Reloaded::Unchanged) => output.note("nothing changed, the plugin serves on")?,
            Ok(Reloaded::Serves(manifest, generation)) => {
                self.manifest = *manifest;
                self.reloads += 1;
                let paths = self.watched();
                if let Some(watch) = &mut self.watch {
                    watch.add(paths)?;
                }
                let reloaded = ReloadView {
                    reloaded: self.manifest.name().as_str(),
                    generation: generation.0,
                };
                output.result(
                    format_args!(
                        "reloaded plugin \"{}\" ({generation}); the next message is its",
                        reloaded.reloaded
                    ),
                    &reloaded,
                )?;
            }
            Err(error) => {
                let view = ReloadFailed {
                    reload_failed: format!("{error:#}"),
                };
                let until_then = if self.parts.is_subscribed() {
                    "the plugin from before serves on"
                } else {
                    "nothing is consumed until it is saved again and loads"
                };
                output.result(
                    format_args!("not reloaded, {until_then}: {}", view.reload_failed),
                    &view,
                )?;
            }
        }
        Ok(())
    }

    /// Stops in order and says what happened; returns how many calls were killed.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(super) async fn stop(mut self, output: &mut Output) -> anyhow::Result<u32> {
        self.reloading.shutdown().await;
        let mut killed_calls = 0;
        // Nobody else has it: what reloaded has ended.
        if let Some(parts) = Arc::into_inner(self.parts) {
            let Parts {
                broker,
                tenant,
                plugin,
                sink,
                is_subscribed: _,
            } = parts;
            killed_calls = tenant.stop(vec![plugin], self.drain_timeout).await;
            broker.stop().await;
            drop(sink);
        }
        self.directory.clear();
        drop(self.control);
        // The client holds the last listener, and it is gone.
        while let Ok(lines) = self.lines.try_recv() {
            show(&lines, output)?;
        }
        let summary = Summary {
            plugin: self.manifest.name().as_str(),
            totals: self.counts.totals(),
            failed_calls: self.telemetry.failed_calls(),
            killed_calls,
            reloads: self.reloads,
        };
        output.result(summary.text(), &SummaryView { summary: &summary })?;
        Ok(killed_calls)
    }
}

/// Several sessions may run side by side: only the first has the socket.
fn start_control(config: &ControlConfig, directory: &Directory) -> Option<ControlServer> {
    match ControlServer::start(&config.socket, directory.clone()) {
        Ok(control) => Some(control),
        Err(error) => {
            let error = anyhow::Error::from(error);
            info!(target: "mqlet", "{error:#}; until then no command reaches this session");
            None
        }
    }
}

impl Parts {
    async fn subscribe(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let group = manifest.group_config();
        let listener = self
            .sink
            .observed(manifest.name().to_arc(), self.plugin.listener(), &group);
        let pull_task = self
            .sink
            .observed_task(manifest.name().to_arc(), self.plugin.pull_task());
        self.tenant
            .subscribe(group, listener, pull_task)
            .await
            .context("cannot subscribe")?;
        self.is_subscribed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn is_subscribed(&self) -> bool {
        self.is_subscribed.load(Ordering::Relaxed)
    }

    /// From the files to a serving plugin; what fails leaves the one from before, or says
    /// that it does not.
    async fn reload(&self, before: Manifest, build_wanted: bool) -> anyhow::Result<Reloaded> {
        let manifest = manifest(before.file())?;
        anyhow::ensure!(
            manifest.name() == before.name(),
            "the plugin's name changed from \"{}\" to \"{}\"; start mqlet dev again",
            before.name(),
            manifest.name()
        );
        build(&manifest, build_wanted).await?;
        let found = check(&manifest).await?;
        let serves = self.plugin.status().active;
        let is_new_group = !self.is_subscribed() || group_text(&manifest) != group_text(&before);
        let is_new_revision =
            serves.is_none_or(|(_, revision)| revision.to_string() != found.revision.to_string());
        if !is_new_group && !is_new_revision {
            return Ok(Reloaded::Unchanged);
        }
        if is_new_group {
            add_topics(&self.broker, &manifest)?;
        }
        // What the group has now is not for a listener of another kind.
        let leaves_first = manifest.kind() != before.kind();
        if leaves_first {
            self.unsubscribe(&before).await?;
        }
        let generation = match self.plugin.deploy(Arc::new(manifest.clone())).await {
            Ok(generation) => generation,
            Err(error) => {
                let mut error = anyhow::Error::from(error);
                if leaves_first && let Err(again) = self.subscribe(&before).await {
                    error = error.context(format!("the plugin from before: {again:#}"));
                }
                return Err(error);
            }
        };
        if is_new_group {
            if !leaves_first {
                self.unsubscribe(&before).await?;
            }
            self.subscribe(&manifest).await?;
        }
        Ok(Reloaded::Serves(Box::new(manifest), generation))
    }

    async fn unsubscribe(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let driver = self.tenant.driver();
        match driver.unsubscribe(manifest.consumer_group()).await {
            // It was left by a reload that failed.
            Ok(_) | Err(DriverError::UnknownGroup { .. }) => {
                self.is_subscribed.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error).context("cannot leave the group"),
        }
    }
}

/// All that a group's configuration says.
fn group_text(manifest: &Manifest) -> String {
    format!("{:?}", manifest.group_config())
}

fn add_topics(broker: &EmbeddedBroker, manifest: &Manifest) -> anyhow::Result<()> {
    for subscription in manifest.group_config().subscriptions() {
        broker.with_broker(|broker, _| broker.add_topic(&subscription.topic, QUEUES))?;
    }
    Ok(())
}

/// The command as this process was called, so that it can be copied.
fn send_line(manifest: &Manifest, namesrv_addr: &str) -> String {
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "mqlet".to_owned());
    let topic = samples::topic(manifest);
    let tag = samples::tag(manifest)
        .map(|tag| format!(" --tag {tag}"))
        .unwrap_or_default();
    format!("{program} send {topic} \"good morning\"{tag} --namesrv-addr {namesrv_addr}")
}

fn show(lines: &[Line], output: &mut Output) -> anyhow::Result<()> {
    for line in lines {
        output.result(line, line)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Started<'a> {
    plugin: &'a str,
    consumer_group: &'a str,
    topics: Vec<String>,
    namesrv_addr: String,
    send: String,
}

#[derive(Serialize)]
struct ReloadView<'a> {
    reloaded: &'a str,
    generation: u64,
}

#[derive(Serialize)]
struct ReloadFailed {
    reload_failed: String,
}

#[derive(Serialize)]
struct SummaryView<'a> {
    summary: &'a Summary<'a>,
}

#[derive(Serialize)]
struct Summary<'a> {
    plugin: &'a str,
    #[serde(flatten)]
    totals: Totals,
    failed_calls: u64,
    killed_calls: u32,
    reloads: u64,
}

impl Summary<'_> {
    fn text(&self) -> String {
        let Totals {
            done,
            retried,
            dead_letters,
            not_finished,
            not_shown,
        } = self.totals;
        let mut text = format!(
            "plugin \"{}\": {done} done, {retried} retried, {dead_letters} dead letters, {} failed calls, {} reloads",
            self.plugin, self.failed_calls, self.reloads
        );
        if not_finished > 0 {
            text.push_str(&format!(", {not_finished} not finished"));
        }
        if self.killed_calls > 0 {
            text.push_str(&format!(", {} calls killed", self.killed_calls));
        }
        if not_shown > 0 {
            text.push_str(&format!("; {not_shown} messages came too fast to be shown"));
        }
        text
    }
}
