//! `Host`: the tenants of `mqlet run` and their plugins, and everything that can be asked
//! of them while they serve.
//!
//! What should be comes from two sides: the tenants' folders of manifests (`follow.rs`),
//! and commands. A command's revision stays until its plugin's manifest (or the component
//! that it names) changes: then the file has the word again. `hosted.rs` is one plugin;
//! `journal.rs` writes down what happens to all of them.

mod desired;
mod follow;
mod hosted;
mod journal;
mod underway;

pub(crate) use hosted::{DeployHow, Hosted, RefusedChange};
pub(crate) use journal::Journal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use plugin_lifecycle::manifest::name::PluginName;
use plugin_lifecycle::{Manifest, Problem};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{error, info, warn};
use underway::Underway;

use crate::app::{App, Tenant, TenantSettings};
use crate::config::connection::ConnectionConfig;
use crate::config::{self, TenantConfig};
use crate::control::Directory;
use crate::control::directory::PluginState;
use crate::reach;
use crate::revisions::components::Components;
use crate::revisions::uploads::Uploads;

/// Where revisions are kept, and who writes down what happens.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) state_dir: PathBuf,
    pub(crate) components: Components,
    pub(crate) journal: Journal,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Host {
    directory: Directory,
    store: Store,
    tenants: Vec<HostTenant>,
    /// Told when a change has ended that a look had left out.
    look_again: Arc<Notify>,
}

/// A tenant and its plugins.
#[derive(Debug)]
pub(crate) struct HostTenant {
    pub(crate) tenant: Arc<Tenant>,
    connection: ConnectionConfig,
    folder: PathBuf,
    /// Held for a look or an entry, never across a wait.
    plugins: Mutex<BTreeMap<String, Arc<Hosted>>>,
    underway: Underway,
    /// Taken away by a command: by what their manifests are known, which have to change
    /// before they are looked at again.
    removed: Mutex<BTreeMap<String, String>>,
    /// What is wrong with its files, as it was told last.
    problems: Mutex<BTreeMap<PathBuf, String>>,
    /// What was read of its files.
    seen: Mutex<desired::Seen>,
}

impl Host {
    /// Starts the clients; nothing serves yet.
    pub(crate) fn start(
        app: &App,
        tenants: &[TenantConfig],
        directory: &Directory,
        store: &Store,
    ) -> Arc<Self> {
        let look_again = Arc::new(Notify::new());
        let started = tenants.iter().map(|config| {
            let tenant = Arc::new(app.start_tenant(TenantSettings {
                local_offsets: Some(app.local_offsets(&config.name)),
                name: Arc::clone(&config.name),
                connection: config.connection.clone(),
                calls_max: config.calls_max,
                buffer_bytes: config.buffer_bytes,
                weight: config.weight,
                budgets: config.budgets.clone(),
                reach: reach::of_tenant(
                    &app.buckets(),
                    &config.name,
                    &config.reach,
                    config.ceiling.clone(),
                ),
                signatures: Arc::clone(&config.signatures),
                plugin_observer: Some(store.journal.observer(&config.name)),
            }));
            directory.add(&tenant, &config.plugins);
            HostTenant {
                tenant,
                connection: config.connection.clone(),
                folder: config.plugins_folder.clone(),
                plugins: Mutex::default(),
                underway: Underway::new(&look_again),
                removed: Mutex::default(),
                problems: Mutex::default(),
                seen: Mutex::default(),
            }
        });
        let host = Arc::new(Self {
            tenants: started.collect(),
            directory: directory.clone(),
            store: store.clone(),
            look_again,
        });
        directory.set_host(&host);
        host
    }

