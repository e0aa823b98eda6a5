//! Transcripts: lines of input (`> …`) and, below each, what the machine answered.
//! `UPDATE_EXPECT=1 cargo test` writes the answers again; review the difference.
//!
//! Inputs: `deploy [again|another-kind|canary SECONDS|shadow SECONDS]` · `rollback rN` · `tripped gN` · `promote` ·
//! `abort` · `cancel` · `verdict gN prolong|promote|abort` · `window SECONDS` (first) · `done STEP gN [rN]` · `failed STEP gN REASON` · `drained gN` ·
//! `stop SECONDS` · `at SECONDS` (time passes; the timeout is handled when it is due).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::*;

#[test]
fn transcripts_are_answered_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/lifecycle");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of transcripts")
        .map(|entry| entry.expect("listed").path())
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a transcript");
        let answered = Transcript::run(&text);
        expect_test::expect_file![&file].assert_eq(&answered);
    }
}

/// Whatever is reported, in whatever order: what serves was warmed up, and a switch
/// never comes from a deployment that was given up.
#[test]
fn random_histories_keep_the_invariants() {
    for seed in 0..500_u64 {
        let mut random = seed;
        let mut draw = move |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut machine = machine(100);
        let mut now = Instant::ORIGIN;
        let mut performing: Option<(Generation, Step)> = None;
        // What was warmed up and not dropped since, and what has all or some of the calls.
        let mut alive = BTreeSet::new();
        let mut serving: Option<Generation> = None;
        let mut on_trial: Option<Generation> = None;
        // What does nothing outside, and what gets copies.
        let mut sealed = BTreeSet::new();
        let mut shadow: Option<Generation> = None;
        for _ in 0..200 {
            match draw(14) {
                0..=2 => {
                    let kind = match draw(2) {
                        0 => TrialKind::Canary,
                        _ => TrialKind::Shadow,
                    };
                    let trial = (draw(3) == 0).then_some((kind, Duration::from_secs(20)));
                    let wanted = Wanted {
                        though_refused: draw(4) == 0,
                        anew: draw(4) == 0,
                        is_of_another_kind: draw(8) == 0,
                        trial,
                    };
                    let generation = machine.deploy(wanted, now);
                    sealed.extend(
                        trial
                            .filter(|(kind, _)| *kind == TrialKind::Shadow)
                            .map(|_| generation),
                    );
                }
                3..=7 => {
                    if let Some((generation, step)) = performing.take() {
                        let result = if draw(5) == 0 {
                            StepResult::Failed {
                                reason: "no".to_owned(),
                            }
                        } else {
                            alive.extend((step == Step::WarmUp).then_some(generation));
                            let number = u8::try_from(draw(4)).expect("small");
                            StepResult::Done {
                                revision: (step == Step::Fetch)
                                    .then(|| RevisionId::numbered(number)),
                            }
                        };
                        machine.handle_step(generation, step, result, now);
                    }
                }
                8 => {
                    now = now + Duration::from_secs(draw(60));
                    machine.handle_timeout(now);
                }
                9 => {
                    let number = u8::try_from(draw(4)).expect("small");
                    machine.rollback(RevisionId::numbered(number), now);
                }
                10 => {
                    let some = if draw(2) == 0 { serving } else { on_trial };
                    let Some(some) = some else { continue };
                    machine.handle_tripped(some, "no".to_owned(), now);
                }
                11 => {
                    match draw(3) {
                        0 => machine.promote(now),
                        1 => machine.abort_canary("no".to_owned(), now),
                        _ => machine.cancel(now),
                    };
                }
                _ => {
                    if let Some(generation) = machine.status().draining.first() {
                        machine.handle_drained(*generation);
                    }
                }
            }
            let mut judged = None;
            while let Some(action) = machine.poll_action() {
                match action {
                    Action::Perform { generation, step } => {
                        let before = performing.replace((generation, step));
                        assert_eq!(before, None, "one step at a time");
                    }
                    Action::Revive { generation, from } => {
                        assert!(alive.contains(&from), "{from} is gone, seed {seed}");
                        assert!(!sealed.contains(&from), "a shadow revived, seed {seed}");
                        alive.insert(generation);
                    }
                    Action::Switch { to } => {
                        assert!(alive.contains(&to), "{to} serves cold, seed {seed}");
                        assert!(!sealed.contains(&to), "a shadow serves, seed {seed}");
                        assert!(serving < Some(to), "{to} came late, seed {seed}");
                        serving = Some(to);
                    }
                    Action::StartCanary { generation } => {
                        assert!(alive.contains(&generation), "cold canary, seed {seed}");
                        assert!(!sealed.contains(&generation), "a shadow has calls");
                        assert_eq!(on_trial.replace(generation), None, "one canary");
                    }
                    Action::EndCanary { generation } => {
                        assert_eq!(on_trial.take(), Some(generation));
                    }
                    Action::StartShadow { generation } => {
                        assert!(alive.contains(&generation), "cold shadow, seed {seed}");
                        assert!(sealed.contains(&generation), "copies with effects");
                        assert_eq!(shadow.replace(generation), None, "one shadow");
                    }
                    Action::EndShadow { generation } => {
                        assert_eq!(shadow.take(), Some(generation));
                    }
                    Action::Drop { generation } => {
                        alive.remove(&generation);
                        let has_calls = shadow == Some(generation)
                            || serving == Some(generation)
                            || on_trial == Some(generation)
                            || machine.draining.contains_key(&generation);
                        assert!(!has_calls, "{generation} dropped in a call, seed {seed}");
                    }
                    Action::Judge { generation } => judged = Some(generation),
                    Action::Close | Action::Drain { .. } | Action::Kill { .. } => {}
                }
            }
            if let Some(judged) = judged {
                machine.handle_verdict(judged, Verdict::Prolong, now);
            }
            let status = machine.status();
            assert_eq!(status.active.map(|(generation, _)| generation), serving);
            assert_eq!(status.canary.map(|(generation, _)| generation), on_trial);
            assert_eq!(status.shadow.map(|(generation, _)| generation), shadow);
            assert!(on_trial.is_none() || shadow.is_none(), "one trial");
            assert!(status.warm.len() <= WARM_MAX);
            let draining = machine.draining.values();
            assert!(draining.filter(|deadline| deadline.is_some()).count() <= DRAINING_MAX);
        }
        machine.stop(now);
        while !machine.is_stopped() {
            if let Some((generation, step)) = performing.take() {
                machine.handle_step(generation, step, StepResult::Done { revision: None }, now);
            }
            for generation in machine.status().draining {
                machine.handle_drained(generation);
            }
            while let Some(action) = machine.poll_action() {
                if let Action::Drop { generation } = action {
                    alive.remove(&generation);
                }
            }
        }
        assert!(alive.is_empty(), "{alive:?} left behind, seed {seed}");
    }
}

