//! Recorded bodies, decoded to what Java decoded and written so that it comes back.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::*;
use crate::golden;
use crate::json_dialect::{DEPTH_MAX, JsonError, VALUES_MAX, from_slice};
use crate::message::MessageQueue;

/// Decodes a body of a named class; gives what it was encoded to.
type Recode = fn(&[u8]) -> Result<Vec<u8>, BodyError>;

fn recode_of(class: &str) -> Option<Recode> {
    macro_rules! recode {
        ($name:ident) => {
            Some(|body| {
                let decoded = $name::decode(body)?;
                let encoded = decoded.encode();
                assert_eq!($name::decode(&encoded).as_ref(), Ok(&decoded));
                Ok(encoded)
            })
        };
    }
    match class {
        "CheckClientRequestBody" => recode!(CheckClientRequestBody),
        "ClusterInfo" => recode!(ClusterInfo),
        "ConsumeMessageDirectlyResult" => recode!(ConsumeMessageDirectlyResult),
        "ConsumeStats" => recode!(ConsumeStats),
        "ConsumerConnection" => recode!(ConsumerConnection),
        "ConsumerRunningInfo" => recode!(ConsumerRunningInfo),
        "GetConsumerListByGroupResponseBody" => recode!(ConsumerList),
        "GetConsumerStatusBody" => recode!(GetConsumerStatusBody),
        "HeartbeatData" => recode!(HeartbeatData),
        "LockBatchRequestBody" => recode!(LockBatchRequestBody),
        "LockBatchResponseBody" => recode!(LockBatchResponseBody),
        "ResetOffsetBody" => recode!(ResetOffsetBody),
        "TopicConfig" => recode!(TopicConfig),
        "TopicRouteData" => recode!(TopicRouteData),
        "TopicStatsTable" => recode!(TopicStatsTable),
        "UnlockBatchRequestBody" => recode!(UnlockBatchRequestBody),
        _ => None,
    }
}

fn class_of(frame: &Value) -> Option<&'static str> {
    let (success, code) = match frame["type"].as_str()? {
        "response" => (
            frame["codeName"] == "success",
            frame["answersName"].as_str()?,
        ),
        _ => (false, frame["codeName"].as_str()?),
    };
    Some(match (success, code) {
        (false, "check_client_config") => "CheckClientRequestBody",
        (false, "heart_beat") => "HeartbeatData",
        (false, "lock_batch_mq") => "LockBatchRequestBody",
        (false, "unlock_batch_mq") => "UnlockBatchRequestBody",
        (false, "reset_consumer_client_offset") => "ResetOffsetBody",
        (true, "consume_message_directly") => "ConsumeMessageDirectlyResult",
        (true, "get_broker_cluster_info") => "ClusterInfo",
        (true, "get_consume_stats") => "ConsumeStats",
        (true, "get_consumer_connection_list") => "ConsumerConnection",
        (true, "get_consumer_list_by_group") => "GetConsumerListByGroupResponseBody",
        (true, "get_consumer_running_info") => "ConsumerRunningInfo",
        (true, "get_consumer_status_from_client" | "invoke_broker_to_get_consumer_status") => {
            "GetConsumerStatusBody"
        }
        (true, "get_routeinfo_by_topic") => "TopicRouteData",
        (true, "get_topic_stats_info") => "TopicStatsTable",
        (true, "invoke_broker_to_reset_offset") => "ResetOffsetBody",
        (true, "lock_batch_mq") => "LockBatchResponseBody",
        _ => return None,
    })
}

#[test]
fn every_recorded_body_decodes_to_what_java_decoded() {
    let mut bodies = 0;
    for frame in golden::frames() {
        let recorded = &frame.recorded;
        let (Some(class), false) = (class_of(recorded), recorded["body"].is_null()) else {
            continue;
        };
        let length = usize::try_from(golden::number(&recorded["bodyLength"])).unwrap_or_default();
        let body = &frame.bytes[frame.bytes.len() - length..];
        let recode = recode_of(class).expect("a class in the list above");
        let encoded = recode(body).unwrap_or_else(|error| panic!("{}: {error:?}", frame.place));
        assert_eq!(
            plain(&encoded),
            normal(&recorded["body"]),
            "{}: {class}",
            frame.place
        );
        bodies += 1;
    }
    assert_eq!(bodies, 510, "bodies of our classes");
}

#[test]
fn java_reads_what_we_write_of_what_it_wrote() {
    let mut tried = 0;
    for line in golden::table("body-dialect") {
        let Some(class) = line["encode"].as_str() else {
            continue;
        };
        let class = class.split(' ').next().unwrap_or_default();
        let Some(recode) = recode_of(class) else {
            continue;
        };
        let java = golden::text(&line["text"]);
        let ours = recode(java.as_bytes()).expect("what Java wrote");
        let ours = String::from_utf8(ours).expect("JSON is UTF-8");
        // Java also writes number keys bare; everybody reads them in quotes.
        assert_eq!(ours.replace("\"0\":", "0:").replace("\"1\":", "1:"), java);
        tried += 1;
    }
    assert_eq!(tried, 10);
}

