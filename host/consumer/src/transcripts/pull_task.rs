//! Groups of pull tasks: their runs, what a run may ask, where the offset stands.

use super::*;
use crate::pull_task::{PullTaskResult, PullerRequest, QueuePull};
use crate::request::{PullStatus, RequestError};
use crate::testing::{CLIENT_ID, batch, found, garbage_after, refused};

const PULL: &str = "PullMessage T1";

fn task_group() -> GroupConfigBuilder {
    group("T1").pull_task_interval(GroupConfig::PULL_TASK_INTERVAL)
}

/// A client whose group has the task of `T1@broker-a:0`; its first run is under way.
fn running(builder: GroupConfigBuilder) -> (Harness, GroupId) {
    let (mut t, group) = pulling(builder);
    let (first, _) = t.numbered_runs().next().expect("the first run");
    assert_eq!(first, 1);
    t.forget_transcript();
    (t, group)
}

fn pull(expression: &str, offset: u64, max_messages: u32) -> PullerRequest {
    PullerRequest::Pull(QueuePull {
        sub_expression: expression.to_owned(),
        offset: QueueOffset(offset),
        max_messages,
    })
}

fn set(offset: u64) -> PullerRequest {
    PullerRequest::UpdateConsumeOffset(QueueOffset(offset))
}

fn next() -> PullTaskResult {
    PullTaskResult::NextRun { after: None }
}

fn failed() -> PullTaskResult {
    PullTaskResult::Failed {
        reason: "trap".to_owned(),
    }
}

#[test]
fn a_run_asks_whatever_it_needs() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (3, 9));
    t.comment(
        "announced as one that pulls, without a retry topic; nothing is asked before a run asks",
    );
    t.subscribe(config(task_group()));
    t.settle();
    t.wait(Duration::from_millis(10));
    t.comment("nothing is committed yet, so the guest looks for a place");
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.settle();
    t.ask(1, PullerRequest::MinOffset);
    t.settle();
    t.ask(1, PullerRequest::MaxOffset);
    t.settle();
    t.ask(1, PullerRequest::SearchOffset { timestamp_ms: 5 });
    t.settle();
    t.comment("it pulls with its own expression; tags are compared here as well");
    t.ask(1, pull("TagA || TagB", 3, 5000));
    let mut answer = messages(3..6);
    answer[0] = answer[0].clone().tag("TagA");
    answer[1] = answer[1].clone().tag("Other");
    answer[2] = answer[2].clone().tag("TagB");
    t.answer_found(PULL, &answer);
    t.comment("only other tags after all; then nothing; then an offset that is not there");
    t.ask(1, pull("TagA", 6, 2));
    t.answer_found(PULL, &messages(6..8));
    t.ask(1, pull("", 8, 2));
    t.answer_pull(PULL, PullStatus::NoNewMessage, 8);
    t.ask(1, pull("*", 100, 2));
    t.answer_pull(PULL, PullStatus::OffsetIllegal, 8);
    t.comment("what it sets is known at once, and told to the broker in a while");
    t.ask(1, set(8));
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.wait(seconds(5));
    t.settle();
    t.comment("the next run comes after the interval, or when the guest says");
    t.run_result(1, next());
    t.wait(Duration::from_millis(200));
    let after = Some(seconds(3));
    t.run_result(2, PullTaskResult::NextRun { after });
    t.wait(seconds(3));
    t.comment("at once, when it has pulled something; a run that has not spins otherwise");
    let after = Some(Duration::ZERO);
    t.ask(3, pull("*", 8, 2));
    t.answer_found(PULL, &messages(8..9));
    t.run_result(3, PullTaskResult::NextRun { after });
    t.run_result(4, PullTaskResult::NextRun { after });
    t.wait(Duration::from_millis(10));
    t.run(5);
    check("pull_task", &t);
}

#[test]
fn what_cannot_be_had_is_an_error_of_the_run() {
    let (mut t, _) = running(task_group());
    t.ask(1, pull("TagA", 0, 0));
    t.ask(1, pull("||", 0, 1));
    t.ask(1, pull("*", 0, 1));
    t.answer(PULL, Err(refused(1, "store not ready")));
    t.ask(1, pull("*", 0, 1));
    t.answer(PULL, Err(RequestError::Timeout));
    t.ask(1, pull("*", 0, 1));
    t.answer_pull(PULL, PullStatus::NoNewMessage, 0);
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.answer("QueryConsumerOffset", Err(RequestError::Timeout));
    t.ask(1, PullerRequest::MaxOffset);
    t.answer("GetMaxOffset", Err(refused(17, "no topic")));
    check("pull_task_errors", &t);
}

#[test]
fn a_damaged_message_is_asked_for_again_and_then_skipped() {
    let (mut t, _) = running(task_group());
    let mut damaged = messages(0..4);
    damaged[2].wrong_crc = true;
    t.comment("what is before it is given; then it is asked for again, whole: it was the wire");
    t.ask(1, pull("*", 0, 32));
    t.answer_found(PULL, &damaged);
    t.ask(1, pull("*", 2, 32));
    t.answer_found(PULL, &messages(2..4));
    t.comment("damaged twice: skipped, and told");
    t.ask(1, pull("*", 2, 32));
    t.answer_found(PULL, &damaged[2..]);
    t.ask(1, pull("*", 2, 32));
    t.answer_found(PULL, &damaged[2..]);
    t.comment("bytes that are no message");
    for _ in 0..2 {
        t.ask(1, pull("*", 4, 32));
        t.answer(PULL, Ok(found(&garbage_after(&[]), 8)));
    }
    check("pull_task_damaged", &t);
}

