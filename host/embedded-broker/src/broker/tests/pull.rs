//! Pulling: checks, answers, filters, waiting.

use super::*;

/// Code and remark of every pull answer since the last time, by opaque.
fn woken(harness: &mut Harness) -> Vec<(i32, i32, String)> {
    harness
        .said()
        .into_iter()
        .filter(|(to, command)| *to == CONSUMER && command.is_response())
        .map(|(_, command)| {
            let remark = command.remark.clone().unwrap_or_default();
            (command.opaque, command.code, remark)
        })
        .collect()
}

fn subscribed() -> Harness {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "a0");
    harness.heartbeat(CONSUMER, "G", &[("T", "A", 1000)]);
    harness.said();
    harness
}

#[test]
fn every_offset_has_its_answer() {
    let mut harness = Harness::new();
    for body in ["m0", "m1", "m2"] {
        harness.send("T", 0, "A", body);
    }
    for (queue, offset, expression, code, remark, next) in [
        (0, 0, "*", 0, "FOUND", 3),
        (0, 2, "*", 0, "FOUND", 3),
        (0, 0, "B", 20, "NO_MATCHED_MESSAGE", 3),
        (0, -5, "*", 21, "OFFSET_TOO_SMALL", 0),
        (0, 3, "*", 19, "OFFSET_OVERFLOW_ONE", 3),
        (0, 50, "*", 21, "OFFSET_OVERFLOW_BADLY", 3),
        (1, 0, "*", 19, "NO_MESSAGE_IN_QUEUE", 0),
        (1, 5, "*", 21, "NO_MESSAGE_IN_QUEUE", 0),
    ] {
        let answer = harness.pull(&pull_header("G", "T", queue, offset, expression));
        assert_eq!(
            code_and_remark(&answer),
            (code, remark),
            "{queue} {offset} {expression}"
        );
        let header = pulled(&answer);
        assert_eq!(
            header.next_begin_offset, next,
            "{queue} {offset} {expression}"
        );
        assert_eq!(header.max_offset, if queue == 0 { 3 } else { 0 });
        assert_eq!((header.min_offset, header.suggest_which_broker_id), (0, 0));
    }
}

#[test]
fn pulls_that_may_not_be_are_refused_in_rocketmqs_words() {
    let mut harness = subscribed();
    let own = |group: &str, topic: &str, sub_version| PullMessageRequestHeader {
        sub_version,
        sys_flag: 0,
        ..pull_header(group, topic, 0, 0, "*")
    };
    harness.send("U", 0, "A", "x");
    for (header, code, remark) in [
        (
            pull_header("G", "none", 0, 0, "*"),
            17,
            "topic[none] not exist, apply first please! ",
        ),
        (
            pull_header("G", "T", 7, 0, "*"),
            29,
            "queueId[7] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50002]",
        ),
        (
            pull_header("G", "T", -1, 0, "*"),
            29,
            "queueId[-1] is illegal",
        ),
        (
            pull_header("G", "T", 0, 0, "||"),
            23,
            "parse the consumer's subscription failed",
        ),
        (
            own("nobody", "T", 0),
            24,
            "the consumer's group info not exist",
        ),
        (
            own("G", "U", 0),
            24,
            "the consumer's subscription not exist",
        ),
        (
            own("G", "T", 1001),
            25,
            "the consumer's subscription not latest",
        ),
        (
            own("x".repeat(121).as_str(), "T", 0),
            26,
            "subscription group [",
        ),
    ] {
        let answer = harness.pull(&header);
        assert_eq!(answer.code, code, "{answer:?}");
        assert!(
            answer.remark.as_deref().unwrap().starts_with(remark),
            "{answer:?}"
        );
    }
    assert_eq!(harness.pull(&own("G", "T", 1000)).code, 0);
    let sql = PullMessageRequestHeader {
        expression_type: Some("SQL92".to_owned()),
        ..pull_header("G", "T", 0, 0, "a > 1")
    };
    assert_eq!(harness.pull(&sql).code, response_code::SYSTEM_ERROR);
}

#[test]
fn own_limits_bound_an_answer_whatever_is_asked_for() {
    let mut harness = Harness::new();
    for index in 0..40 {
        harness.send("T", 0, "A", &index.to_string());
    }
    let greedy = PullMessageRequestHeader {
        max_msg_nums: i32::MAX,
        ..pull_header("G", "T", 0, 0, "*")
    };
    let answer = harness.pull(&greedy);
    assert_eq!(messages(&answer).len(), 32);
    assert_eq!(pulled(&answer).next_begin_offset, 32);
}

