//! `Plugin`: one plugin of a running host. Its task owns the [`Lifecycle`], performs
//! what that asks for, and keeps the slot that the consumer calls.
//!
//! Reading and compiling happen off the runtime's workers; of many plugins only so many
//! are loaded at once. Whatever fails is the deployment's failure, told to who asked and
//! as an event, and never the host's.

mod guard;
mod load;
mod properties;
mod switches;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use consumer::listener::MessageListener;
use consumer::publish::MessageProducer;
use consumer::pull_task::PullTaskCallback;
use protocol::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use wasm::ComponentListener;

use crate::artifact::Artifact;
use crate::compile_cache::CompileCache;
use crate::event::{Event, EventKind, Generation, Observer, Step};
use crate::lifecycle::{Action, Lifecycle, LifecycleConfig, Status, StepResult, Verdict, Wanted};
use crate::manifest::Manifest;
use crate::manifest::name::PluginName;
use crate::reach::Reach;
use crate::revision::{Digest, RevisionId};
use crate::signature::SignaturePolicy;
use crate::slot::{CanaryPlan, PluginSlot, Serving, Trial, TrialCounts};
use crate::source::Fetcher;
use guard::Trouble;
use load::{Loaded, Loading, Material};
use switches::Switches;

/// Plugins of one host that are loaded at once: each may hold a component and its
/// compiled code in memory.
pub const LOADS_MAX: usize = 8;
/// Requests to one plugin's task that wait.
const COMMANDS_MAX: usize = 16;
/// How long guests that are no longer needed may take to shut down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// It is on trial.
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

enum Command {
    Deploy {
        deploy: Deploy,
        reply: oneshot::Sender<Result<Deployed, DeployError>>,
    },
    Rollback {
        to: RevisionId,
        by: Arc<str>,
        reply: oneshot::Sender<Option<Generation>>,
    },
    Change {
        change: Change,
        by: Arc<str>,
        reply: oneshot::Sender<bool>,
    },
    Refuse {
        revision: RevisionId,
        reason: String,
        reply: oneshot::Sender<()>,
    },
    Stop {
        deadline: tokio::time::Instant,
    },
}

/// What a deployment has so far.
struct Deployment {
    manifest: Arc<Manifest>,
    on_fetched: Option<OnFetched>,
    by: Arc<str>,
    canary: Option<CanaryPlan>,
    material: Material,
    component: Option<Digest>,
    /// Which deployment loaded what it runs: its own, unless that was warm.
    loaded_by: Generation,
    serving: Option<(Arc<Serving>, Arc<ComponentListener>)>,
    /// Held until it serves.
    load_permit: Option<OwnedSemaphorePermit>,
}

/// The end of something that was waited for beside the steps.
enum Ending {
    Drained(Generation),
    /// The revision after this one had its first call, or none for long enough.
    Switched(Generation),
    Closed,
}

struct Runner {
    name: Arc<str>,
    lifecycle: Lifecycle,
    config: RunnerConfig,
    slot: Arc<PluginSlot>,
    origin: tokio::time::Instant,
    deployments: BTreeMap<Generation, Deployment>,
    replies: BTreeMap<Generation, oneshot::Sender<Result<Deployed, DeployError>>>,
    /// At most one: the machine asks for one step at a time.
    steps: JoinSet<Result<Loaded, String>>,
    performing: Option<(Generation, Step)>,
    endings: JoinSet<Ending>,
    /// Those whose old revision still has calls.
    switches: Switches,
    trouble: mpsc::Sender<Trouble>,
    evidence: mpsc::Sender<()>,
    status: watch::Sender<Status>,
}

