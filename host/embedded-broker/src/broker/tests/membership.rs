//! Heartbeats, members, notices, leaving; offsets and locks over the wire.

use super::*;
use protocol::MessageQueue;
use protocol::body::{ConsumerList, LockBatchRequestBody, LockBatchResponseBody, ResetOffsetBody};

/// Who was told that members of a group changed, since the last time.
fn noticed(harness: &mut Harness) -> Vec<ConnectionId> {
    harness
        .said()
        .into_iter()
        .filter(|(_, command)| command.code == request_code::NOTIFY_CONSUMER_IDS_CHANGED)
        .map(|(to, command)| {
            assert!(command.is_oneway() && !command.is_response());
            assert_eq!(command.ext_field("consumerGroup"), Some("G"));
            to
        })
        .collect()
}

fn members(harness: &mut Harness) -> Vec<String> {
    let answer = harness.ask(
        CONSUMER,
        request_code::GET_CONSUMER_LIST_BY_GROUP,
        [("consumerGroup", "G")].into_iter().collect(),
        Bytes::new(),
    );
    if answer.code == response_code::SYSTEM_ERROR {
        assert_eq!(
            answer.remark.as_deref(),
            Some("no consumer for this group, G")
        );
        return Vec::new();
    }
    ConsumerList::decode(&answer.body).unwrap().consumer_ids
}

const T: &[(&str, &str, i64)] = &[("T", "*", 1)];

#[test]
fn joining_and_leaving_are_told_to_everybody_in_the_group() {
    let mut harness = Harness::new();
    harness.heartbeat(CONSUMER, "G", T);
    assert_eq!(noticed(&mut harness), [CONSUMER]);
    harness.heartbeat(OTHER, "G", T);
    assert_eq!(noticed(&mut harness), [CONSUMER, OTHER]);
    harness.heartbeat(OTHER, "G", T);
    assert_eq!(noticed(&mut harness), []);
    assert_eq!(members(&mut harness), ["client-2", "client-3"]);

    let leave = [("clientID", "client-2"), ("consumerGroup", "G")];
    harness.ask(
        CONSUMER,
        request_code::UNREGISTER_CLIENT,
        leave.into_iter().collect(),
        "",
    );
    assert_eq!(members(&mut harness), ["client-3"]);
    harness.broker.handle_disconnected(OTHER, harness.now);
    assert_eq!(members(&mut harness), Vec::<String>::new());
}

#[test]
fn leaving_is_told_to_those_who_stay() {
    let mut harness = Harness::new();
    harness.heartbeat(CONSUMER, "G", T);
    harness.heartbeat(OTHER, "G", T);
    harness.said();
    harness.broker.handle_disconnected(OTHER, harness.now);
    assert_eq!(noticed(&mut harness), [CONSUMER]);
}

#[test]
fn heartbeat_answers_and_creates_the_retry_topic() {
    let mut harness = Harness::new();
    harness.heartbeat(CONSUMER, "G", T);
    let said = harness.said();
    let answer = &said
        .iter()
        .find(|(_, command)| command.is_response())
        .unwrap()
        .1;
    assert_eq!(answer.ext_field("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
    assert_eq!(answer.ext_field("IS_SUB_CHANGE"), Some("true"));
    let route = harness.ask(
        CONSUMER,
        request_code::GET_ROUTEINFO_BY_TOPIC,
        [("topic", "%RETRY%G")].into_iter().collect(),
        Bytes::new(),
    );
    assert_eq!(route.code, response_code::SUCCESS);
    assert!(String::from_utf8_lossy(&route.body).contains(r#""writeQueueNums":1"#));
}

#[test]
fn silent_member_is_dropped_and_its_connection_closed() {
    let mut harness = Harness::new();
    harness.heartbeat(CONSUMER, "G", T);
    harness.advance(Duration::from_secs(60));
    harness.heartbeat(OTHER, "G", T);
    harness.said();
    harness.advance(Duration::from_secs(60));
    assert_eq!(noticed(&mut harness), [OTHER]);
    assert_eq!(
        harness.broker.poll_connection_action(),
        Some(ConnectionAction::Close(CONSUMER))
    );
    assert_eq!(members(&mut harness), ["client-3"]);
}

#[test]
fn broken_heartbeat_is_refused() {
    let mut harness = Harness::new();
    let answer = harness.ask(
        CONSUMER,
        request_code::HEART_BEAT,
        ExtFields::default(),
        "{oops",
    );
    assert_eq!(answer.code, response_code::SYSTEM_ERROR);
}

#[test]
fn group_without_offset_starts_at_zero_only_in_a_young_queue() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    assert_eq!(
        harness.committed("G", "T", 0).ext_field("offset"),
        Some("0")
    );
    let empty = harness.committed("G", "T", 1);
    assert_eq!(
        code_and_remark(&empty),
        (
            22,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )
    );
    let asked: ExtFields = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "0"),
        ("setZeroIfNotFound", "false"),
    ]
    .into_iter()
    .collect();
    let answer = harness.ask(CONSUMER, request_code::QUERY_CONSUMER_OFFSET, asked, "");
    assert_eq!(
        code_and_remark(&answer),
        (
            22,
            "Not found, do not set to zero, maybe this group boot first"
        )
    );
}

fn commit(harness: &mut Harness, fields: &[(&str, &str)]) -> (i32, String) {
    let fields = fields.iter().copied().collect();
    let answer = harness.ask(CONSUMER, request_code::UPDATE_CONSUMER_OFFSET, fields, "");
    (answer.code, answer.remark.unwrap_or_default())
}

#[test]
fn commits_are_checked_as_rocketmq_checks_them() {
    let mut harness = Harness::new();
    harness.send("T", 0, "A", "x");
    let full = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "0"),
        ("commitOffset", "3"),
    ];
    assert_eq!(
        commit(&mut harness, &full),
        (26, "Group G not exist!".to_owned())
    );
    harness.heartbeat(CONSUMER, "G", T);
    harness.said();
    assert_eq!(commit(&mut harness, &full), (0, String::new()));
    let unknown_topic = [full[0], ("topic", "none"), full[2], full[3]];
    assert_eq!(
        commit(&mut harness, &unknown_topic),
        (17, "Topic none not exist!".to_owned())
    );
    assert_eq!(
        commit(&mut harness, &full[..3]),
        (29, "Offset is null, topic is T".to_owned())
    );
    assert_eq!(
        harness.committed("G", "T", 0).ext_field("offset"),
        Some("3")
    );
}

