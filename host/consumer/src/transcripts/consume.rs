//! Calls and what comes of them.

use super::*;
use crate::listener::MessageOutcome;

fn ack(ack_index: i32) -> ConsumeResult {
    let ack_index = Some(ack_index);
    ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index })
}

fn each(outcomes: &[MessageOutcome]) -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes.to_vec()))
}

#[test]
fn the_ack_index_is_clamped() {
    let (mut t, _) = pulling(group("T1").consume_message_batch_max_size(3));
    t.answer_found("PullMessage T1", &messages(0..9));
    t.comment("beyond the last: all");
    t.result(1, ack(i32::MAX));
    t.comment("the first two");
    t.result(2, ack(1));
    t.comment("below -1: none");
    t.result(3, ack(-7));
    t.settle();
    t.wait(seconds(5));
    t.settle();
    check("consume_ack_index", &t);
}

#[test]
fn every_message_has_its_own_outcome() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..6));
    t.comment("one outcome is missing: that message comes again");
    let later = MessageOutcome::ReconsumeLater {
        delay_level: Some(5),
    };
    let outcomes = [
        MessageOutcome::Done,
        later,
        MessageOutcome::NotFinished,
        MessageOutcome::DeadLetter {
            reason: "no such order".into(),
        },
        MessageOutcome::Done,
    ];
    t.result(1, each(&outcomes));
    t.settle();
    t.comment("nothing happened: the same again, no attempt counted");
    t.result(2, ConsumeResult::NotFinished);
    t.result(3, success());
    t.comment("an answer of the wrong kind is no answer");
    t.answer_found("PullMessage T1", &messages(6..7));
    t.result(
        4,
        ConsumeResult::Orderly(crate::listener::OrderlyStatus::Success),
    );
    t.settle();
    check("consume_each", &t);
}

#[test]
fn every_message_of_a_call_that_broke_comes_again() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..2));
    let reason = "trap: unreachable".into();
    t.result(1, ConsumeResult::Failed { reason });
    t.settle();
    check("consume_broke", &t);
}

#[test]
fn queues_take_turns_and_calls_are_bounded() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    let builder = group("T1")
        .consume_message_batch_max_size(2)
        .consume_thread_max(3);
    pull_with(&mut t, builder);
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..6));
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..2));
    t.answer_found("PullMessage %RETRY%G1", &messages(0..2));
    t.comment("retried and fresh messages have their turns");
    t.result(1, success());
    t.result(2, success());
    check("consume_turns", &t);
}

#[test]
fn short_calls_with_few_messages_are_handed_over_together() {
    let (mut t, _) = pulling(
        group("T1")
            .consume_message_batch_max_size(1)
            .consume_thread_max(1),
    );
    t.answer_found("PullMessage T1", &messages(0..40));
    t.skip(Duration::from_micros(50));
    t.result(1, success());
    t.comment("long calls are not");
    t.skip(seconds(1));
    t.result(2, success());
    check("consume_short_calls", &t);
}

#[test]
fn a_late_or_repeated_result_changes_nothing() {
    let (mut t, group) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..2));
    let id = t.calls().next().expect("a call").id;
    t.result(1, success());
    t.does("the same result again", |client, now| {
        client.handle_consume_result(id, ack(-1), now);
    });
    let unknown = crate::listener::ConsumeRequestId(u64::MAX);
    t.does("a result nobody asked for", |client, now| {
        client.handle_consume_result(unknown, success(), now);
        pause(client, group, now);
    });
    check("consume_stale", &t);
}