impl Runner {
    async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut troubles: mpsc::Receiver<Trouble>,
        mut evidence: mpsc::Receiver<()>,
    ) {
        while !self.lifecycle.is_stopped() {
            let timeout = self.lifecycle.poll_timeout();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    // Nobody is left who could ask for anything.
                    None => self.stop(self.now()),
                },
                Some(result) = self.steps.join_next() => self.step_ended(result),
                Some(ending) = self.endings.join_next() => {
                    match ending {
                        Ok(Ending::Drained(generation)) => {
                            self.switch_drained(generation);
                            self.lifecycle.handle_drained(generation);
                        }
                        Ok(Ending::Switched(generation)) => self.report_switch(generation),
                        Ok(Ending::Closed) | Err(_) => {}
                    }
                }
                Some((generation, reason)) = troubles.recv() => self.trouble(generation, reason),
                Some(()) = evidence.recv() => self.judge(),
                () = sleep_until(self.origin, timeout) => self.lifecycle.handle_timeout(self.now()),
            }
            self.drain_outputs();
        }
        self.report_switches();
        let closing = async { while self.endings.join_next().await.is_some() {} };
        // A guest that does not shut down in time is dropped with its instance.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        // Whoever asked may have gone.
        match command {
            Command::Deploy { deploy, reply } => self.deploy(deploy, reply),
            Command::Rollback { to, by, reply } => {
                let generation = self.lifecycle.rollback(to, now);
                self.drain_actions(&by);
                let _ = reply.send(generation);
            }
            Command::Change { change, by, reply } => {
                let is_done = match change {
                    Change::Promote => self.lifecycle.promote(now),
                    Change::Abort => self.lifecycle.abort_canary(format!("by {by}"), now),
                    Change::Cancel => self.lifecycle.cancel(now),
                };
                let _ = reply.send(is_done);
            }
            Command::Refuse {
                revision,
                reason,
                reply,
            } => {
                self.lifecycle.refuse(revision, reason);
                let _ = reply.send(());
            }
            Command::Stop { deadline } => {
                let deadline = deadline.saturating_duration_since(self.origin);
                self.stop(Instant::after_origin(deadline));
            }
        }
    }

    /// Nobody waits for a step whose outcome nobody wants.
    fn stop(&mut self, deadline: Instant) {
        self.lifecycle.stop(deadline);
        self.steps.abort_all();
    }

    fn deploy(&mut self, deploy: Deploy, reply: oneshot::Sender<Result<Deployed, DeployError>>) {
        let now = self.now();
        let wanted = Wanted {
            though_refused: deploy.though_refused,
            anew: deploy.anew,
            is_of_another_kind: deploy.is_of_another_kind,
            canary: deploy.canary.map(|plan| plan.length),
        };
        let generation = self.lifecycle.deploy(wanted, now);
        self.replies.insert(generation, reply);
        self.deployments.insert(
            generation,
            Deployment {
                manifest: deploy.manifest,
                on_fetched: deploy.on_fetched,
                by: deploy.by,
                canary: deploy.canary,
                material: Material::default(),
                component: None,
                loaded_by: generation,
                serving: None,
                load_permit: None,
            },
        );
    }

    /// Calls of this deployment, or of what was made of it, keep failing.
    fn trouble(&mut self, loaded_by: Generation, reason: String) {
        let now = self.now();
        let mut newest = self.deployments.iter().rev();
        let found = newest.find(|(_, one)| one.loaded_by == loaded_by && one.serving.is_some());
        if let Some((generation, _)) = found {
            let generation = *generation;
            if self.lifecycle.handle_tripped(generation, reason, now) {
                self.drain_actions("automatic rollback");
            }
        }
    }

    /// The canary has shown enough, one way or the other.
    fn judge(&mut self) {
        let Some(((generation, _), trial)) = self.lifecycle.status().canary.zip(self.slot.trial())
        else {
            return;
        };
        if let verdict @ Verdict::Abort { .. } = trial.verdict() {
            let now = self.now();
            self.lifecycle.handle_verdict(generation, verdict, now);
        }
    }

    fn step_ended(&mut self, result: Result<Result<Loaded, String>, tokio::task::JoinError>) {
        let Some((generation, step)) = self.performing.take() else {
            return;
        };
        let loaded = result.unwrap_or_else(|panic| Err(format!("{step} ended early: {panic}")));
        let result = match loaded {
            Ok(loaded) => StepResult::Done {
                revision: self.keep(generation, loaded),
            },
            Err(reason) => StepResult::Failed { reason },
        };
        let now = self.now();
        self.lifecycle.handle_step(generation, step, result, now);
    }

    fn keep(&mut self, generation: Generation, loaded: Loaded) -> Option<RevisionId> {
        let deployment = self.deployments.get_mut(&generation)?;
        match loaded {
            Loaded::Fetched {
                artifact,
                revision,
                permit,
            } => {
                deployment.component = Some(artifact.digest);
                deployment.material.artifact = Some(artifact);
                deployment.material.revision = Some(revision);
                deployment.load_permit = Some(permit);
                return Some(revision);
            }
            Loaded::Checked {
                component,
                listener,
            } => {
                deployment.material.component = Some(component);
                deployment.material.listener = Some(listener);
            }
            Loaded::Verified => {}
            Loaded::Compiled(compiled) => deployment.material.compiled = Some(compiled),
            Loaded::WarmedUp(listener, breaker) => {
                let listener = Arc::new(listener);
                let port = Arc::<ComponentListener>::clone(&listener);
                let properties = self::properties::of(&deployment.manifest, &deployment.material);
                let serving = Serving::new(generation, port)
                    .with_properties(properties)
                    .with_breaker(breaker);
                let serving = Arc::new(serving);
                deployment.serving = Some((serving, listener));
                // Only what runs is kept.
                deployment.material = Material::default();
                deployment.load_permit = None;
            }
        }
        None
    }

    fn drain_outputs(&mut self) {
        self.drain_actions("nobody");
        // Before the answers: whoever gets one sees its outcome in the status.
        let status = self.lifecycle.status();
        self.cut_fetch(&status);
        self.status.send_if_modified(|told| {
            let is_new = *told != status;
            *told = status;
            is_new
        });
        while let Some(event) = self.lifecycle.poll_event() {
            self.answer(&event.kind);
            (self.config.observer)(&event);
        }
        // What was dropped without an event of its own: the plugin stops.
        let deployments = &self.deployments;
        let given_up = self
            .replies
            .extract_if(.., |generation, _| !deployments.contains_key(generation));
        for (_, reply) in given_up {
            let _ = reply.send(Err(DeployError::Stopped));
        }
    }

    /// Nobody waits for a server whose bytes are no longer wanted.
    fn cut_fetch(&mut self, status: &Status) {
        if let Some((generation, Step::Fetch)) = self.performing
            && status.next != Some((generation, Step::Fetch))
        {
            self.steps.abort_all();
        }
    }

    /// `by`: whom a deployment is of that nobody deployed, because it was warm.
    fn drain_actions(&mut self, by: &str) {
        while let Some(action) = self.lifecycle.poll_action() {
            self.perform(&action, by);
        }
    }

    fn perform(&mut self, action: &Action, by: &str) {
        match *action {
            Action::Perform { generation, step } => {
                self.performing = Some((generation, step));
                let Some(deployment) = self.deployments.get(&generation) else {
                    debug_assert!(false, "{generation} is unknown");
                    return;
                };
                let config = self.config.clone();
                let observer = Arc::clone(&config.wasm_observer);
                let trouble = self.trouble.clone();
                let loading = Loading {
                    trouble: Box::new(move |reason| {
                        // One that waits stands for all.
                        let _ = trouble.try_send((generation, reason));
                    }),
                    manifest: Arc::clone(&deployment.manifest),
                    on_fetched: deployment.on_fetched.clone(),
                    wasm_observer: guard::watch(observer, generation, self.trouble.clone()),
                };
                let material = deployment.material.clone();
                self.steps
                    .spawn(async move { load::perform(step, loading, material, &config).await });
            }
            Action::Switch { to } => self.switch(to),
            Action::Revive { generation, from } => self.revive(generation, from, by),
            Action::StartCanary { generation } => {
                let deployment = self.deployments.get(&generation);
                let plan = deployment.and_then(|one| one.canary).unwrap_or_default();
                if let Some(serving) = self.serving(generation) {
                    let trial = Trial::new(serving, plan, self.evidence.clone());
                    self.slot.try_out(Some(Arc::new(trial)));
                }
            }
            Action::EndCanary { .. } => {
                self.slot.try_out(None);
            }
            Action::Judge { generation } => {
                let verdict = self
                    .slot
                    .trial()
                    .map_or(Verdict::Prolong, |trial| trial.verdict());
                let now = self.now();
                self.lifecycle.handle_verdict(generation, verdict, now);
            }
            Action::Close => {
                self.slot.switch(None);
            }
            Action::Drain { generation } => {
                if let Some(serving) = self.serving(generation) {
                    serving.drain();
                    self.endings.spawn(async move {
                        serving.drained().await;
                        Ending::Drained(generation)
                    });
                }
            }
            Action::Kill { generation } => {
                if let Some(serving) = self.serving(generation) {
                    serving.kill();
                }
            }
            Action::Drop { generation } => {
                let dropped = self.deployments.remove(&generation);
                if let Some((_, listener)) = dropped.and_then(|dropped| dropped.serving)
                    && !self.has_instances_of(&listener)
                {
                    self.endings.spawn(async move {
                        listener.close().await;
                        Ending::Closed
                    });
                }
            }
        }
    }

    /// Another deployment runs in the same instances.
    fn has_instances_of(&self, listener: &ComponentListener) -> bool {
        let mut others = self
            .deployments
            .values()
            .filter_map(|one| one.serving.as_ref());
        others.any(|(_, other)| other.shares_instances_with(listener))
    }

    fn serving(&self, generation: Generation) -> Option<Arc<Serving>> {
        let (serving, _) = self.deployments.get(&generation)?.serving.as_ref()?;
        Some(Arc::clone(serving))
    }

    /// Tells who asked for a deployment what became of it.
    fn answer(&mut self, event: &EventKind) {
        let done = |generation, revision, outcome| {
            Ok(Deployed {
                generation,
                revision,
                outcome,
            })
        };
        let (generation, outcome) = match event {
            EventKind::Activated {
                generation,
                revision,
                ..
            } => (
                generation,
                done(*generation, *revision, DeployOutcome::Serves),
            ),
            EventKind::Unchanged {
                generation,
                serving,
                revision,
            } => {
                let trial = self.lifecycle.status().canary;
                let outcome = match trial.is_some_and(|(canary, _)| canary == *serving) {
                    true => DeployOutcome::OnTrial,
                    false => DeployOutcome::Unchanged,
                };
                (generation, done(*serving, *revision, outcome))
            }
            EventKind::CanaryStarted {
                generation,
                revision,
            } => (
                generation,
                done(*generation, *revision, DeployOutcome::OnTrial),
            ),
            EventKind::DeployFailed {
                generation,
                step,
                reason,
            } => {
                let (step, reason) = (*step, reason.clone());
                (generation, Err(DeployError::Failed { step, reason }))
            }
            EventKind::Superseded { generation, .. } => (generation, Err(DeployError::Superseded)),
            EventKind::Cancelled { generation } => (generation, Err(DeployError::Cancelled)),
            _ => return,
        };
        if let Some(reply) = self.replies.remove(generation) {
            // Whoever asked may have gone.
            let _ = reply.send(outcome);
        }
    }

    fn now(&self) -> Instant {
        Instant::after_origin(self.origin.elapsed())
    }
}

async fn sleep_until(origin: tokio::time::Instant, at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(origin + at.since_origin()).await,
        None => std::future::pending().await,
    }
}

/// Tells an event that is of no single plugin's lifecycle.
pub(crate) fn tell(observer: &Observer, plugin: &Arc<str>, kind: EventKind) {
    observer(&Event {
        plugin: Arc::clone(plugin),
        kind,
    });
}
