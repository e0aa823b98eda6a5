//! An operator moves offsets (request 220).

use super::*;
use crate::listener::MessageModel;
use crate::request::{PullStatus, RequestError, Response};

/// As RocketMQ writes it for tools in Java.
fn table(entries: &[(&str, u32, i64)]) -> String {
    let entries = entries.iter().map(|(topic, id, offset)| {
        format!("{{\"brokerName\":\"broker-a\",\"queueId\":{id},\"topic\":\"{topic}\"}}:{offset}")
    });
    let entries: Vec<String> = entries.collect();
    format!("{{\"offsetTable\":{{{}}}}}", entries.join(","))
}

#[test]
fn what_was_under_way_does_not_count_and_the_offset_is_set_once() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..4));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 2)]));
    t.settle();
    t.comment("the call under way ends late, and so does its pull");
    t.result(1, success());
    t.answer_found("PullMessage T1@broker-a:0 from 4", &messages(4..6));
    t.wait(seconds(5));
    t.settle();
    t.comment("it goes on from there");
    t.answer_found("PullMessage T1@broker-a:0 from 2", &messages(2..4));
    t.result(2, success());
    t.wait(seconds(5));
    t.settle();
    check("reset", &t);
}

#[test]
fn what_may_still_reach_the_store_is_waited_for() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..4));
    t.result(1, success());
    t.comment("a commit is under way, and then a pull that carries an offset is young");
    t.wait(seconds(5));
    t.answer_found("PullMessage T1", &messages(4..5));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 0)]));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 1)]));
    t.wait(seconds(2));
    t.comment("the old commit is answered: now the new one");
    t.settle();
    t.answer_found("PullMessage T1@broker-a:0 from 1", &messages(1..6));
    t.result(3, success());
    t.answer_pull(
        "PullMessage T1@broker-a:0 from 6",
        PullStatus::NoNewMessage,
        6,
    );
    t.comment("a young pull carries 6");
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 3)]));
    t.wait(seconds(1));
    t.settle();
    check("reset_waits", &t);
}

#[test]
fn a_reset_is_stored_even_if_the_queue_leaves() {
    let (mut t, group) = pulling(group("T1"));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 7)]));
    t.answer("UpdateConsumerOffset T1", Err(RequestError::Timeout));
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.settle();
    check("reset_released", &t);
}

#[test]
fn repeated_resets_are_one_and_later_ones_win() {
    let (mut t, _) = pulling(group("T1"));
    let reset = table(&[("T1", 0, 7)]);
    t.reset_offsets("G1", "T1", &reset);
    t.reset_offsets("G1", "T1", &reset);
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 9)]));
    t.comment("the first commit is answered");
    t.answer("UpdateConsumerOffset T1", Ok(Response::Done));
    t.settle();
    check("reset_repeated", &t);
}

#[test]
fn both_dialects_are_read_and_nonsense_changes_nothing() {
    let (mut t, _) = pulling(group("T1"));
    let list = r#"{"offsetTable":[{"brokerName":"broker-a","offset":7,"queueId":0,"topic":"T1"}]}"#;
    t.reset_offsets("G1", "T1", list);
    t.settle();
    t.comment("the retry topic");
    t.reset_offsets("G1", "%RETRY%G1", &table(&[("%RETRY%G1", 0, 3)]));
    t.settle();
    t.comment("nothing of ours");
    t.reset_offsets("G1", "T1", &table(&[("T1", 5, 7)]));
    t.reset_offsets("G1", "T1", &table(&[("T2", 0, 7)]));
    t.reset_offsets("G1", "T1", &table(&[]));
    t.comment("nonsense");
    t.reset_offsets("G2", "T1", &table(&[("T1", 0, 7)]));
    t.reset_offsets("G1", "T2", &table(&[("T2", 0, 7)]));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, -1)]));
    t.reset_offsets("G1", "T1", "{\"offsetTable\":7}");
    t.reset_offsets("G1", "T1", "");
    t.settle();
    check("reset_dialects", &t);
}

#[test]
fn a_reset_beyond_the_queue_is_corrected_by_the_broker() {
    let (mut t, _) = pulling(group("T1"));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 1_000_000)]));
    t.settle();
    t.answer_pull("from 1000000", PullStatus::OffsetIllegal, 40);
    t.settle();
    t.comment("before the oldest message");
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 0)]));
    t.wait(seconds(1));
    t.settle();
    t.answer_pull("#19 ", PullStatus::OffsetIllegal, 30);
    t.wait(seconds(5));
    t.settle();
    check("reset_beyond", &t);
}

#[test]
fn a_broadcasting_group_is_reset_on_this_host() {
    let (mut t, _) = pulling(group("T1").message_model(MessageModel::Broadcasting));
    t.answer_found("PullMessage T1", &messages(0..4));
    t.reset_offsets("G1", "T1", &table(&[("T1", 0, 2)]));
    t.settle();
    t.result(1, success());
    t.wait(seconds(5));
    t.settle();
    check("reset_broadcast", &t);
    assert!(t.take_commits().is_empty());
}
