//! `Plugin`: one plugin of a running host. Its task (`task.rs`) owns the [`Lifecycle`],
//! performs what that asks for, and keeps the slot that the consumer calls.
//!
//! Reading and compiling happen off the runtime's workers; of many plugins only so many
//! are loaded at once. Whatever fails is the deployment's failure, told to who asked and
//! as an event, and never the host's.

mod guard;
mod load;
mod properties;
mod switches;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use consumer::listener::MessageListener;
use consumer::publish::MessageProducer;
use consumer::pull_task::PullTaskCallback;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::artifact::Artifact;
use crate::compile_cache::CompileCache;
use crate::event::{Event, EventKind, Generation, Observer, Step};
use crate::lifecycle::{Lifecycle, LifecycleConfig, Status};
use crate::manifest::Manifest;
use crate::manifest::name::PluginName;
use crate::reach::Reach;
use crate::revision::RevisionId;
use crate::shadow::ShadowPlan;
use crate::shadow::report::ShadowReport;
use crate::signature::SignaturePolicy;
use crate::slot::{CanaryPlan, PluginSlot, TrialCounts};
use crate::source::Fetcher;
use switches::Switches;
use task::{Command, Runner};

/// Plugins of one host that are loaded at once: each may hold a component and its
/// compiled code in memory.
pub const LOADS_MAX: usize = 8;
/// Requests to one plugin's task that wait.
const COMMANDS_MAX: usize = 16;

/// What the plugins of a host share, but for the tenant and its producer.
#[derive(Clone)]
pub struct RunnerConfig {
    /// Compiles and runs.
    pub engine: wasm::Engine,
    /// Keeps what was compiled.
    pub cache: Arc<CompileCache>,
    /// Whose plugins they are.
    pub tenant: Arc<wasm::Tenant>,
    /// Sends for the guests.
    pub producer: Arc<dyn MessageProducer>,
    /// What they reach the outside by.
    pub reach: Reach,
    /// Brings components that are not on this machine.
    pub fetcher: Arc<Fetcher>,
    /// Who must have signed them.
    pub signatures: Arc<SignaturePolicy>,
    /// For a revision that was replaced.
    pub drain_timeout: Duration,
    /// How long it stays warm, and how long trouble takes its successor back; zero:
    /// neither.
    pub rollback_window: Duration,
    /// Hears what happens to plugins.
    pub observer: Observer,
    /// Hears what happens in calls.
    pub wasm_observer: wasm::Observer,
    /// [`LOADS_MAX`] permits, one for the whole host.
    pub loads: Arc<Semaphore>,
}

impl fmt::Debug for RunnerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerConfig")
            .field("drain_timeout", &self.drain_timeout)
            .finish_non_exhaustive()
    }
}

/// Why a deployment does not serve.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeployError {
    /// A step failed; what served before serves on.
    #[error("{reason}")]
    Failed {
        /// Which.
        step: Step,
        /// All problems, one a line.
        reason: String,
    },
    /// A newer deployment came.
    #[error("a newer deployment took its place")]
    Superseded,
    /// Somebody gave it up.
    #[error("it was cancelled")]
    Cancelled,
    /// The plugin stops.
    #[error("the plugin is stopping")]
    Stopped,
}

/// Told what was fetched, before anybody looks inside: whoever keeps components keeps this
/// one. Called where it may block.
pub type OnFetched = Arc<dyn Fn(&Artifact, RevisionId) + Send + Sync>;

/// What is to be deployed, how, and by whom.
#[derive(Clone)]
pub struct Deploy {
    /// Component, settings, limits, grants.
    pub manifest: Arc<Manifest>,
    /// For people: a user, or the file that changed.
    pub by: Arc<str>,
    /// Though it was taken back before.
    pub though_refused: bool,
    /// Loaded anew though the same revision serves.
    pub anew: bool,
    /// The group is changed for it: trouble does not bring the revision before back.
    pub is_of_another_kind: bool,
    /// Tried first beside what serves.
    pub canary: Option<CanaryPlan>,
    /// Tried first with copies of what serves gets.
    pub shadow: Option<ShadowPlan>,
    /// Hears of the bytes.
    pub on_fetched: Option<OnFetched>,
}

impl fmt::Debug for Deploy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deploy")
            .field("plugin", self.manifest.name())
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

impl Deploy {
    /// At once, unless the same revision serves or was taken back.
    pub fn new(manifest: Arc<Manifest>, by: &str) -> Self {
        Self {
            manifest,
            by: by.into(),
            though_refused: false,
            anew: false,
            is_of_another_kind: false,
            canary: None,
            shadow: None,
            on_fetched: None,
        }
    }
}

/// What came of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deployed {
    /// What has the calls, or a share of them.
    pub generation: Generation,
    /// Its revision.
    pub revision: RevisionId,
    /// Which of them.
    pub outcome: DeployOutcome,
}

/// How a deployment ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeployOutcome {
    /// It serves.
    Serves,
    /// It served already.
    Unchanged,
    /// It is on trial, or gets copies.
    OnTrial,
}

/// What a canary is asked to become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The canary serves.
    Promote,
    /// The canary goes.
    Abort,
    /// What is on its way is given up, a canary included.
    Cancel,
}

