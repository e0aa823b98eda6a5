//! `Lifecycle`: the way of one plugin's revisions, as a pure machine.
//!
//! fetch → verify → check → compile → warm up → (canary) → active → draining → warm → gone.
//! Deployments are serialised and the newest wins; whatever fails before the switch leaves
//! what serves untouched; no call waits for any of it. The owner performs what
//! [`Lifecycle::poll_action`] asks for, one step at a time, and reports back; a report of a
//! deployment that is no longer wanted changes nothing.
//!
//! What was replaced stays warm for the rollback window (`warm.rs`): until then it serves
//! again without a step, when somebody asks or when its successor trips. A revision that
//! was taken back so is refused until somebody asks for it all the same. A canary
//! (`canary.rs`) gets a share of the calls beside what serves, and ends as one of the two.
//! A shadow gets copies of them, and always ends as nothing: to serve, the same revision is
//! deployed, since what a shadow was loaded with does nothing outside.

mod canary;
mod planted;
mod warm;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use canary::{TrialKind, Verdict};
pub use planted::PlantedBug;
use protocol::Instant;

use crate::event::{Event, EventKind, Generation, Step};
use crate::revision::RevisionId;
pub use warm::WARM_MAX;

/// Revisions that may drain at once; beyond it the oldest is killed.
pub const DRAINING_MAX: usize = 4;

/// Revisions that were taken back and are refused; beyond it the oldest is forgotten.
pub const REFUSED_MAX: usize = 100;

/// What one plugin's machine is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifecycleConfig {
    /// For a revision that was replaced.
    pub drain_timeout: Duration,
    /// How long a revision that was replaced stays warm, and how long after a switch
    /// trouble takes it back; zero: neither.
    pub rollback_window: Duration,
}

/// How a deployment is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Though it was taken back before.
    pub though_refused: bool,
    /// Loaded anew though the same revision serves or is warm: what is no part of its
    /// identity has changed.
    pub anew: bool,
    /// Its group is another one's from the switch on: trouble brings nothing back.
    pub is_of_another_kind: bool,
    /// Not at once, but for so long beside what serves; `None`: at once.
    pub trial: Option<(TrialKind, Duration)>,
}

impl Wanted {
    fn is_shadow(&self) -> bool {
        matches!(self.trial, Some((TrialKind::Shadow, _)))
    }
}

/// What the owner has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Perform a step and report with [`Lifecycle::handle_step`].
    Perform {
        /// For which deployment.
        generation: Generation,
        /// Which step.
        step: Step,
    },
    /// Give the next call to this deployment. Cannot fail: all that could was done.
    Switch {
        /// The new one.
        to: Generation,
    },
    /// Make this deployment of what another one left warm; it serves as that one did.
    Revive {
        /// The new one.
        generation: Generation,
        /// Whose instances it takes over.
        from: Generation,
    },
    /// Give this deployment its share of the calls.
    StartCanary {
        /// Which deployment.
        generation: Generation,
    },
    /// Give this deployment copies of the calls.
    StartShadow {
        /// Which deployment.
        generation: Generation,
    },
    /// Its time on trial is over: answer with [`Lifecycle::handle_verdict`].
    Judge {
        /// Which deployment.
        generation: Generation,
    },
    /// Give all calls to what serves.
    EndCanary {
        /// Which deployment had a share.
        generation: Generation,
    },
    /// Copy no more calls; the copies under way may be dropped.
    EndShadow {
        /// Which deployment had them.
        generation: Generation,
    },
    /// Give no more calls at all.
    Close,
    /// Report with [`Lifecycle::handle_drained`] when its last call ended.
    Drain {
        /// Which deployment.
        generation: Generation,
    },
    /// End its calls now; they count as not finished.
    Kill {
        /// Which deployment.
        generation: Generation,
    },
    /// Forget everything that belongs to it.
    Drop {
        /// Which deployment.
        generation: Generation,
    },
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepResult {
    /// Go on.
    Done {
        /// Known from `Fetch` on, with which it must come.
        revision: Option<RevisionId>,
    },
    /// All problems, one a line.
    Failed {
        /// For people.
        reason: String,
    },
}

