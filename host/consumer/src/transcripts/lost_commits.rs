//! Offsets that a broker confirmed and has not.
//!
//! RocketMQ's broker makes the table of a group's offsets of a topic without a lock
//! (`ConsumerOffsetManager#commitOffset`, 4.9.7 and 5.5.0): of first offsets that arrive at
//! once, one may be confirmed and thrown away. And what a broker that is killed was told
//! within its last five seconds is gone.

use super::*;
use crate::ConsumeFromWhere;
use crate::pull_task::PullerRequest;
use crate::testing::{CLIENT_ID, Cluster};

const T1: &str = "T1@broker-a:0";

fn task() -> GroupConfigBuilder {
    group("T1").pull_task_interval(GroupConfig::PULL_TASK_INTERVAL)
}

fn pass(t: &mut Harness, time: u64) {
    for _ in 0..time {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
}

fn commits(t: &mut Harness) -> Vec<u64> {
    let commits = t.take_commits();
    commits.into_iter().map(|(_, offset)| offset).collect()
}

#[test]
fn the_first_offset_of_a_pull_task_is_told_twice_and_later_ones_once() {
    let (mut t, _) = pulling(task());
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(4)));
    pass(&mut t, 5);
    assert_eq!(t.cluster.committed.remove(&queue(T1)), Some(4));
    pass(&mut t, 5);
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&4));
    t.take_commits();
    pass(&mut t, 60);
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(9)));
    pass(&mut t, 60);
    assert_eq!(commits(&mut t), [9], "{}", t.transcript());
}

#[test]
fn a_pull_task_that_ends_before_the_second_time_tells_it_when_it_ends() {
    let (mut t, group) = pulling(task());
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(4)));
    pass(&mut t, 5);
    t.cluster.committed.remove(&queue(T1));
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.run_result(1, crate::pull_task::PullTaskResult::NextRun { after: None });
    t.settle();
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&4));
}

/// Else a host that stops before its first message would choose again, and skip what came
/// in between.
#[test]
fn where_a_new_group_begins_is_told_twice() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue(T1), (3, 9));
    pull_with(
        &mut t,
        group("T1").consume_from_where(ConsumeFromWhere::LastOffset),
    );
    assert_eq!(t.cluster.committed.remove(&queue(T1)), Some(9));
    pass(&mut t, 6);
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&9));
    t.take_commits();
    pass(&mut t, 60);
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
}

/// The second time comes early when the group leaves before it is due.
#[test]
fn where_a_new_group_begins_is_told_again_when_it_leaves() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue(T1), (3, 9));
    let new = group("T1").consume_from_where(ConsumeFromWhere::LastOffset);
    let id = pull_with(&mut t, new);
    assert_eq!(t.cluster.committed.remove(&queue(T1)), Some(9));
    t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
    t.settle();
    assert_eq!(
        t.cluster.committed.get(&queue(T1)),
        Some(&9),
        "{}",
        t.transcript()
    );
}

#[test]
fn a_broker_that_was_killed_is_told_the_offsets_of_pull_tasks_again() {
    let (mut t, _) = pulling(task());
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(4)));
    pass(&mut t, 60);
    t.cluster.committed.remove(&queue(T1));
    t.does("the broker is killed", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    pass(&mut t, 10);
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&4));
}

#[test]
fn a_client_with_our_id_is_a_member_whose_offsets_are_looked_at() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.members = vec![CLIENT_ID.to_owned(), CLIENT_ID.to_owned()];
    t.cluster.committed.insert(queue(T1), 10);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(10..13));
    t.result(1, success());
    // The other one has the same queue, and has come further.
    t.cluster.committed.insert(queue(T1), 14);
    pass(&mut t, 20);
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&14));
}
