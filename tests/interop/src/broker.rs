//! A connection of our own to a broker: sends to a chosen queue, asks for offsets, makes
//! topics. Milliseconds, where RocketMQ's tool takes seconds.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::front_name_server::broker_addr_in;
use end_to_end::remoting_frame::Frame;

const HEART_BEAT: i32 = 34;
const UPDATE_AND_CREATE_TOPIC: i32 = 17;
const SEND_MESSAGE_V2: i32 = 310;
const QUERY_CONSUMER_OFFSET: i32 = 14;
const GET_MAX_OFFSET: i32 = 30;
const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
const GET_TOPIC_STATS_INFO: i32 = 202;
const INVOKE_BROKER_TO_GET_CONSUMER_STATUS: i32 = 223;
const GET_BROKER_CLUSTER_INFO: i32 = 106;
const UPDATE_CONSUMER_OFFSET: i32 = 15;
const SUCCESS: i32 = 0;
/// The group has committed nothing of the queue.
const QUERY_NOT_FOUND: i32 = 22;
/// A broker on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// `String#hashCode`, of ASCII.
fn java_hash(text: &str) -> i32 {
    let characters = text.bytes();
    characters.fold(0, |hash: i32, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    })
}

/// An open connection; one request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    opaque: i32,
}

impl Connection {
    /// To a broker or name server.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot reach {address}: {error}"));
        stream.set_nodelay(true).expect("a connected socket");
        stream
            .set_read_timeout(Some(BOUND))
            .expect("a connected socket");
        Self { stream, opaque: 0 }
    }

    /// To the one broker of a cluster.
    ///
    /// # Panics
    /// When the name server knows none.
    pub fn to_broker_of(namesrv_addr: &str) -> Self {
        Self::open(&broker_addr(namesrv_addr))
    }

    fn ask(&mut self, code: i32, fields: &[(&str, &str)], body: &[u8]) -> Frame {
        self.opaque += 1;
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value)| format!("\"{key}\":\"{value}\""))
            .collect();
        let fields = format!("{{{}}}", fields.join(","));
        let request = Frame::request(code, self.opaque, &fields, body);
        self.stream
            .write_all(request.bytes())
            .expect("the broker listens");
        loop {
            let frame = Frame::read(&mut self.stream)
                .expect("the broker answers")
                .expect("the broker keeps the connection");
            if frame.is_response() && frame.opaque() == self.opaque {
                return frame;
            }
        }
    }

    /// Makes a topic with this many queues and waits until the name server knows it.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn create_topic(&mut self, namesrv_addr: &str, topic: &str, queues: u32) {
        let queues = queues.to_string();
        let fields = [
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("readQueueNums", queues.as_str()),
            ("writeQueueNums", queues.as_str()),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("topicSysFlag", "0"),
            ("order", "false"),
        ];
        let answer = self.ask(UPDATE_AND_CREATE_TOPIC, &fields, b"");
        assert_eq!(answer.code(), SUCCESS, "the topic {topic}: {answer:?}");
        let mut name_server = Self::open(namesrv_addr);
        eventually("the route of a new topic", BOUND, || {
            let answer = name_server.ask(GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)], b"");
            (answer.code() == SUCCESS).then_some(())
        });
    }

    /// Says what a member of a group would: that it reads a topic with this filter of one
    /// tag, of this version, which is the member's clock in milliseconds.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn announce_filter(&mut self, group: &str, topic: &str, tag: &str, version: u64) {
        let body = format!(
            r#"{{"clientID":"zz@elsewhere","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{{"classFilterMode":false,"codeSet":[{hash}],"expressionType":"TAG","subString":"{tag}","subVersion":{version},"tagsSet":["{tag}"],"topic":"{topic}"}}],"unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[]}}"#,
            hash = java_hash(tag),
        );
        let answer = self.ask(HEART_BEAT, &[], body.as_bytes());
        assert_eq!(answer.code(), SUCCESS, "a heartbeat: {answer:?}");
    }

    /// Whether the broker has the topic: a slave asks its master for them every ten seconds.
    pub fn has_topic(&mut self, topic: &str) -> bool {
        let answer = self.ask(GET_TOPIC_STATS_INFO, &[("topic", topic)], b"");
        answer.code() == SUCCESS
    }

    /// Stores a message; its offset in the queue.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn send(&mut self, topic: &str, queue_id: u32, body: &[u8]) -> u64 {
        let queue_id = queue_id.to_string();
        let fields = [
            ("a", "interop"),
            ("b", topic),
            ("c", "TBW102"),
            ("d", "4"),
            ("e", queue_id.as_str()),
            ("f", "0"),
            ("g", "1"),
            ("h", "0"),
            ("j", "0"),
            ("k", "false"),
            ("m", "false"),
        ];
        let answer = self.ask(SEND_MESSAGE_V2, &fields, body);
        assert_eq!(answer.code(), SUCCESS, "a send to {topic}: {answer:?}");
        number(&answer, "queueOffset").expect("an offset in the answer")
    }

    /// What a group has committed of a queue.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn committed(&mut self, group: &str, topic: &str, queue_id: u32) -> Option<u64> {
        let queue_id = queue_id.to_string();
        let fields = [
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", queue_id.as_str()),
            ("setZeroIfNotFound", "false"),
        ];
        let answer = self.ask(QUERY_CONSUMER_OFFSET, &fields, b"");
        match answer.code() {
            SUCCESS => Some(number(&answer, "offset").expect("an offset in the answer")),
            QUERY_NOT_FOUND => None,
            _ => panic!("what {group} has committed of {topic}: {answer:?}"),
        }
    }

    /// Commits for a group, as a member of it does.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn commit(&mut self, group: &str, topic: &str, queue_id: u32, offset: u64) {
        let (queue_id, offset) = (queue_id.to_string(), offset.to_string());
        let fields = [
            ("consumerGroup", group),
            ("topic", topic),
            ("queueId", queue_id.as_str()),
            ("commitOffset", offset.as_str()),
        ];
        let answer = self.ask(UPDATE_CONSUMER_OFFSET, &fields, b"");
        assert_eq!(answer.code(), SUCCESS, "a commit of {group}: {answer:?}");
    }

    /// What the members of a group hold in memory of a topic, as the broker passes it on.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn consumer_status(&mut self, group: &str, topic: &str) -> String {
        let fields = [("group", group), ("topic", topic), ("clientAddr", "")];
        let answer = self.ask(INVOKE_BROKER_TO_GET_CONSUMER_STATUS, &fields, b"");
        assert_eq!(answer.code(), SUCCESS, "the members' offsets: {answer:?}");
        String::from_utf8_lossy(answer.body()).into_owned()
    }

    /// The next offset that a queue will give.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn max_offset(&mut self, topic: &str, queue_id: u32) -> u64 {
        let queue_id = queue_id.to_string();
        let fields = [("topic", topic), ("queueId", queue_id.as_str())];
        let answer = self.ask(GET_MAX_OFFSET, &fields, b"");
        assert_eq!(answer.code(), SUCCESS, "the end of {topic}: {answer:?}");
        number(&answer, "offset").expect("an offset in the answer")
    }
}

/// Where the one broker of a cluster listens.
///
/// # Panics
/// When the name server knows none.
pub fn broker_addr(namesrv_addr: &str) -> String {
    let answer = Connection::open(namesrv_addr).ask(GET_BROKER_CLUSTER_INFO, &[], b"");
    let body = String::from_utf8_lossy(answer.body()).into_owned();
    broker_addr_in(&body)
        .unwrap_or_else(|| panic!("no broker in {body}"))
        .to_owned()
}

fn number(frame: &Frame, field: &str) -> Option<u64> {
    frame.field(field)?.parse().ok()
}
