//! Whatever clients send, in whatever order: no panic, one answer to each request, and
//! offsets that only grow.

use super::*;
use proptest::prelude::*;

const CODES: [i32; 27] = [
    10, 11, 12, 14, 15, 17, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 46, 105, 106, 206, 215,
    222, 310, 320, 361, 9999,
];

/// Every field that any served request reads, long and short names alike.
const FIELDS: [&str; 40] = [
    "topic",
    "consumerGroup",
    "group",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subscription",
    "subVersion",
    "expressionType",
    "offset",
    "delayLevel",
    "maxReconsumeTimes",
    "key",
    "maxNum",
    "beginTimestamp",
    "endTimestamp",
    "timestamp",
    "clientID",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "defaultTopic",
    "order",
    "topicFilterType",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "k",
    "l",
    "m",
];

const VALUES: [&str; 26] = [
    "T",
    "%RETRY%G",
    "%DLQ%G",
    "G",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "",
    "0",
    "1",
    "3",
    "5",
    "7",
    "-1",
    "16",
    "32",
    "100",
    "15000",
    "9223372036854775807",
    "-9223372036854775808",
    "2147483647",
    "true",
    "false",
    "*",
    "A || B",
    "TAGS\u{1}A\u{2}DELAY\u{1}1\u{2}",
    "\u{1}\u{2}",
];

const BODIES: [&[u8]; 6] = [
    b"",
    b"hello",
    br#"{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1}]}]}"#,
    br#"{"clientId":"c","consumerGroup":"G","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}"#,
    &[0, 0, 0, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, b'b', b'o', b'd', b'y', 0, 0],
    &[0xff; 40],
];

#[derive(Clone, Debug)]
enum Input {
    Request {
        from: u64,
        code: i32,
        fields: Vec<(&'static str, &'static str)>,
        body: &'static [u8],
        is_oneway: bool,
    },
    Send {
        queue_id: i32,
        properties: &'static str,
    },
    Pull {
        offset: i64,
        waits: bool,
    },
    SendBack {
        offset: i64,
    },
    Advance {
        ms: u64,
    },
    Disconnect {
        from: u64,
    },
}

fn input() -> impl Strategy<Value = Input> {
    let fields = proptest::collection::vec(
        (
            prop::sample::select(&FIELDS[..]),
            prop::sample::select(&VALUES[..]),
        ),
        0..20,
    );
    let any_request = (
        1..4u64,
        prop_oneof![9 => prop::sample::select(&CODES[..]), 1 => any::<i32>()],
        fields,
        prop::sample::select(&BODIES[..]),
        any::<bool>(),
    )
        .prop_map(|(from, code, fields, body, is_oneway)| Input::Request {
            from,
            code,
            fields,
            body,
            is_oneway,
        });
    prop_oneof![
        6 => any_request,
        4 => (-1..5i32, prop::sample::select(&VALUES[24..]))
            .prop_map(|(queue_id, properties)| Input::Send { queue_id, properties }),
        3 => (-1..8i64, any::<bool>()).prop_map(|(offset, waits)| Input::Pull { offset, waits }),
        1 => (0..2000i64).prop_map(|offset| Input::SendBack { offset }),
        2 => (0..20_000u64).prop_map(|ms| Input::Advance { ms }),
        1 => (1..4u64).prop_map(|from| Input::Disconnect { from }),
    ]
}

impl Input {
    fn request(&self) -> Option<(ConnectionId, RemotingCommand)> {
        let (from, code, fields, body) = match self {
            Self::Request {
                from,
                code,
                fields,
                body,
                ..
            } => (*from, *code, fields.iter().copied().collect(), *body),
            Self::Send {
                queue_id,
                properties,
            } => {
                let header = SendMessageRequestHeader {
                    properties: Some((*properties).to_owned()),
                    ..send_header("T", *queue_id)
                };
                let fields = SendMessageRequestHeaderV2(header).encode();
                (1, request_code::SEND_MESSAGE_V2, fields, &b"body"[..])
            }
            Self::Pull { offset, waits } => {
                let mut header = waiting_pull("G", "T", *offset);
                if !waits {
                    header = pull_header("G", "T", 0, *offset, "A");
                }
                (2, request_code::PULL_MESSAGE, header.encode(), &b""[..])
            }
            Self::SendBack { offset } => {
                let offset = offset.to_string();
                let fields = [
                    ("offset", offset.as_str()),
                    ("group", "G"),
                    ("delayLevel", "0"),
                ];
                (
                    2,
                    request_code::CONSUMER_SEND_MSG_BACK,
                    fields.into_iter().collect(),
                    &b""[..],
                )
            }
            Self::Advance { .. } | Self::Disconnect { .. } => return None,
        };
        let mut request = RemotingCommand::request(code, fields).with_body(body);
        if matches!(
            self,
            Self::Request {
                is_oneway: true,
                ..
            }
        ) {
            request = request.oneway();
        }
        Some((ConnectionId(from), request))
    }
}

const QUEUES: [(&str, u32); 5] = [
    ("T", 0),
    ("T", 3),
    ("%RETRY%G", 0),
    ("%DLQ%G", 0),
    ("SCHEDULE_TOPIC_XXXX", 0),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_a_client_sends_breaks_the_broker(inputs in proptest::collection::vec(input(), 1..80)) {
        let mut harness = Harness::with(|config| {
            config.store_bytes_max = 8_000;
            config.segment_bytes = 1_000;
            config.topics_max = 12;
            config.groups_max = 3;
            config.offsets_max = 5;
            config.held_pulls_max = 4;
        });
        let mut limits = [(0, 0); QUEUES.len()];
        let mut unanswered: BTreeMap<ConnectionId, std::collections::BTreeSet<i32>> = BTreeMap::new();
        let mut deleted = false;
        for input in &inputs {
            match input {
                Input::Advance { ms } => harness.advance(Duration::from_millis(*ms)),
                Input::Disconnect { from } => {
                    harness.broker.handle_disconnected(ConnectionId(*from), harness.now);
                    unanswered.remove(&ConnectionId(*from));
                }
                _ => {}
            }
            if let Some((from, request)) = input.request() {
                let is_oneway = request.is_oneway();
                deleted |= request.code == request_code::DELETE_TOPIC_IN_BROKER;
                let opaque = harness.request(from, request);
                if !is_oneway {
                    unanswered.entry(from).or_default().insert(opaque);
                }
            }
            for (to, command) in harness.said() {
                if command.is_response() {
                    let known = unanswered.get_mut(&to).is_some_and(|open| open.remove(&command.opaque));
                    prop_assert!(known, "second or stray answer {command:?}");
                }
            }
            for ((topic, queue_id), (min, max)) in QUEUES.into_iter().zip(&mut limits) {
                let store = &harness.broker.store;
                let now = (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id));
                prop_assert!(now.0 <= now.1);
                prop_assert!(deleted || (now.0 >= *min && now.1 >= *max), "{topic} went back");
                (*min, *max) = now;
            }
            prop_assert!(harness.broker.store.bytes() <= 8_000);
        }
        // A pull may ask to be held for ever; all others end.
        harness.advance(Duration::from_secs(30));
        for (to, command) in harness.said() {
            if command.is_response() {
                let known = unanswered.get_mut(&to).is_some_and(|open| open.remove(&command.opaque));
                prop_assert!(known, "second or stray answer {command:?}");
            }
        }
        let open: usize = unanswered.values().map(|open| open.len()).sum();
        prop_assert!(open <= 4, "{open} requests without an answer");
    }
}
