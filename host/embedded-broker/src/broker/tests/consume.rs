//! Failing to consume: send-back, retries, dead letters; and finding messages again.

use super::*;
use protocol::header::ConsumerSendMsgBackRequestHeader;

fn send_back(
    harness: &mut Harness,
    offset: i64,
    delay_level: i32,
    max: Option<i32>,
) -> RemotingCommand {
    let header = ConsumerSendMsgBackRequestHeader {
        offset,
        group: "G".to_owned(),
        delay_level,
        max_reconsume_times: max,
        ..ConsumerSendMsgBackRequestHeader::default()
    };
    harness.ask(
        CONSUMER,
        request_code::CONSUMER_SEND_MSG_BACK,
        header.encode(),
        "",
    )
}

#[test]
fn failed_message_comes_back_later_and_then_is_a_dead_letter() {
    let mut harness = Harness::new();
    harness.send("T", 1, "A", "poison");
    let first = harness.messages("T", 1).remove(0);

    assert_eq!(
        send_back(&mut harness, first.commit_log_offset, 0, Some(1)).code,
        0
    );
    harness.advance(Duration::from_millis(9_999));
    assert_eq!(harness.broker.max_offset("%RETRY%G", 0), 0);
    harness.advance(Duration::from_millis(1));
    let retry = harness.messages("%RETRY%G", 0).remove(0);
    assert_eq!(&retry.body[..], b"poison");
    assert_eq!(retry.reconsume_times, 1);
    assert_eq!(retry.born_timestamp_ms, first.born_timestamp_ms);
    for (name, value) in [
        ("RETRY_TOPIC", "T"),
        ("ORIGIN_MESSAGE_ID", "7F00000200002A9F0000000000000000"),
        ("DELAY", "3"),
        ("REAL_TOPIC", "%RETRY%G"),
        ("REAL_QID", "0"),
        ("WAIT", "false"),
        ("TAGS", "A"),
    ] {
        assert_eq!(property(&retry, name), Some(value), "{name}");
    }

    assert_eq!(
        send_back(&mut harness, retry.commit_log_offset, 0, Some(1)).code,
        0
    );
    let dead = harness.messages("%DLQ%G", 0).remove(0);
    assert_eq!(dead.reconsume_times, 2);
    for (name, value) in [
        ("RETRY_TOPIC", "T"),
        ("ORIGIN_MESSAGE_ID", "7F00000200002A9F0000000000000000"),
        ("DELAY", "0"),
        ("REAL_TOPIC", "%RETRY%G"),
    ] {
        assert_eq!(property(&dead, name), Some(value), "{name}");
    }
    let events: Vec<Event> = std::iter::from_fn(|| harness.broker.poll_event()).collect();
    assert!(events.contains(&Event::MessageDeadLettered {
        group: "G".into(),
        topic: "%DLQ%G".into(),
        reconsume_times: 2
    }));
}

#[test]
fn delivered_retry_wakes_the_pull_that_waits_for_it() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    let offset = harness.messages("T", 0)[0].commit_log_offset;
    harness.heartbeat(CONSUMER, "G", &[("T", "*", 1), ("%RETRY%G", "*", 1)]);
    harness.said();
    let pull = waiting_pull("G", "%RETRY%G", 0);
    harness.request(CONSUMER, RemotingCommand::request(11, pull.encode()));
    send_back(&mut harness, offset, 1, None);
    harness.advance(Duration::from_secs(1));
    let said = harness.said();
    assert_eq!(said.len(), 1);
    assert_eq!(bodies(&said[0].1), ["x"]);
}

#[test]
fn delay_level_of_the_request_counts_and_a_negative_one_gives_up() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    let offset = harness.messages("T", 0)[0].commit_log_offset;
    send_back(&mut harness, offset, 1, None);
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.broker.max_offset("%RETRY%G", 0), 1);
    send_back(&mut harness, offset, -1, None);
    assert_eq!(harness.broker.max_offset("%DLQ%G", 0), 1);
}

#[test]
fn group_setting_counts_when_the_client_is_too_old_to_say() {
    let mut harness = Harness::with(|config| config.retry_max_times = 0);
    harness.send("T", 0, "A", "x");
    let header = ConsumerSendMsgBackRequestHeader {
        offset: harness.messages("T", 0)[0].commit_log_offset,
        group: "G".to_owned(),
        max_reconsume_times: Some(16),
        ..ConsumerSendMsgBackRequestHeader::default()
    };
    let mut request =
        RemotingCommand::request(request_code::CONSUMER_SEND_MSG_BACK, header.encode());
    request.version = 120;
    harness.request(CONSUMER, request);
    assert_eq!(harness.broker.max_offset("%DLQ%G", 0), 1);
}

#[test]
fn send_back_of_what_is_not_there_is_refused() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    let answer = send_back(&mut harness, 1, 0, None);
    assert_eq!(
        code_and_remark(&answer),
        (1, "look message by offset failed, 1")
    );
    assert_eq!(send_back(&mut harness, -1, 0, None).code, 1);
}