#[test]
fn reset_is_heard_by_the_next_pull_and_holds_commits_off_until_then() {
    let mut harness = Harness::new();
    for _ in 0..3 {
        harness.send("T", 0, "A", "x");
    }
    harness.heartbeat(CONSUMER, "G", T);
    harness.said();
    let reset = [
        ("topic", "T"),
        ("group", "G"),
        ("timestamp", "-1"),
        ("isForce", "true"),
    ];
    let answer = harness.ask(
        OTHER,
        request_code::INVOKE_BROKER_TO_RESET_OFFSET,
        reset.into_iter().collect(),
        "",
    );
    let table = ResetOffsetBody::decode(&answer.body).unwrap().offset_table;
    assert_eq!(table.get(&MessageQueue::new("T", "mqlet", 0)), Some(&3));
    assert_eq!(table.len(), 4);
    let old = [
        ("consumerGroup", "G"),
        ("topic", "T"),
        ("queueId", "0"),
        ("commitOffset", "1"),
    ];
    commit(&mut harness, &old);
    let answer = harness.pull(&pull_header("G", "T", 0, 1, "*"));
    assert_eq!(code_and_remark(&answer), (21, "OFFSET_RESET"));
    assert_eq!(pulled(&answer).next_begin_offset, 3);
    assert_eq!(harness.pull(&pull_header("G", "T", 0, 1, "*")).code, 0);
}

#[test]
fn locks_go_over_the_wire_and_belong_to_one_client() {
    let mut harness = Harness::new();
    let queue = MessageQueue::new("T", "mqlet", 0);
    let body = |client: &str| {
        LockBatchRequestBody {
            client_id: client.to_owned(),
            consumer_group: "G".to_owned(),
            mq_set: [queue.clone()].into(),
            ..LockBatchRequestBody::default()
        }
        .encode()
    };
    let lock = |harness: &mut Harness, client: &str| {
        let answer = harness.ask(
            CONSUMER,
            request_code::LOCK_BATCH_MQ,
            ExtFields::default(),
            body(client),
        );
        let held = LockBatchResponseBody::decode(&answer.body).unwrap();
        held.lock_ok_mq_set.len()
    };
    assert_eq!(lock(&mut harness, "A"), 1);
    assert_eq!(lock(&mut harness, "B"), 0);
    let unlock = harness.ask(
        CONSUMER,
        request_code::UNLOCK_BATCH_MQ,
        ExtFields::default(),
        body("A"),
    );
    assert_eq!(unlock.code, 0);
    assert_eq!(lock(&mut harness, "B"), 1);
}

#[test]
fn unknown_request_is_refused_in_rocketmqs_words() {
    let mut harness = Harness::new();
    let answer = harness.ask(CONSUMER, 9999, ExtFields::default(), "");
    assert_eq!(
        code_and_remark(&answer),
        (3, " request type 9999 not supported")
    );
}
