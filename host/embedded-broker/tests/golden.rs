//! What recorded Java clients asked a real RocketMQ 5.5.0 is asked again here, and the
//! answers are compared with the recorded ones: code, remark, header and body.
//!
//! Times, ports of clients and the place in the commit log depend on the recording and
//! are left out or made relative. Every other difference is listed in the tests, each
//! with its reason. The frames are those of `protocol`'s test data.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use embedded_broker::{Broker, BrokerConfig, ConnectionId};
use expect_test::{Expect, expect};
use protocol::code::{request_code, response_code};
use protocol::message::codec::StoredMessage;
use protocol::message::message_id::{offset_message_id, parse_offset_message_id};
use protocol::message::properties;
use protocol::{Instant, RemotingCommand};
use serde_json::Value;

/// One line of a recording.
struct Line {
    ms: u64,
    to_server: bool,
    conn: String,
    command: RemotingCommand,
}

fn recording(scenario: &str) -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../protocol/testdata/frames")
        .join(format!("{scenario}.jsonl"));
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .filter(|line| line["hex"].is_string())
        .map(|line| Line {
            ms: line["ms"].as_u64().expect("a time"),
            to_server: matches!(line["dir"].as_str(), Some("c2b" | "c2n")),
            conn: line["conn"].as_str().expect("a connection").to_owned(),
            command: decode(line["hex"].as_str().expect("a frame")),
        })
        .collect();
    assert!(!lines.is_empty(), "{scenario} has frames");
    lines
}

fn decode(hex: &str) -> RemotingCommand {
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
        .collect();
    RemotingCommand::decode(Bytes::from(bytes).slice(4..)).expect("a recorded frame")
}

/// A broker that is asked what was recorded.
struct Replay {
    broker: Broker,
    /// Commit-log offset in the recording minus ours.
    shift: i64,
    connections: BTreeMap<String, ConnectionId>,
    answers: BTreeMap<(ConnectionId, i32), RemotingCommand>,
    /// Connections that were told of changed members, with how often.
    notices: BTreeMap<String, u32>,
}

impl Replay {
    fn new() -> Self {
        let mut config = BrokerConfig::listening_on(address());
        config.broker_name = "broker-a".into();
        let mut replay = Self {
            broker: Broker::new(config, at(0), Duration::from_millis(1_796_035_000_000)),
            shift: 0,
            connections: BTreeMap::new(),
            answers: BTreeMap::new(),
            notices: BTreeMap::new(),
        };
        for line in recording("setup-topics") {
            replay.feed("setup", &line, 0);
        }
        replay.answers.clear();
        replay
    }

    /// Asks everything that a scenario asked and compares all answers.
    fn run(scenario: &str) -> String {
        let lines = recording(scenario);
        let mut replay = Self::new();
        replay.shift = first_commit_log_offset(&lines);
        let mut differences = Vec::new();
        let mut asked = BTreeMap::new();
        let mut recorded_notices = BTreeMap::new();
        for line in &lines {
            replay.feed("", line, line.ms);
            let id = (line.conn.clone(), line.command.opaque);
            if line.to_server && !line.command.is_oneway() {
                asked.insert(id, line.command.code);
            } else if !line.to_server
                && line.command.code == request_code::NOTIFY_CONSUMER_IDS_CHANGED
                && !line.command.is_response()
            {
                *recorded_notices.entry(line.conn.clone()).or_insert(0) += 1;
            }
        }
        let end = lines.last().map_or(0, |line| line.ms);
        replay.advance(end + 20_000);
        let mut compared = 0;
        for line in lines.iter().filter(|line| line.command.is_response()) {
            let Some(code) = asked.get(&(line.conn.clone(), line.command.opaque)) else {
                continue;
            };
            let connection = replay.connections[&line.conn];
            let Some(ours) = replay.answers.get(&(connection, line.command.opaque)) else {
                differences.push(format!("{}: no answer to {}", line.conn, name(*code)));
                continue;
            };
            compared += 1;
            let recorded = describe(*code, &line.command, replay.shift);
            let ours = describe(*code, ours, 0);
            if recorded != ours {
                differences.push(format!(
                    "{}\n  recorded {recorded}\n  ours     {ours}",
                    name(*code)
                ));
            }
        }
        if recorded_notices != replay.notices {
            differences.push(format!(
                "notices\n  recorded {recorded_notices:?}\n  ours     {:?}",
                replay.notices
            ));
        }
        let mut seen = BTreeSet::new();
        differences.retain(|difference| seen.insert(difference.clone()));
        let mut text = format!("{compared} answers compared\n");
        for difference in differences {
            text.push_str(&difference);
            text.push('\n');
        }
        text
    }

    fn feed(&mut self, prefix: &str, line: &Line, ms: u64) {
        self.advance(ms);
        let next = ConnectionId(self.connections.len() as u64 + 1);
        let name = format!("{prefix}{}", line.conn);
        let connection = *self.connections.entry(name).or_insert(next);
        if connection == next {
            self.broker.handle_connected(
                connection,
                "127.0.0.1:40000".parse().expect("an address"),
                at(ms),
            );
        }
        if line.to_server {
            let request = self.request(&line.command);
            self.broker.handle_request(connection, request, at(ms));
        }
        self.collect();
    }

