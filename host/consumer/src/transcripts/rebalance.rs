//! Who has which queue.

use std::sync::Arc;

use super::*;
use crate::config::{AllocateMessageQueueStrategy, MachineRoomResolver};
use crate::request::{RequestError, Response};
use crate::testing::{CLIENT_ID, Cluster, refused};

fn two_members(t: &mut Harness) {
    t.cluster.members = vec!["10.0.0.8@1#zzz".to_owned(), CLIENT_ID.to_owned()];
}

#[test]
fn queues_are_given_back_when_a_member_joins_and_taken_when_it_leaves() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2), ("broker-b", 2)]);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..3));
    t.result(1, success());
    t.comment("another member joins: a last commit, then nothing of the queue");
    two_members(&mut t);
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    t.comment("the answer to the pull of a queue that is gone changes nothing");
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..3));
    t.comment("the other member leaves");
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    check("rebalance_join_and_leave", &t);
}

#[test]
fn queues_are_divided_by_the_strategy_of_the_group() {
    let held = |strategy| {
        let mut t = Harness::default();
        t.topic("T1", &[("broker-a", 4)]);
        two_members(&mut t);
        t.subscribe(config(
            group("T1").allocate_message_queue_strategy(strategy),
        ));
        t.settle();
        let status = t.client.status(t.now());
        let topics = status.groups[0].topics.iter();
        topics
            .flat_map(|topic| topic.queues.iter())
            .map(|queue| queue.queue.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    // By name we come after the other member.
    assert_eq!(
        held(AllocateMessageQueueStrategy::Averagely),
        "T1@broker-a:2 T1@broker-a:3"
    );
    assert_eq!(
        held(AllocateMessageQueueStrategy::AveragelyByCircle),
        "T1@broker-a:1 T1@broker-a:3"
    );
    assert_eq!(
        held(AllocateMessageQueueStrategy::Config {
            message_queues: vec![queue("T1@broker-a:0"), queue("T1@broker-a:7")],
        }),
        "T1@broker-a:0"
    );
    assert_eq!(
        held(AllocateMessageQueueStrategy::MachineRoom {
            rooms: ["hz".to_owned()].into(),
        }),
        ""
    );
}

#[test]
fn queues_that_cannot_be_divided_stay_as_they_are_and_it_is_told_once() {
    #[derive(Debug)]
    struct Nowhere;
    impl MachineRoomResolver for Nowhere {
        fn broker_deploy_in(&self, _: &MessageQueue) -> Option<String> {
            Some("hz".to_owned())
        }
        fn consumer_deploy_in(&self, client_id: &str) -> Option<String> {
            (client_id == CLIENT_ID).then(|| "hz".to_owned())
        }
    }
    let strategy = AllocateMessageQueueStrategy::MachineRoomNearby {
        inner: Arc::default(),
        resolver: Arc::new(Nowhere),
    };
    let (mut t, _) = pulling(group("T1").allocate_message_queue_strategy(strategy));
    two_members(&mut t);
    for _ in 0..2 {
        t.notify_members_changed("G1");
        t.wait(seconds(1));
        t.settle();
    }
    let status = t.client.status(t.now());
    let held: usize = status.groups[0]
        .topics
        .iter()
        .map(|topic| topic.queues.len())
        .sum();
    assert_eq!(held, 2);
    let told = t.transcript().matches("QueuesNotAllocated").count();
    assert_eq!(told, 2, "once a topic\n{}", t.transcript());
    let reasons = format!("{:?}", status.groups[0].reasons);
    assert!(reasons.contains("10.0.0.8@1#zzz"), "{reasons}");
}

#[test]
fn a_list_that_failed_is_empty_or_lacks_us_keeps_what_is_held() {
    let (mut t, _) = pulling(group("T1"));
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.answer("GetConsumerList", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.answer(
        "GetConsumerList",
        Err(refused(1, "no consumer for this group, G1")),
    );
    t.settle_but(&["GetConsumerList"]);
    t.wait(seconds(1));
    t.answer("GetConsumerList", Ok(Response::ConsumerList(Vec::new())));
    t.settle_but(&["GetConsumerList"]);
    t.wait(seconds(1));
    let others = vec!["somebody".to_owned(), "else".to_owned()];
    t.answer("GetConsumerList", Ok(Response::ConsumerList(others)));
    t.settle_but(&["GetConsumerList"]);
    t.wait(seconds(1));
    t.settle();
    check("rebalance_members_unknown", &t);
}

#[test]
fn a_released_queue_commits_nothing_more_and_is_not_taken_before_its_last_commit() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, group("T1").consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..2));
    t.result(1, success());
    two_members(&mut t);
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["UpdateConsumerOffset"]);
    t.comment("the call of the released queue ends: no commit, no send-back");
    let later = ConcurrentlyStatus::ReconsumeLater { delay_level: None };
    t.result(2, ConsumeResult::Concurrently(later));
    t.comment("it comes back before its last commit is answered");
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["UpdateConsumerOffset"]);
    t.comment("now it is");
    t.settle();
    t.wait(seconds(1));
    t.settle();
    t.wait(seconds(6));
    check("rebalance_release", &t);
}

#[test]
fn a_broker_that_restarts_gets_a_heartbeat_and_pulls_go_on() {
    let (mut t, _) = pulling(group("T1"));
    let broker = Cluster::address("broker-a");
    let broken = || {
        Err(RequestError::Disconnected {
            reason: "connection reset".to_owned(),
        })
    };
    t.does("the connection breaks", |client, now| {
        client.handle_disconnected(&broker, now);
    });
    t.answer("PullMessage T1", broken());
    t.answer("PullMessage %RETRY%G1", broken());
    let down = RequestError::Unreachable {
        reason: "connection refused".to_owned(),
    };
    t.answer("HeartBeat", Err(down.clone()));
    t.wait(seconds(1));
    t.answer("HeartBeat", Err(down.clone()));
    t.answer("PullMessage T1", Err(down.clone()));
    t.answer("PullMessage %RETRY%G1", Err(down));
    let status = t.client.status(t.now());
    let activity = status.groups[0].topics[1].queues[0].reason.to_string();
    t.comment(&format!("T1@broker-a:0: {activity}"));
    t.comment("it is back");
    t.wait(seconds(1));
    t.does("connected", |client, now| {
        client.handle_connected(&broker, now);
    });
    t.answer(
        "PullMessage T1",
        Err(refused(24, "the consumer's group info not exist")),
    );
    t.settle();
    t.wait(seconds(1));
    t.settle();
    check("rebalance_broker_restarts", &t);
}
