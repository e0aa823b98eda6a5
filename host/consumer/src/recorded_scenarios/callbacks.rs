//! What `mqadmin` made the broker ask of a Java consumer, asked of the rules: they answer
//! what that consumer answered, or the difference is in a list here with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::body::{ConsumerRunningInfo, GetConsumerStatusBody};
use protocol::code::request_code;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{MessageQueue, RemotingCommand};
use serde_json::Value;

use super::known_differences::is_as;
use super::recording::{command, lines};
use crate::config::{ConsumeFromWhere, GroupConfig};
use crate::listener::{ConcurrentlyStatus, ConsumeResult};
use crate::request::{ServerRequest, ServerRequestId};
use crate::testing::{Cluster, Harness};

const CLIENT_ID: &str = "192.0.2.10@admin-c1";
/// Of `T_admin`, as the recorded consumer had committed them.
const COMMITTED: [u64; 4] = [3, 3, 3, 4];

/// Fields of a running info that differ, each with its reason; `*` stands for any text.
const RUNNING_INFO_DIFFERS: &[(&str, &str)] = &[
    ("mqTable *Timestamp", "times of the run"),
    ("property PROP_CONSUMER_START_TIMESTAMP", "times of the run"),
    (
        "mqTable T_admin:* locked",
        "Java calls a queue locked that needs no lock; ours is not",
    ),
    (
        "mqTable %RETRY%G_admin:0 locked",
        "the same of the retry topic's queue",
    ),
    (
        "mqTable %RETRY%G_admin:0 commitOffset",
        "Java tells -1 of a queue of which nothing was consumed, we where it began",
    ),
    ("property PROP_CLIENT_VERSION", "who we are"),
    ("property language", "who we are"),
    (
        "property maxReconsumeTimes",
        "Java shows -1, its word for 16, we the number",
    ),
    (
        "property allocateMessageQueueStrategy",
        "Java prints an object, we RocketMQ's name of the strategy",
    ),
    (
        "property PROP_NAMESERVER_ADDR",
        "the name server of this test",
    ),
];
/// Fields of the result of a message that is consumed directly.
const RESULT_DIFFERS: &[(&str, &str)] = &[("spentTimeMills", "times of the run")];

/// Two answers that must be the same but for what `known` says, all of which must differ.
struct Comparison {
    known: &'static [(&'static str, &'static str)],
    used: BTreeSet<&'static str>,
}

impl Comparison {
    fn new(known: &'static [(&'static str, &'static str)]) -> Self {
        let used = BTreeSet::new();
        Self { known, used }
    }

    /// Fields that differ, or that one of the two lacks, and no entry says why.
    fn differences(
        &mut self,
        java: &BTreeMap<String, String>,
        ours: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let names: BTreeSet<&String> = java.keys().chain(ours.keys()).collect();
        let mut unexplained = Vec::new();
        for name in names {
            let (java, ours) = (java.get(name), ours.get(name));
            if java == ours {
                continue;
            }
            let mut known = self.known.iter().map(|(pattern, _)| *pattern);
            match known.find(|pattern| is_as(name, pattern)) {
                Some(pattern) => drop(self.used.insert(pattern)),
                None => unexplained.push(format!("{name}: Java {java:?}, ours {ours:?}")),
            }
        }
        unexplained
    }

    /// Entries that explained nothing.
    fn unused(&self) -> Vec<&'static str> {
        let known = self.known.iter().map(|(pattern, _)| *pattern);
        known
            .filter(|pattern| !self.used.contains(pattern))
            .collect()
    }
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
        .consume_thread_max(2)
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
    let mut comparison = Comparison::new(RUNNING_INFO_DIFFERS);
    for file in ["admin-consumerStatus", "admin-queryMsgById-direct"] {
        let (question, java) = asked(file, request_code::GET_CONSUMER_RUNNING_INFO);
        let ours = ask(&mut consumer(), question, false).expect("an answer");
        let java = java.expect("an answer");
        let (mut java, mut ours) = (running_info(&java), running_info(&ours));
        if file == "admin-consumerStatus" {
            // Nobody had asked for a retry in that cluster yet.
            java.retain(|name, _| !name.contains("%RETRY%"));
        }
        ours.retain(|name, _| java.contains_key(name) || !name.contains("%RETRY%"));
        // Each has settings that the other has not; tools read those that begin so.
        let both = |name: &str, other: &BTreeMap<String, String>| {
            let setting = name.strip_prefix("property ");
            setting.is_none_or(|name| name.starts_with("PROP_")) || other.contains_key(name)
        };
        java.retain(|name, _| both(name, &ours));
        ours.retain(|name, _| both(name, &java));
        let differences = comparison.differences(&java, &ours);
        assert_eq!(differences, Vec::<String>::new(), "{file}");
    }
    let unused = comparison.unused();
    assert!(unused.is_empty(), "explain nothing any more: {unused:?}");
}

/// As names and values.
fn running_info(answer: &RemotingCommand) -> BTreeMap<String, String> {
    let info = ConsumerRunningInfo::decode(&answer.body).expect("a running info");
    let mut fields = BTreeMap::new();
    fields.insert("code".to_owned(), answer.code.to_string());
    for (queue, state) in &info.mq_table {
        let state = serde_json::to_value(state).expect("a value");
        for (name, value) in state.as_object().expect("an object") {
            let name = format!("mqTable {}:{} {name}", queue.topic, queue.queue_id);
            fields.insert(name, value.to_string());
        }
    }
    for subscription in &info.subscription_set {
        let name = format!("subscription {}", subscription.topic);
        fields.insert(name, subscription.sub_string.clone());
    }
    // Its rates are of the run.
    for topic in info.status_table.keys() {
        fields.insert(format!("status of {topic}"), "is there".to_owned());
    }
    for (name, value) in info.properties {
        fields.insert(format!("property {name}"), value);
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
    let mut comparison = Comparison::new(RESULT_DIFFERS);
    let differences = comparison.differences(&read(&java), &read(&ours));
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(comparison.unused(), Vec::<&str>::new());
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