    /// The request with commit-log offsets as they are here.
    fn request(&self, recorded: &RemotingCommand) -> RemotingCommand {
        let by_place = [
            request_code::CONSUMER_SEND_MSG_BACK,
            request_code::VIEW_MESSAGE_BY_ID,
        ];
        let mut request = recorded.clone();
        if by_place.contains(&request.code)
            && let Some(fields) = &mut request.ext_fields
            && let Some(Ok(offset)) = fields.get("offset").map(str::parse::<i64>)
            && offset >= self.shift
        {
            fields.set("offset", Some((offset - self.shift).to_string()));
        }
        request
    }

    fn advance(&mut self, ms: u64) {
        while let Some(timeout) = self
            .broker
            .poll_timeout()
            .filter(|timeout| *timeout <= at(ms))
        {
            self.broker.handle_timeout(timeout);
            self.collect();
        }
    }

    fn collect(&mut self) {
        while let Some((to, command)) = self.broker.poll_response() {
            if command.is_response() {
                self.answers.insert((to, command.opaque), command);
            } else {
                let name = self
                    .connections
                    .iter()
                    .find(|(_, connection)| **connection == to)
                    .map(|(name, _)| name.clone());
                *self
                    .notices
                    .entry(name.expect("a known connection"))
                    .or_insert(0) += 1;
            }
        }
    }
}

fn at(ms: u64) -> Instant {
    Instant::after_origin(Duration::from_millis(ms))
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], 10_911))
}

fn name(code: i32) -> &'static str {
    request_code::name(code).unwrap_or("?")
}

/// Where the first message of a recording went.
fn first_commit_log_offset(lines: &[Line]) -> i64 {
    lines
        .iter()
        .filter(|line| line.command.is_response())
        .filter_map(|line| line.command.ext_field("msgId"))
        .filter_map(|id| parse_offset_message_id(id.split(',').next()?).ok())
        .map(|(_, offset)| i64::try_from(offset).expect("an offset"))
        .min()
        .unwrap_or(0)
}

/// Everything of an answer that does not depend on when and where it was given.
fn describe(asked: i32, answer: &RemotingCommand, shift: i64) -> String {
    let mut text = response_code::name(answer.code).unwrap_or("?").to_owned();
    if let Some(remark) = answer.remark.as_deref()
        // Left over in Java's answers to some requests.
        && !["", "not set any response code"].contains(&remark)
    {
        let remark = remark
            .split(' ')
            .map(|word| {
                if word.contains("127.0.0.1:") {
                    "CLIENT"
                } else {
                    word
                }
            })
            .collect::<Vec<_>>()
            .join(" ");
        text.push_str(&format!(" {remark:?}"));
    }
    let fields: BTreeMap<&str, String> = answer
        .ext_fields
        .iter()
        .flat_map(|fields| fields.iter())
        .map(|(name, value)| (name, field(name, value.unwrap_or("null"), shift)))
        .collect();
    if !fields.is_empty() {
        text.push_str(&format!(" {fields:?}"));
    }
    match asked {
        request_code::PULL_MESSAGE
        | request_code::LITE_PULL_MESSAGE
        | request_code::VIEW_MESSAGE_BY_ID
        | request_code::QUERY_MESSAGE => {
            let mut body = answer.body.clone();
            while !body.is_empty() {
                let message = StoredMessage::decode(&mut body).expect("a stored message");
                text.push_str(&format!("\n    {}", describe_message(&message, shift)));
            }
        }
        _ if !answer.body.is_empty() => text.push_str(&format!(" {}", describe_json(&answer.body))),
        _ => {}
    }
    text
}

fn field(name: &str, value: &str, shift: i64) -> String {
    match name {
        "msgId" => value
            .split(',')
            .map(|id| relative_id(id, shift))
            .collect::<Vec<_>>()
            .join(","),
        // A key that the broker made.
        "transactionId" if value.len() == 32 && !value.starts_with("C000020A62C44E") => {
            "KEY".to_owned()
        }
        "timestamp" | "indexLastUpdateTimestamp" if value != "-1" && value != "0" => {
            "TIME".to_owned()
        }
        "indexLastUpdatePhyoffset" if value != "0" => "PLACE".to_owned(),
        _ => value.to_owned(),
    }
}

fn relative_id(id: &str, shift: i64) -> String {
    match parse_offset_message_id(id) {
        Ok((host, offset)) => {
            let offset = i64::try_from(offset).expect("an offset") - shift;
            offset_message_id(host, u64::try_from(offset).unwrap_or(u64::MAX))
        }
        Err(_) => id.to_owned(),
    }
}

