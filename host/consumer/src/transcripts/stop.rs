//! The ordered end.

use super::*;
use crate::request::PullStatus;
use crate::request::{RequestError, Response};
use crate::testing::{CLIENT_ID, refused};

#[test]
fn a_client_stops_in_order() {
    let (mut t, _) = pulling(group("T1").consume_message_batch_max_size(2));
    t.permits = 2;
    t.answer_found("PullMessage T1", &messages(0..8));
    t.does("stop", |client, now| client.stop(now));
    t.comment("no pull, no new call; results of running ones count");
    t.answer_found("PullMessage T1", &messages(8..9));
    let later = ConcurrentlyStatus::ReconsumeLater { delay_level: None };
    t.result(1, ConsumeResult::Concurrently(later));
    t.comment("killed: nothing happened");
    t.result(2, ConsumeResult::NotFinished);
    t.comment("the last message on its way back, then the offsets, then the brokers");
    t.settle();
    assert!(t.client.is_stopped());
    t.wait(seconds(60));
    check("stop", &t);
}

#[test]
fn a_client_whose_brokers_are_gone_stops_all_the_same() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..1));
    t.result(1, success());
    t.does("stop", |client, now| client.stop(now));
    let down = || {
        Err(crate::request::RequestError::Unreachable {
            reason: "connection refused".to_owned(),
        })
    };
    t.answer("UpdateConsumerOffset T1", down());
    t.answer("UpdateConsumerOffset %RETRY%", down());
    t.answer("UnregisterClient", down());
    assert!(t.client.is_stopped());
    check("stop_without_brokers", &t);
}

#[test]
fn a_group_that_has_not_begun_leaves_at_once() {
    let mut t = Harness::default();
    let group_id = t.subscribe(config(group("T1")));
    t.does("unsubscribe", |client, now| {
        client.unsubscribe(group_id, now);
    });
    t.does("stop", |client, now| client.stop(now));
    assert!(t.client.is_stopped());
    check("stop_before_start", &t);
}

#[test]
fn a_pause_ends_pulls_and_not_calls() {
    let (mut t, group) = pulling(group("T1").consume_message_batch_max_size(1));
    t.permits = 1;
    t.answer_found("PullMessage T1", &messages(0..2));
    t.does("pause", |client, now| pause(client, group, now));
    t.comment("what was fetched is consumed, what comes now is asked for again");
    t.answer_found("PullMessage T1", &messages(2..4));
    t.result(1, success());
    t.answer_pull("PullMessage %RETRY%G1", PullStatus::NoNewMessage, 0);
    t.does("resume", |client, now| resume(client, group, now));
    check("stop_pause", &t);
}

#[test]
fn one_group_leaves_and_the_other_stays() {
    let (mut t, group_id) = pulling(group("T1"));
    let other = GroupConfig::builder("G2").subscription(SubscriptionData::all("T1"));
    t.subscribe(config(other));
    t.settle();
    t.wait(seconds(1));
    t.settle();
    t.forget_transcript();
    t.does("unsubscribe G1", |client, now| {
        client.unsubscribe(group_id, now);
    });
    t.settle();
    t.wait(seconds(1));
    t.settle();
    check("stop_one_group", &t);
}

#[test]
fn a_group_leaves_when_a_send_back_fails_whose_queue_was_given_back() {
    // Given a message on its way back, from a queue that is no longer ours.
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..1));
    let later = ConcurrentlyStatus::ReconsumeLater { delay_level: None };
    t.result(1, ConsumeResult::Concurrently(later));
    t.cluster.members = vec!["10.0.0.8@1#zzz".to_owned(), CLIENT_ID.to_owned()];
    t.cluster.members.sort();
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["SendMessageBack"]);
    assert!(
        t.client.status(t.now()).groups[0]
            .topics
            .iter()
            .all(|topic| topic.queues.is_empty())
    );
    // When the client stops and the broker does not answer.
    t.does("stop", crate::Client::stop);
    t.answer("SendMessageBack", Err(RequestError::Timeout));
    t.settle();
    // Then there is nothing left to wait for.
    assert!(t.client.is_stopped(), "{}", t.transcript());
}

#[test]
fn a_group_ends_after_the_heartbeats_that_name_it() {
    // Given a heartbeat under way that names the group.
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let group_id = t.subscribe(config(group("T1")));
    t.settle_but(&["HeartBeat"]);
    t.forget_transcript();
    // When the group leaves before the broker has answered.
    t.does("unsubscribe", |client, now| {
        client.unsubscribe(group_id, now);
    });
    t.settle_but(&["HeartBeat"]);
    // Then the broker hears of the end only after its answer.
    t.answer("HeartBeat", Ok(Response::Done));
    t.settle();
    t.wait(seconds(60));
    check("stop_heartbeat_under_way", &t);
}

#[test]
fn a_group_leaves_whose_last_commit_finds_no_broker() {
    // Given a commit under way, and more that is finished behind it.
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1), ("broker-b", 1)]);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1@broker-b:0", &messages(0..1));
    t.result(1, success());
    t.wait(seconds(5));
    t.answer_found("PullMessage T1@broker-b:0", &messages(1..2));
    t.result(2, success());
    // When the group leaves, and no route names its broker any more.
    t.topic("T1", &[("broker-a", 1)]);
    t.wait(seconds(26));
    t.settle_but(&["UpdateConsumerOffset", "GetConsumerList"]);
    t.does("stop", crate::Client::stop);
    t.answer("UpdateConsumerOffset", Err(RequestError::Timeout));
    t.settle();
    // Then that is told, and the end goes on.
    assert!(t.transcript().contains("no address of the broker is known"));
    assert!(t.client.is_stopped(), "{}", t.transcript());
}

#[test]
fn a_broker_that_does_not_hear_of_a_groups_end_is_told_again() {
    let (mut t, group_id) = pulling(group("T1"));
    let other = GroupConfig::builder("G2").subscription(SubscriptionData::all("T1"));
    t.subscribe(config(other));
    t.settle();
    t.wait(seconds(1));
    t.settle();
    t.does("unsubscribe G1", |client, now| {
        client.unsubscribe(group_id, now);
    });
    t.settle_but(&["UnregisterClient"]);
    t.answer("UnregisterClient", Err(RequestError::Timeout));
    t.answer("UnregisterClient", Err(refused(2, "busy")));
    assert!(!t.transcript().contains("GroupLeft"));
    // It has had its chances: the group leaves all the same.
    t.answer("UnregisterClient", Err(RequestError::Timeout));
    assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
    assert!(t.open_requests().iter().all(|r| !r.contains("Unregister")));
}

#[test]
fn a_broker_hears_of_the_end_although_its_answer_to_the_heartbeat_was_lost() {
    // Given a broker that read a heartbeat naming G2, and whose answer did not come.
    let (mut t, _) = pulling(group("T1"));
    let other = GroupConfig::builder("G2").subscription(SubscriptionData::all("T1"));
    let other = t.subscribe(config(other));
    t.settle_but(&["HeartBeat", "PullMessage"]);
    t.wait(Duration::from_millis(10));
    t.answer("HeartBeat", Err(RequestError::Timeout));
    t.forget_transcript();
    // When G2 leaves and G1 stays.
    t.does("unsubscribe G2", |client, now| {
        client.unsubscribe(other, now);
    });
    // Then the broker is told, or it would list us in G2 as long as G1 lives.
    t.settle_but(&["HeartBeat", "PullMessage"]);
    check("stop_heartbeat_answer_lost", &t);
}
