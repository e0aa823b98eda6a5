//! A message as JSON: what `mqlet invoke --message` reads and `mqlet dev` sends.
//!
//! One object, an array of them, or objects one after the other (JSON lines). Every
//! field is optional; a field nobody knows is an error.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::message::properties;
use serde::Deserialize;

/// A larger file is not read.
pub(crate) const MESSAGES_BYTES_MAX: u64 = 64 << 20;
/// More messages are refused.
pub(crate) const MESSAGES_MAX: usize = 100_000;

/// One message, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MessageJson {
    pub(crate) topic: Option<String>,
    pub(crate) tags: Option<String>,
    pub(crate) keys: Vec<String>,
    /// Messages with one sharding key go to one queue, in order.
    pub(crate) sharding_key: Option<String>,
    /// By name; none is reserved by RocketMQ.
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) body: Bytes,
    pub(crate) reconsume_times: u32,
    pub(crate) broker_name: Option<String>,
    pub(crate) queue_id: u32,
    pub(crate) queue_offset: Option<u64>,
}

/// Why a text is no list of messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageJsonError {
    /// Not JSON, or not a message.
    #[error("message {number} (line {line}) is not a message as JSON: {reason}")]
    Syntax {
        number: usize,
        line: usize,
        reason: String,
    },
    /// Both ways to give a body.
    #[error("message {number} has body and body_base64; keep one of the two")]
    TwoBodies { number: usize },
    /// Not base64.
    #[error(
        "message {number}: body_base64 is not base64; write it with the letters A-Z a-z 0-9 + /, padded with ="
    )]
    Base64 { number: usize },
    /// A property that cannot be sent.
    #[error("message {number}: {source}")]
    Property {
        number: usize,
        source: properties::PropertyError,
    },
    /// Too many.
    #[error("there are more than {MESSAGES_MAX} messages; divide the file")]
    TooMany,
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Written {
    topic: Option<String>,
    tags: Option<String>,
    #[serde(default)]
    keys: Keys,
    sharding_key: Option<String>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
    body: Option<String>,
    body_base64: Option<String>,
    #[serde(default)]
    reconsume_times: u32,
    broker_name: Option<String>,
    #[serde(default)]
    queue_id: u32,
    queue_offset: Option<u64>,
}

/// A list, or one text with RocketMQ's separator, a space.
#[derive(Deserialize)]
#[serde(untagged, expecting = "keys: expected a list of texts, or one text")]
enum Keys {
    List(Vec<String>),
    Text(String),
}

impl Default for Keys {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// Reads every message of a text.
///
/// # Errors
/// The first message that is none.
pub(crate) fn parse(text: &str) -> Result<Vec<MessageJson>, MessageJsonError> {
    let mut messages = Vec::new();
    if text.trim_start().starts_with('[') {
        let written: Vec<Written> =
            serde_json::from_str(text).map_err(|error| syntax(1, &error))?;
        for one in written {
            messages.push(check(messages.len() + 1, one)?);
        }
    } else {
        for one in serde_json::Deserializer::from_str(text).into_iter::<Written>() {
            let number = messages.len() + 1;
            let written = one.map_err(|error| syntax(number, &error))?;
            messages.push(check(number, written)?);
            if messages.len() > MESSAGES_MAX {
                break;
            }
        }
    }
    if messages.len() > MESSAGES_MAX {
        return Err(MessageJsonError::TooMany);
    }
    Ok(messages)
}

fn syntax(number: usize, error: &serde_json::Error) -> MessageJsonError {
    let line = error.line();
    let text = error.to_string();
    let reason = match text.rsplit_once(" at line ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    };
    MessageJsonError::Syntax {
        number,
        line,
        reason,
    }
}

fn check(number: usize, written: Written) -> Result<MessageJson, MessageJsonError> {
    for (name, value) in &written.properties {
        properties::check_user_property(name, value)
            .map_err(|source| MessageJsonError::Property { number, source })?;
    }
    let body = match (written.body, written.body_base64) {
        (Some(_), Some(_)) => return Err(MessageJsonError::TwoBodies { number }),
        (Some(text), None) => Bytes::from(text),
        (None, Some(text)) => decode_base64(&text)
            .ok_or(MessageJsonError::Base64 { number })?
            .into(),
        (None, None) => Bytes::new(),
    };
    let keys = match written.keys {
        Keys::List(keys) => keys,
        Keys::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
    };
    Ok(MessageJson {
        topic: written.topic,
        tags: written.tags,
        keys,
        sharding_key: written.sharding_key,
        properties: written.properties,
        body,
        reconsume_times: written.reconsume_times,
        broker_name: written.broker_name,
        queue_id: written.queue_id,
        queue_offset: written.queue_offset,
    })
}

/// Standard alphabet; padding may be missing, white space is skipped.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let unpadded = digits
        .strip_suffix(b"==")
        .or(digits.strip_suffix(b"="))
        .unwrap_or(&digits);
    // One digit holds six bits: no byte ends there.
    if unpadded.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(unpadded.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in unpadded {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_array_and_lines_are_the_same() {
        let one = r#"{"topic": "t", "tags": "a", "keys": ["k", "l"], "sharding_key": "s", "properties": {"p": "v"},
            "body": "hi", "reconsume_times": 2, "broker_name": "b", "queue_id": 3, "queue_offset": 4}"#;
        let expected = MessageJson {
            topic: Some("t".into()),
            tags: Some("a".into()),
            keys: vec!["k".into(), "l".into()],
            sharding_key: Some("s".into()),
            properties: [("p".to_owned(), "v".to_owned())].into(),
            body: "hi".into(),
            reconsume_times: 2,
            broker_name: Some("b".into()),
            queue_id: 3,
            queue_offset: Some(4),
        };
        assert_eq!(parse(one).expect("valid"), std::slice::from_ref(&expected));
        assert_eq!(
            parse(&format!("[{one}]")).expect("valid"),
            std::slice::from_ref(&expected)
        );
        assert_eq!(
            parse(&format!(
                "{one}\n{}\n",
                one.replace("[\"k\", \"l\"]", "\"k l\"")
            ))
            .expect("valid"),
            [expected.clone(), expected]
        );
        assert_eq!(parse("").expect("valid"), []);
        assert_eq!(parse("{}").expect("valid"), [MessageJson::default()]);
    }

    #[test]
    fn errors_name_the_message_and_its_line() {
        for (text, expected) in [
            (
                "5",
                "message 1 (line 1) is not a message as JSON: invalid type: integer `5`, expected an object",
            ),
            (
                "{\"keys\": 5}",
                "message 1 (line 1) is not a message as JSON: keys: expected a list of texts, or one text",
            ),
            (
                "{}\n{\"tag\": 1}",
                "message 2 (line 2) is not a message as JSON: unknown field `tag`, expected one of",
            ),
            (
                "{\"body\": 5}",
                "message 1 (line 1) is not a message as JSON: invalid type: integer `5`",
            ),
            (
                "{\"body\": \"a\", \"body_base64\": \"YQ==\"}",
                "message 1 has body and body_base64",
            ),
            (
                "{\"body_base64\": \"?\"}",
                "message 1: body_base64 is not base64",
            ),
            (
                "{\"properties\": {\"TAGS\": \"x\"}}",
                "message 1: property name \"TAGS\" is reserved",
            ),
            (
                "hello",
                "message 1 (line 1) is not a message as JSON: expected value",
            ),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8", b"fo"),
            ("Zm9v", b"foo"),
            ("/+8=", b"\xff\xef"),
        ] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["Z", "Zm9vZ", "Zg=a", "Z-8="] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }
}
