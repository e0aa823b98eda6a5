//! Sending: what is stored, what is refused, batches, delay.

use super::*;
use protocol::message::codec::{BatchMessage, encode_batch};

fn send_error(harness: &mut Harness, topic: &str, queue_id: i32) -> (i32, String) {
    let answer = harness.send(topic, queue_id, "A", "x");
    assert_eq!(answer.ext_field("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(answer.ext_field("TRACE_ON"), Some("true"));
    let (code, remark) = code_and_remark(&answer);
    (code, remark.to_owned())
}

#[test]
fn first_send_creates_the_topic_and_says_where_the_message_is() {
    let mut harness = Harness::new();
    let header = sent(&harness.send("T", 3, "TagA", "hello"));
    assert_eq!(header.msg_id, "7F00000200002A9F0000000000000000");
    assert_eq!((header.queue_id, header.queue_offset), (3, 0));
    assert_eq!(header.transaction_id.map(|id| id.len()), Some(32));
    assert_eq!(sent(&harness.send("T", 3, "TagA", "again")).queue_offset, 1);

    let route = harness.ask(
        CONSUMER,
        request_code::GET_ROUTEINFO_BY_TOPIC,
        [("topic", "T")].into_iter().collect(),
        Bytes::new(),
    );
    let text = String::from_utf8(route.body.to_vec()).unwrap();
    assert!(
        text.contains(r#""brokerAddrs":{"0":"127.0.0.2:10911"}"#),
        "{text}"
    );
    assert!(text.contains(r#""readQueueNums":4"#), "{text}");
}

#[test]
fn stored_message_has_what_the_producer_gave_and_what_brokers_add() {
    let mut harness = Harness::new();
    harness.advance(Duration::from_millis(1500));
    harness.send_with("T", 0, b"a\x01b\x02UNIQ_KEY\x01mine", "hello");
    let message = harness.messages("T", 0).remove(0);
    assert_eq!(&message.body[..], b"hello");
    assert_eq!(message.born_timestamp_ms, 1_699_999_999_000);
    assert_eq!(message.store_timestamp_ms, 1_700_000_001_500);
    assert_eq!(message.born_host, "127.0.0.1:50001".parse().unwrap());
    assert_eq!(message.store_host, "127.0.0.2:10911".parse().unwrap());
    let stored: Vec<(&str, &str)> = properties::Iter::new(&message.properties).collect();
    assert_eq!(
        stored,
        [
            ("a", "b"),
            ("UNIQ_KEY", "mine"),
            ("MSG_REGION", "DefaultRegion"),
            ("TRACE_ON", "true"),
            ("CLUSTER", "DefaultCluster"),
        ]
    );
}

#[test]
fn refusals_are_rocketmqs() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    assert_eq!(
        send_error(&mut harness, "bad topic!", 0),
        (
            29,
            "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
                .to_owned()
        )
    );
    assert_eq!(
        send_error(&mut harness, "SCHEDULE_TOPIC_XXXX", 0),
        (
            16,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.".to_owned()
        )
    );
    let (code, remark) = send_error(&mut harness, "T", 9);
    assert_eq!(code, 29);
    assert!(
        remark.starts_with("request queueId[9] is illegal, TopicConfig [topicName=T,"),
        "{remark}"
    );
    let mut closed = Harness::with(|config| config.auto_create_topic = false);
    assert_eq!(send_error(&mut closed, "T", 0).0, 17);
}

#[test]
fn message_without_body_or_too_large_is_refused() {
    let mut harness = Harness::with(|config| config.message_bytes_max = 10);
    assert_eq!(
        harness.send("T", 0, "A", "").code,
        response_code::SYSTEM_ERROR
    );
    assert_eq!(
        harness.send("T", 0, "A", "12345678901").code,
        response_code::MESSAGE_ILLEGAL
    );
    let long = properties::encode([("k", "v".repeat(40_000).as_str())]);
    assert_eq!(
        harness.send_with("T", 0, &long, "x").code,
        response_code::MESSAGE_ILLEGAL
    );
    assert_eq!(harness.broker.max_offset("T", 0), 0);
}

#[test]
fn queue_below_zero_is_the_brokers_choice_and_spreads() {
    let mut harness = Harness::new();
    let mut queues: Vec<i32> = (0..4)
        .map(|_| sent(&harness.send("T", -1, "A", "x")).queue_id)
        .collect();
    queues.sort_unstable();
    assert_eq!(queues, [0, 1, 2, 3]);
}

#[test]
fn oneway_send_is_stored_and_not_answered() {
    let mut harness = Harness::new();
    let header = SendMessageRequestHeaderV2(send_header("T", 0)).encode();
    let request = RemotingCommand::request(request_code::SEND_MESSAGE_V2, header)
        .with_body("x")
        .oneway();
    harness.request(PRODUCER, request);
    assert!(harness.said().is_empty());
    assert_eq!(harness.broker.max_offset("T", 0), 1);
}

#[test]
fn batch_is_stored_as_single_messages_with_their_own_properties() {
    let mut harness = Harness::new();
    let child = |body: &'static str, tag: &str| BatchMessage {
        flag: 7,
        body: body.into(),
        properties: properties::encode([("TAGS", tag), ("UNIQ_KEY", body)]).into(),
    };
    let batch = encode_batch(&[child("m1", "A"), child("m2", "B")]).unwrap();
    let header = SendMessageRequestHeaderV2(SendMessageRequestHeader {
        batch: Some(true),
        properties: Some("UNIQ_KEY\u{1}whole\u{2}".to_owned()),
        ..send_header("T", 1)
    });
    let answer = harness.ask(
        PRODUCER,
        request_code::SEND_BATCH_MESSAGE,
        header.encode(),
        batch,
    );
    let header = sent(&answer);
    assert_eq!(header.msg_id.split(',').count(), 2);
    assert_eq!((header.queue_id, header.queue_offset), (1, 0));
    assert_eq!(header.transaction_id.as_deref(), Some("whole"));
    let stored = harness.messages("T", 1);
    assert_eq!(stored.len(), 2);
    assert_eq!((stored[1].queue_offset, stored[1].flag), (1, 7));
    assert_eq!(property(&stored[1], "TAGS"), Some("B"));
    assert_eq!(property(&stored[1], "UNIQ_KEY"), Some("m2"));
    assert_eq!(property(&stored[1], "CLUSTER"), None);
    let tag_b = harness.pull(&pull_header("reader", "T", 1, 0, "B"));
    assert_eq!(bodies(&tag_b), ["m2"]);
}

#[test]
fn broken_batch_stores_nothing() {
    let mut harness = Harness::new();
    let header = SendMessageRequestHeaderV2(send_header("T", 0));
    for batch in [vec![0, 0, 0, 99, 1, 2, 3], vec![0xff; 31]] {
        let answer = harness.ask(
            PRODUCER,
            request_code::SEND_BATCH_MESSAGE,
            header.encode(),
            batch,
        );
        assert_eq!(answer.code, response_code::MESSAGE_ILLEGAL);
    }
    assert_eq!(harness.broker.max_offset("T", 0), 0);
}

#[test]
fn delayed_message_waits_for_its_level_and_keeps_everything_else() {
    let mut harness = Harness::new();
    let properties = properties::encode([("TAGS", "A"), ("DELAY", "2")]);
    let header = sent(&harness.send_with("T", 1, &properties, "later"));
    assert_eq!((header.queue_id, header.queue_offset), (1, 0));
    harness.advance(Duration::from_millis(4999));
    assert_eq!(harness.broker.max_offset("T", 1), 0);
    harness.advance(Duration::from_millis(1));
    let message = harness.messages("T", 1).remove(0);
    assert_eq!(property(&message, "DELAY"), Some("2"));
    assert_eq!(property(&message, "REAL_TOPIC"), Some("T"));
    assert_eq!(property(&message, "REAL_QID"), Some("1"));
    assert_eq!(message.store_timestamp_ms, 1_700_000_005_000);
    let by_tag = harness.pull(&pull_header("reader", "T", 1, 0, "A"));
    assert_eq!(bodies(&by_tag), ["later"]);
}

#[test]
fn delay_levels_are_clamped_and_what_is_none_is_refused() {
    let mut harness = Harness::new();
    harness.send_with("T", 0, b"DELAY\x0199\x02", "x");
    let waiting = harness.messages("SCHEDULE_TOPIC_XXXX", 17).remove(0);
    assert_eq!(property(&waiting, "DELAY"), Some("18"));
    assert_eq!(harness.send_with("T", 0, b"DELAY\x01soon\x02", "x").code, 1);
    sent(&harness.send_with("T", 0, b"DELAY\x010\x02", "now"));
    sent(&harness.send_with("T", 0, b"DELAY\x01-3\x02", "now"));
    assert_eq!(harness.broker.max_offset("T", 0), 2);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let mut harness = Harness::new();
    assert_eq!(
        harness.send_with("T", 0, b"TRAN_MSG\x01true\x02", "x").code,
        16
    );
    let too_late = harness.send_with("T", 0, b"TIMER_DELAY_SEC\x01259201\x02", "x");
    assert_eq!(too_late.code, 13);
    assert_eq!(harness.broker.max_offset("T", 0), 0);
}

#[test]
fn timer_message_waits_for_its_time_and_keeps_everything_else() {
    let mut harness = Harness::new();
    let late = properties::encode([("TAGS", "A"), ("TIMER_DELAY_MS", "7001")]);
    let header = sent(&harness.send_with("T", 1, &late, "late"));
    assert_eq!((header.queue_id, header.queue_offset), (1, 0));
    sent(&harness.send_with("T", 1, b"TIMER_DELIVER_MS\x011700000003000\x02", "soon"));
    sent(&harness.send_with("T", 1, b"TIMER_DELIVER_MS\x015\x02", "now"));
    assert_eq!(harness.broker.max_offset("T", 1), 1);
    harness.advance(Duration::from_millis(2999));
    assert_eq!(harness.broker.max_offset("T", 1), 1);
    harness.advance(Duration::from_millis(1));
    assert_eq!(harness.broker.max_offset("T", 1), 2);
    harness.advance(Duration::from_millis(4001));
    let message = harness.messages("T", 1).remove(2);
    assert_eq!(property(&message, "TIMER_OUT_MS"), Some("1700000007001"));
    assert_eq!(property(&message, "REAL_TOPIC"), Some("T"));
    let by_tag = harness.pull(&pull_header("reader", "T", 1, 0, "A"));
    assert_eq!(bodies(&by_tag), ["late"]);
}

#[test]
fn timer_messages_that_the_store_forgot_are_reported_not_waited_for() {
    let mut harness = Harness::with(|config| {
        config.store_bytes_max = 20_000;
        config.segment_bytes = 2_000;
    });
    for _ in 0..5 {
        harness.send_with("T", 0, b"TIMER_DELAY_SEC\x011\x02", "later");
    }
    for _ in 0..200 {
        harness.send("T", 1, "A", "filler");
    }
    harness.advance(Duration::from_secs(2));
    let events: Vec<Event> = std::iter::from_fn(|| harness.broker.poll_event()).collect();
    assert!(
        events.contains(&Event::TimerMessagesLost { messages: 5 }),
        "{events:?}"
    );
    assert_eq!(harness.broker.max_offset("T", 0), 0);
}

#[test]
fn delayed_messages_that_the_store_forgot_are_reported_not_waited_for() {
    let mut harness = Harness::with(|config| {
        config.store_bytes_max = 20_000;
        config.segment_bytes = 2_000;
    });
    for _ in 0..5 {
        harness.send_with("T", 0, b"DELAY\x011\x02", "later");
    }
    for _ in 0..200 {
        harness.send("T", 1, "A", "filler");
    }
    harness.advance(Duration::from_secs(2));
    let events: Vec<Event> = std::iter::from_fn(|| harness.broker.poll_event()).collect();
    assert!(
        events.contains(&Event::DelayedMessagesLost {
            level: 1,
            messages: 5
        }),
        "{events:?}"
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::MessagesDropped { .. }))
    );
    harness.send_with("T", 0, b"DELAY\x011\x02", "later");
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.broker.max_offset("T", 0), 1);
}

#[test]
fn added_topic_has_its_queues_and_a_bad_name_is_refused() {
    let mut harness = Harness::new();
    harness.broker.add_topic("orders", 3).expect("a good name");
    assert_eq!(harness.broker.add_topic("orders", 5), Ok(()), "it is there");
    let config = harness.broker.topics.get("orders").expect("added");
    assert_eq!((config.read_queue_nums, config.write_queue_nums), (3, 3));

    let error = harness
        .broker
        .add_topic("no blanks", 3)
        .expect_err("refused");
    assert!(error.to_string().contains("\"no blanks\""), "{error}");
    assert!(harness.broker.add_topic("many", 100_000).is_err());
}
