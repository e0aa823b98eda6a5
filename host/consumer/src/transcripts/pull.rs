//! What an answer to a pull means, and what holds pulls back.

use super::*;
use crate::request::{PullStatus, RequestError, Response};
use crate::testing::{Cluster, batch, found, refused};

#[test]
fn every_code_has_its_consequence() {
    let (mut t, _) = pulling(group("T1"));
    let pull = "PullMessage T1";
    t.comment("held until the broker's patience ended");
    t.skip(seconds(15));
    t.answer_pull(pull, PullStatus::NoNewMessage, 0);
    t.comment("filtered messages move the offset");
    t.answer_pull(pull, PullStatus::NoMatchedMessage, 800);
    t.wait(seconds(5));
    t.settle();
    t.comment("slow down");
    t.answer(pull, Err(refused(215, "flow control")));
    t.wait(Duration::from_millis(20));
    t.comment("the subscription is not known: a heartbeat at once, no noise");
    t.answer(
        pull,
        Err(refused(25, "the consumer's subscription not latest")),
    );
    t.wait(seconds(1));
    t.settle();
    t.comment("errors, told once, with their end");
    t.answer(pull, Err(refused(1, "store not ready")));
    t.wait(seconds(1));
    t.answer(pull, Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.answer_pull(pull, PullStatus::NoNewMessage, 800);
    check("pull_codes", &t);
}

#[test]
fn answers_that_lead_nowhere_are_not_asked_for_at_full_speed() {
    let (mut t, _) = pulling(group("T1"));
    for _ in 0..9 {
        t.answer_pull("PullMessage T1", PullStatus::NoNewMessage, 0);
    }
    t.forget_transcript();
    t.wait(Duration::from_millis(20));
    check("pull_fruitless", &t);
}

fn illegal(next: u64, remark: &str) -> Response {
    let mut answer = found(&batch(&[]), next);
    if let Response::Pull(answer) = &mut answer {
        answer.status = PullStatus::OffsetIllegal;
        answer.remark = remark.to_owned();
        answer.batch = None;
    }
    answer
}

#[test]
fn an_illegal_offset_is_corrected() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.committed.insert(queue("T1@broker-a:0"), 100);
    pull_with(&mut t, group("T1"));
    let pull = "PullMessage T1";
    t.comment("messages expired: what was fetched is kept");
    t.answer_found(pull, &messages(100..102));
    t.answer(pull, Ok(illegal(500, "OFFSET_TOO_SMALL")));
    t.result(1, success());
    t.comment("the broker lost its end: a new assignment, committed first");
    t.answer_found(pull, &messages(500..502));
    t.answer(pull, Ok(illegal(300, "OFFSET_OVERFLOW_BADLY")));
    t.result(2, success());
    t.settle();
    t.comment("an operator skips forward: what was fetched is dropped");
    t.answer_found(pull, &messages(300..302));
    t.answer(pull, Ok(illegal(900, "OFFSET_RESET")));
    t.settle();
    t.comment("a correction that does not help is not repeated at full speed");
    t.answer(pull, Ok(illegal(900, "OFFSET_OVERFLOW_BADLY")));
    t.settle();
    t.wait(seconds(1));
    t.settle();
    check("pull_offset_illegal", &t);
}

#[test]
fn pulls_stop_over_a_threshold_and_go_on_when_messages_are_finished() {
    let (mut t, _) = pulling(
        group("T1")
            .pull_threshold_for_queue(3)
            .consume_concurrently_max_span(10)
            .consume_message_batch_max_size(2),
    );
    let pull = "PullMessage T1";
    t.comment("more than three messages");
    t.answer_found(pull, &messages(0..4));
    let status = t.client.status(t.now());
    let activity = status.groups[0].topics[1].queues[0].reason.to_string();
    t.comment(&activity);
    t.result(2, success());
    t.comment("more than ten offsets from the first to the last");
    t.answer_found(pull, &messages(20..21));
    t.result(1, success());
    check("pull_flow_control", &t);
}

