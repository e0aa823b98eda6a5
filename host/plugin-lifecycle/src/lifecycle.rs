//! `Lifecycle`: the way of one plugin's revisions, as a pure machine.
//!
//! fetch → check → compile → warm up → active → draining → gone. Deployments are
//! serialised and the newest wins; whatever fails before the switch leaves what serves
//! untouched; no call waits for any of it. The owner performs what [`Lifecycle::poll_action`]
//! asks for, one step at a time, and reports back; a report of a deployment that is no
//! longer wanted changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;

use crate::event::{Event, EventKind, Generation, Step};
use crate::revision::RevisionId;

/// Revisions that may drain at once; beyond it the oldest is killed.
pub const DRAINING_MAX: usize = 4;

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
    /// What ends, oldest first.
    pub draining: Vec<Generation>,
    /// Why the last deployment failed, until one succeeds.
    pub last_failure: Option<(Generation, Step, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct Lifecycle {
    plugin: Arc<str>,
    drain_timeout: Duration,
    next_generation: u64,
    active: Option<(Generation, RevisionId)>,
    next: Option<Next>,
    /// Asked for while a step of an older one runs. One place: the newest wins.
    waiting: Option<Generation>,
    /// By age. `None`: killed, its end is awaited.
    draining: BTreeMap<Generation, Option<Instant>>,
    last_failure: Option<(Generation, Step, String)>,
    is_stopping: bool,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

/// The deployment a step is performed for.
#[derive(Debug)]
struct Next {
    generation: Generation,
    step: Step,
    since: Instant,
    revision: Option<RevisionId>,
    /// A newer one came, or the plugin stops: its step still runs, and then it is dropped.
    is_unwanted: bool,
}

impl Lifecycle {
    /// A plugin that serves nothing yet. `drain_timeout`: for a revision that was
    /// replaced.
    pub fn new(plugin: Arc<str>, drain_timeout: Duration) -> Self {
        Self {
            plugin,
            drain_timeout,
            next_generation: 1,
            active: None,
            next: None,
            waiting: None,
            draining: BTreeMap::new(),
            last_failure: None,
            is_stopping: false,
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
        if next.is_unwanted {
            self.actions.push_back(Action::Drop { generation });
            self.start_waiting(now);
            return;
        }
        match result {
            StepResult::Failed { reason } => {
                self.actions.push_back(Action::Drop { generation });
                self.event(EventKind::DeployFailed {
                    generation,
                    step,
                    reason: reason.clone(),
                });
                self.last_failure = Some((generation, step, reason));
            }
            StepResult::Done { revision } => {
                self.event(EventKind::StepDone {
                    generation,
                    step,
                    took: now.saturating_since(next.since),
                });
                self.advance(next, revision, now);
            }
        }
    }

    /// The last call of [`Action::Drain`] ended.
    pub fn handle_drained(&mut self, generation: Generation) {
        if self.draining.remove(&generation).is_some() {
            self.actions.push_back(Action::Drop { generation });
            self.event(EventKind::Gone { generation });
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
            self.kill(generation);
        }
    }

    /// Asks for a new revision to serve. What is on its way is given up for it.
    ///
    /// After [`Lifecycle::stop`] it is superseded by nothing and simply not done.
    pub fn deploy(&mut self, now: Instant) -> Generation {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        if self.is_stopping {
            self.actions.push_back(Action::Drop { generation });
            return generation;
        }
        if let Some(older) = self.waiting.replace(generation) {
            self.actions.push_back(Action::Drop { generation: older });
            self.event(EventKind::Superseded {
                generation: older,
                by: generation,
            });
        }
        self.give_up_next(Some(generation));
        if self.next.is_none() {
            self.start_waiting(now);
        }
        generation
    }

    /// Ends everything: no more calls, those under way may end until the deadline.
    pub fn stop(&mut self, deadline: Instant) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        if let Some(generation) = self.waiting.take() {
            self.actions.push_back(Action::Drop { generation });
        }
        self.give_up_next(None);
        self.actions.push_back(Action::Close);
        if let Some((generation, _)) = self.active.take() {
            self.drain(generation, deadline);
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
        self.draining.values().flatten().min().copied()
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
            draining: self.draining.keys().copied().collect(),
            last_failure: self.last_failure.clone(),
        }
    }

    /// Stopped, and nothing of it is left.
    pub fn is_stopped(&self) -> bool {
        self.is_stopping && self.active.is_none() && self.next.is_none() && self.draining.is_empty()
    }

    fn advance(&mut self, mut next: Next, revision: Option<RevisionId>, now: Instant) {
        next.revision = next.revision.or(revision);
        let step = match next.step {
            Step::Fetch => Step::Check,
            Step::Check => Step::Compile,
            Step::Compile => Step::WarmUp,
            Step::WarmUp => {
                self.switch(&next, now);
                return;
            }
        };
        self.perform(Next {
            step,
            since: now,
            ..next
        });
    }

    fn switch(&mut self, next: &Next, now: Instant) {
        let generation = next.generation;
        let Some(revision) = next.revision else {
            debug_assert!(false, "fetch told no revision");
            return;
        };
        let before = self.active.replace((generation, revision));
        self.last_failure = None;
        self.actions.push_back(Action::Switch { to: generation });
        self.event(EventKind::Activated {
            generation,
            revision,
            before: before.map(|(generation, _)| generation),
        });
        if let Some((before, _)) = before {
            self.drain(before, now + self.drain_timeout);
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

    fn give_up_next(&mut self, by: Option<Generation>) {
        let Some(next) = self.next.as_mut().filter(|next| !next.is_unwanted) else {
            return;
        };
        next.is_unwanted = true;
        let generation = next.generation;
        if let Some(by) = by {
            self.event(EventKind::Superseded { generation, by });
        }
    }

    fn start_waiting(&mut self, now: Instant) {
        if let Some(generation) = self.waiting.take() {
            self.perform(Next {
                generation,
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
