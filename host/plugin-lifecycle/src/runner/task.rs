//! `Runner`: the task of one plugin. It owns the [`Lifecycle`], performs what that asks
//! for, and puts what serves into the slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use wasm::ComponentListener;

use super::guard::{self, Trouble};
use super::load::{self, Loaded, Loading, Material};
use super::switches::Switches;
use super::{Change, Deploy, DeployError, DeployOutcome, Deployed, OnFetched, RunnerConfig};
use crate::event::{EventKind, Generation, Step};
use crate::lifecycle::{Action, Lifecycle, Status, StepResult, TrialKind, Verdict, Wanted};
use crate::manifest::Manifest;
use crate::revision::{Digest, RevisionId};
use crate::shadow::ports::Doing;
use crate::shadow::{Shadow, ShadowPlan};
use crate::slot::{CallRecord, CanaryPlan, PluginSlot, Serving, Trial};

/// How long guests that are no longer needed may take to shut down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) enum Command {
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
pub(super) struct Deployment {
    pub(super) manifest: Arc<Manifest>,
    pub(super) on_fetched: Option<OnFetched>,
    pub(super) by: Arc<str>,
    pub(super) canary: Option<CanaryPlan>,
    /// It was loaded, or is to be, with ports that do nothing.
    pub(super) shadow: Option<ShadowPlan>,
    pub(super) material: Material,
    pub(super) component: Option<Digest>,
    /// Which deployment loaded what it runs: its own, unless that was warm.
    pub(super) loaded_by: Generation,
    /// What its calls are written down in.
    pub(super) record: Arc<CallRecord>,
    pub(super) serving: Option<(Arc<Serving>, Arc<ComponentListener>)>,
    /// Held until it serves.
    pub(super) load_permit: Option<OwnedSemaphorePermit>,
}

/// The end of something that was waited for beside the steps.
pub(super) enum Ending {
    Drained(Generation),
    /// The revision after this one had its first call, or none for long enough.
    Switched(Generation),
    Closed,
}

pub(super) struct Runner {
    pub(super) name: Arc<str>,
    pub(super) lifecycle: Lifecycle,
    pub(super) config: RunnerConfig,
    pub(super) slot: Arc<PluginSlot>,
    pub(super) origin: tokio::time::Instant,
    pub(super) deployments: BTreeMap<Generation, Deployment>,
    pub(super) replies: BTreeMap<Generation, oneshot::Sender<Result<Deployed, DeployError>>>,
    /// At most one: the machine asks for one step at a time.
    pub(super) steps: JoinSet<Result<Loaded, String>>,
    pub(super) performing: Option<(Generation, Step)>,
    pub(super) endings: JoinSet<Ending>,
    /// Those whose old revision still has calls.
    pub(super) switches: Switches,
    pub(super) trouble: mpsc::Sender<Trouble>,
    pub(super) evidence: mpsc::Sender<()>,
    pub(super) status: watch::Sender<Status>,
}

impl Runner {
    pub(super) async fn run(
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
            trial: match (deploy.shadow, deploy.canary) {
                (Some(plan), _) => Some((TrialKind::Shadow, plan.length)),
                (None, Some(plan)) => Some((TrialKind::Canary, plan.length)),
                (None, None) => None,
            },
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
                shadow: deploy.shadow,
                material: Material::default(),
                component: None,
                loaded_by: generation,
                record: Arc::default(),
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
                let properties = super::properties::of(&deployment.manifest, &deployment.material);
                let serving = Serving::new(generation, port)
                    .with_properties(properties)
                    .with_record(Arc::clone(&deployment.record))
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
                    doing: match deployment.shadow {
                        Some(_) => Doing::Sealed,
                        None => Doing::Watched,
                    },
                    wasm_observer: guard::watch(
                        observer,
                        generation,
                        Arc::clone(&deployment.record),
                        self.trouble.clone(),
                    ),
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
                if let (Some(serving), Some(stable)) =
                    (self.serving(generation), self.slot.serving())
                {
                    let trial = Trial::new(serving, stable, plan, self.evidence.clone());
                    self.slot.try_out(Some(Arc::new(trial)));
                }
            }
            Action::EndCanary { .. } => {
                self.slot.try_out(None);
            }
            Action::StartShadow { generation } => {
                let deployment = self.deployments.get(&generation);
                let plan = deployment.and_then(|one| one.shadow).unwrap_or_default();
                if let Some(serving) = self.serving(generation) {
                    self.slot.shadow(Some(Arc::new(Shadow::new(serving, plan))));
                }
            }
            Action::EndShadow { .. } => self.slot.shadow(None),
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

    pub(super) fn serving(&self, generation: Generation) -> Option<Arc<Serving>> {
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
                let status = self.lifecycle.status();
                let mut trials = status.canary.iter().chain(&status.shadow);
                let outcome = match trials.any(|(trial, _)| trial == serving) {
                    true => DeployOutcome::OnTrial,
                    false => DeployOutcome::Unchanged,
                };
                (generation, done(*serving, *revision, outcome))
            }
            EventKind::CanaryStarted {
                generation,
                revision,
            }
            | EventKind::ShadowStarted {
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