#[test]
fn a_client_whose_memory_is_full_pulls_nothing() {
    let mut t = Harness::new(|config| config.buffer_bytes = 150);
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, group("T1"));
    t.comment("an answer within the bound, then one beyond it, thrown away");
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..1));
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..1));
    t.result(1, success());
    check("pull_buffer_bytes", &t);
}

#[test]
fn a_queue_that_waits_for_memory_does_not_wait_for_the_news_of_another() {
    // Given three queues without memory to be pulled into.
    let mut t = Harness::new(|config| config.buffer_bytes = 150);
    t.topic("T1", &[("broker-a", 4)]);
    pull_with(&mut t, group("T1"));
    for queue in 0..4 {
        t.answer_found(&format!("PullMessage T1@broker-a:{queue}"), &messages(0..1));
    }
    // When the memory is free, and the broker has nothing for the first that is woken.
    t.result(1, success());
    t.wait(seconds(1));
    // Then the others are asked for all the same.
    let pulls = t.open_requests();
    let pulls = pulls.iter().filter(|line| line.contains("PullMessage T1"));
    assert_eq!(pulls.count(), 4, "{}", t.transcript());
}

#[test]
fn tags_are_compared_here_as_well() {
    let (mut t, _) = pulling(tagged_group("T1", "TagA || TagB"));
    let mut answer = messages(0..5);
    answer[0] = answer[0].clone().tag("TagA");
    answer[1] = answer[1].clone().tag("Other");
    answer[3] = answer[3].clone().tag("TagB");
    answer[4] = answer[4].clone().tag("TagA");
    t.answer_found("PullMessage T1", &answer);
    t.result(1, success());
    t.comment("nothing wanted at all: the offset moves on");
    t.answer_found("PullMessage T1", &messages(5..9));
    t.wait(seconds(5));
    check("pull_tags", &t);
}

#[test]
fn bad_records_never_stop_a_queue() {
    let (mut t, _) = pulling(group("T1"));
    let pull = "PullMessage T1";
    t.comment("a wrong CRC: asked for again, alone; it was the wire");
    let mut damaged = messages(0..3);
    damaged[1].wrong_crc = true;
    t.answer_found(pull, &damaged);
    t.result(1, success());
    t.answer_found(pull, &messages(1..2));
    t.result(2, success());
    t.comment("a wrong CRC that stays: the broker's copy becomes a dead letter");
    let mut damaged = messages(2..3);
    damaged[0].wrong_crc = true;
    t.answer_found(pull, &damaged);
    t.answer_found(pull, &damaged);
    t.settle();
    t.comment("a body that does not open: a dead letter with the reason");
    let mut closed = messages(3..5);
    closed[0].wrong_compression = true;
    t.answer_found(pull, &closed);
    t.settle();
    t.result(3, success());
    t.comment("bytes that are no message: three times alone, then skipped");
    let garbage = crate::testing::garbage_after(&messages(5..6));
    t.answer(pull, Ok(found(&garbage, 8)));
    t.result(4, success());
    for _ in 0..3 {
        t.wait(seconds(1));
        let garbage = crate::testing::garbage_after(&[]);
        t.answer(pull, Ok(found(&garbage, 7)));
    }
    check("pull_bad_records", &t);
}

#[test]
fn a_slave_is_asked_when_the_master_does_not_answer() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster
        .slaves
        .insert("broker-a".to_owned(), Cluster::address("broker-s"));
    t.cluster.committed.insert(queue("T1@broker-a:0"), 7);
    pull_with(&mut t, group("T1"));
    t.answer("PullMessage T1", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.comment("a slave keeps no offsets: none is committed with the pull");
    t.answer_pull("PullMessage T1", PullStatus::NoNewMessage, 7);
    t.settle();
    check("pull_slave", &t);
}