    /// Serves until a client fails. One plugin that does not load costs the others
    /// nothing; it is an error when none does.
    pub(crate) async fn serve(self: Arc<Self>, tenants: Vec<TenantConfig>) -> anyhow::Result<()> {
        let mut watch = follow::watch(&self);
        let mut loading = JoinSet::new();
        for (number, config) in tenants.into_iter().enumerate() {
            for manifest in config.plugins {
                let host = Arc::clone(&self);
                let name = manifest.name().clone();
                let change = self.tenants[number].underway.begin(name.as_str());
                loading.spawn(async move {
                    let _change = change;
                    let begun = host.begin(number, manifest).await;
                    (number, name, begun)
                });
            }
        }
        let mut failed = Vec::new();
        let mut plugins = 0_usize;
        while let Some(ended) = loading.join_next().await {
            let (number, name, begun) = ended.context("loading a plugin ended early")?;
            match begun {
                Ok(true) => plugins += 1,
                Ok(false) => {}
                Err(error) => {
                    let tenant = self.tenants[number].tenant.name();
                    error!(target: "mqlet", %tenant, plugin = %name, "plugin \"{name}\" does not serve: {error:#}");
                    failed.push(format!("{tenant}/{name}"));
                }
            }
        }
        self.tell_serving(plugins, &failed)?;
        let (components, state_dir) = (self.store.components.clone(), self.store.state_dir.clone());
        let swept = tokio::task::spawn_blocking(move || components.sweep_all(&state_dir));
        if let Ok(swept @ 1..) = swept.await {
            info!(target: "mqlet", "removed {} that no revision has", counted(swept, "component"));
        }
        let mut failures = JoinSet::new();
        for one in &self.tenants {
            let tenant = Arc::clone(&one.tenant);
            failures.spawn(async move {
                let bug = tenant.driver().failed().await;
                (Arc::clone(tenant.name()), bug)
            });
        }
        let failure = tokio::select! {
            failure = failures.join_next() => failure,
            never = follow::follow(&self, &mut watch) => match never {},
        };
        match failure {
            Some(Ok((tenant, bug))) => {
                anyhow::bail!(
                    "the client of tenant \"{tenant}\" failed, which is a bug of mqlet: {bug}"
                )
            }
            Some(Err(error)) => Err(error).context("a watcher ended early"),
            None => Ok(()),
        }
    }

    fn tell_serving(&self, plugins: usize, failed: &[String]) -> anyhow::Result<()> {
        let tenants = self.tenants.len();
        if failed.is_empty() {
            info!(
                target: "mqlet", plugins, tenants,
                "serving {} of {}", counted(plugins, "plugin"), counted(tenants, "tenant")
            );
            return Ok(());
        }
        anyhow::ensure!(plugins > 0, "no plugin serves; the log says why of each");
        warn!(
            target: "mqlet", plugins, tenants,
            "serving {} of {}, without {}",
            counted(plugins, "plugin"), counted(tenants, "tenant"), failed.join(", ")
        );
        Ok(())
    }

    /// All tenants at once; how many calls were killed.
    pub(crate) async fn stop(&self, drain_timeout: Duration) -> u32 {
        let mut stopping = JoinSet::new();
        for one in &self.tenants {
            let tenant = Arc::clone(&one.tenant);
            // They stay known until the ledger has their last entries.
            let plugins: Vec<_> = one.plugins().values().map(Arc::clone).collect();
            stopping.spawn(async move {
                let report = tenant.driver().stop(drain_timeout).await;
                let ending = plugins.into_iter().map(|hosted| async move {
                    hosted.end().await;
                });
                ending.collect::<JoinSet<()>>().join_all().await;
                report.killed_calls
            });
        }
        stopping.join_all().await.iter().sum()
    }

