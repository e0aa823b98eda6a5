//! One plugin of one process: the machine, what it was told to do, and what has to be true of
//! that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consumer::listener::ConsumeRequestId;
use fastrand::Rng;
use plugin_lifecycle::event::Step;
use plugin_lifecycle::lifecycle::{
    Action, Lifecycle, LifecycleConfig, PlantedBug, StepResult, TrialKind, Verdict, Wanted,
};
use plugin_lifecycle::{Digest, EventKind, Generation, RevisionId};
use protocol::{Instant, MessageQueue};
use simulation::Answered;

use crate::Counts;

/// Revisions that a plugin goes to and fro between.
const REVISIONS: u8 = 5;
/// What a call that was told to end may still take.
const KILL_SLACK: Duration = Duration::from_secs(1);

/// A call of the listener.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: ConsumeRequestId,
    pub(crate) queue: MessageQueue,
    pub(crate) in_order: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Plugin {
    random: Rng,
    machine: Lifecycle,
    drain_timeout: Duration,
    /// Nobody asks for anything any more.
    is_left_alone: bool,
    next_wish: Instant,
    performing: Option<(Generation, Step, Instant)>,
    revisions: BTreeMap<Generation, RevisionId>,
    /// Asked for though it was taken back, or by hand.
    forced: BTreeSet<Generation>,
    /// Taken back by themselves, and not asked for since.
    taken_back: BTreeSet<RevisionId>,
    /// A newer one came, or somebody did not want them any more.
    given_up: BTreeSet<Generation>,
    /// Warmed up and not dropped.
    alive: BTreeSet<Generation>,
    serving: Option<Generation>,
    on_trial: Option<Generation>,
    /// What was replaced, and when.
    replaced: BTreeMap<Generation, Instant>,
    /// To be told of when their last call ends.
    draining: BTreeSet<Generation>,
    calls: BTreeMap<Generation, Vec<Call>>,
    killed: Vec<ConsumeRequestId>,
    violations: Vec<(&'static str, String)>,
    counts: Counts,
}

impl Plugin {
    /// One that was loaded at its start.
    pub(crate) fn serving(seed: u64, bug: Option<PlantedBug>, now: Instant) -> Self {
        let mut random = Rng::with_seed(seed);
        let drain_timeout = Duration::from_millis([200, 2_000, 10_000][random.usize(..3)]);
        let config = LifecycleConfig {
            drain_timeout,
            rollback_window: Duration::from_secs([0, 20, 120][random.usize(..3)]),
        };
        let mut machine = Lifecycle::new("simulated".into(), config);
        machine.deploy(Wanted::default(), now);
        let mut plugin = Self {
            random,
            machine,
            drain_timeout,
            is_left_alone: false,
            next_wish: now,
            performing: None,
            revisions: BTreeMap::new(),
            forced: BTreeSet::new(),
            taken_back: BTreeSet::new(),
            given_up: BTreeSet::new(),
            alive: BTreeSet::new(),
            serving: None,
            on_trial: None,
            replaced: BTreeMap::new(),
            draining: BTreeSet::new(),
            calls: BTreeMap::new(),
            killed: Vec::new(),
            violations: Vec::new(),
            counts: Counts::default(),
        };
        plugin.drain(now);
        while let Some((generation, step, _)) = plugin.performing.take() {
            plugin.step_ends(generation, step, true, now);
        }
        if let Some(bug) = bug {
            plugin.machine.plant(bug);
        }
        plugin
    }

    /// When something is to happen.
    pub(crate) fn due(&self) -> Option<Instant> {
        let wish = (!self.is_left_alone).then_some(self.next_wish);
        let step = self.performing.map(|(_, _, at)| at);
        let machine = self.machine.poll_timeout();
        wish.into_iter().chain(step).chain(machine).min()
    }

    /// Something that was due.
    pub(crate) fn happens(&mut self, now: Instant) {
        if let Some((generation, step, _)) = self.performing.take_if(|(_, _, at)| *at <= now) {
            let goes_well = self.random.u32(0..8) > 0;
            self.step_ends(generation, step, goes_well, now);
        }
        if self.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
            self.drain(now);
        }
        if !self.is_left_alone && self.next_wish <= now {
            self.next_wish = now + Duration::from_millis(self.random.u64(20..8_000));
            self.wish(now);
            self.drain(now);
        }
        self.look_for_old_calls(now);
    }

    /// Nobody wishes for anything from now on.
    pub(crate) fn leave_alone(&mut self) {
        self.is_left_alone = true;
    }

    pub(crate) fn unsettled(&self) -> Option<String> {
        let status = self.machine.status();
        if self.serving.is_none() {
            Some("nothing serves".to_owned())
        } else if !status.draining.is_empty() || !self.draining.is_empty() {
            Some(format!("{:?} have not ended", status.draining))
        } else {
            None
        }
    }

    pub(crate) fn begins(&mut self, call: Call, now: Instant) -> bool {
        self.look_for_old_calls(now);
        let is_tried = match call.in_order {
            // Whole queues.
            true => call.queue.queue_id.is_multiple_of(2),
            false => self.random.bool(),
        };
        let taker = self.on_trial.filter(|_| is_tried).or(self.serving);
        let Some(taker) = taker else {
            self.violated("a call finds a revision", "nothing serves".to_owned());
            return false;
        };
        if !self.alive.contains(&taker) {
            self.violated("a call finds a revision that is there", format!("{taker}"));
            return false;
        }
        if call.in_order {
            let mut others = self.calls.iter();
            let other = others.find(|(_, calls)| calls.iter().any(|one| one.queue == call.queue));
            if let Some((other, _)) = other {
                let what = format!("{other} and {taker} have {}", call.queue);
                self.violated("a queue in order has one revision", what);
            }
        }
        self.calls.entry(taker).or_default().push(call);
        true
    }

    pub(crate) fn answers(&mut self, id: ConsumeRequestId, now: Instant) -> Answered {
        let mut all = self.calls.iter();
        let found = all.find(|(_, calls)| calls.iter().any(|call| call.id == id));
        let Some((&generation, _)) = found else {
            return Answered::Lost;
        };
        self.look_for_old_calls(now);
        if let Some(calls) = self.calls.get_mut(&generation) {
            calls.retain(|call| call.id != id);
        }
        if !self.alive.contains(&generation) {
            let what = format!("{generation} is gone");
            self.violated("an answer comes from a revision that is there", what);
            return Answered::Lost;
        }
        self.ended(generation);
        self.drain(now);
        Answered::Passed
    }

    pub(crate) fn take_killed(&mut self) -> Vec<ConsumeRequestId> {
        std::mem::take(&mut self.killed)
    }

    pub(crate) fn take_violations(&mut self) -> impl Iterator<Item = (&'static str, String)> {
        std::mem::take(&mut self.violations).into_iter()
    }

    pub(crate) fn take_counts(&mut self, all: &mut Counts) {
        let counts = std::mem::take(&mut self.counts);
        all.switches += counts.switches;
        all.revived += counts.revived;
        all.canaries += counts.canaries;
        all.taken_back += counts.taken_back;
        all.killed += counts.killed;
        all.under_way += counts.under_way;
    }

    /// Somebody asks for something, or calls keep failing.
    fn wish(&mut self, now: Instant) {
        match self.random.u32(0..20) {
            0..=8 => {
                let kind = match self.random.bool() {
                    true => TrialKind::Canary,
                    false => TrialKind::Shadow,
                };
                let length = Duration::from_secs(self.random.u64(1..20));
                let is_tried = self.random.u32(0..4) == 0;
                let wanted = Wanted {
                    though_refused: self.random.u32(0..6) == 0,
                    anew: self.random.u32(0..4) == 0,
                    is_of_another_kind: false,
                    trial: is_tried.then_some((kind, length)),
                };
                let generation = self.machine.deploy(wanted, now);
                if wanted.though_refused {
                    self.forced.insert(generation);
                }
            }
            9..=11 => {
                let to = self.a_revision();
                if let Some(generation) = self.machine.rollback(to, now) {
                    self.forced.insert(generation);
                }
            }
            12..=15 => {
                let some = if self.random.bool() {
                    self.serving
                } else {
                    self.on_trial
                };
                if let Some(some) = some {
                    self.machine.handle_tripped(some, "it fails".into(), now);
                }
            }
            16 | 17 => {
                self.machine.promote(now);
            }
            18 => {
                self.machine.abort_canary("by hand".into(), now);
            }
            _ => {
                self.machine.cancel(now);
            }
        }
    }

    fn step_ends(&mut self, generation: Generation, step: Step, goes_well: bool, now: Instant) {
        let result = match goes_well {
            false => StepResult::Failed {
                reason: "no".into(),
            },
            true => StepResult::Done {
                revision: (step == Step::Fetch).then(|| {
                    let revision = self.a_revision();
                    self.revisions.insert(generation, revision);
                    if self.forced.contains(&generation) {
                        self.taken_back.remove(&revision);
                    }
                    revision
                }),
            },
        };
        if goes_well && step == Step::WarmUp {
            self.alive.insert(generation);
        }
        self.machine.handle_step(generation, step, result, now);
        self.drain(now);
    }

    fn a_revision(&mut self) -> RevisionId {
        RevisionId::of_digest(Digest::from([self.random.u8(0..REVISIONS); 32]))
    }

    /// Does what the machine asks for.
    fn drain(&mut self, now: Instant) {
        while let Some(action) = self.machine.poll_action() {
            let is_refused = |plugin: &Self, generation: Generation| {
                let revision = plugin.revisions.get(&generation);
                !plugin.forced.contains(&generation)
                    && revision.is_some_and(|one| plugin.taken_back.contains(one))
            };
            match action {
                Action::Perform { generation, step } => {
                    let at = now + Duration::from_millis(self.random.u64(1..1_500));
                    let before = self.performing.replace((generation, step, at));
                    if let Some((before, step, _)) = before {
                        let what = format!("{step} of {before} beside one of {generation}");
                        self.violated("one step at a time", what);
                    }
                }
                Action::Revive { generation, from } => {
                    if !self.alive.contains(&from) {
                        let what = format!("{generation} of {from}, which is gone");
                        self.violated("what is revived is there", what);
                    }
                    let revision = self.revisions.get(&from).copied();
                    self.revisions.extend(revision.map(|one| (generation, one)));
                    self.alive.insert(generation);
                    self.counts.revived += 1;
                }
                Action::Switch { to } => {
                    if self.serving >= Some(to) {
                        self.violated("the newest wins", format!("{to} after {:?}", self.serving));
                    }
                    if self.given_up.contains(&to) {
                        self.violated("what was given up does not serve", format!("{to}"));
                    }
                    if is_refused(self, to) {
                        let what = format!("{to} was taken back");
                        self.violated("what was taken back stays away", what);
                    }
                    if !self.alive.contains(&to) {
                        let what = format!("{to} serves and was not warmed up");
                        self.violated("what serves was warmed up", what);
                    }
                    if let Some(before) = self.serving.replace(to) {
                        self.replaced.insert(before, now);
                        let has_calls = self.calls.get(&before).is_some_and(|c| !c.is_empty());
                        self.counts.under_way += u64::from(has_calls);
                    }
                    self.counts.switches += 1;
                }
                Action::StartCanary { generation } => {
                    if is_refused(self, generation) {
                        let what = format!("{generation} was taken back");
                        self.violated("what was taken back stays away", what);
                    }
                    self.on_trial = Some(generation);
                    self.counts.canaries += 1;
                }
                Action::EndCanary { generation } => {
                    self.on_trial = None;
                    // Unless it is promoted, which comes next.
                    self.replaced.insert(generation, now);
                }
                Action::Judge { generation } => {
                    let verdict = match self.random.u32(0..3) {
                        0 => Verdict::Promote,
                        1 => Verdict::Prolong,
                        _ => Verdict::Abort {
                            reason: "it is worse".into(),
                        },
                    };
                    self.machine.handle_verdict(generation, verdict, now);
                }
                Action::Drain { generation } => {
                    self.draining.insert(generation);
                    self.ended(generation);
                }
                Action::Kill { generation } => {
                    let calls = self.calls.remove(&generation).unwrap_or_default();
                    self.counts.killed += calls.len() as u64;
                    self.killed.extend(calls.iter().map(|call| call.id));
                    self.ended(generation);
                }
                Action::Drop { generation } => {
                    self.alive.remove(&generation);
                    let calls = self.calls.get(&generation);
                    if calls.is_some_and(|calls| !calls.is_empty()) {
                        let what = format!("{generation}");
                        self.violated("nothing is dropped in a call", what);
                    }
                }
                Action::StartShadow { .. } | Action::EndShadow { .. } | Action::Close => {}
            }
        }
        if let Some(serving) = self.serving {
            self.replaced.remove(&serving);
        }
        while let Some(event) = self.machine.poll_event() {
            match event.kind {
                EventKind::RolledBack { revision, .. } => {
                    self.taken_back.insert(revision);
                    self.counts.taken_back += 1;
                }
                EventKind::Superseded { generation, .. } | EventKind::Cancelled { generation } => {
                    self.given_up.insert(generation);
                }
                _ => {}
            }
        }
    }

    /// Its last call may have ended.
    fn ended(&mut self, generation: Generation) {
        let has_calls = self.calls.get(&generation).is_some_and(|c| !c.is_empty());
        if !has_calls && self.draining.remove(&generation) {
            self.machine.handle_drained(generation);
        }
    }

    /// What was replaced has its deadline.
    fn look_for_old_calls(&mut self, now: Instant) {
        let late = self.calls.iter().find(|(generation, calls)| {
            let replaced = self.replaced.get(generation);
            !calls.is_empty()
                && replaced.is_some_and(|at| *at + self.drain_timeout + KILL_SLACK < now)
        });
        if let Some((&generation, _)) = late {
            let what = format!("{generation} has calls after its deadline");
            self.violated("what was replaced ends", what);
        }
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        self.violations.push((rule, what));
    }
}
