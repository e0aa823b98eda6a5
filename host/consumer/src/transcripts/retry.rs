//! Back to the broker, to the dead letters, or once more here.

use super::*;
use crate::listener::MessageOutcome;
use crate::request::RequestError;
use crate::testing::refused;

fn later(delay_level: Option<i32>) -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level })
}

#[test]
fn a_message_that_cannot_be_sent_back_is_published_and_else_tried_here() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..1));
    t.result(1, later(None));
    t.comment("the send-back is refused: published to the retry topic");
    t.answer("SendMessageBack", Err(refused(26, "group not exist")));
    let down = || {
        Err(RequestError::Unreachable {
            reason: "connection refused".to_owned(),
        })
    };
    t.answer("SendMessage %RETRY%G1", down());
    t.answer("SendMessage %RETRY%G1", down());
    t.answer("SendMessage %RETRY%G1", down());
    t.comment("nothing went: once more here after five seconds, with the attempt counted");
    t.wait(seconds(5));
    t.result(2, later(Some(4)));
    t.answer("SendMessageBack", Err(RequestError::Timeout));
    t.settle();
    t.wait(seconds(5));
    t.settle();
    check("retry_send_back_fails", &t);
}

#[test]
fn a_dead_letter_carries_its_reason() {
    let properties = vec![("MQLET_PLUGIN".to_owned(), "hello".to_owned())];
    let (mut t, _) = pulling(group("T1").dead_letter_properties(properties));
    t.answer_found(
        "PullMessage T1",
        &[TestMessage::new("T1", 0)
            .property("TRAN_MSG", "true")
            .tag("TagA")],
    );
    let dead = || {
        let reason = "no such order\u{1}\n".into();
        let outcomes = vec![MessageOutcome::DeadLetter { reason }];
        ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes))
    };
    t.result(1, dead());
    t.settle();
    t.comment("not published: the broker's own copy, without the reason");
    t.answer_found("PullMessage T1", &messages(1..2));
    t.result(2, dead());
    t.answer("SendMessage %RETRY%G1", Err(refused(13, "message illegal")));
    t.settle();
    t.comment("asked for by the delay level");
    t.answer_found("PullMessage T1", &messages(2..3));
    t.result(3, later(Some(-1)));
    t.settle();
    check("retry_dead_letter", &t);
}

#[test]
fn the_last_attempt_that_broke_is_a_dead_letter_that_says_how() {
    let (mut t, _) = pulling(group("T1").max_reconsume_times(1));
    let message = |reconsume_times| {
        let mut message = TestMessage::new("T1", u64::from(reconsume_times));
        message.reconsume_times = reconsume_times;
        message
    };
    let broke = || {
        let reason = crate::FailureReason::from("trap: unreachable");
        let long = ("MQLET_LOG".to_owned(), "x".repeat(40_000));
        let kind = ("MQLET_FAILURE".to_owned(), "trap\u{2}".to_owned());
        let reason = reason.with_properties([long, kind].into());
        let outcomes = vec![MessageOutcome::Failed { reason }];
        ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes))
    };
    t.comment("it comes again: that is the broker's way, without a word");
    t.answer_found("PullMessage T1", &[message(0)]);
    t.result(1, broke());
    t.settle();
    t.comment("the last attempt: long values are cut, and have no control characters");
    t.answer_found("PullMessage T1", &[message(1)]);
    t.result(2, broke());
    t.settle();
    check("retry_broke", &t);
}

#[test]
fn retried_messages_are_seen_under_their_topic() {
    let (mut t, _) = pulling(group("T1"));
    let retried = |offset, topic: &str| {
        let mut message = TestMessage::new("%RETRY%G1", offset).property("RETRY_TOPIC", topic);
        message.reconsume_times = 1;
        message
    };
    let answer = [retried(0, "T1"), retried(1, "T1"), retried(2, "T2")];
    t.answer_found("PullMessage %RETRY%G1", &answer);
    t.comment("sent back once more, with the topic of the first time");
    t.result(1, later(None));
    t.result(2, success());
    t.settle();
    check("retry_topic", &t);
}

#[test]
fn a_bounded_number_is_under_way() {
    let mut t = Harness::new(|config| config.send_backs_max = 1);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..2));
    t.result(1, later(None));
    t.comment("the second waits for the first");
    t.settle();
    check("retry_bound", &t);
}

#[test]
fn the_attempt_after_which_the_broker_makes_a_dead_letter_is_told() {
    let (mut t, _) = pulling(group("T1").max_reconsume_times(1));
    let attempt = |offset, reconsume_times| {
        let mut message = TestMessage::new("T1", offset);
        message.reconsume_times = reconsume_times;
        message
    };
    t.answer_found("PullMessage T1", &[attempt(0, 0), attempt(1, 1)]);
    t.result(1, later(None));
    t.settle();
    check("retry_exhausted", &t);
}

#[test]
fn a_message_that_no_listener_can_have_never_gets_to_one() {
    // Given a damaged body, and one that does not open.
    let (mut t, _) = pulling(group("T1"));
    let mut bad = messages(0..2);
    bad[0].wrong_crc = true;
    bad[1].wrong_compression = true;
    t.answer_found("PullMessage T1", &bad);
    t.answer_found("PullMessage T1", &bad);
    // When the broker takes neither, in no way.
    let refuse = |t: &mut Harness, what: &str| t.answer(what, Err(refused(1, "not now")));
    refuse(&mut t, "SendMessageBack ID0");
    for _ in 0..3 {
        refuse(&mut t, "SendMessage %RETRY%G1");
    }
    refuse(&mut t, "SendMessageBack ID1");
    let published = |t: &Harness| t.transcript().matches("SendMessage %RETRY%G1").count();
    assert_eq!(
        published(&t),
        3,
        "the damaged one is not: {}",
        t.transcript()
    );
    t.wait(seconds(5));
    // Then they are given up once more.
    assert_eq!(t.calls().count(), 0, "{}", t.transcript());
    t.settle();
    assert_eq!(published(&t), 4);
    assert_eq!(t.calls().count(), 0);
    let status = t.client.status(t.now());
    let queue = &status.groups[0].topics[1].queues[0];
    assert_eq!(queue.finished_offset, Some(protocol::QueueOffset(2)));
}