/// A plugin for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// What serves.
    pub active: Option<(Generation, RevisionId)>,
    /// What is on its way, and how far it is.
    pub next: Option<(Generation, Step)>,
    /// What has a share of the calls beside it.
    pub canary: Option<(Generation, RevisionId)>,
    /// What gets copies of them.
    pub shadow: Option<(Generation, RevisionId)>,
    /// What ends, oldest first.
    pub draining: Vec<Generation>,
    /// What would serve again without a step, oldest first.
    pub warm: Vec<(Generation, RevisionId)>,
    /// Steps of the newest deployment that are done, and what each took.
    pub steps: Vec<(Step, Duration)>,
    /// Why the last deployment failed, until one succeeds.
    pub last_failure: Option<(Generation, Step, String)>,
    /// What was taken back and is refused, with the reason.
    pub refused: Vec<(RevisionId, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct Lifecycle {
    plugin: Arc<str>,
    config: LifecycleConfig,
    next_generation: u64,
    active: Option<(Generation, RevisionId)>,
    /// What served before the last switch, and until when trouble brings it back.
    before: Option<(RevisionId, Instant)>,
    canary: Option<canary::Canary>,
    next: Option<Next>,
    /// Asked for while a step of an older one runs. One place: the newest wins.
    waiting: Option<(Generation, Wanted)>,
    /// By age. `None`: killed, its end is awaited.
    draining: BTreeMap<Generation, Option<Instant>>,
    /// Replaced, and kept until then; may drain still.
    warm: BTreeMap<Generation, (RevisionId, Instant)>,
    /// By the time they were taken back.
    refused: VecDeque<(RevisionId, String)>,
    steps: Vec<(Step, Duration)>,
    last_failure: Option<(Generation, Step, String)>,
    is_stopping: bool,
    #[cfg(feature = "testing")]
    planted: Option<PlantedBug>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

/// The deployment a step is performed for.
#[derive(Debug)]
struct Next {
    generation: Generation,
    wanted: Wanted,
    step: Step,
    since: Instant,
    revision: Option<RevisionId>,
    /// A newer one came, or the plugin stops: its step still runs, and then it is dropped.
    is_unwanted: bool,
}

impl Lifecycle {
    /// A plugin that serves nothing yet.
    pub fn new(plugin: Arc<str>, config: LifecycleConfig) -> Self {
        Self {
            plugin,
            config,
            next_generation: 1,
            active: None,
            before: None,
            canary: None,
            next: None,
            waiting: None,
            draining: BTreeMap::new(),
            warm: BTreeMap::new(),
            refused: VecDeque::new(),
            steps: Vec::new(),
            last_failure: None,
            is_stopping: false,
            #[cfg(feature = "testing")]
            planted: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// A step of [`Action::Perform`] ended.
    pub fn handle_step(
        &mut self,
        generation: Generation,
        step: Step,
        result: StepResult,
        now: Instant,
    ) {
        let Some(next) = self
            .next
            .take_if(|next| next.generation == generation && next.step == step)
        else {
            return;
        };
        if next.is_unwanted && !self.has(PlantedBug::ServeWhatWasGivenUp) {
            self.actions.push_back(Action::Drop { generation });
            self.start_waiting(now);
            return;
        }
        match result {
            StepResult::Failed { reason } => self.fail(generation, step, reason),
            StepResult::Done { revision } => {
                let took = now.saturating_since(next.since);
                self.steps.push((step, took));
                self.event(EventKind::StepDone {
                    generation,
                    step,
                    took,
                });
                self.advance(next, revision, now);
            }
        }
    }

    /// The last call of [`Action::Drain`] ended.
    pub fn handle_drained(&mut self, generation: Generation) {
        if self.has(PlantedBug::ForgetDrained) || self.draining.remove(&generation).is_none() {
            return;
        }
        if self.warm.contains_key(&generation) {
            self.event(EventKind::KeptWarm { generation });
        } else {
            self.forget(generation);
        }
    }

    /// Time passed [`Lifecycle::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let late: Vec<Generation> = self
            .draining
            .iter()
            .filter(|(_, deadline)| deadline.is_some_and(|deadline| deadline <= now))
            .map(|(generation, _)| *generation)
            .collect();
        for generation in late {
            if self.has(PlantedBug::NeverKill) {
                self.draining.insert(generation, None);
                continue;
            }
            self.kill(generation);
        }
        self.cool_down(now);
        self.judge_in_time(now);
    }

    /// Asks for a new revision to serve. What is on its way is given up for it.
    ///
    /// After [`Lifecycle::stop`] it is superseded by nothing and simply not done.
    pub fn deploy(&mut self, wanted: Wanted, now: Instant) -> Generation {
        let generation = self.number();
        if self.is_stopping {
            self.actions.push_back(Action::Drop { generation });
            return generation;
        }
        self.supersede(Some(generation));
        self.waiting = Some((generation, wanted));
        if self.next.is_none() || self.has(PlantedBug::TwoStepsAtOnce) {
            self.start_waiting(now);
        }
        generation
    }

    /// Gives up what is on its way and does not serve yet, a canary included; false when
    /// there is nothing.
    pub fn cancel(&mut self, now: Instant) -> bool {
        let is_coming =
            self.waiting.is_some() || self.next.as_ref().is_some_and(|n| !n.is_unwanted);
        self.supersede(None);
        let had_canary = self.abort_canary("it was cancelled".to_owned(), now);
        is_coming || had_canary
    }

    /// Ends everything: no more calls, those under way may end until the deadline.
    pub fn stop(&mut self, deadline: Instant) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        self.supersede(None);
        self.actions.push_back(Action::Close);
        if let Some(canary) = self.canary.take() {
            // Closing ends a canary's share with everything else; copies end by themselves.
            if canary.kind == TrialKind::Shadow {
                let generation = canary.generation;
                self.actions.push_back(Action::EndShadow { generation });
            }
            self.drain(canary.generation, deadline);
        }
        if let Some((generation, _)) = self.active.take() {
            self.drain(generation, deadline);
        }
        for (generation, _) in std::mem::take(&mut self.warm) {
            if !self.draining.contains_key(&generation) {
                self.forget(generation);
            }
        }
        // What drains already keeps its own deadline, if that is the earlier one.
        for own in self.draining.values_mut().flatten() {
            *own = (*own).min(deadline);
        }
    }

    /// The next thing to do; call it until there is none, after every input.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Lifecycle::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let draining = self.draining.values().flatten();
        let warm = self.warm.values().map(|(_, until)| until);
        let canary = self.canary.as_ref().and_then(canary::Canary::due);
        draining.chain(warm).copied().chain(canary).min()
    }

    /// For people.
    pub fn status(&self) -> Status {
        Status {
            active: self.active,
            next: self
                .next
                .as_ref()
                .filter(|next| !next.is_unwanted)
                .map(|next| (next.generation, next.step)),
            canary: self.on_trial(TrialKind::Canary),
            shadow: self.on_trial(TrialKind::Shadow),
            draining: self.draining.keys().copied().collect(),
            warm: self.warm.iter().map(|(one, (id, _))| (*one, *id)).collect(),
            steps: self.steps.clone(),
            refused: self.refused.iter().cloned().collect(),
            last_failure: self.last_failure.clone(),
        }
    }

    /// Stopped, and nothing of it is left.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping
            && self.active.is_none()
            && self.next.is_none()
            && self.draining.is_empty()
            && self.warm.is_empty()
    }

    fn advance(&mut self, mut next: Next, revision: Option<RevisionId>, now: Instant) {
        next.revision = next.revision.or(revision);
        let step = match next.step {
            Step::Fetch => {
                let Some(next) = self.known_already(next, now) else {
                    return;
                };
                return self.perform(Next {
                    step: Step::Verify,
                    since: now,
                    ..next
                });
            }
            Step::Verify => Step::Check,
            Step::Check => Step::Compile,
            Step::Compile if self.has(PlantedBug::SwitchBeforeWarmUp) => {
                return self.ready(&next, now);
            }
            Step::Compile => Step::WarmUp,
            Step::WarmUp => return self.ready(&next, now),
        };
        self.perform(Next {
            step,
            since: now,
            ..next
        });
    }

    /// Ends the way of a revision that is refused, serves already, or is warm.
    fn known_already(&mut self, next: Next, now: Instant) -> Option<Next> {
        let (generation, wanted) = (next.generation, next.wanted);
        let Some(revision) = next.revision else {
            debug_assert!(false, "fetch told no revision");
            return Some(next);
        };
        if wanted.though_refused {
            self.refused.retain(|(refused, _)| *refused != revision);
        } else if let Some((_, why)) = self.refused.iter().find(|(one, _)| *one == revision) {
            let reason = format!(
                "revision {revision} was taken back: {why}; deploy another one, or this one all the same with --again"
            );
            self.fail(generation, Step::Fetch, reason);
            self.start_waiting(now);
            return None;
        }
        // A shadow is no canary: what it was loaded with cannot serve.
        let same_trial = match wanted.is_shadow() {
            true => TrialKind::Shadow,
            false => TrialKind::Canary,
        };
        let serves = self.active.into_iter().chain(self.on_trial(same_trial));
        let serving = serves.into_iter().find(|(_, one)| *one == revision);
        if let Some((serving, _)) = serving.filter(|_| !wanted.anew) {
            self.actions.push_back(Action::Drop { generation });
            self.event(EventKind::Unchanged {
                generation,
                serving,
                revision,
            });
            self.last_failure = None;
            return None;
        }
        if !wanted.anew
            && !wanted.is_shadow()
            && let Some(from) = self.warm_of(revision)
        {
            self.revive(generation, from);
            self.ready(&next, now);
            return None;
        }
        Some(next)
    }

    /// All that could fail was done.
    fn ready(&mut self, next: &Next, now: Instant) {
        let Some(revision) = next.revision else {
            debug_assert!(false, "fetch told no revision");
            return;
        };
        let generation = next.generation;
        match (next.wanted.trial, self.active) {
            (Some((kind, length)), Some(_)) => {
                self.start_trial(generation, revision, kind, length, now);
            }
            (Some((TrialKind::Shadow, _)), None) => {
                let reason = "nothing serves whose shadow it could be; deploy it".to_owned();
                self.fail(generation, Step::WarmUp, reason);
            }
            (Some((TrialKind::Canary, _)) | None, _) => {
                self.end_canary_for_newer(now);
                self.switch(generation, revision, now);
                if next.wanted.is_of_another_kind {
                    self.before = None;
                }
            }
        }
    }

    fn switch(&mut self, generation: Generation, revision: RevisionId, now: Instant) {
        let before = self.active.replace((generation, revision));
        self.last_failure = None;
        self.actions.push_back(Action::Switch { to: generation });
        self.event(EventKind::Activated {
            generation,
            revision,
            before: before.map(|(generation, _)| generation),
        });
        self.before = None;
        if let Some((before, of)) = before {
            if self.has(PlantedBug::DropUnderCalls) {
                return self.forget(before);
            }
            if !self.config.rollback_window.is_zero() {
                let until = now + self.config.rollback_window;
                self.before = (of != revision).then_some((of, until));
                self.keep_warm(before, of, until);
            }
            self.drain(before, now + self.config.drain_timeout);
        }
    }

    fn fail(&mut self, generation: Generation, step: Step, reason: String) {
        self.actions.push_back(Action::Drop { generation });
        self.event(EventKind::DeployFailed {
            generation,
            step,
            reason: reason.clone(),
        });
        self.last_failure = Some((generation, step, reason));
    }

    fn number(&mut self) -> Generation {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        generation
    }

    /// What waits and what is under way gives way; `by` nobody: it is cancelled.
    fn supersede(&mut self, by: Option<Generation>) {
        if let Some((generation, _)) = self.waiting.take() {
            self.actions.push_back(Action::Drop { generation });
            self.given_up(generation, by);
        }
        let Some(next) = self.next.as_mut().filter(|next| !next.is_unwanted) else {
            return;
        };
        next.is_unwanted = true;
        let generation = next.generation;
        self.given_up(generation, by);
    }

    fn given_up(&mut self, generation: Generation, by: Option<Generation>) {
        match by {
            Some(by) => self.event(EventKind::Superseded { generation, by }),
            None if self.is_stopping => {}
            None => self.event(EventKind::Cancelled { generation }),
        }
    }

    fn drain(&mut self, generation: Generation, deadline: Instant) {
        self.draining.insert(generation, Some(deadline));
        self.actions.push_back(Action::Drain { generation });
        self.event(EventKind::Draining { generation });
        let living = self
            .draining
            .iter()
            .filter(|(_, deadline)| deadline.is_some());
        if living.clone().count() > DRAINING_MAX
            && let Some((oldest, _)) = living.min_by_key(|(generation, _)| **generation)
        {
            let oldest = *oldest;
            self.kill(oldest);
        }
    }

    fn kill(&mut self, generation: Generation) {
        self.draining.insert(generation, None);
        self.actions.push_back(Action::Kill { generation });
        self.event(EventKind::DrainDeadline { generation });
    }

    fn forget(&mut self, generation: Generation) {
        self.actions.push_back(Action::Drop { generation });
        self.event(EventKind::Gone { generation });
    }

    fn start_waiting(&mut self, now: Instant) {
        if let Some((generation, wanted)) = self.waiting.take() {
            self.steps.clear();
            self.perform(Next {
                generation,
                wanted,
                step: Step::Fetch,
                since: now,
                revision: None,
                is_unwanted: false,
            });
        }
    }

    fn perform(&mut self, next: Next) {
        let (generation, step) = (next.generation, next.step);
        self.next = Some(next);
        self.actions.push_back(Action::Perform { generation, step });
        self.event(EventKind::StepStarted { generation, step });
    }

    fn event(&mut self, kind: EventKind) {
        self.events.push_back(Event {
            plugin: Arc::clone(&self.plugin),
            kind,
        });
    }
}

#[cfg(test)]
mod tests;