#[test]
fn a_failed_run_is_followed_by_another_one() {
    let (mut t, _) = running(task_group());
    t.comment("what it did before it failed stands");
    t.ask(1, set(4));
    t.run_result(1, failed());
    let status = t.client.status(t.now());
    let activity = status.groups[0].topics[0].queues[0].reason.to_string();
    t.comment(&activity);
    t.wait(seconds(1));
    t.comment("a run that was killed, or never begun, was none");
    t.run_result(2, PullTaskResult::NotFinished);
    t.wait(Duration::from_millis(200));
    t.comment("a long interval is not shortened by a failure");
    let (mut slow, _) = running(task_group().pull_task_interval(seconds(60)));
    slow.run_result(1, failed());
    slow.wait(seconds(59));
    slow.wait(seconds(1));
    t.append(&slow);
    check("pull_task_failed", &t);
}

#[test]
fn an_offset_may_be_set_back_by_the_guest_alone() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.committed.insert(queue("T1@broker-a:0"), 50);
    pull_with(&mut t, task_group());
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.settle();
    t.ask(1, set(60));
    t.wait(seconds(5));
    t.comment("set back while the commit is under way: the broker hears of it afterwards");
    t.ask(1, set(10));
    t.wait(seconds(5));
    t.settle();
    t.wait(seconds(5));
    t.settle();
    t.comment("nothing has changed: nothing is told");
    t.ask(1, set(10));
    t.wait(seconds(5));
    check("pull_task_set_back", &t);
}

#[test]
fn a_queue_that_is_given_back_loses_its_task_between_two_runs() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, task_group());
    t.ask(1, set(7));
    t.ask(2, set(5));
    let dead = t.run(2).id;
    t.ask(2, pull("*", 5, 10));
    t.comment("another member takes queue 1; its run goes on, its puller is dead");
    t.cluster.members = vec![CLIENT_ID.to_owned(), "10.0.0.9@2#zzz".to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["UpdateConsumerOffset"]);
    t.answer_found("PullMessage T1@broker-a:1", &messages(5..7));
    t.ask(2, set(7));
    t.ask(2, pull("*", 7, 10));
    t.comment("the member leaves again: the queue is taken when its last commit was answered");
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["UpdateConsumerOffset"]);
    t.settle();
    t.wait(seconds(1));
    t.settle();
    t.comment("the old run still has no say in the new assignment");
    t.ask_as(dead, 2, set(9));
    t.comment("the end of the old run lets the new task begin");
    t.run_result(2, next());
    t.ask_as(dead, 2, set(9));
    t.ask(3, PullerRequest::FetchConsumeOffset);
    t.settle();
    check("pull_task_given_back", &t);
}

#[test]
fn runs_take_turns_within_the_bound_of_calls() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 3)]);
    pull_with(&mut t, task_group().consume_thread_max(1));
    t.run_result(1, next());
    t.run_result(2, next());
    t.wait(Duration::from_millis(200));
    t.run_result(3, next());
    t.run_result(4, next());
    check("pull_task_turns", &t);
}

#[test]
fn a_paused_group_ends_its_runs_and_begins_none() {
    let (mut t, group) = running(task_group());
    t.does("pause", |client, now| pause(client, group, now));
    t.ask(1, pull("*", 0, 10));
    t.answer_pull(PULL, PullStatus::NoNewMessage, 0);
    t.run_result(1, next());
    t.wait(seconds(1));
    let status = t.client.status(t.now());
    let activity = status.groups[0].topics[0].queues[0].reason.to_string();
    t.comment(&activity);
    t.does("resume", |client, now| resume(client, group, now));
    check("pull_task_pause", &t);
}

#[test]
fn the_end_waits_for_runs_and_commits_what_they_set() {
    let (mut t, group) = running(task_group());
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.comment("nothing more is pulled, but what was pulled may be told");
    t.ask(1, pull("*", 0, 10));
    t.ask(1, set(3));
    t.run_result(1, next());
    t.settle();
    t.wait(seconds(1));
    check("pull_task_stop", &t);
}

#[test]
fn memory_of_a_pull_counts_until_the_run_pulls_again_or_ends() {
    let mut t = Harness::new(|config| config.buffer_bytes = 150);
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, task_group());
    for run in [1, 1, 2] {
        t.ask(run, pull("*", 0, 1));
        let answer = batch(&messages(0..1));
        t.answer(PULL, Ok(found(&answer, 1)));
    }
    t.comment("the first run's messages fill the memory until it ends");
    let held = t.client.status(t.now()).held_bytes;
    assert!((1..=150).contains(&held), "{held}");
    t.run_result(1, next());
    assert_eq!(t.client.status(t.now()).held_bytes, 0);
    t.ask(2, pull("*", 0, 1));
    t.answer(PULL, Ok(found(&batch(&messages(0..1)), 1)));
    check("pull_task_memory", &t);
}

#[test]
fn a_run_is_not_refused_for_what_it_holds_itself() {
    // One answer is larger than all there may be.
    let mut t = Harness::new(|config| config.buffer_bytes = 50);
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, task_group());
    for offset in 0..3 {
        t.ask(1, pull("*", offset, 1));
        let answer = batch(&messages(offset..offset + 1));
        t.answer(PULL, Ok(found(&answer, offset + 1)));
    }
    assert!(
        !t.transcript().contains("buffer_bytes"),
        "{}",
        t.transcript()
    );
    assert!(t.client.status(t.now()).held_bytes > 50);
    t.comment("another one is");
    t.ask(2, pull("*", 0, 1));
    assert!(
        t.transcript().contains("buffer_bytes"),
        "{}",
        t.transcript()
    );
}
