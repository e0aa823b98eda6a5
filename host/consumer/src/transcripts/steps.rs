//! What is told of on request: each pull, call and stored offset, before and after.

use super::*;
use crate::pull_task::{PullTaskResult, PullerRequest, QueuePull};

fn telling() -> Harness {
    let mut t = Harness::new(|config| config.tells_steps = true);
    t.topic("T1", &[("broker-a", 1)]);
    t
}

#[test]
fn pulls_calls_and_stored_offsets_are_told_of_before_and_after() {
    let mut t = telling();
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.wait(seconds(5));
    t.settle();
    t.comment("the next pull carries an offset, and its answer stores it");
    t.answer_found("PullMessage T1", &messages(3..4));
    t.result(2, success());
    t.answer_found("PullMessage T1", &messages(4..5));
    t.result(3, success());
    t.comment("the last commit, of a queue that is given back");
    t.does("stop", |client, now| client.stop(now));
    t.settle();
    check("steps", &t);
}

#[test]
fn runs_of_pull_tasks_are_told_of_before_and_after() {
    let mut t = telling();
    let interval = GroupConfig::PULL_TASK_INTERVAL;
    pull_with(&mut t, group("T1").pull_task_interval(interval));
    let pull = QueuePull {
        sub_expression: "*".to_owned(),
        offset: QueueOffset(0),
        max_messages: 8,
    };
    t.ask(1, PullerRequest::Pull(pull));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.run_result(1, PullTaskResult::NextRun { after: None });
    t.wait(Duration::from_millis(200));
    check("steps_pull_task", &t);
}