fn send_to_retry_topic(harness: &mut Harness, reconsume_times: i32, max: i32) {
    let header = SendMessageRequestHeader {
        properties: Some("DELAY\u{1}3\u{2}TAGS\u{1}A\u{2}".to_owned()),
        reconsume_times: Some(reconsume_times),
        max_reconsume_times: Some(max),
        ..send_header("%RETRY%G", 0)
    };
    let answer = harness.ask(
        CONSUMER,
        request_code::SEND_MESSAGE_V2,
        SendMessageRequestHeaderV2(header).encode(),
        "x",
    );
    assert_eq!(answer.code, 0);
}

#[test]
fn retry_sent_by_the_client_is_a_dead_letter_above_the_maximum() {
    let mut harness = Harness::new();
    send_to_retry_topic(&mut harness, 16, 16);
    harness.advance(Duration::from_secs(10));
    let retry = harness.messages("%RETRY%G", 0).remove(0);
    assert_eq!(
        (retry.reconsume_times, property(&retry, "DELAY")),
        (16, Some("3"))
    );
    send_to_retry_topic(&mut harness, 17, 16);
    let dead = harness.messages("%DLQ%G", 0).remove(0);
    assert_eq!(
        (dead.reconsume_times, property(&dead, "DELAY")),
        (17, Some("-1"))
    );
}

#[test]
fn retry_sent_by_an_orderly_group_is_a_dead_letter() {
    let mut harness = Harness::new();
    let queue = protocol::MessageQueue::new("T", "mqlet", 0);
    harness
        .broker
        .locks
        .lock("G", "c", &[queue].into(), harness.now);
    send_to_retry_topic(&mut harness, 1, 16);
    assert_eq!(harness.broker.max_offset("%DLQ%G", 0), 1);
    harness.advance(Duration::from_secs(61));
    send_to_retry_topic(&mut harness, 1, 16);
    assert_eq!(harness.broker.max_offset("%DLQ%G", 0), 1);
}

#[test]
fn message_is_found_by_place_by_key_and_by_unique_key() {
    let mut harness = Harness::new();
    for (unique, keys) in [("u1", "k1 k2"), ("u2", "k2"), ("u3", "other")] {
        let properties = properties::encode([("KEYS", keys), ("UNIQ_KEY", unique)]);
        harness.send_with("T", 0, &properties, unique);
    }
    let query = |harness: &mut Harness, key: &str, unique: &str, max: &str| {
        let fields: ExtFields = [
            ("topic", "T"),
            ("key", key),
            ("maxNum", max),
            ("beginTimestamp", "0"),
            ("endTimestamp", "9223372036854775807"),
            ("_UNIQUE_KEY_QUERY", unique),
        ]
        .into_iter()
        .collect();
        let answer = harness.ask(OTHER, request_code::QUERY_MESSAGE, fields, "");
        (answer.code, bodies(&answer))
    };
    assert_eq!(
        query(&mut harness, "k2", "false", "8"),
        (0, vec!["u1".to_owned(), "u2".to_owned()])
    );
    assert_eq!(
        query(&mut harness, "k2", "false", "1"),
        (0, vec!["u2".to_owned()])
    );
    assert_eq!(
        query(&mut harness, "u3", "true", "1"),
        (0, vec!["u3".to_owned()])
    );
    assert_eq!(
        query(&mut harness, "u3", "false", "8").0,
        response_code::QUERY_NOT_FOUND
    );

    let place = harness.messages("T", 0)[1].commit_log_offset.to_string();
    let fields: ExtFields = [("offset", place.as_str())].into_iter().collect();
    let answer = harness.ask(OTHER, request_code::VIEW_MESSAGE_BY_ID, fields, "");
    assert_eq!(bodies(&answer), ["u2"]);
}

#[test]
fn limits_and_times_of_a_queue_are_told() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    harness.advance(Duration::from_secs(10));
    harness.send("T", 0, "A", "x");
    let ask = |harness: &mut Harness, code, queue: &str, timestamp: &str| {
        let fields: ExtFields = [("topic", "T"), ("queueId", queue), ("timestamp", timestamp)]
            .into_iter()
            .collect();
        let answer = harness.ask(OTHER, code, fields, "");
        answer
            .ext_field("offset")
            .or(answer.ext_field("timestamp"))
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        ask(&mut harness, request_code::GET_MAX_OFFSET, "0", ""),
        "2"
    );
    assert_eq!(
        ask(&mut harness, request_code::GET_MAX_OFFSET, "9", ""),
        "0"
    );
    assert_eq!(
        ask(&mut harness, request_code::GET_MIN_OFFSET, "0", ""),
        "0"
    );
    let search = request_code::SEARCH_OFFSET_BY_TIMESTAMP;
    assert_eq!(ask(&mut harness, search, "0", "1700000005000"), "1");
    assert_eq!(ask(&mut harness, search, "0", "9223372036854775807"), "2");
    let earliest = request_code::GET_EARLIEST_MSG_STORETIME;
    assert_eq!(ask(&mut harness, earliest, "0", ""), "1700000000000");
    assert_eq!(ask(&mut harness, earliest, "1", ""), "-1");
}
