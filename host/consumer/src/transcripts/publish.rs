//! Sending.

use super::*;
use crate::publish::{Delay, OutgoingMessage, SendMode};
use crate::request::RequestError;
use crate::testing::refused;

#[test]
fn a_message_finds_its_queue_or_another_broker() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1), ("broker-b", 1)]);
    t.send("T1", "hello");
    t.settle();
    t.comment("the broker is busy: another one");
    t.send("T1", "again");
    t.answer("SendMessage T1", Err(refused(2, "busy")));
    t.settle();
    t.comment("a refusal for good");
    t.send("T1", "bad");
    t.answer("SendMessage T1", Err(refused(13, "message illegal")));
    t.comment("no answer in time");
    t.send("T1", "slow");
    t.wait(seconds(3));
    check("send", &t);
}

#[test]
fn a_topic_that_does_not_exist_is_made_by_a_broker_or_not_at_all() {
    let mut t = Harness::default();
    t.send("T9", "nowhere");
    t.settle();
    t.comment("brokers that may create topics announce the template");
    t.topic("TBW102", &[("broker-a", 8)]);
    t.wait(seconds(5));
    t.send("T9", "hello");
    t.settle();
    check("send_new_topic", &t);
}

#[test]
fn a_send_without_name_servers_ends_with_the_reason() {
    let mut t = Harness::default();
    t.send("T1", "hello");
    let reason = "connection refused".to_owned();
    t.answer("GetRouteInfo T1", Err(RequestError::Unreachable { reason }));
    t.wait(seconds(3));
    check("send_no_name_server", &t);
}

#[test]
fn batches_oneways_and_what_is_refused() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 4)]);
    let message = |body: &'static str| OutgoingMessage {
        topic: "T1".to_owned(),
        body: body.into(),
        tags: Some("TagA".to_owned()),
        keys: vec!["k1".to_owned(), "k2".to_owned()],
        properties: vec![("color".to_owned(), "red".to_owned())],
        sharding_key: Some("order-7".to_owned()),
        ..OutgoingMessage::default()
    };
    let timeout = seconds(3);
    let send = |t: &mut Harness, what: &str, messages: Vec<OutgoingMessage>, mode| {
        t.does(what, |client, now| {
            client.send(messages, mode, timeout, now)
        });
        t.settle();
    };
    send(
        &mut t,
        "a batch",
        vec![message("one"), message("two")],
        SendMode::Sync,
    );
    send(
        &mut t,
        "one-way, to the queue of its key",
        vec![message("one")],
        SendMode::Oneway,
    );
    let delayed = OutgoingMessage {
        delay: Some(Delay::Level(3)),
        ..message("later")
    };
    send(&mut t, "delayed", vec![delayed.clone()], SendMode::Sync);
    t.comment("refused before anything is sent");
    send(
        &mut t,
        "a delayed batch",
        vec![delayed.clone(), delayed],
        SendMode::Sync,
    );
    send(&mut t, "nothing", Vec::new(), SendMode::Sync);
    let reserved = OutgoingMessage {
        properties: vec![("UNIQ_KEY".to_owned(), "mine".to_owned())],
        ..message("x")
    };
    send(
        &mut t,
        "a reserved property",
        vec![reserved],
        SendMode::Sync,
    );
    let empty = message("");
    send(&mut t, "an empty body", vec![empty], SendMode::Sync);
    check("send_batch_oneway_refused", &t);
}
