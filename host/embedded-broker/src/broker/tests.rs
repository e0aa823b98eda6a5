//! The broker as its clients see it: commands in, commands out, on a hand-driven clock.

mod arbitrary;
mod consume;
mod membership;
mod pull;
mod send;

use super::*;
use protocol::body::{ConsumerData, HeartbeatData};
use protocol::header::{
    PullMessageRequestHeader, PullMessageResponseHeader, QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader,
};
use protocol::message::codec::StoredMessage;
use protocol::message::properties;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::sys_flag::PullSysFlag;

const UNIX_START: Duration = Duration::from_millis(1_700_000_000_000);
const PRODUCER: ConnectionId = ConnectionId(1);
const CONSUMER: ConnectionId = ConnectionId(2);
const OTHER: ConnectionId = ConnectionId(3);

/// One broker, three connections and a clock.
struct Harness {
    broker: Broker,
    now: Instant,
    opaque: i32,
}

impl Harness {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let mut config = BrokerConfig::listening_on("127.0.0.2:10911".parse().unwrap());
        change(&mut config);
        let now = Instant::after_origin(Duration::from_secs(100));
        let mut broker = Broker::new(config, now, UNIX_START);
        for connection in [PRODUCER, CONSUMER, OTHER] {
            let port = 50_000 + u16::try_from(connection.0).unwrap();
            broker.handle_connected(connection, ([127, 0, 0, 1], port).into(), now);
        }
        Self {
            broker,
            now,
            opaque: 0,
        }
    }

    /// Moves the clock on, stopping wherever the broker wants to be called.
    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(timeout) = self.broker.poll_timeout().filter(|timeout| *timeout <= end) {
            self.now = self.now.max(timeout);
            self.broker.handle_timeout(self.now);
        }
        self.now = end;
        self.broker.handle_timeout(end);
    }

    fn request(&mut self, connection: ConnectionId, mut request: RemotingCommand) -> i32 {
        self.opaque += 1;
        request.opaque = self.opaque;
        self.broker.handle_request(connection, request, self.now);
        self.opaque
    }

    /// What the broker said since the last time.
    fn said(&mut self) -> Vec<(ConnectionId, RemotingCommand)> {
        std::iter::from_fn(|| self.broker.poll_response()).collect()
    }

    /// The one answer to a request; notices that come with it are dropped.
    fn ask(
        &mut self,
        connection: ConnectionId,
        code: i32,
        ext_fields: ExtFields,
        body: impl Into<Bytes>,
    ) -> RemotingCommand {
        let opaque = self.request(
            connection,
            RemotingCommand::request(code, ext_fields).with_body(body),
        );
        let mut answers: Vec<_> = self
            .said()
            .into_iter()
            .filter(|(_, command)| command.is_response() && command.opaque == opaque)
            .collect();
        assert_eq!(answers.len(), 1, "answers to {code}");
        let (to, answer) = answers.remove(0);
        assert_eq!(to, connection);
        answer
    }

    fn send(&mut self, topic: &str, queue_id: i32, tag: &str, body: &str) -> RemotingCommand {
        let properties = properties::encode([("TAGS", tag), ("WAIT", "true")]);
        self.send_with(topic, queue_id, &properties, body)
    }

    fn send_with(
        &mut self,
        topic: &str,
        queue_id: i32,
        properties: &[u8],
        body: &str,
    ) -> RemotingCommand {
        let header = SendMessageRequestHeader {
            properties: Some(String::from_utf8(properties.to_vec()).unwrap()),
            ..send_header(topic, queue_id)
        };
        self.ask(
            PRODUCER,
            request_code::SEND_MESSAGE_V2,
            SendMessageRequestHeaderV2(header).encode(),
            body.to_owned(),
        )
    }

    fn heartbeat(
        &mut self,
        connection: ConnectionId,
        group: &str,
        subscriptions: &[(&str, &str, i64)],
    ) {
        let heartbeat = HeartbeatData {
            client_id: format!("client-{}", connection.0),
            consumer_data_set: vec![ConsumerData {
                group_name: group.to_owned(),
                subscription_data_set: subscriptions
                    .iter()
                    .map(|(topic, expression, sub_version)| SubscriptionData {
                        sub_version: *sub_version,
                        ..SubscriptionData::build(topic, expression, ExpressionType::Tag).unwrap()
                    })
                    .collect(),
                ..ConsumerData::default()
            }],
            ..HeartbeatData::default()
        };
        self.request(
            connection,
            RemotingCommand::request(request_code::HEART_BEAT, ExtFields::default())
                .with_body(heartbeat.encode()),
        );
    }

    fn pull(&mut self, header: &PullMessageRequestHeader) -> RemotingCommand {
        self.ask(
            CONSUMER,
            request_code::PULL_MESSAGE,
            header.encode(),
            Bytes::new(),
        )
    }

    /// Everything a queue has, with the broker's own filter off.
    fn messages(&mut self, topic: &str, queue_id: i32) -> Vec<StoredMessage> {
        let answer = self.pull(&pull_header("reader", topic, queue_id, 0, "*"));
        messages(&answer)
    }

    fn committed(&mut self, group: &str, topic: &str, queue_id: i32) -> RemotingCommand {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id,
            ..QueryConsumerOffsetRequestHeader::default()
        };
        self.ask(
            CONSUMER,
            request_code::QUERY_CONSUMER_OFFSET,
            header.encode(),
            Bytes::new(),
        )
    }
}

