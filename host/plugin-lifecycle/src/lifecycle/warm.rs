//! What was replaced and is kept, so that it can serve again without a step: asked for by
//! hand, or because its successor makes trouble.

use std::time::Duration;

use protocol::Instant;

use super::{Action, Lifecycle, PlantedBug, REFUSED_MAX};
use crate::event::{EventKind, Generation};
use crate::revision::RevisionId;

/// Revisions of one plugin kept warm: each holds its compiled code.
pub const WARM_MAX: usize = 2;

impl Lifecycle {
    /// A revision's breaker tripped, or its guard failed. Within the rollback window the
    /// revision before it serves again, and it is refused from then on; a canary is
    /// aborted. Later, or when nothing is kept, nothing happens; true when something did.
    pub fn handle_tripped(&mut self, generation: Generation, reason: String, now: Instant) -> bool {
        if self.is_canary(generation) {
            return self.fail_canary(reason, now);
        }
        let Some((active, revision)) = self.active else {
            return false;
        };
        let Some((to, until)) = self.before else {
            return false;
        };
        if active != generation || until <= now || self.is_refused(to) {
            return false;
        }
        let Some(from) = self.warm_of(to) else {
            return false;
        };
        if !self.has(PlantedBug::ForgetRefusals) {
            self.refuse(revision, reason.clone());
        }
        self.event(EventKind::RolledBack {
            revision,
            to,
            reason,
        });
        self.serve_again(from, to, now);
        // Whatever comes of it: the one that made trouble is no way back.
        self.before = None;
        true
    }

    /// Makes a revision that is still warm serve again; what is on its way is given up.
    /// `None`: it is not warm, and has to be deployed.
    pub fn rollback(&mut self, to: RevisionId, now: Instant) -> Option<Generation> {
        if self.is_stopping {
            return None;
        }
        let from = self.warm_of(to)?;
        Some(self.serve_again(from, to, now))
    }

    /// From now on, without [`super::Wanted::though_refused`].
    pub fn refuse(&mut self, revision: RevisionId, reason: String) {
        self.refused.retain(|(one, _)| *one != revision);
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((revision, reason));
    }

    pub(super) fn is_refused(&self, revision: RevisionId) -> bool {
        self.refused.iter().any(|(one, _)| *one == revision)
    }

    fn serve_again(&mut self, from: Generation, to: RevisionId, now: Instant) -> Generation {
        let generation = self.number();
        self.supersede(Some(generation));
        self.steps.clear();
        self.revive(generation, from);
        self.end_canary_for_newer(now);
        self.switch(generation, to, now);
        generation
    }

    /// The newest, if there are several.
    pub(super) fn warm_of(&self, revision: RevisionId) -> Option<Generation> {
        let mut warm = self.warm.iter().rev();
        warm.find(|(_, (one, _))| *one == revision)
            .map(|(generation, _)| *generation)
    }

    /// The new one takes over what the old one left; whatever drains of that, drains on.
    pub(super) fn revive(&mut self, generation: Generation, from: Generation) {
        self.actions.push_back(Action::Revive { generation, from });
        self.warm.remove(&from);
        if !self.draining.contains_key(&from) {
            self.forget(from);
        }
    }

    pub(super) fn keep_warm(&mut self, generation: Generation, of: RevisionId, until: Instant) {
        // One of a kind: an older one of the same revision is of no more use.
        if let Some(older) = self.warm_of(of) {
            self.cool(older);
        }
        self.warm.insert(generation, (of, until));
        if self.warm.len() > WARM_MAX
            && let Some(oldest) = self.warm.keys().next().copied()
        {
            self.cool(oldest);
        }
    }

    /// The window of some is over.
    pub(super) fn cool_down(&mut self, now: Instant) {
        let over = self.warm.iter().filter(|(_, (_, until))| *until <= now);
        let over: Vec<Generation> = over.map(|(generation, _)| *generation).collect();
        for generation in over {
            self.cool(generation);
        }
    }

    fn cool(&mut self, generation: Generation) {
        if self.has(PlantedBug::ReviveWhatIsGone) {
            if let Some((_, until)) = self.warm.get_mut(&generation) {
                *until = Instant::ORIGIN + Duration::MAX / 2;
            }
        } else {
            self.warm.remove(&generation);
        }
        if !self.draining.contains_key(&generation) {
            self.forget(generation);
        }
    }
}