#[test]
fn odd_bodies_read_as_java_reads_them() {
    let mut tried = 0;
    for line in golden::table("body-dialect") {
        let Some(recode) = line["decode"].as_str().and_then(recode_of) else {
            continue;
        };
        let text = golden::text(&line["text"]);
        let result = recode(text.as_bytes());
        tried += 1;
        if text.contains("\"offsetTable\":[") {
            // Java's class refuses the list that its own broker sends to C++ tools.
            let offset_table = [(MessageQueue::new("T", "b", 0), 5)].into_iter().collect();
            assert_eq!(result, Ok(ResetOffsetBody { offset_table }.encode()));
            continue;
        }
        match result {
            Ok(encoded) => assert_eq!(plain(&encoded), normal(&line["result"]), "{text}"),
            Err(error) => assert!(line["error"].is_string(), "{text}: {error:?}"),
        }
    }
    assert_eq!(tried, 17);
}

#[test]
fn members_may_repeat_and_be_null() {
    let list = ConsumerList::decode(br#"{"consumerIdList":["a"],"consumerIdList":["b"]}"#);
    assert_eq!(list.map(|list| list.consumer_ids), Ok(vec!["b".to_owned()]));
    let list = ConsumerList::decode(br#"{"consumerIdList":["a"],"consumerIdList":null}"#);
    assert_eq!(list, Ok(ConsumerList::default()));
}

#[test]
fn a_broker_with_an_unreadable_address_does_not_hide_the_topic() {
    let route = TopicRouteData::decode(
        br#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"nonsense",-1:"a:1"}}]}"#,
    )
    .expect("a route");
    let addresses: Vec<_> = route.broker_datas[0].broker_addrs.iter().collect();
    assert_eq!(format!("{addresses:?}"), "[(0, 10.0.0.1:10911)]");
}

#[test]
fn text_keys_are_written_as_text_whatever_they_hold() {
    for key in ["", "{", "\"", "\\", "\u{1}b", "\n", "{\"a\":1}"] {
        let table = [(key.to_owned(), key.to_owned())].into_iter().collect();
        let kv = KVTable { table };
        assert_eq!(KVTable::decode(&kv.encode()), Ok(kv), "{key:?}");
    }
}

#[test]
fn hostile_bodies_are_errors() {
    let reason = |body: &[u8]| KVTable::decode(body).map_err(|error| error.reason);
    assert_eq!(reason(b""), Err(JsonError::Empty));
    assert_eq!(reason(b" "), Err(JsonError::Empty));
    assert!(matches!(reason(b"[]"), Err(JsonError::Shape(_))));
    assert!(matches!(
        reason(b"{\"\xff\":1}"),
        Err(JsonError::NotUtf8 { offset: 2 })
    ));
    assert!(matches!(
        reason(b"{} x"),
        Err(JsonError::Syntax { offset: 3, .. })
    ));
    assert_eq!(
        reason("[".repeat(DEPTH_MAX + 2).as_bytes()),
        Err(JsonError::TooDeep)
    );
    let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
    assert_eq!(reason(many.as_bytes()), Err(JsonError::TooManyValues));
}

/// A document in our dialect. In `testdata` a map whose keys are no text is
/// `{"entries":[[key,value],…]}`; `normal` makes both alike.
fn plain(bytes: &[u8]) -> Value {
    normal(&from_slice::<Plain>(bytes).expect("what we wrote").0)
}

/// Without nulls, and with every list in one order: most are sets.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<_> = elements
                .iter()
                .filter(|element| !element.is_null())
                .map(normal)
                .collect();
            elements.sort_by_key(Value::to_string);
            Value::Array(elements)
        }
        Value::Object(members) => match members.get("entries") {
            Some(Value::Array(entries)) => object(
                entries
                    .iter()
                    .map(|entry| (entry[0].clone(), normal(&entry[1]))),
            ),
            _ => normal_members(members),
        },
        // Doubles may be written without a fraction.
        Value::Number(number) => match number.as_f64() {
            Some(double) if number.is_f64() && double.fract() == 0.0 => {
                json!(format!("{double}").parse::<i64>().unwrap_or_default())
            }
            _ => value.clone(),
        },
        // Java writes IPv6 addresses without brackets and reads both.
        Value::String(text) => json!(text.replace("[2001:db8::9]", "2001:db8::9")),
        other => other.clone(),
    }
}

/// Keys that are no text become the text of their JSON.
fn object(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    entries
        .into_iter()
        .map(|(key, value)| match key {
            Value::String(key) => (key, value),
            key => (key.to_string(), value),
        })
        .collect()
}

fn normal_members(members: &Map<String, Value>) -> Value {
    members
        .iter()
        .map(|(name, value)| (name.clone(), normal(value)))
        .filter(|(name, value)| match value {
            Value::Null => false,
            // No list and an empty one are the same to us.
            Value::Array(elements) => !elements.is_empty(),
            // Java takes its clock for a missing version.
            _ => name != "subVersion" || !is_unset(value),
        })
        .collect()
}

fn is_unset(version: &Value) -> bool {
    *version == json!(0)
        || version
            .as_i64()
            .is_some_and(|ms| (1_796_035_907_500..1_796_035_907_600).contains(&ms))
}

struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(json!(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(json!(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(json!(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(json!(value))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(Plain(element)) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Value::Array(elements))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Plain(key), Plain(value))) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(object(entries))
            }
        }
        deserializer.deserialize_any(Any).map(Plain)
    }
}
