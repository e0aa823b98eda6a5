//! Headers beside those that Java's client was recorded to send, and answers that lie.

use std::collections::BTreeMap;

use protocol::ExtFields;
use protocol::header::{Header, SendMessageRequestHeaderV2};

use super::*;

/// What Java sent, by name.
fn recorded(name: &str) -> (i32, BTreeMap<String, String>) {
    for line in include_str!("../../testdata/java_requests.jsonl").lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if record["name"] == name {
            let code = record["code"].as_i64().expect("a code");
            let header = record["header"].as_object().expect("a header");
            let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
            let header = header.iter().map(|(k, v)| (k.clone(), text(v))).collect();
            return (i32::try_from(code).expect("small"), header);
        }
    }
    panic!("nothing is recorded as {name}");
}

fn sent(request: &Request) -> (i32, BTreeMap<String, String>) {
    let command = request.to_command();
    let fields = command.ext_fields.unwrap_or_default();
    let text = |value: Option<&str>| value.expect("a value").to_owned();
    let header = fields
        .iter()
        .map(|(k, v)| (k.to_owned(), text(v)))
        .collect();
    (command.code, header)
}

#[test]
fn requests_have_the_fields_that_java_sends() {
    let group: Arc<str> = "G_push".into();
    let queue = |id| MessageQueue::new("T_push", "broker-a", id);

    let (code, header) = recorded("pull");
    let number = |name: &str| header[name].parse::<u64>().expect("a number");
    let pull = Request::PullMessage(Box::new(PullMessage {
        consumer_group: Arc::clone(&group),
        queue: MessageQueue::new(&header["topic"], "broker-a", number("queueId") as u32),
        queue_offset: QueueOffset(number("queueOffset")),
        max_msg_nums: 32,
        max_msg_bytes: 256 << 10,
        commit_offset: Some(QueueOffset(number("commitOffset"))),
        commit: true,
        suspend: Duration::from_secs(15),
        subscription: None,
        sub_version: header["subVersion"].parse().expect("a number"),
        expression_type: "TAG".into(),
        body_bytes_max: 1,
    }));
    assert_eq!(sent(&pull), (code, header));

    // We say that the broker must not make up a zero.
    let (code, mut header) = recorded("query");
    header.insert("setZeroIfNotFound".to_owned(), "false".to_owned());
    let query = Request::QueryConsumerOffset {
        consumer_group: Arc::clone(&group),
        queue: queue(1),
    };
    assert_eq!(sent(&query), (code, header));

    let (code, header) = recorded("update");
    let update = Request::UpdateConsumerOffset {
        consumer_group: Arc::clone(&group),
        queue: queue(header["queueId"].parse().expect("a number")),
        commit_offset: QueueOffset(header["commitOffset"].parse().expect("a number")),
    };
    assert_eq!(sent(&update), (code, header));

    let (code, header) = recorded("unregister");
    let unregister = Request::UnregisterClient {
        client_id: header["clientID"].as_str().into(),
        consumer_group: Some(Arc::clone(&group)),
        producer_group: None,
    };
    assert_eq!(sent(&unregister), (code, header));

    let members = Request::GetConsumerListByGroup {
        consumer_group: group,
    };
    assert_eq!(sent(&members), recorded("members"));

    let (code, header) = recorded("route");
    let route = Request::GetRouteInfo {
        topic: header["topic"].as_str().into(),
    };
    assert_eq!(sent(&route), (code, header));

    let (code, header) = recorded("send back");
    let back = Request::SendMessageBack(Box::new(SendMessageBack {
        consumer_group: header["group"].as_str().into(),
        broker_name: "broker-a".into(),
        commit_log_offset: header["offset"].parse().expect("a number"),
        delay_level: 0,
        message_id: header["originMsgId"].clone(),
        origin_topic: header["originTopic"].as_str().into(),
        max_reconsume_times: 1,
    }));
    assert_eq!(sent(&back), (code, header));
}

