//! What `mqadmin` made the broker ask of a Java consumer, asked of the rules: they answer
//! what that consumer answered, or the difference is in [`NOT_COMPARED`] with its reason.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::body::{ConsumerRunningInfo, GetConsumerStatusBody};
use protocol::code::request_code;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{MessageQueue, RemotingCommand};
use serde_json::Value;

use super::recording::{command, lines};
use crate::config::{ConsumeFromWhere, GroupConfig};
use crate::listener::{ConcurrentlyStatus, ConsumeResult};
use crate::request::{ServerRequest, ServerRequestId};
use crate::testing::{Cluster, Harness};

const CLIENT_ID: &str = "192.0.2.10@admin-c1";
/// Of `T_admin`, as the recorded consumer had committed them.
const COMMITTED: [u64; 4] = [3, 3, 3, 4];

/// Parts of answers that differ, each with its reason.
const NOT_COMPARED: &[(&str, &str)] = &[
    (
        "remark",
        "Java forgets to set a code and says so in the remark of every good answer",
    ),
    ("Timestamp", "times of the run"),
    ("START_TIMESTAMP", "times of the run"),
    ("spentTimeMills", "times of the run"),
    (
        "T_admin locked",
        "Java calls a queue locked that needs no lock; ours is not",
    ),
    (
        "%RETRY%G_admin locked",
        "the same of the retry topic's queue",
    ),
    (
        "%RETRY%G_admin commitOffset",
        "Java tells -1 of a queue of which nothing was consumed, we where it began",
    ),
    (
        "statusTable",
        "rates of the run; their topics are compared beside it",
    ),
    (
        "property maxReconsumeTimes",
        "Java shows its word for 16, we the number",
    ),
    ("property language", "who we are"),
    ("property PROP_CLIENT_VERSION", "who we are"),
    (
        "property PROP_THREADPOOL_CORE_SIZE",
        "Java has 20 threads for each group, we a number of calls",
    ),
    (
        "property PROP_NAMESERVER_ADDR",
        "the name server of this test",
    ),
    (
        "property allocateMessageQueueStrategy",
        "Java prints an object, we RocketMQ's name of the strategy",
    ),
];

/// Settings of ours and those of Java that mean nothing here are not compared: tools read
/// those that both have.
fn is_compared(field: &str) -> bool {
    NOT_COMPARED.iter().all(|(part, _)| !field.contains(part))
}

fn consumer() -> Harness {
    let mut t = Harness::new(|config| CLIENT_ID.clone_into(&mut config.client_id));
    t.topic("T_admin", &[("broker-a", 4)]);
    t.topic("%RETRY%G_admin", &[("broker-a", 1)]);
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    for (id, offset) in (0..).zip(COMMITTED) {
        let queue = MessageQueue::new("T_admin", "broker-a", id);
        t.cluster.committed.insert(queue, offset);
    }
    let filter = SubscriptionData::build("T_admin", "TagA || TagB", ExpressionType::Tag);
    let group = GroupConfig::builder("G_admin")
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .consume_message_batch_max_size(1)
        .subscription(filter.expect("an expression"));
    t.subscribe(group.build().expect("a group"));
    t.settle_but(&["PullMessage"]);
    t.wait(Duration::from_millis(10));
    t.settle_but(&["PullMessage"]);
    t
}

/// What the broker asked in a recording with this code, and the consumer's answer.
fn asked(file: &str, code: i32) -> (RemotingCommand, Option<RemotingCommand>) {
    let lines = lines(file);
    let is = |line: &Value, dir: &str| line["dir"] == dir;
    let asked = lines
        .iter()
        .find(|line| is(line, "b2c") && line["type"] != "response" && line["code"] == code)
        .expect("the broker asked");
    let answer = lines.iter().find(|line| {
        is(line, "c2b") && line["answers"] == code && line["opaque"] == asked["opaque"]
    });
    (command(asked), answer.map(command))
}

fn ask(t: &mut Harness, command: RemotingCommand, listens: bool) -> Option<RemotingCommand> {
    let request = ServerRequest {
        id: ServerRequestId(7),
        from: Cluster::address("broker-a"),
        command,
    };
    t.does("asked by a broker", |client, now| {
        client.handle_server_request(request, now);
        if listens {
            let call = client.poll_consume_request().expect("a call");
            let done = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
            client.handle_consume_result(call.id, ConsumeResult::Concurrently(done), now);
        }
        let info = client.poll_running_info().map(|info| info.encode());
        info.or_else(|| client.poll_answer().map(|(_, answer)| answer))
    })
}

