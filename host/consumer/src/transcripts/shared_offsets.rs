//! Offsets of queues that another member may have had, or may have by now.

use super::*;
use crate::request::RequestError;
use crate::testing::{CLIENT_ID, Cluster};

const OTHER: &str = "10.0.0.8@1#zzz";

fn members(t: &mut Harness, ids: &[&str]) {
    t.cluster.members = ids.iter().map(|id| (*id).to_owned()).collect();
}

/// `T1` has two queues; the other member has the first one.
fn beside_another() -> Harness {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    members(&mut t, &[OTHER, CLIENT_ID]);
    t.cluster.committed.insert(queue("T1@broker-a:1"), 10);
    t.subscribe(config(group("T1")));
    t.settle();
    t.forget_transcript();
    t
}

#[test]
fn a_queue_that_changed_hands_is_committed_only_beyond_what_the_other_committed() {
    let mut t = beside_another();
    t.comment("what was consumed is not committed yet: the other one may still do so");
    t.answer_found("PullMessage T1@broker-a:1", &messages(10..13));
    t.result(1, success());
    t.comment("it does");
    t.cluster.committed.insert(queue("T1@broker-a:1"), 14);
    t.wait(seconds(2));
    t.settle();
    t.comment("news is what goes beyond");
    t.answer_found("PullMessage T1@broker-a:1", &messages(13..16));
    t.result(2, success());
    t.wait(seconds(5));
    t.settle();
    check("shared_offsets_taken", &t);
    let commits: Vec<u64> = t.take_commits().into_iter().map(|(_, o)| o).collect();
    assert!(commits.iter().all(|&offset| offset > 14), "{commits:?}");
}

#[test]
fn a_last_commit_is_not_made_when_the_next_owner_has_come_further() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..3));
    t.result(1, success());
    t.take_commits();
    t.comment("another member has had the queue for a while when we hear of it");
    members(&mut t, &[OTHER, CLIENT_ID]);
    t.cluster.committed.insert(queue("T1@broker-a:0"), 5);
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    check("shared_offsets_released", &t);
    assert_eq!(t.take_commits(), []);
}

#[test]
fn who_returns_first_after_a_cut_leaves_the_others_their_queues_for_a_while() {
    let mut t = beside_another();
    let broker = Cluster::address("broker-a");
    let cut = |t: &mut Harness| {
        t.does("the connection to broker-a is lost", |client, now| {
            client.handle_disconnected(&broker, now);
        });
        let reason = "cut".to_owned();
        while let Some(line) = t.open_requests().first().cloned() {
            let error = RequestError::Disconnected {
                reason: reason.clone(),
            };
            let number = line.split(' ').next().expect("a number").to_owned();
            t.answer(&format!("{number} "), Err(error));
        }
    };
    cut(&mut t);
    t.comment("the broker lists us alone");
    members(&mut t, &[CLIENT_ID]);
    t.wait(seconds(1));
    t.settle();
    t.wait(seconds(2));
    t.settle();
    let held = |t: &Harness| {
        let status = t.client.status(t.now());
        let mut topics = status.groups[0].topics.iter();
        let topic = topics
            .find(|topic| &*topic.topic == "T1")
            .expect("subscribed");
        topic.queues.len()
    };
    assert_eq!(
        held(&t),
        1,
        "the other one may be on its way\n{}",
        t.transcript()
    );
    t.comment("it has not come back");
    t.wait(seconds(4));
    t.settle();
    assert_eq!(held(&t), 2);
    check("shared_offsets_cut", &t);
}

#[test]
fn an_offset_that_a_broker_has_lost_is_told_to_it_again() {
    let mut t = beside_another();
    t.answer_found("PullMessage T1@broker-a:1", &messages(10..13));
    t.result(1, success());
    t.wait(seconds(6));
    t.settle();
    assert_eq!(t.cluster.committed[&queue("T1@broker-a:1")], 13);
    t.forget_transcript();
    t.comment("it restarts with the offsets of a while ago");
    let broker = Cluster::address("broker-a");
    t.does("the connection to broker-a is lost", |client, now| {
        client.handle_disconnected(&broker, now);
    });
    t.cluster.committed.insert(queue("T1@broker-a:1"), 11);
    t.wait(seconds(6));
    t.settle();
    assert_eq!(t.cluster.committed[&queue("T1@broker-a:1")], 13);
    check("shared_offsets_lost_by_broker", &t);
}

#[test]
fn an_offset_that_is_lost_while_the_other_member_leaves_is_told_again_too() {
    let mut t = beside_another();
    t.wait(seconds(1));
    t.comment("the other one is gone before what is committed was looked at again");
    members(&mut t, &[CLIENT_ID]);
    t.notify_members_changed("G1");
    t.settle();
    let broker = Cluster::address("broker-a");
    t.does("the connection to broker-a is lost", |client, now| {
        client.handle_disconnected(&broker, now);
    });
    t.cluster.committed.insert(queue("T1@broker-a:1"), 8);
    t.wait(seconds(10));
    t.settle();
    t.wait(seconds(10));
    t.settle();
    let committed = t.cluster.committed[&queue("T1@broker-a:1")];
    assert_eq!(committed, 10, "{}", t.transcript());
}