/// What a pull task asks, beside what Java's pull consumer was recorded to ask
/// (`pull-consumer`). Java adds `ReqT`, which says that a client streams.
#[test]
fn pull_tasks_ask_with_the_fields_that_java_sends() {
    use crate::config::GroupConfig;
    use crate::pull_task::{PullerRequest, QueuePull};
    use crate::testing::Harness;
    use protocol::subscription::SubscriptionData;

    let mut t = Harness::default();
    t.topic("T_pull", &[("broker-a", 1)]);
    let config = GroupConfig::builder("G_pull")
        .subscription(SubscriptionData::all("T_pull"))
        .pull_task_interval(GroupConfig::PULL_TASK_INTERVAL)
        .build();
    t.subscribe(config.expect("valid"));
    t.settle();
    let pull = PullerRequest::Pull(QueuePull {
        sub_expression: "TagA || TagB".to_owned(),
        offset: QueueOffset(0),
        max_messages: 2,
    });
    let search = PullerRequest::SearchOffset {
        timestamp_ms: 1_796_035_773_886,
    };
    // Field, ours, Java's.
    type Differences = &'static [(&'static str, Option<&'static str>, Option<&'static str>)];
    let cases: [(&str, PullerRequest, Differences); 5] = [
        (
            "task query",
            PullerRequest::FetchConsumeOffset,
            // The broker must not make up a zero.
            &[("setZeroIfNotFound", Some("false"), None)],
        ),
        ("task min", PullerRequest::MinOffset, &[]),
        // What brokers assume without them.
        (
            "task max",
            PullerRequest::MaxOffset,
            &[("committed", None, Some("true"))],
        ),
        (
            "task search",
            search,
            &[("boundaryType", None, Some("LOWER"))],
        ),
        (
            "task pull",
            pull,
            &[
                // A guest's answer has a bound.
                ("maxMsgBytes", Some("262144"), Some("2147483647")),
                // Nobody waits, so the time has no meaning.
                ("suspendTimeoutMillis", Some("0"), Some("20000")),
            ],
        ),
    ];
    for (name, asks, differences) in cases {
        t.ask(1, asks);
        let (code, mut java) = recorded(name);
        let open = t.open_requests();
        let last = open.last().expect("it was asked");
        let number = last.split_once(' ').expect("a number").0.to_owned() + " ";
        let (our_code, mut ours) = sent(&t.request(&number).request);
        for (field, our_value, java_value) in differences {
            assert_eq!(ours.remove(*field).as_deref(), *our_value, "{name} {field}");
            assert_eq!(
                java.remove(*field).as_deref(),
                *java_value,
                "{name} {field}"
            );
        }
        assert_eq!((our_code, ours), (code, java), "{name}");
    }
}

/// Sends are built elsewhere: see the transcripts. Here only that they are V2, and which
/// code a batch has.
#[test]
fn sends_have_one_letter_names() {
    for (name, batch) in [("publish", false), ("batch", true)] {
        let (code, header) = recorded(name);
        let fields = ExtFields::default();
        let mut fields = fields;
        for (name, value) in &header {
            fields.set(name, Some(value));
        }
        let decoded = SendMessageRequestHeaderV2::decode(&fields).expect("a header");
        assert_eq!(decoded.0.batch, Some(batch));
        let request = Request::SendMessage(Box::new(SendMessage {
            header: decoded.0,
            body: Bytes::new(),
        }));
        assert_eq!(sent(&request), (code, header));
    }
}

fn answer(request: &Request, code: i32, fields: &[(&str, &str)]) -> Result<Response, RequestError> {
    let mut ext_fields = ExtFields::default();
    for (name, value) in fields {
        ext_fields.set(name, Some(value));
    }
    let command = RemotingCommand::response_to(&request.to_command(), code);
    request.expect().decode(command.with_ext_fields(ext_fields))
}

#[test]
fn no_offset_and_could_not_ask_are_different_answers() {
    let query = Request::QueryConsumerOffset {
        consumer_group: "G1".into(),
        queue: MessageQueue::new("T1", "b", 0),
    };
    let stored = answer(&query, 0, &[("offset", "7")]);
    assert!(matches!(
        stored,
        Ok(Response::ConsumerOffset(Some(QueueOffset(7))))
    ));
    assert!(matches!(
        answer(&query, 22, &[]),
        Ok(Response::ConsumerOffset(None))
    ));
    assert!(matches!(
        answer(&query, 0, &[("offset", "-1")]),
        Ok(Response::ConsumerOffset(None))
    ));
    assert!(matches!(
        answer(&query, 1, &[]),
        Err(RequestError::Refused { code: 1, .. })
    ));
    assert!(matches!(
        answer(&query, 0, &[]),
        Err(RequestError::Malformed { .. })
    ));
}

#[test]
fn an_answer_with_an_impossible_offset_is_malformed() {
    let queue = MessageQueue::new("T1", "b", 0);
    let max = Request::GetMaxOffset { queue };
    let lies = answer(&max, 0, &[("offset", "-5")]);
    assert!(matches!(lies, Err(RequestError::Malformed { .. })));
}