#[test]
fn waiting_pull_is_answered_when_a_message_it_wants_arrives() {
    let mut harness = subscribed();
    let opaque = harness.request(
        CONSUMER,
        RemotingCommand::request(11, waiting_pull("G", "T", 1).encode()),
    );
    assert!(harness.said().is_empty());
    harness.send("T", 0, "B", "b1");
    assert!(woken(&mut harness).is_empty());
    harness.request(
        PRODUCER,
        RemotingCommand::request(
            310,
            SendMessageRequestHeaderV2(SendMessageRequestHeader {
                properties: Some("TAGS\u{1}A\u{2}".to_owned()),
                ..send_header("T", 0)
            })
            .encode(),
        )
        .with_body("a2"),
    );
    let said = harness.said();
    assert_eq!(said[0].0, PRODUCER, "the producer is answered first");
    assert_eq!((said[1].0, said[1].1.opaque), (CONSUMER, opaque));
    assert_eq!(bodies(&said[1].1), ["a2"]);
    assert_eq!(pulled(&said[1].1).next_begin_offset, 3);
}

#[test]
fn waiting_pull_ends_after_its_time_with_nothing() {
    let mut harness = subscribed();
    let opaque = harness.request(
        CONSUMER,
        RemotingCommand::request(11, waiting_pull("G", "T", 1).encode()),
    );
    harness.advance(Duration::from_millis(14_999));
    assert!(woken(&mut harness).is_empty());
    harness.advance(Duration::from_millis(1));
    assert_eq!(
        woken(&mut harness),
        [(opaque, 19, "OFFSET_OVERFLOW_ONE".to_owned())]
    );
}

#[test]
fn pull_that_only_unwanted_messages_passed_moves_on_within_five_seconds() {
    let mut harness = subscribed();
    let opaque = harness.request(
        CONSUMER,
        RemotingCommand::request(11, waiting_pull("G", "T", 1).encode()),
    );
    harness.advance(Duration::from_secs(1));
    harness.send("T", 0, "B", "b1");
    harness.advance(Duration::from_secs(4));
    let answers = harness.said();
    assert_eq!(answers[0].1.opaque, opaque);
    assert_eq!(code_and_remark(&answers[0].1), (20, "NO_MATCHED_MESSAGE"));
    assert_eq!(pulled(&answers[0].1).next_begin_offset, 2);
}

#[test]
fn full_table_of_waiting_pulls_answers_at_once() {
    let mut harness = Harness::with(|config| config.held_pulls_max = 1);
    harness.send("T", 0, "A", "x");
    harness.heartbeat(CONSUMER, "G", &[("T", "*", 1)]);
    harness.said();
    harness.request(
        CONSUMER,
        RemotingCommand::request(11, waiting_pull("G", "T", 1).encode()),
    );
    assert_eq!(harness.pull(&waiting_pull("G", "T", 1)).code, 19);
}

#[test]
fn lost_connection_takes_its_waiting_pull_along() {
    let mut harness = subscribed();
    harness.request(
        CONSUMER,
        RemotingCommand::request(11, waiting_pull("G", "T", 1).encode()),
    );
    harness.broker.handle_disconnected(CONSUMER, harness.now);
    harness.send("T", 0, "A", "x");
    harness.advance(Duration::from_secs(20));
    assert!(woken(&mut harness).is_empty());
}

#[test]
fn pull_commits_what_it_carries_only_when_it_says_so() {
    let mut harness = subscribed();
    let carrying = |sys_flag| PullMessageRequestHeader {
        commit_offset: 77,
        sys_flag,
        ..pull_header("G", "T", 0, 0, "*")
    };
    harness.pull(&carrying(4));
    assert_eq!(
        harness.committed("G", "T", 0).ext_field("offset"),
        Some("0")
    );
    harness.pull(&carrying(5));
    assert_eq!(
        harness.committed("G", "T", 0).ext_field("offset"),
        Some("77")
    );
}

#[test]
fn old_messages_go_and_the_pull_says_where_to_go_on() {
    let mut harness = Harness::with(|config| {
        config.store_bytes_max = 20_000;
        config.segment_bytes = 2_000;
    });
    for index in 0..300 {
        harness.send("T", 0, "A", &index.to_string());
    }
    let answer = harness.pull(&pull_header("G", "T", 0, 0, "*"));
    let min = pulled(&answer).min_offset;
    assert_eq!(code_and_remark(&answer), (21, "OFFSET_TOO_SMALL"));
    assert!(min > 0 && pulled(&answer).next_begin_offset == min);
    assert_eq!(
        bodies(&harness.pull(&pull_header("G", "T", 0, min, "*")))[0],
        min.to_string()
    );
    assert_eq!(
        harness.committed("G", "T", 0).code,
        response_code::QUERY_NOT_FOUND
    );
}