    /// The plugin of this name; its tenant may be left out where that is clear.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn plugin(
        &self,
        name: &str,
        tenant: Option<&str>,
    ) -> Result<(usize, Arc<Hosted>), RefusedChange> {
        let mut found = Vec::new();
        for (number, one) in self.tenants.iter().enumerate() {
            if tenant.is_none_or(|tenant| tenant == &**one.tenant.name())
                && let Some(hosted) = one.plugins().get(name)
            {
                found.push((number, Arc::clone(hosted)));
            }
        }
        match found.len() {
            0 => Err(RefusedChange::Unknown(format!(
                "this host has no plugin \"{name}\"; mqlet plugins lists them"
            ))),
            1 => Ok(found.remove(0)),
            _ => Err(RefusedChange::Conflict(format!(
                "several tenants have a plugin \"{name}\"; name one with --tenant"
            ))),
        }
    }

    /// Where components that were brought over the API wait.
    pub(crate) fn uploads(&self) -> Uploads {
        Uploads::new(&self.store.state_dir)
    }

    /// Where the ledger is.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.store.state_dir
    }

    /// All plugins, by tenant and name.
    pub(crate) fn plugins(&self) -> Vec<Arc<Hosted>> {
        let mut all = Vec::new();
        for one in &self.tenants {
            all.extend(one.plugins().values().map(Arc::clone));
        }
        all
    }

    /// What is wrong with files of the folders.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut all = Vec::new();
        for one in &self.tenants {
            let problems = one.problems.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(problems.values().cloned());
        }
        all
    }

    /// Takes a plugin from its group and ends it, until its manifest changes.
    ///
    /// # Errors
    /// It is not there, or not as expected.
    pub(crate) async fn remove(
        &self,
        name: &str,
        tenant: Option<&str>,
        expected: Option<u64>,
        by: &str,
    ) -> Result<(), RefusedChange> {
        let (number, hosted) = self.plugin(name, tenant)?;
        let _permit = hosted.expect(expected).await?;
        let _change = self.tenants[number].underway.begin(name);
        hosted.pin_removed(by).await?;
        let applied = hosted.book().applied().map(str::to_owned);
        if let Some(fingerprint) = applied {
            self.tenants[number].note_removed(name, fingerprint);
        }
        self.forget(number, &hosted, by).await;
        Ok(())
    }

    /// What is wrong with a plugin's group, beside those that serve; `gives_way` are those
    /// whose groups are free when it is to be joined.
    pub(crate) fn group_problems(
        &self,
        number: usize,
        manifest: &Manifest,
        gives_way: impl Fn(usize, &str) -> bool,
    ) -> Vec<Problem> {
        let one = &self.tenants[number];
        let mut problems =
            config::group_name_problems(one.tenant.name(), &one.connection, manifest);
        let newcomer = (&one.connection, manifest);
        for (of, other) in self.tenants.iter().enumerate() {
            for hosted in other.plugins().values() {
                let is_itself = of == number && hosted.name() == manifest.name().as_str();
                if !is_itself && !gives_way(of, hosted.name()) {
                    let taken = hosted.with_manifest(|serving| {
                        config::taken_group(newcomer, (&other.connection, serving))
                    });
                    problems.extend(taken);
                }
            }
        }
        problems
    }

    /// A plugin from a manifest; false when a command has removed it, and the manifest
    /// is still the one from before that.
    async fn begin(&self, number: usize, manifest: Manifest) -> anyhow::Result<bool> {
        let one = &self.tenants[number];
        let name = manifest.name().clone();
        let fingerprint = {
            let manifest = manifest.clone();
            let looked = tokio::task::spawn_blocking(move || desired::fingerprint_of(&manifest));
            looked.await.context("a look at a component ended early")?
        };
        let store = self.store.clone();
        let hosted = Hosted::new(&one.tenant, &manifest, store, &self.directory).await?;
        if hosted.is_removed(&fingerprint) {
            one.note_removed(name.as_str(), fingerprint);
            self.directory.drop_plugin(one.tenant.name(), name.as_str());
            hosted.end().await;
            return Ok(false);
        }
        self.store.journal.know(&hosted);
        one.plugins().insert(name.to_string(), Arc::clone(&hosted));
        self.directory.put(&one.tenant, &manifest);
        // Large, and waited for by many at once.
        let begun = Box::pin(hosted.begin(manifest, &fingerprint)).await;
        self.set_state(number, &name, begun.as_ref().err());
        begun.map(|()| true)
    }

    fn set_state(&self, number: usize, name: &PluginName, error: Option<&anyhow::Error>) {
        let state = match error {
            None => PluginState::Serving,
            Some(error) => PluginState::Failed(format!("{error:#}")),
        };
        let tenant = self.tenants[number].tenant.name();
        self.directory.set(tenant, name.as_str(), &state);
    }

    async fn forget(&self, number: usize, hosted: &Arc<Hosted>, by: &str) {
        let one = &self.tenants[number];
        {
            let mut plugins = one.plugins();
            let known = plugins.get(hosted.name());
            if !known.is_some_and(|known| Arc::ptr_eq(known, hosted)) {
                // Somebody else has it in hand already.
                return;
            }
            plugins.remove(hosted.name());
        }
        hosted.leave_for_good().await;
        hosted.end().await;
        self.directory.drop_plugin(one.tenant.name(), hosted.name());
        self.store.journal.removed(hosted, by);
    }
}

impl HostTenant {
    fn plugins(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hosted>>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn note_removed(&self, name: &str, fingerprint: String) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.insert(name.to_owned(), fingerprint);
    }

    fn forget_removed(&self, is_gone: impl Fn(&str) -> bool) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.retain(|name, _| !is_gone(name));
    }

    /// A command has taken it away, and its manifest is the same.
    fn is_removed(&self, name: &str, fingerprint: &str) -> bool {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.get(name).is_some_and(|known| known == fingerprint)
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
