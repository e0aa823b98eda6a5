//! What is told of a queue's offset arrives in the order in which it was told, whatever
//! threads a broker has.

use super::*;
use crate::request::{RequestError, Response};
use crate::testing::Cluster;

const T1: &str = "T1@broker-a:0";

/// Messages up to 6 are done with; the pull that waits for the next carries 3.
fn carrying_a_pull() -> (Harness, GroupId) {
    let (mut t, group) = pulling(group("T1"));
    t.take_commits();
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.answer_found("PullMessage T1", &messages(3..6));
    t.result(2, success());
    assert_eq!(commits(&mut t), [3], "carried by the pull");
    (t, group)
}

fn commits(t: &mut Harness) -> Vec<u64> {
    let commits = t.take_commits();
    let of_t1 = commits.into_iter().filter(|(place, _)| *place == queue(T1));
    of_t1.map(|(_, offset)| offset).collect()
}

#[test]
fn what_a_link_held_up_is_not_overtaken_by_what_came_later() {
    let (mut t, _) = carrying_a_pull();
    t.comment("nothing comes through");
    t.wait(seconds(9));
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.comment("everything comes through at once: the answer shows that the pull was read");
    t.settle();
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.comment("and by now it is done");
    t.wait(seconds(1));
    t.settle();
    assert_eq!(commits(&mut t), [6]);
    check("told_in_order", &t);
}

#[test]
fn any_later_answer_of_the_broker_shows_that_an_older_request_was_read() {
    let (mut t, _) = carrying_a_pull();
    t.comment("the group's members are asked for, and told");
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    t.wait(seconds(5));
    assert_eq!(commits(&mut t), [6]);
    let asked = t.transcript().contains("QueryConsumerOffset");
    assert!(!asked, "{}", t.transcript());
}

#[test]
fn a_pull_carries_nothing_while_a_commit_is_on_its_way() {
    let (mut t, _) = pulling(group("T1"));
    t.take_commits();
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.wait(seconds(5));
    assert_eq!(commits(&mut t), [3]);
    t.answer_found("PullMessage T1", &messages(3..6));
    t.result(2, success());
    t.answer_found("PullMessage T1", &messages(6..9));
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.comment("the commit was stored, and the next pull carries again");
    t.answer("UpdateConsumerOffset", Ok(Response::Done));
    t.result(3, success());
    t.answer_found("PullMessage T1", &messages(9..12));
    assert_eq!(commits(&mut t), [9]);
}

#[test]
fn a_commit_without_an_answer_may_still_come() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.wait(seconds(5));
    t.answer("UpdateConsumerOffset", Err(RequestError::Timeout));
    t.answer_found("PullMessage T1", &messages(3..6));
    t.result(2, success());
    t.take_commits();
    t.comment("the pull that was answered was asked before the commit: it shows nothing");
    t.wait(seconds(5));
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.settle();
    t.wait(seconds(1));
    assert_eq!(commits(&mut t), [6], "{}", t.transcript());
}

#[test]
fn a_broker_may_have_read_of_a_connection_that_is_gone() {
    let (mut t, _) = carrying_a_pull();
    t.does("the connection to broker-a is lost", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    let reason = "cut".to_owned();
    t.answer("PullMessage T1", Err(RequestError::Disconnected { reason }));
    t.does("it stands again", |client, now| {
        client.handle_connected(&Cluster::address("broker-a"), now);
    });
    t.settle();
    t.wait(Duration::from_millis(100));
    t.answer_found("PullMessage T1", &messages(6..9));
    t.result(3, success());
    let early = commits(&mut t);
    assert_eq!(early, [] as [u64; 0], "{}", t.transcript());
    t.wait(seconds(1));
    t.answer_found("PullMessage T1", &messages(9..12));
    assert_eq!(commits(&mut t).last(), Some(&9), "{}", t.transcript());
}

#[test]
fn the_last_commit_comes_after_what_a_pull_carries() {
    let (mut t, group) = carrying_a_pull();
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    assert_eq!(commits(&mut t), [] as [u64; 0], "{}", t.transcript());
    t.comment("the broker has read everything before this question");
    t.settle();
    assert_eq!(commits(&mut t), [6]);
    assert_eq!(t.cluster.committed.get(&queue(T1)), Some(&6));
}
