//! One client's part of a recording: what it asked, what it was answered and told, what
//! its listener returned.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use protocol::body::GetConsumerStatusBody;
use protocol::subscription::SubscriptionData;
use protocol::{MessageQueue, RemotingCommand};
use serde_json::Value;

use super::Scenario;
use super::replay::Asked;
use crate::config::GroupConfig;
use crate::listener::{ConcurrentlyStatus, ConsumeResult, OrderlyStatus};

/// A message by topic, queue and offset.
pub(super) type Place = (String, u32, u64);

/// See the module.
pub(super) struct Recording {
    pub(super) asked: Vec<Asked>,
    /// By index into `asked`: when it was answered, and what.
    pub(super) answers: BTreeMap<usize, (u64, RemotingCommand)>,
    /// What the broker asked of the client, and when.
    pub(super) told: Vec<(u64, RemotingCommand)>,
    /// What the listener returned for a call that began with this message, in order.
    pub(super) returns: BTreeMap<Place, Vec<ConsumeResult>>,
    /// What a broadcasting client's file had in the end.
    pub(super) stored: BTreeMap<MessageQueue, u64>,
    /// The group of the first heartbeat.
    pub(super) group: GroupConfig,
    pub(super) namesrv: &'static str,
    pub(super) broker: &'static str,
}

impl Recording {
    pub(super) fn load(scenario: &Scenario) -> Self {
        let lines = lines(scenario.file);
        let mut recording = Self {
            asked: Vec::new(),
            answers: BTreeMap::new(),
            told: Vec::new(),
            returns: BTreeMap::new(),
            stored: BTreeMap::new(),
            group: group(&lines, scenario),
            namesrv: "127.0.0.2:9876",
            broker: "127.0.0.2:10911",
        };
        let mut open: BTreeMap<(String, i64), usize> = BTreeMap::new();
        for line in &lines {
            let of_client = |connection: &str| scenario.connections.contains(&connection);
            match (line["dir"].as_str(), line["conn"].as_str()) {
                (Some("event"), _) => recording.note_event(line, scenario),
                (Some("c2n" | "c2b"), Some(connection)) if of_client(connection) => {
                    let command = command(line);
                    if command.is_response() {
                        continue;
                    }
                    let key = (connection.to_owned(), i64::from(command.opaque));
                    open.insert(key, recording.asked.len());
                    recording
                        .asked
                        .push(Asked::new(milliseconds(line), command));
                }
                (Some("n2c" | "b2c"), Some(connection)) if of_client(connection) => {
                    let command = command(line);
                    let at = milliseconds(line);
                    let key = (connection.to_owned(), i64::from(command.opaque));
                    if !command.is_response() {
                        recording.told.push((at, command));
                    } else if let Some(index) = open.remove(&key) {
                        recording.answers.insert(index, (at, command));
                    }
                }
                _ => {}
            }
        }
        assert!(
            !recording.asked.is_empty(),
            "{}: nobody asked",
            scenario.file
        );
        recording
    }

    fn note_event(&mut self, line: &Value, scenario: &Scenario) {
        let client = line["client"].as_str();
        let ours = client.is_none_or(|client| scenario.client_id.ends_with(client));
        if line["event"] == "offsets.json" && ours {
            let text = line["text"].as_str().unwrap_or_default();
            let text = text.replace("offsetTable", "messageQueueTable");
            let body = GetConsumerStatusBody::decode(text.as_bytes()).expect("offsets");
            let offsets = body.message_queue_table.into_iter();
            self.stored = offsets
                .map(|(queue, offset)| (queue, u64::try_from(offset).unwrap_or_default()))
                .collect();
        }
        if line["event"] != "listener" || !ours {
            return;
        }
        let queue = line["queue"].as_str().unwrap_or_default();
        let first = &line["messages"][0];
        let topic = queue
            .split_once("topic=")
            .and_then(|(_, rest)| rest.split_once(','))
            .map_or(first["topic"].as_str().unwrap_or_default(), |(topic, _)| {
                topic
            });
        let place = (
            topic.to_owned(),
            u32::try_from(first["queueId"].as_u64().expect("a queue")).expect("a small number"),
            first["queueOffset"].as_u64().expect("an offset"),
        );
        let result = match line["returns"].as_str().expect("a status") {
            "CONSUME_SUCCESS" => {
                ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
            }
            "RECONSUME_LATER" => ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater {
                delay_level: None,
            }),
            "SUCCESS" => ConsumeResult::Orderly(OrderlyStatus::Success),
            "SUSPEND_CURRENT_QUEUE_A_MOMENT" => {
                ConsumeResult::Orderly(OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None })
            }
            other => panic!("a listener returned {other}"),
        };
        self.returns.entry(place).or_default().push(result);
    }
}

/// All of a recording.
pub(super) fn lines(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../protocol/testdata/frames")
        .join(format!("{file}.jsonl"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a recording is JSON"))
        .collect()
}

fn milliseconds(line: &Value) -> u64 {
    line["ms"].as_u64().expect("a time")
}

/// A frame, without its length field.
pub(super) fn command(line: &Value) -> RemotingCommand {
    let digits = line["hex"].as_str().expect("a frame");
    let bytes: Vec<u8> = (8..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
        .collect();
    RemotingCommand::decode(Bytes::from(bytes)).expect("a recorded frame decodes")
}

/// The group that the client's first heartbeat names.
fn group(lines: &[Value], scenario: &Scenario) -> GroupConfig {
    let group = lines
        .iter()
        .find_map(|line| {
            (line["body"]["clientID"] == scenario.client_id)
                .then(|| &line["body"]["consumerDataSet"][0])
        })
        .expect("a heartbeat");
    let mut builder = GroupConfig::builder(group["groupName"].as_str().expect("a name").to_owned());
    builder = match group["consumeFromWhere"].as_str() {
        Some("CONSUME_FROM_FIRST_OFFSET") => {
            builder.consume_from_where(crate::config::ConsumeFromWhere::FirstOffset)
        }
        _ => builder,
    };
    for subscription in group["subscriptionDataSet"].as_array().expect("a list") {
        let topic = subscription["topic"].as_str().expect("a topic");
        if topic.starts_with("%RETRY%") {
            continue;
        }
        let expression = subscription["subString"].as_str().expect("an expression");
        let kind = protocol::subscription::ExpressionType::Tag;
        let data = SubscriptionData::build(topic, expression, kind).expect("a good expression");
        builder = builder.subscription(data);
    }
    (scenario.configure)(builder).build().expect("a group")
}