/// A plugin and its task. Dropping it ends the task at once; use [`Plugin::stop`].
#[derive(Debug)]
pub struct Plugin {
    name: PluginName,
    slot: Arc<PluginSlot>,
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
    task: AbortOnDrop,
}

impl Plugin {
    /// A plugin that serves nothing yet. Needs a tokio runtime.
    pub fn start(name: PluginName, config: RunnerConfig) -> Self {
        let slot = Arc::new(PluginSlot::new());
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let times = LifecycleConfig {
            drain_timeout: config.drain_timeout,
            rollback_window: config.rollback_window,
        };
        let lifecycle = Lifecycle::new(name.to_arc(), times);
        let (trouble, troubles) = mpsc::channel(guard::TROUBLES_MAX);
        let (evidence, evidences) = mpsc::channel(1);
        let (tell_status, status) = watch::channel(lifecycle.status());
        let runner = Runner {
            name: name.to_arc(),
            lifecycle,
            config,
            slot: Arc::clone(&slot),
            origin: tokio::time::Instant::now(),
            deployments: BTreeMap::new(),
            replies: BTreeMap::new(),
            steps: JoinSet::new(),
            performing: None,
            endings: JoinSet::new(),
            switches: Switches::default(),
            trouble,
            evidence,
            status: tell_status,
        };
        Self {
            name,
            slot,
            commands,
            status,
            task: AbortOnDrop(tokio::spawn(runner.run(received, troubles, evidences))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// The listener of its group, whatever revision serves.
    pub fn listener(&self) -> Arc<dyn MessageListener> {
        Arc::clone(&self.slot) as Arc<dyn MessageListener>
    }

    /// The pull task of its group, whatever revision serves.
    pub fn pull_task(&self) -> Arc<dyn PullTaskCallback> {
        Arc::clone(&self.slot) as Arc<dyn PullTaskCallback>
    }

    /// What serves, what comes, what ends.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Calls under way in the revision that serves.
    pub fn calls(&self) -> u64 {
        self.slot.calls()
    }

    /// What the canary did so far.
    pub fn trial(&self) -> Option<TrialCounts> {
        Some(self.slot.trial()?.counts())
    }

    /// What the last shadow found, and whether it still gets copies.
    pub fn shadow(&self) -> Option<(ShadowReport, bool)> {
        self.slot.shadow_report()
    }

    /// Makes this revision the one that serves, and waits until it does. Dropping the
    /// future does not take the deployment back.
    ///
    /// # Errors
    /// Why it does not serve; what served before does.
    pub async fn deploy(&self, manifest: Arc<Manifest>) -> Result<Generation, DeployError> {
        let mut deploy = Deploy::new(manifest, "deploy");
        deploy.anew = true;
        Ok(self.deploy_as(deploy).await?.generation)
    }

    /// As [`Plugin::deploy`], with more to say; a canary is waited for until it has its
    /// share.
    ///
    /// # Errors
    /// Why it does not serve; what served before does.
    pub async fn deploy_as(&self, deploy: Deploy) -> Result<Deployed, DeployError> {
        self.ask(|reply| Command::Deploy { deploy, reply }).await?
    }

    /// Makes a revision that is still warm serve again, without a step. `None`: it is not
    /// warm, and has to be deployed.
    ///
    /// # Errors
    /// The plugin stops.
    pub async fn rollback(
        &self,
        to: RevisionId,
        by: Arc<str>,
    ) -> Result<Option<Generation>, DeployError> {
        self.ask(|reply| Command::Rollback { to, by, reply }).await
    }

    /// Ends a trial, or gives up what is on its way; false when there is nothing.
    ///
    /// # Errors
    /// The plugin stops.
    pub async fn change(&self, change: Change, by: Arc<str>) -> Result<bool, DeployError> {
        self.ask(|reply| Command::Change { change, by, reply })
            .await
    }

    /// Refuses a revision from now on, as if it had been taken back.
    ///
    /// # Errors
    /// The plugin stops.
    pub async fn refuse(&self, revision: RevisionId, reason: String) -> Result<(), DeployError> {
        self.ask(|reply| Command::Refuse {
            revision,
            reason,
            reply,
        })
        .await
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, DeployError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| DeployError::Stopped)?;
        answer.await.map_err(|_| DeployError::Stopped)
    }

    /// As [`Plugin::stop`], for a plugin that others know too.
    pub async fn end(&self, deadline: tokio::time::Instant) {
        // A task that is gone has stopped.
        let _ = self.commands.send(Command::Stop { deadline }).await;
        let mut status = self.status.clone();
        while status.changed().await.is_ok() {}
    }

    /// Gives no more calls, lets those under way end until the deadline, kills the rest
    /// and waits for the end.
    pub async fn stop(self, deadline: tokio::time::Instant) {
        // A task that is gone has stopped.
        let _ = self.commands.send(Command::Stop { deadline }).await;
        let Self {
            commands, mut task, ..
        } = self;
        drop(commands);
        if let Err(error) = (&mut task.0).await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells an event that is of no single plugin's lifecycle.
pub(crate) fn tell(observer: &Observer, plugin: &Arc<str>, kind: EventKind) {
    observer(&Event {
        plugin: Arc::clone(plugin),
        kind,
    });
}
