//! Transcripts: lines of input (`> …`) and, below each, what the machine answered.
//! `UPDATE_EXPECT=1 cargo test` writes the answers again; review the difference.
//!
//! Inputs: `deploy` · `done STEP gN [rN]` · `failed STEP gN REASON` · `drained gN` ·
//! `stop SECONDS` · `at SECONDS` (time passes; the timeout is handled when it is due).

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
        let mut machine = Lifecycle::new("p".into(), Duration::from_secs(30));
        let mut now = Instant::ORIGIN;
        let mut performing: Option<(Generation, Step)> = None;
        let mut warmed = Vec::new();
        let mut switched: Option<Generation> = None;
        for _ in 0..200 {
            match draw(10) {
                0..=2 => {
                    machine.deploy(now);
                }
                3..=7 => {
                    if let Some((generation, step)) = performing.take() {
                        let result = if draw(5) == 0 {
                            StepResult::Failed {
                                reason: "no".to_owned(),
                            }
                        } else {
                            warmed.extend((step == Step::WarmUp).then_some(generation));
                            StepResult::Done {
                                revision: (step == Step::Fetch).then(|| RevisionId::numbered(1)),
                            }
                        };
                        machine.handle_step(generation, step, result, now);
                    }
                }
                8 => {
                    now = now + Duration::from_secs(draw(60));
                    machine.handle_timeout(now);
                }
                _ => {
                    if let Some(generation) = machine.status().draining.first() {
                        machine.handle_drained(*generation);
                    }
                }
            }
            while let Some(action) = machine.poll_action() {
                match action {
                    Action::Perform { generation, step } => {
                        assert_eq!(
                            performing.replace((generation, step)),
                            None,
                            "one step at a time"
                        );
                    }
                    Action::Switch { to } => {
                        assert!(warmed.contains(&to), "{to} serves cold, seed {seed}");
                        assert!(
                            switched < Some(to),
                            "{to} came after a newer one, seed {seed}"
                        );
                        switched = Some(to);
                    }
                    _ => {}
                }
            }
            assert_eq!(
                machine.status().active.map(|(generation, _)| generation),
                switched
            );
            let draining = machine
                .draining
                .values()
                .filter(|deadline| deadline.is_some());
            assert!(draining.count() <= DRAINING_MAX);
        }
    }
}

struct Transcript {
    machine: Lifecycle,
    now: Instant,
    answered: String,
}

impl Transcript {
    fn run(text: &str) -> String {
        let mut transcript = Self {
            machine: Lifecycle::new("hello".into(), Duration::from_secs(30)),
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
            ["deploy"] => {
                self.machine.deploy(self.now);
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

    fn step(&mut self, generation: &str, step: &str, result: StepResult) {
        let steps = [Step::Fetch, Step::Check, Step::Compile, Step::WarmUp];
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