/// Fields on which both answers have something to say, where they differ.
fn differences(java: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> Vec<String> {
    let names = java.keys().chain(ours.keys());
    let mut differing: Vec<String> = names
        .filter(|name| is_compared(name) && java.get(*name) != ours.get(*name))
        .map(|name| {
            format!(
                "{name}: Java {:?}, ours {:?}",
                java.get(name),
                ours.get(name)
            )
        })
        .collect();
    differing.sort();
    differing.dedup();
    differing
}

#[test]
fn offsets_in_memory_are_told_as_java_tells_them() {
    let (question, java) = asked(
        "admin-getConsumeStatus",
        request_code::GET_CONSUMER_STATUS_FROM_CLIENT,
    );
    let ours = ask(&mut consumer(), question, false).expect("an answer");
    let java = java.expect("Java answered");
    assert_eq!(ours.code, java.code);
    let read = |answer: &RemotingCommand| {
        let body = GetConsumerStatusBody::decode(&answer.body).expect("offsets");
        (body.message_queue_table, body.consumer_table)
    };
    assert_eq!(read(&ours), read(&java));
}

#[test]
fn the_running_info_has_what_java_tells() {
    for file in ["admin-consumerStatus", "admin-queryMsgById-direct"] {
        let (question, java) = asked(file, request_code::GET_CONSUMER_RUNNING_INFO);
        let ours = ask(&mut consumer(), question, false).expect("an answer");
        let (java, ours) = (running_info(&java.expect("an answer")), running_info(&ours));
        let mut java = java;
        if file == "admin-consumerStatus" {
            // Nobody had asked for a retry in that cluster yet.
            java.retain(|name, _| !name.contains("%RETRY%"));
        }
        let ours: BTreeMap<_, _> = ours
            .into_iter()
            .filter(|(name, _)| java.contains_key(name) || !name.contains("%RETRY%"))
            .collect();
        assert_eq!(differences(&java, &ours), Vec::<String>::new(), "{file}");
    }
}

/// As names and values.
fn running_info(answer: &RemotingCommand) -> BTreeMap<String, String> {
    let info = ConsumerRunningInfo::decode(&answer.body).expect("a running info");
    let mut fields = BTreeMap::new();
    fields.insert("code".to_owned(), answer.code.to_string());
    for (queue, state) in &info.mq_table {
        let queue = format!("{}:{}", queue.topic, queue.queue_id);
        let state = serde_json::to_value(state).expect("a value");
        for (name, value) in state.as_object().expect("an object") {
            let topic = queue.split(':').next().unwrap_or_default();
            let name = format!("mqTable {queue} of {topic} {name}");
            fields.insert(name, value.to_string());
        }
    }
    for subscription in &info.subscription_set {
        let name = format!("subscription {}", subscription.topic);
        fields.insert(name, subscription.sub_string.clone());
    }
    for topic in info.status_table.keys() {
        fields.insert(format!("status of {topic}"), "is there".to_owned());
    }
    // Tools read those that begin so; of the others, what both have.
    let both = |name: &str| {
        name.starts_with("PROP_")
            || ["consumerGroup", "messageModel", "consumeFromWhere"].contains(&name)
            || name.starts_with("pull") && !name.contains("Topic") && !name.contains("Time")
    };
    for (name, value) in info.properties {
        if both(&name) && name != "pullBatchSizeInBytes" && name != "pullInterval" {
            fields.insert(format!("property {name}"), value);
        }
    }
    fields
}

#[test]
fn one_message_is_consumed_directly_as_java_does_it() {
    let (question, java) = asked(
        "admin-queryMsgById-direct",
        request_code::CONSUME_MESSAGE_DIRECTLY,
    );
    let ours = ask(&mut consumer(), question, true).expect("an answer");
    let java = java.expect("Java answered");
    let read = |answer: &RemotingCommand| {
        let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let members = body.as_object().expect("an object").clone();
        let mut fields: BTreeMap<String, String> = members
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, value.to_string()))
            .collect();
        fields.insert("code".to_owned(), answer.code.to_string());
        fields
    };
    assert_eq!(
        differences(&read(&java), &read(&ours)),
        Vec::<String>::new()
    );
}

#[test]
fn a_reset_is_stored_and_pulled_from_as_java_does_it() {
    let file = "admin-resetOffsetByTime-client";
    let (question, _) = asked(file, request_code::RESET_CONSUMER_CLIENT_OFFSET);
    assert!(question.is_oneway());
    let mut t = consumer();
    t.take_commits();
    t.forget_transcript();
    assert_eq!(ask(&mut t, question, false), None);
    t.wait(Duration::from_secs(5));
    t.settle_but(&["PullMessage"]);
    let mut stored = t.take_commits();
    stored.sort();
    stored.retain(|(queue, _)| *queue.topic == *"T_admin");
    // Java: the four commits of 0 after its pause of ten seconds, then pulls from 0.
    let lines = lines(file);
    let of_java = |code: i32, field: &str| {
        let asked = lines.iter().filter(|line| {
            line["dir"] == "c2b"
                && line["conn"] == "c3"
                && line["code"] == code
                && line["ms"].as_u64() > Some(10_000)
                && line["header"]["topic"] == "T_admin"
        });
        let mut first = BTreeMap::new();
        for line in asked {
            let queue = line["header"]["queueId"].as_str().unwrap_or_default();
            let value = line["header"][field].as_str().unwrap_or_default();
            first
                .entry(queue.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        first
    };
    let java_stored = of_java(request_code::UPDATE_CONSUMER_OFFSET, "commitOffset");
    let ours: BTreeMap<String, String> = stored
        .iter()
        .map(|(queue, offset)| (queue.queue_id.to_string(), offset.to_string()))
        .collect();
    assert_eq!(ours, java_stored);
    let java_pulls = of_java(request_code::PULL_MESSAGE, "queueOffset");
    assert_eq!(java_pulls.len(), 4);
    for (queue, offset) in java_pulls {
        let pull = format!("PullMessage T_admin@broker-a:{queue} from {offset}");
        assert!(
            t.open_requests().iter().any(|open| open.contains(&pull)),
            "{pull}: {:?}",
            t.open_requests()
        );
    }
}