fn describe_message(message: &StoredMessage, shift: i64) -> String {
    let properties: BTreeMap<&str, String> = properties::Iter::new(&message.properties)
        .map(|(name, value)| match name {
            properties::ORIGIN_MESSAGE_ID => (name, relative_id(value, shift)),
            properties::UNIQ_KEY if !value.starts_with("C000020A62C44E") && value.len() == 32 => {
                (name, "KEY".to_owned())
            }
            _ => (name, value.to_owned()),
        })
        .collect();
    format!(
        "{}:{}@{} place {} flag {} sys {:#x} born {} {} store {} times {} {:?} {} bytes crc {} {properties:?}",
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.commit_log_offset - shift,
        message.flag,
        message.sys_flag.0,
        message.born_timestamp_ms,
        message.born_host.ip(),
        message.store_host,
        message.reconsume_times,
        message.version,
        message.body.len(),
        message.body_crc,
    )
}

/// JSON with its sets and members in one order.
fn describe_json(body: &[u8]) -> String {
    fn sorted(value: &mut Value) {
        match value {
            Value::Array(items) => {
                items.iter_mut().for_each(sorted);
                items.sort_by_key(ToString::to_string);
            }
            Value::Object(members) => members.values_mut().for_each(sorted),
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return String::from_utf8_lossy(body).into_owned();
    };
    sorted(&mut value);
    value.to_string()
}

fn check(scenario: &str, differences: &Expect) {
    differences.assert_eq(&Replay::run(scenario));
}

#[test]
fn send_kinds() {
    check(
        "send-kinds",
        &expect![[r#"
        14 answers compared
    "#]],
    );
}

#[test]
fn send_auto_create() {
    check(
        "send-auto-create",
        &expect![[r#"
        9 answers compared
    "#]],
    );
}

#[test]
fn send_batch() {
    check(
        "send-batch",
        &expect![[r#"
        11 answers compared
    "#]],
    );
}

#[test]
fn push_concurrent() {
    check(
        "push-concurrent",
        &expect![[r#"
        81 answers compared
    "#]],
    );
}

/// RocketMQ looks at held pulls every 5 s from its own start, we from the first one:
/// between the two looks two more messages came that the filter keeps out.
#[test]
fn push_tag_filter() {
    check(
        "push-tag-filter",
        &expect![[r#"
        57 answers compared
        PULL_MESSAGE
          recorded PULL_RETRY_IMMEDIATELY "NO_MATCHED_MESSAGE" {"groupSysFlag": "0", "maxOffset": "8", "minOffset": "0", "nextBeginOffset": "8", "suggestWhichBrokerId": "0", "topicSysFlag": "0"}
          ours     PULL_RETRY_IMMEDIATELY "NO_MATCHED_MESSAGE" {"groupSysFlag": "0", "maxOffset": "10", "minOffset": "0", "nextBeginOffset": "10", "suggestWhichBrokerId": "0", "topicSysFlag": "0"}
    "#]],
    );
}

#[test]
fn push_retry_dlq() {
    check(
        "push-retry-dlq",
        &expect![[r#"
        47 answers compared
    "#]],
    );
}

#[test]
fn push_orderly() {
    check(
        "push-orderly",
        &expect![[r#"
        91 answers compared
    "#]],
    );
}

#[test]
fn lite_pull() {
    check(
        "lite-pull",
        &expect![[r#"
        39 answers compared
    "#]],
    );
}

/// Java's exceptions are answered with words of our own and the same code. What tools
/// ask about clients (203, 307, 309) is not served yet.
#[test]
fn error_answers() {
    check(
        "error-answers",
        &expect![[r#"
        77 answers compared
        VIEW_MESSAGE_BY_ID
          recorded SYSTEM_ERROR "java.lang.IllegalArgumentException: newLimit < 0: (-304438496 < 0), java.base/java.nio.Buffer.createLimitException(Buffer.java:395)"
          ours     SYSTEM_ERROR "can not find message by the offset, 3"
        CONSUME_MESSAGE_DIRECTLY
          recorded SYSTEM_ERROR "The Consumer <G_err> <nobody> not online"
          ours     REQUEST_CODE_NOT_SUPPORTED " request type 309 not supported"
        GET_CONSUMER_RUNNING_INFO
          recorded SYSTEM_ERROR "The Consumer <G_err> <nobody> not online"
          ours     REQUEST_CODE_NOT_SUPPORTED " request type 307 not supported"
        GET_CONSUMER_CONNECTION_LIST
          recorded CONSUMER_NOT_ONLINE "the consumer group[G_none] not online"
          ours     REQUEST_CODE_NOT_SUPPORTED " request type 203 not supported"
        SEND_MESSAGE_V2
          recorded SYSTEM_ERROR "java.lang.NullPointerException: Cannot read the array length because the return value of \"org.apache.rocketmq.remoting.protocol.RemotingCommand.getBody()\" is null, org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor.buildMsgContext(AbstractSendMessageProcessor.java:361)"
          ours     SYSTEM_ERROR "the message has no body; send at least one byte" {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    "#]],
    );
}