fn machine(window: u64) -> Lifecycle {
    let config = LifecycleConfig {
        drain_timeout: Duration::from_secs(30),
        rollback_window: Duration::from_secs(window),
    };
    Lifecycle::new("hello".into(), config)
}

struct Transcript {
    machine: Lifecycle,
    now: Instant,
    answered: String,
}

impl Transcript {
    fn run(text: &str) -> String {
        let mut transcript = Self {
            machine: machine(0),
            now: Instant::ORIGIN,
            answered: String::new(),
        };
        for line in text.lines() {
            if let Some(input) = line.strip_prefix("> ") {
                transcript.line(&format!("> {input}"));
                transcript.input(input);
                transcript.drain_outputs();
            } else if line.starts_with('#') || line.is_empty() {
                transcript.line(line);
            }
        }
        transcript.answered
    }

    fn input(&mut self, input: &str) {
        let words: Vec<&str> = input.split_whitespace().collect();
        match words[..] {
            ["window", seconds] => {
                self.machine = machine(seconds.parse().expect("seconds"));
            }
            ["deploy"] => {
                self.machine.deploy(Wanted::default(), self.now);
            }
            ["deploy", "again"] => {
                let though_refused = true;
                let wanted = Wanted {
                    though_refused,
                    ..Wanted::default()
                };
                self.machine.deploy(wanted, self.now);
            }
            ["deploy", "another-kind"] => {
                let is_of_another_kind = true;
                let wanted = Wanted {
                    is_of_another_kind,
                    ..Wanted::default()
                };
                self.machine.deploy(wanted, self.now);
            }
            ["deploy", kind @ ("canary" | "shadow"), seconds] => {
                let kind = match kind {
                    "canary" => TrialKind::Canary,
                    _ => TrialKind::Shadow,
                };
                let length = Duration::from_secs(seconds.parse().expect("seconds"));
                let wanted = Wanted {
                    trial: Some((kind, length)),
                    ..Wanted::default()
                };
                self.machine.deploy(wanted, self.now);
            }
            ["rollback", revision] => {
                let to = RevisionId::numbered(revision[1..].parse().expect("rN"));
                if self.machine.rollback(to, self.now).is_none() {
                    self.line("  not warm");
                }
            }
            ["tripped", generation] => {
                let generation = parse_generation(generation);
                let done = self
                    .machine
                    .handle_tripped(generation, "it fails".to_owned(), self.now);
                if !done {
                    self.line("  nothing to go back to");
                }
            }
            ["promote"] => self.told(|machine, now| machine.promote(now)),
            ["abort"] => {
                self.told(|machine, now| machine.abort_canary("by hand".to_owned(), now));
            }
            ["cancel"] => self.told(Lifecycle::cancel),
            ["verdict", generation, verdict] => {
                let verdict = match verdict {
                    "promote" => Verdict::Promote,
                    "prolong" => Verdict::Prolong,
                    _ => Verdict::Abort {
                        reason: "it is worse".to_owned(),
                    },
                };
                let generation = parse_generation(generation);
                self.machine.handle_verdict(generation, verdict, self.now);
            }
            ["done", step, generation] => {
                self.step(generation, step, StepResult::Done { revision: None });
            }
            ["done", step, generation, revision] => {
                let number = revision[1..].parse().expect("rN");
                let revision = Some(RevisionId::numbered(number));
                self.step(generation, step, StepResult::Done { revision });
            }
            ["failed", step, generation, reason] => {
                let reason = reason.to_owned();
                self.step(generation, step, StepResult::Failed { reason });
            }
            ["drained", generation] => self.machine.handle_drained(parse_generation(generation)),
            ["stop", seconds] => self.machine.stop(parse_instant(seconds)),
            ["at", seconds] => {
                self.now = parse_instant(seconds);
                if self
                    .machine
                    .poll_timeout()
                    .is_some_and(|due| due <= self.now)
                {
                    self.machine.handle_timeout(self.now);
                }
            }
            _ => panic!("no such input: {input}"),
        }
    }

