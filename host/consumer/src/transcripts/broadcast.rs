//! Groups in which every member consumes every queue, and whose offsets this host keeps.

use super::*;
use crate::config::{BroadcastRetry, ConsumeFromWhere};
use crate::listener::{MessageModel, MessageOutcome};
use crate::local_offsets::{LoadedOffsets, LocalOffsetsError, LocalOffsetsSource};
use crate::request::PullStatus;

fn broadcasting(topic: &str) -> GroupConfigBuilder {
    group(topic).message_model(MessageModel::Broadcasting)
}

fn failure(reason: &str) -> LocalOffsetsError {
    LocalOffsetsError {
        reason: reason.to_owned(),
    }
}

fn each(outcomes: Vec<MessageOutcome>) -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes))
}

fn later() -> MessageOutcome {
    MessageOutcome::ReconsumeLater { delay_level: None }
}

#[test]
fn every_queue_is_ours_without_a_question_for_members_and_offsets_stay_here() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (100, 500));
    t.cluster.members = vec!["somebody else".to_owned()];
    t.subscribe(config(broadcasting("T1")));
    t.settle();
    t.comment("messages are consumed; the offset is stored after 5 s");
    t.wait(Duration::from_millis(10));
    t.settle();
    t.answer_found("PullMessage T1@broker-a:0", &messages(500..503));
    t.result(1, success());
    t.wait(seconds(5));
    t.settle();
    check("broadcast", &t);
    assert!(t.take_commits().is_empty(), "brokers keep no offset");
}

#[test]
fn a_group_goes_on_from_what_is_stored_here() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (100, 500));
    t.cluster.offsets.insert(queue("T1@broker-a:1"), (100, 500));
    t.cluster
        .local_offsets
        .insert(queue("T1@broker-a:0"), protocol::QueueOffset(250));
    t.subscribe(config(broadcasting("T1")));
    t.settle_but(&["local offsets"]);
    t.comment("no queue starts before the offsets are read");
    t.load_local_offsets(Err(failure("permission denied")));
    let status = t.client.status(t.now());
    t.comment(&format!("status: {}", status.groups[0].reasons[0]));
    t.wait(seconds(5));
    t.comment("a queue without an offset, in a topic that was read before, appeared later");
    t.settle();
    check("broadcast_stored", &t);
}

#[test]
fn offsets_that_are_lost_start_as_the_policy_says() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (100, 500));
    t.subscribe(config(
        broadcasting("T1").consume_from_where(ConsumeFromWhere::FirstOffset),
    ));
    t.settle_but(&["local offsets"]);
    t.forget_transcript();
    t.load_local_offsets(Ok(LoadedOffsets {
        offsets: std::collections::BTreeMap::new(),
        source: LocalOffsetsSource::Lost {
            problem: "both copies are empty files".to_owned(),
        },
    }));
    t.settle();
    check("broadcast_lost", &t);
}

#[test]
fn a_full_disk_stops_nobody_and_is_told_once() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let group = t.subscribe(config(broadcasting("T1")));
    t.settle_but(&["store local offsets", "local offsets"]);
    t.do_local_offsets();
    t.settle_but(&["local offsets"]);
    t.forget_transcript();
    t.comment("the choice cannot be stored: the queue starts all the same");
    t.store_local_offsets(Err(failure("no space left on device")));
    let status = t.client.status(t.now());
    t.comment(&format!("status: {}", status.groups[0].reasons[0]));
    t.wait(Duration::from_millis(10));
    t.settle_but(&["local offsets"]);
    t.answer_found("PullMessage T1", &messages(0..2));
    t.result(1, success());
    t.wait(seconds(5));
    t.store_local_offsets(Err(failure("no space left on device")));
    t.wait(seconds(5));
    t.store_local_offsets(Ok(()));
    t.comment("it stops: one last attempt is waited for");
    t.answer_found("PullMessage T1", &messages(2..3));
    t.result(2, success());
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.store_local_offsets(Err(failure("no space left on device")));
    t.settle();
    check("broadcast_disk_full", &t);
}

#[test]
fn a_failed_message_is_dropped_with_an_event() {
    let (mut t, _) = pulling(broadcasting("T1"));
    t.answer_found("PullMessage T1", &messages(0..4));
    let dead = MessageOutcome::DeadLetter {
        reason: "cannot be read".into(),
    };
    t.result(
        1,
        each(vec![
            later(),
            MessageOutcome::Done,
            dead,
            MessageOutcome::Done,
        ]),
    );
    t.wait(seconds(5));
    t.settle();
    check("broadcast_drop", &t);
}

#[test]
fn a_failed_message_is_tried_again_here_when_asked_for() {
    let (mut t, _) = pulling(
        broadcasting("T1")
            .broadcast_retry(BroadcastRetry::Local)
            .max_reconsume_times(2),
    );
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(
        1,
        each(vec![later(), MessageOutcome::Done, MessageOutcome::Done]),
    );
    t.comment("other messages go on; the offset stays at what waits");
    t.answer_found("PullMessage T1", &messages(3..5));
    t.result(2, success());
    t.wait(seconds(1));
    t.result(3, each(vec![later()]));
    t.wait(seconds(2));
    t.result(4, each(vec![later()]));
    t.comment("the attempts are used up: it is dropped, and the offset moves");
    t.wait(seconds(5));
    t.settle();
    check("broadcast_local_retry", &t);
}

