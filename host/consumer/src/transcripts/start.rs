//! From nothing to the first pull.

use super::*;
use crate::config::ConsumeFromWhere;
use crate::request::RequestError;
use crate::testing::refused;
use protocol::Address;

#[test]
fn a_group_starts() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    t.subscribe(config(group("T1")));
    t.settle();
    t.comment("half a minute without messages");
    t.wait(seconds(30));
    t.settle();
    check("start", &t);
}

#[test]
fn a_queue_starts_where_its_policy_says() {
    let policies = [
        ("last", ConsumeFromWhere::LastOffset),
        ("first", ConsumeFromWhere::FirstOffset),
        ("timestamp", ConsumeFromWhere::Timestamp(1_699_999_999_000)),
    ];
    let mut all = Harness::default();
    for (name, policy) in policies {
        let mut t = Harness::default();
        t.shows_events = false;
        t.topic("T1", &[("broker-a", 2)]);
        t.cluster.offsets.insert(queue("T1@broker-a:0"), (100, 500));
        t.cluster.offsets.insert(queue("T1@broker-a:1"), (100, 500));
        t.cluster.committed.insert(queue("T1@broker-a:1"), 250);
        t.subscribe(config(group("T1").consume_from_where(policy)));
        t.settle_but(&["QueryConsumerOffset"]);
        t.forget_transcript();
        t.shows_events = true;
        t.settle();
        all.comment(name);
        all.append(&t);
    }
    check("start_policies", &all);
}

#[test]
fn a_queue_that_appears_later_starts_at_its_oldest_message() {
    let (mut t, _) = pulling(group("T1"));
    t.cluster.offsets.insert(queue("T1@broker-a:1"), (30, 40));
    t.topic("T1", &[("broker-a", 2)]);
    t.wait(seconds(30));
    t.settle();
    check("start_queue_appears_later", &t);
}

#[test]
fn a_failed_question_starts_nothing_and_is_asked_again() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (0, 500));
    t.subscribe(config(group("T1")));
    let questions = ["Offset T1@"];
    t.settle_but(&questions);
    t.forget_transcript();
    t.answer("QueryConsumerOffset T1@", Err(RequestError::Timeout));
    t.comment("nothing is pulled or committed; the same question comes again");
    t.wait(seconds(1));
    t.answer("QueryConsumerOffset T1@", Err(refused(1, "busy")));
    t.wait(seconds(1));
    let none = crate::request::Response::ConsumerOffset(None);
    t.answer("QueryConsumerOffset T1@", Ok(none));
    t.comment("the policy's question fails, then the commit of the choice");
    t.answer("GetMaxOffset", Err(RequestError::Timeout));
    t.wait(seconds(1));
    let end = crate::request::Response::Offset(protocol::QueueOffset(500));
    t.answer("GetMaxOffset", Ok(end));
    t.answer("UpdateConsumerOffset T1@", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.settle();
    check("start_question_fails", &t);
}

#[test]
fn a_missing_topic_is_asked_for_until_it_appears() {
    let mut t = Harness::default();
    t.subscribe(config(group("T1")));
    t.settle();
    t.wait(seconds(5));
    t.settle();
    let status = t.client.status(t.now());
    t.comment(&status.groups[0].reasons[0].to_string());
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (0, 3));
    t.wait(seconds(5));
    t.settle();
    check("start_topic_missing", &t);
}

#[test]
fn the_retry_topic_is_asked_for_when_a_broker_has_taken_the_heartbeat() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let retry = t.cluster.topics.remove("%RETRY%G1").expect("there");
    t.subscribe(config(group("T1")));
    t.settle_but(&["HeartBeat"]);
    t.comment("the heartbeat makes the retry topic");
    t.cluster.topics.insert("%RETRY%G1".to_owned(), retry);
    t.settle();
    check("start_retry_topic", &t);
}

#[test]
fn another_name_server_is_asked_when_one_fails() {
    let mut t = Harness::new(|config| {
        config.namesrv_addr.push(Address::new("10.0.1.2", 9876));
    });
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(group("T1")));
    let down = || {
        Err(RequestError::Unreachable {
            reason: "connection refused".to_owned(),
        })
    };
    t.answer("GetRouteInfo T1", down());
    t.answer("GetRouteInfo %RETRY%G1", down());
    t.comment("the second one fails too: all are asked again a second later");
    t.answer("GetRouteInfo T1", down());
    t.answer("GetRouteInfo %RETRY%G1", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.settle_but(&["HeartBeat"]);
    check("start_name_servers", &t);
}
