//! A revision on trial: it has a share of the calls beside what serves, for a time, and
//! then either all of them or none; or it has copies of them, for a time, and then none.

use std::time::Duration;

use protocol::Instant;

use super::{Action, Lifecycle, PlantedBug};
use crate::event::{EventKind, Generation};
use crate::revision::RevisionId;

/// How a revision is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialKind {
    /// With a share of the calls.
    Canary,
    /// With copies of them.
    Shadow,
}

/// What its owner makes of a canary when its time is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It proved itself.
    Promote,
    /// Too little was seen: on trial for as long again.
    Prolong,
    /// It did not.
    Abort {
        /// For people.
        reason: String,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Canary {
    pub(super) generation: Generation,
    pub(super) kind: TrialKind,
    revision: RevisionId,
    length: Duration,
    /// When it is judged; `None` while its verdict is awaited.
    due: Option<Instant>,
}

impl Canary {
    pub(super) fn named(&self) -> (Generation, RevisionId) {
        (self.generation, self.revision)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Lifecycle {
    /// The answer to [`Action::Judge`]. Any time for an abort, for which nobody is asked.
    pub fn handle_verdict(&mut self, generation: Generation, verdict: Verdict, now: Instant) {
        let Some(canary) = self
            .canary
            .as_mut()
            .filter(|one| one.generation == generation && one.kind == TrialKind::Canary)
        else {
            return;
        };
        match verdict {
            Verdict::Promote => {
                self.promote(now);
            }
            Verdict::Prolong => canary.due = Some(now + canary.length),
            Verdict::Abort { reason } => {
                self.fail_canary(reason, now);
            }
        }
    }

    /// Gives the canary all calls; false when there is none.
    pub fn promote(&mut self, now: Instant) -> bool {
        let Some(canary) = self
            .canary
            .take_if(|canary| canary.kind == TrialKind::Canary)
        else {
            return false;
        };
        let generation = canary.generation;
        self.actions.push_back(Action::EndCanary { generation });
        self.switch(generation, canary.revision, now);
        true
    }

    /// Gives all calls to what serves, and copies none; false when nothing is on trial.
    pub fn abort_canary(&mut self, reason: String, now: Instant) -> bool {
        let Some(canary) = self.canary.take() else {
            return false;
        };
        let (generation, revision) = canary.named();
        match canary.kind {
            TrialKind::Canary => {
                self.actions.push_back(Action::EndCanary { generation });
                self.event(EventKind::CanaryAborted {
                    generation,
                    revision,
                    reason,
                });
            }
            TrialKind::Shadow => {
                self.actions.push_back(Action::EndShadow { generation });
                self.event(EventKind::ShadowEnded {
                    generation,
                    revision,
                    reason,
                });
            }
        }
        self.drain(generation, now + self.config.drain_timeout);
        true
    }

    /// Aborts it for what it did, and refuses it from then on.
    pub(super) fn fail_canary(&mut self, reason: String, now: Instant) -> bool {
        if let Some(canary) = &self.canary {
            let revision = canary.revision;
            self.refuse(revision, reason.clone());
        }
        self.abort_canary(reason, now)
    }

    /// What is tried in this way.
    pub(super) fn on_trial(&self, kind: TrialKind) -> Option<(Generation, RevisionId)> {
        let trial = self.canary.as_ref().filter(|trial| trial.kind == kind);
        trial.map(Canary::named)
    }

    pub(super) fn is_canary(&self, generation: Generation) -> bool {
        let canary = self.on_trial(TrialKind::Canary);
        canary.is_some_and(|(canary, _)| canary == generation)
    }

    pub(super) fn start_trial(
        &mut self,
        generation: Generation,
        revision: RevisionId,
        kind: TrialKind,
        length: Duration,
        now: Instant,
    ) {
        self.end_canary_for_newer(now);
        self.last_failure = None;
        self.canary = Some(Canary {
            generation,
            kind,
            revision,
            length,
            due: Some(now + length),
        });
        match kind {
            TrialKind::Canary => {
                self.actions.push_back(Action::StartCanary { generation });
                self.event(EventKind::CanaryStarted {
                    generation,
                    revision,
                });
            }
            TrialKind::Shadow => {
                self.actions.push_back(Action::StartShadow { generation });
                self.event(EventKind::ShadowStarted {
                    generation,
                    revision,
                });
            }
        }
    }

    /// Something newer is ready to take its place.
    pub(super) fn end_canary_for_newer(&mut self, now: Instant) {
        if !self.has(PlantedBug::TrialOutlivesSwitch) {
            self.abort_canary("a newer revision took its place".to_owned(), now);
        } else if let Some(canary) = self.canary.take() {
            self.drain(canary.generation, now + self.config.drain_timeout);
        }
    }

    pub(super) fn judge_in_time(&mut self, now: Instant) {
        if let Some(canary) = &mut self.canary
            && canary.due.is_some_and(|due| due <= now)
        {
            canary.due = None;
            let generation = canary.generation;
            match canary.kind {
                TrialKind::Canary => self.actions.push_back(Action::Judge { generation }),
                TrialKind::Shadow => {
                    self.abort_canary("its time is over".to_owned(), now);
                }
            }
        }
    }
}
