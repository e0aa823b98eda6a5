//! `Plugin`: one plugin of a running host. Its task owns the [`Lifecycle`], performs
//! what that asks for, and keeps the slot that the consumer calls.
//!
//! Reading and compiling happen off the runtime's workers; of many plugins only so many
//! are loaded at once. Whatever fails is the deployment's failure, told to who asked and
//! as an event, and never the host's.

mod load;
mod properties;

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

use crate::compile_cache::CompileCache;
use crate::event::{Event, EventKind, Generation, Observer, Step};
use crate::lifecycle::{Action, Lifecycle, Status, StepResult};
use crate::manifest::Manifest;
use crate::manifest::name::PluginName;
use crate::revision::RevisionId;
use crate::slot::{PluginSlot, Serving};
use load::{Loaded, Material};

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
    /// For a revision that was replaced.
    pub drain_timeout: Duration,
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
    /// The plugin stops.
    #[error("the plugin is stopping")]
    Stopped,
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
        let lifecycle = Lifecycle::new(name.to_arc(), config.drain_timeout);
        let (tell_status, status) = watch::channel(lifecycle.status());
        let runner = Runner {
            lifecycle,
            config,
            slot: Arc::clone(&slot),
            origin: tokio::time::Instant::now(),
            deployments: BTreeMap::new(),
            replies: BTreeMap::new(),
            steps: JoinSet::new(),
            performing: None,
            endings: JoinSet::new(),
            status: tell_status,
        };
        Self {
            name,
            slot,
            commands,
            status,
            task: AbortOnDrop(tokio::spawn(runner.run(received))),
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

    /// Makes this revision the one that serves, and waits until it does. Dropping the
    /// future does not take the deployment back.
    ///
    /// # Errors
    /// Why it does not serve; what served before does.
    pub async fn deploy(&self, manifest: Arc<Manifest>) -> Result<Generation, DeployError> {
        let (reply, outcome) = oneshot::channel();
        self.commands
            .send(Command::Deploy { manifest, reply })
            .await
            .map_err(|_| DeployError::Stopped)?;
        outcome.await.map_err(|_| DeployError::Stopped)?
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
        manifest: Arc<Manifest>,
        reply: oneshot::Sender<Result<Generation, DeployError>>,
    },
    Stop {
        deadline: tokio::time::Instant,
    },
}

/// What a deployment has so far.
struct Deployment {
    manifest: Arc<Manifest>,
    material: Material,
    serving: Option<(Arc<Serving>, Arc<ComponentListener>)>,
    /// Held until it serves.
    load_permit: Option<OwnedSemaphorePermit>,
}

/// The end of something that was waited for beside the steps.
enum Ending {
    Drained(Generation),
    Closed,
}

struct Runner {
    lifecycle: Lifecycle,
    config: RunnerConfig,
    slot: Arc<PluginSlot>,
    origin: tokio::time::Instant,
    deployments: BTreeMap<Generation, Deployment>,
    replies: BTreeMap<Generation, oneshot::Sender<Result<Generation, DeployError>>>,
    /// At most one: the machine asks for one step at a time.
    steps: JoinSet<Result<Loaded, String>>,
    performing: Option<(Generation, Step)>,
    endings: JoinSet<Ending>,
    status: watch::Sender<Status>,
}

impl Runner {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while !self.lifecycle.is_stopped() {
            let timeout = self.lifecycle.poll_timeout();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Deploy { manifest, reply }) => self.deploy(manifest, reply),
                    Some(Command::Stop { deadline }) => {
                        let deadline = deadline.saturating_duration_since(self.origin);
                        self.lifecycle.stop(Instant::after_origin(deadline));
                    }
                    // Nobody is left who could ask for anything.
                    None => self.lifecycle.stop(self.now()),
                },
                Some(result) = self.steps.join_next() => self.step_ended(result),
                Some(ending) = self.endings.join_next() => {
                    if let Ok(Ending::Drained(generation)) = ending {
                        self.lifecycle.handle_drained(generation);
                    }
                }
                () = sleep_until(self.origin, timeout) => self.lifecycle.handle_timeout(self.now()),
            }
            self.drain_outputs();
        }
        let closing = async { while self.endings.join_next().await.is_some() {} };
        // A guest that does not shut down in time is dropped with its instance.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }

    fn deploy(
        &mut self,
        manifest: Arc<Manifest>,
        reply: oneshot::Sender<Result<Generation, DeployError>>,
    ) {
        let now = self.now();
        let generation = self.lifecycle.deploy(now);
        self.replies.insert(generation, reply);
        self.deployments.insert(
            generation,
            Deployment {
                manifest,
                material: Material::default(),
                serving: None,
                load_permit: None,
            },
        );
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
            Loaded::Compiled(compiled) => deployment.material.compiled = Some(compiled),
            Loaded::WarmedUp(listener) => {
                let listener = Arc::new(listener);
                let port = Arc::<ComponentListener>::clone(&listener);
                let properties = self::properties::of(&deployment.manifest, &deployment.material);
                let serving = Serving::new(generation, port).with_properties(properties);
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
        while let Some(action) = self.lifecycle.poll_action() {
            self.perform(&action);
        }
        // Before the answers: whoever gets one sees its outcome in the status.
        let status = self.lifecycle.status();
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

    fn perform(&mut self, action: &Action) {
        match *action {
            Action::Perform { generation, step } => {
                self.performing = Some((generation, step));
                let Some(deployment) = self.deployments.get(&generation) else {
                    debug_assert!(false, "{generation} is unknown");
                    return;
                };
                let manifest = Arc::clone(&deployment.manifest);
                let material = deployment.material.clone();
                let config = self.config.clone();
                self.steps
                    .spawn(async move { load::perform(step, manifest, material, &config).await });
            }
            Action::Switch { to } => {
                let serving = self.serving(to);
                debug_assert!(serving.is_some(), "{to} was not warmed up");
                self.slot.switch(serving);
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
                if let Some((_, listener)) = dropped.and_then(|dropped| dropped.serving) {
                    self.endings.spawn(async move {
                        listener.close().await;
                        Ending::Closed
                    });
                }
            }
        }
    }

    fn serving(&self, generation: Generation) -> Option<Arc<Serving>> {
        let (serving, _) = self.deployments.get(&generation)?.serving.as_ref()?;
        Some(Arc::clone(serving))
    }

    /// Tells who asked for a deployment what became of it.
    fn answer(&mut self, event: &EventKind) {
        let (generation, outcome) = match event {
            EventKind::Activated { generation, .. } => (generation, Ok(*generation)),
            EventKind::DeployFailed {
                generation,
                step,
                reason,
            } => {
                let (step, reason) = (*step, reason.clone());
                (generation, Err(DeployError::Failed { step, reason }))
            }
            EventKind::Superseded { generation, .. } => (generation, Err(DeployError::Superseded)),
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