    fn told(&mut self, ask: impl FnOnce(&mut Lifecycle, Instant) -> bool) {
        if !ask(&mut self.machine, self.now) {
            self.line("  nothing to do it to");
        }
    }

    fn step(&mut self, generation: &str, step: &str, result: StepResult) {
        let steps = [
            Step::Fetch,
            Step::Verify,
            Step::Check,
            Step::Compile,
            Step::WarmUp,
        ];
        let step = steps
            .into_iter()
            .find(|one| one.to_string() == step)
            .expect("a step");
        self.machine
            .handle_step(parse_generation(generation), step, result, self.now);
    }

    fn drain_outputs(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.line(&match action {
                Action::Perform { generation, step } => format!("  perform {step} of {generation}"),
                Action::Switch { to } => format!("  switch to {to}"),
                Action::Close => "  close".to_owned(),
                Action::Drain { generation } => format!("  drain {generation}"),
                Action::Kill { generation } => format!("  kill {generation}"),
                Action::Drop { generation } => format!("  drop {generation}"),
                Action::Revive { generation, from } => format!("  revive {generation} from {from}"),
                Action::StartCanary { generation } => format!("  canary {generation}"),
                Action::EndCanary { generation } => format!("  no canary {generation}"),
                Action::StartShadow { generation } => format!("  shadow {generation}"),
                Action::EndShadow { generation } => format!("  no shadow {generation}"),
                Action::Judge { generation } => format!("  judge {generation}"),
            });
        }
        while let Some(event) = self.machine.poll_event() {
            // Steps are seen as actions.
            let told = match event.kind {
                EventKind::StepStarted { .. } => None,
                EventKind::StepDone {
                    generation,
                    step,
                    took,
                } => Some(format!("{step} of {generation} took {took:?}")),
                EventKind::DeployFailed {
                    generation,
                    step,
                    reason,
                } => Some(format!("{generation} failed in {step}: {reason}")),
                EventKind::Superseded { generation, by } => {
                    Some(format!("{generation} superseded by {by}"))
                }
                EventKind::Activated {
                    generation, before, ..
                } => Some(match before {
                    Some(before) => format!("{generation} active after {before}"),
                    None => format!("{generation} active"),
                }),
                EventKind::Cancelled { generation } => Some(format!("{generation} cancelled")),
                EventKind::Unchanged {
                    generation,
                    serving,
                    ..
                } => Some(format!("{generation} is what {serving} is")),
                EventKind::CanaryStarted { generation, .. } => {
                    Some(format!("{generation} on trial"))
                }
                EventKind::CanaryAborted {
                    generation, reason, ..
                } => Some(format!("{generation} aborted: {reason}")),
                EventKind::ShadowStarted { generation, .. } => {
                    Some(format!("{generation} gets copies"))
                }
                EventKind::ShadowEnded {
                    generation, reason, ..
                } => Some(format!("{generation} gets no more copies: {reason}")),
                EventKind::RolledBack { reason, .. } => Some(format!("taken back: {reason}")),
                EventKind::KeptWarm { generation } => Some(format!("{generation} warm")),
                EventKind::Draining { generation } => Some(format!("{generation} draining")),
                EventKind::DrainDeadline { generation } => {
                    Some(format!("{generation} over its deadline"))
                }
                EventKind::Gone { generation } => Some(format!("{generation} gone")),
                other => panic!("not of the machine: {other:?}"),
            };
            if let Some(told) = told {
                self.line(&format!("  event: {told}"));
            }
        }
        if let Some(due) = self.machine.poll_timeout() {
            let seconds = due.since_origin().as_secs();
            self.line(&format!("  timeout at {seconds}"));
        }
        if self.machine.is_stopped() {
            self.line("  stopped");
        }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.answered, "{line}").expect("memory");
    }
}

fn parse_generation(text: &str) -> Generation {
    Generation(
        text.strip_prefix('g')
            .and_then(|number| number.parse().ok())
            .expect("gN"),
    )
}

fn parse_instant(seconds: &str) -> Instant {
    Instant::ORIGIN + Duration::from_secs(seconds.parse().expect("seconds"))
}
