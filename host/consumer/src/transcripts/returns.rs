//! What was sent back and comes again, or does not.

use super::*;
use crate::status::Cause;

const RETRY: &str = "%RETRY%G1@broker-a:0";

fn reconsume_later() -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
}

/// Three messages were sent back; everything in the retry topic was fetched.
fn three_sent_back() -> Harness {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, reconsume_later());
    t.settle();
    t.answer_pull(
        &format!("PullMessage {RETRY}"),
        crate::request::PullStatus::NoNewMessage,
        0,
    );
    assert_eq!(counts(&t), (3, 0));
    t
}

fn counts(t: &Harness) -> (u64, u64) {
    let status = t.client.status(t.now());
    (status.groups[0].sent_back, status.groups[0].came_back)
}

fn cause(t: &Harness) -> Option<Cause> {
    let status = t.client.status(t.now());
    status.groups[0].reasons.first().map(|reason| reason.cause)
}

fn pass(t: &mut Harness, time: u64) {
    for _ in 0..time {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
}

#[test]
fn messages_that_never_come_again_are_told_of() {
    let mut t = three_sent_back();
    t.comment("ten seconds is the first delay; a broker may be late");
    pass(&mut t, 130);
    assert_eq!(cause(&t), None);
    pass(&mut t, 30);
    assert_eq!(cause(&t), Some(Cause::RetriesMissed), "{}", t.transcript());
    pass(&mut t, 60);
    assert_eq!(t.transcript().matches("RetriesMissed").count(), 1);
}

#[test]
fn messages_that_come_again_are_counted_and_not_missed() {
    let mut t = three_sent_back();
    let first = messages(0..3);
    let batch = crate::testing::batch(&first);
    let again: Vec<TestMessage> = (0..3)
        .map(|index| {
            let id = batch.message(index).offset_message_id();
            let mut message = TestMessage::new("%RETRY%G1", u64::from(index));
            message
                .properties
                .push(("ORIGIN_MESSAGE_ID".to_owned(), id));
            message
                .properties
                .push(("RETRY_TOPIC".to_owned(), "T1".to_owned()));
            message
        })
        .collect();
    t.answer_found(&format!("PullMessage {RETRY}"), &again);
    assert_eq!(counts(&t), (3, 3));
    pass(&mut t, 300);
    assert_eq!(cause(&t), None, "{}", t.transcript());
}

#[test]
fn what_waits_in_the_retry_topic_is_not_missed() {
    let mut t = three_sent_back();
    let answer = crate::request::PullAnswer {
        status: crate::request::PullStatus::NoMatchedMessage,
        next_begin_offset: QueueOffset(0),
        min_offset: QueueOffset(0),
        max_offset: QueueOffset(3),
        suggest_which_broker_id: 0,
        remark: String::new(),
        batch: None,
        frame_bytes: 0,
    };
    t.answer(
        &format!("PullMessage {RETRY}"),
        Ok(crate::request::Response::Pull(answer)),
    );
    pass(&mut t, 300);
    assert_eq!(cause(&t), None, "they are there: {}", t.transcript());
}