#[test]
fn an_illegal_offset_is_corrected_here_too() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster
        .local_offsets
        .insert(queue("T1@broker-a:0"), protocol::QueueOffset(900));
    t.subscribe(config(broadcasting("T1")));
    t.settle();
    t.forget_transcript();
    t.comment("the queue is shorter than it was: back, and stored before the next pull");
    t.answer_pull("PullMessage T1", PullStatus::OffsetIllegal, 40);
    t.settle();
    t.comment("the oldest messages expired: forward");
    t.answer_pull("PullMessage T1", PullStatus::OffsetIllegal, 60);
    t.wait(seconds(5));
    t.settle();
    check("broadcast_illegal_offset", &t);
}

#[test]
fn a_group_that_leaves_stores_its_offsets_first() {
    let (mut t, group) = pulling(broadcasting("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.comment("brokers hear of the end after the disk has the offsets");
    t.settle();
    check("broadcast_stop", &t);
}

#[test]
fn a_choice_that_was_not_stored_is_stored_later_or_at_the_end() {
    for leaves in [false, true] {
        let mut t = Harness::default();
        t.topic("T1", &[("broker-a", 1)]);
        let group = t.subscribe(config(broadcasting("T1")));
        t.settle_but(&["local offsets"]);
        t.do_local_offsets();
        t.settle_but(&["local offsets"]);
        t.store_local_offsets(Err(failure("no space left on device")));
        if leaves {
            t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
        } else {
            t.wait(seconds(5));
        }
        // No message has come, and yet there is something to be stored.
        t.do_local_offsets();
        assert_eq!(t.cluster.local_offsets.len(), 1);
        if leaves {
            t.settle();
            assert!(t.transcript().contains("GroupLeft"));
        }
    }
}

/// `T1` with two queues, whose stored offsets are not read yet; the first is moved to 7.
fn reset_before_they_are_read() -> (Harness, GroupId) {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    for (name, offset) in [("T1@broker-a:0", 250), ("T1@broker-a:1", 300)] {
        let offsets = &mut t.cluster.local_offsets;
        offsets.insert(queue(name), QueueOffset(offset));
    }
    let group = t.subscribe(config(broadcasting("T1")));
    t.settle_but(&["local offsets"]);
    t.reset_offsets("G1", "T1", &reset_to(7));
    t.load_local_offsets(Err(failure("permission denied")));
    t.wait(Duration::from_millis(4_900));
    t.settle_but(&["local offsets"]);
    assert!(
        !t.transcript().contains("  store local"),
        "{}",
        t.transcript()
    );
    (t, group)
}

fn stored(t: &Harness) -> Vec<(u32, u64)> {
    let offsets = t.cluster.local_offsets.iter();
    offsets
        .map(|(queue, offset)| (queue.queue_id, offset.0))
        .collect()
}

#[test]
fn a_reset_before_the_stored_offsets_are_read_waits_for_them() {
    let (mut t, _) = reset_before_they_are_read();
    t.wait(seconds(1));
    t.settle();
    t.request("PullMessage T1@broker-a:0 from 7,");
    t.request("PullMessage T1@broker-a:1 from 300,");
    assert_eq!(stored(&t), [(0, 7), (1, 300)]);
}

#[test]
fn a_reset_is_stored_beside_the_others_even_if_the_group_leaves_before_they_are_read() {
    let (mut t, group) = reset_before_they_are_read();
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.wait(seconds(1));
    t.settle();
    assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
    assert_eq!(stored(&t), [(0, 7), (1, 300)]);
    // When they cannot be read, the group does not wait for ever.
    let (mut t, group) = reset_before_they_are_read();
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.wait(seconds(1));
    t.load_local_offsets(Err(failure("permission denied")));
    t.settle();
    assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
    assert_eq!(stored(&t), [(0, 250), (1, 300)]);
}

#[test]
fn what_was_finished_during_a_store_that_failed_is_stored_at_the_end() {
    let (mut t, group) = pulling(broadcasting("T1"));
    t.answer_found("PullMessage T1", &messages(0..2));
    t.result(1, success());
    t.answer_found("PullMessage T1", &messages(2..5));
    t.wait(seconds(5));
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.result(2, success());
    t.store_local_offsets(Err(failure("no space left on device")));
    t.do_local_offsets();
    t.settle();
    assert_eq!(stored(&t), [(0, 5)]);
    assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
}

#[test]
fn a_pull_task_begins_with_what_this_host_has_stored() {
    use crate::pull_task::{PullTaskResult, PullerRequest};
    let builder = || broadcasting("T1").pull_task_interval(GroupConfig::PULL_TASK_INTERVAL);
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    let here = queue("T1@broker-a:0");
    t.cluster.local_offsets.insert(here, QueueOffset(40));
    t.subscribe(config(builder()));
    t.settle_but(&["local offsets"]);
    assert_eq!(t.numbered_runs().count(), 0, "they are not read yet");
    t.comment("what is stored is known to the first run; where nothing is, the guest chooses");
    t.settle();
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.ask(2, PullerRequest::FetchConsumeOffset);
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(45)));
    t.ask(2, PullerRequest::UpdateConsumeOffset(QueueOffset(3)));
    t.wait(seconds(5));
    t.settle();
    t.run_result(1, PullTaskResult::NextRun { after: None });
    check("broadcast_pull_task", &t);
    assert_eq!(stored(&t), [(0, 45), (1, 3)]);
    assert!(t.take_commits().is_empty(), "brokers keep no offset");
    assert!(!t.transcript().contains("QueryConsumerOffset"));
}