fn send_header(topic: &str, queue_id: i32) -> SendMessageRequestHeader {
    SendMessageRequestHeader {
        producer_group: "P".to_owned(),
        topic: topic.to_owned(),
        default_topic: "TBW102".to_owned(),
        default_topic_queue_nums: 4,
        queue_id,
        born_timestamp: 1_699_999_999_000,
        ..SendMessageRequestHeader::default()
    }
}

/// A pull that brings its subscription along and does not wait.
fn pull_header(
    group: &str,
    topic: &str,
    queue_id: i32,
    queue_offset: i64,
    expression: &str,
) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        consumer_group: group.to_owned(),
        topic: topic.to_owned(),
        queue_id,
        queue_offset,
        max_msg_nums: 32,
        sys_flag: PullSysFlag::SUBSCRIPTION.0,
        subscription: Some(expression.to_owned()),
        ..PullMessageRequestHeader::default()
    }
}

/// A pull by the group's own subscription that waits 15 s, as a push consumer's does.
fn waiting_pull(group: &str, topic: &str, queue_offset: i64) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        sys_flag: PullSysFlag::SUSPEND.0,
        subscription: None,
        suspend_timeout_millis: 15_000,
        ..pull_header(group, topic, 0, queue_offset, "*")
    }
}

fn messages(answer: &RemotingCommand) -> Vec<StoredMessage> {
    let mut body = answer.body.clone();
    let mut messages = Vec::new();
    while !body.is_empty() {
        messages.push(StoredMessage::decode(&mut body).unwrap());
    }
    messages
}

fn bodies(answer: &RemotingCommand) -> Vec<String> {
    messages(answer)
        .iter()
        .map(|message| String::from_utf8(message.body.to_vec()).unwrap())
        .collect()
}

fn property<'a>(message: &'a StoredMessage, name: &str) -> Option<&'a str> {
    properties::get(&message.properties, name)
}

fn pulled(answer: &RemotingCommand) -> PullMessageResponseHeader {
    header(answer).unwrap()
}

fn sent(answer: &RemotingCommand) -> SendMessageResponseHeader {
    assert_eq!(answer.code, response_code::SUCCESS, "{answer:?}");
    header(answer).unwrap()
}

fn code_and_remark(answer: &RemotingCommand) -> (i32, &str) {
    (answer.code, answer.remark.as_deref().unwrap_or_default())
}
