//! Expressions that only a broker can judge, and filters that change under a running group.

use std::time::Duration;

use protocol::QueueOffset;
use protocol::subscription::{ExpressionType, SubscriptionData};

use super::{check, config, group, messages, pulling, seconds, success, tagged_group};
use crate::config::{GroupConfig, GroupConfigBuilder};
use crate::request::{Request, RequestError};
use crate::testing::{Harness, refused};

const DISABLED: &str = "The broker does not support consumer to filter message by SQL92";

fn sql(expression: &str) -> SubscriptionData {
    SubscriptionData::build("T1", expression, ExpressionType::Sql92).expect("an expression")
}

fn sql_group(expression: &str) -> GroupConfigBuilder {
    GroupConfig::builder("G1").subscription(sql(expression))
}

fn tags(expression: &str) -> SubscriptionData {
    SubscriptionData::build("T1", expression, ExpressionType::Tag).expect("an expression")
}

#[test]
fn a_broker_is_asked_about_sql_before_anybody_hears_of_the_group() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(sql_group("a > 5")));
    t.settle_but(&["CheckClientConfig"]);
    assert!(!t.transcript().contains("HeartBeat"), "{}", t.transcript());
    t.comment("nobody answers: the question comes again");
    t.answer("CheckClientConfig", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.settle_but(&["PullMessage T1"]);
    check("subscription_sql_accepted", &t);
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    assert_eq!(pull.expression_type, ExpressionType::Sql92);
}

#[test]
fn a_refused_expression_keeps_the_group_out_in_the_brokers_words_until_it_is_accepted() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(sql_group("a >")));
    t.settle_but(&["CheckClientConfig"]);
    t.answer("CheckClientConfig", Err(refused(1, DISABLED)));
    let status = t.client.status(t.now());
    t.comment(&format!("waits for: {:?}", status.groups[0].reasons));
    for _ in 0..10 {
        t.wait(seconds(10));
        t.settle_but(&["CheckClientConfig"]);
        if t.open_requests().iter().any(|r| r.contains("CheckClient")) {
            t.answer("CheckClientConfig", Err(refused(1, DISABLED)));
        }
    }
    let asked = t
        .transcript()
        .matches("> 10.0.0.1:10911 CheckClientConfig")
        .count();
    assert!((3..=5).contains(&asked), "{asked} questions in 100 s");
    assert_eq!(t.transcript().matches("SubscriptionRefused {").count(), 1);
    assert!(!t.transcript().contains("HeartBeat"), "{}", t.transcript());
    t.forget_transcript();
    // The switch is thrown.
    t.wait(seconds(31));
    t.settle_but(&["PullMessage"]);
    assert!(
        t.transcript().contains("PullMessage T1"),
        "{}",
        t.transcript()
    );
    assert!(t.client.status(t.now()).groups[0].reasons.is_empty());
}

#[test]
fn a_group_that_was_never_announced_leaves_without_a_word() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(sql_group("a >")));
    t.settle_but(&["CheckClientConfig"]);
    t.does("stop", crate::Client::stop);
    t.answer("CheckClientConfig", Err(refused(23, "parse failed")));
    assert!(t.client.is_stopped(), "{}", t.transcript());
    assert!(!t.transcript().contains("UnregisterClient"));
}

#[test]
fn nothing_is_pulled_between_two_filters_and_a_held_pull_of_the_old_one_does_not_count() {
    let (mut t, id) = pulling(tagged_group("T1", "A"));
    t.answer_found("PullMessage T1", &messages(0..1));
    // The broker holds the next one; nobody waits for it any more after the change.
    t.take_request("PullMessage T1");
    t.does("change to B", |client, now| {
        let changed = client.change_subscription(id, tags("B"), now);
        changed.expect("a topic of the group");
    });
    let held = t.open_requests();
    t.comment("the broker has yet to take the heartbeat; nothing is pulled before");
    assert!(
        held.iter()
            .all(|request| !request.contains("PullMessage T1")),
        "{held:?}"
    );
    t.wait(Duration::from_millis(500));
    t.answer("HeartBeat", Ok(crate::request::Response::Done));
    t.wait(Duration::ZERO);
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    // It goes on where the old filter ended.
    assert_eq!(pull.queue_offset, QueueOffset(1));
    let heartbeat_version = pull.sub_version;
    check("subscription_changed", &t);

    t.take_request("PullMessage T1");
    t.does("change again", |client, now| {
        client.change_subscription(id, tags("*"), now).expect("ok");
    });
    t.settle_but(&["PullMessage"]);
    t.wait(seconds(1));
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    assert!(pull.sub_version > heartbeat_version);
    let unknown = t.does("another topic", |client, now| {
        let other = SubscriptionData::all("T2");
        client.change_subscription(id, other, now)
    });
    unknown.expect_err("not a topic of the group");
}

#[test]
fn a_late_answer_to_a_pull_of_the_old_filter_changes_nothing() {
    let (mut t, id) = pulling(tagged_group("T1", "A"));
    let (_, held) = t.take_request("PullMessage T1");
    t.does("change to B", |client, now| {
        client.change_subscription(id, tags("B"), now).expect("ok");
    });
    let late = crate::testing::found(&crate::testing::batch(&messages(0..9)), 9);
    t.does("the late answer", |client, now| {
        client.handle_response(held.id, Ok(late), now);
    });
    t.settle_but(&["PullMessage"]);
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    assert_eq!(pull.queue_offset, QueueOffset(0), "{}", t.transcript());
    assert!(t.calls().next().is_none());
}

#[test]
fn a_refused_change_leaves_the_old_filter_in_force() {
    let (mut t, id) = pulling(group("T1"));
    t.does("change to SQL", |client, now| {
        client.change_subscription(id, sql("a >"), now).expect("ok");
    });
    t.answer("CheckClientConfig", Err(refused(23, "parse failed")));
    t.answer_found("PullMessage T1", &messages(0..1));
    t.result(1, success());
    assert!(t.transcript().contains("is_change: true"));
    let status = t.client.status(t.now());
    assert!(
        status.groups[0].reasons[0]
            .to_string()
            .contains("parse failed"),
        "{:?}",
        status.groups[0].reasons
    );
    // A good one takes its place.
    t.take_request("PullMessage T1");
    t.does("change to other SQL", |client, now| {
        client
            .change_subscription(id, sql("a > 5"), now)
            .expect("ok");
    });
    t.settle_but(&["PullMessage"]);
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    assert_eq!(pull.expression_type, ExpressionType::Sql92);
    assert_eq!(pull.queue_offset, QueueOffset(1));
}

#[test]
fn a_group_that_a_refused_expression_keeps_out_is_let_in_by_another_one() {
    for (corrected, asks) in [(tags("*"), false), (sql("a > 5"), true)] {
        let mut t = Harness::default();
        t.topic("T1", &[("broker-a", 1)]);
        let id = t.subscribe(config(sql_group("a >")));
        t.settle_but(&["CheckClientConfig"]);
        t.answer("CheckClientConfig", Err(refused(1, DISABLED)));
        t.does("correct it", |client, now| {
            client.change_subscription(id, corrected, now).expect("ok");
        });
        assert_eq!(t.open_requests().iter().any(|r| r.contains("Check")), asks);
        t.settle_but(&["PullMessage"]);
        t.wait(seconds(2));
        t.settle_but(&["PullMessage"]);
        t.request("PullMessage T1");
        // It ends like any other.
        t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
        t.settle();
        assert!(t.transcript().contains("UnregisterClient G1"));
        assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
    }
}
