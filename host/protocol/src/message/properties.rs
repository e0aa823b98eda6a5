//! Message properties: their reserved names, RocketMQ's encoding, and a list to edit.
//!
//! Encoded, an entry is `name 0x01 value 0x02`; nothing is escaped, nothing is counted,
//! and the last separator may be missing (4.9 leaves it out). Reading goes over the raw
//! bytes and copies nothing; [`Properties`] is the owned form for those who change them.
//! Rules: RocketMQ: `MessageDecoder#string2messageProperties`, `#messageProperties2String`.

use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};

/// Between a name and its value. RocketMQ: `MessageDecoder.NAME_VALUE_SEPARATOR`.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// After every entry. RocketMQ: `MessageDecoder.PROPERTY_SEPARATOR`.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// Longest encoded form, because its length is an i16.
pub const PROPERTIES_BYTES_MAX: usize = i16::MAX as usize;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $literal:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $literal;)*

        /// Names that users may not set, because RocketMQ gives them a meaning.
        pub const RESERVED: &[&str] = &[$($literal),*];
    };
}

names! {
    /// Index keys, separated by one space.
    KEYS = "KEYS";
    /// The tag.
    TAGS = "TAGS";
    /// Whether the producer waits for the store; broker's copies carry `false`.
    WAIT_STORE_MSG_OK = "WAIT";
    /// Delay level, decimal.
    DELAY_TIME_LEVEL = "DELAY";
    /// The topic that a retried message was first sent to.
    RETRY_TOPIC = "RETRY_TOPIC";
    /// The topic behind a delay or transaction topic.
    REAL_TOPIC = "REAL_TOPIC";
    /// The queue behind a delay or transaction topic.
    REAL_QUEUE_ID = "REAL_QID";
    /// `true` for a half message.
    TRANSACTION_PREPARED = "TRAN_MSG";
    /// Producer group of a transaction or a reply.
    PRODUCER_GROUP = "PGROUP";
    /// Added by clients from the pull answer.
    MIN_OFFSET = "MIN_OFFSET";
    /// Added by clients from the pull answer.
    MAX_OFFSET = "MAX_OFFSET";
    /// Legacy.
    BUYER_ID = "BUYER_ID";
    /// The id of the first delivery.
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID";
    /// Legacy.
    TRANSFER_FLAG = "TRANSFER_FLAG";
    /// Legacy.
    CORRECTION_FLAG = "CORRECTION_FLAG";
    /// Legacy.
    MQ2_FLAG = "MQ2_FLAG";
    /// Attempts so far, when a client sends to a retry topic itself.
    RECONSUME_TIME = "RECONSUME_TIME";
    /// The broker's region.
    MSG_REGION = "MSG_REGION";
    /// Whether the message is traced.
    TRACE_SWITCH = "TRACE_ON";
    /// The producer's id of the message.
    UNIQ_KEY = "UNIQ_KEY";
    /// More of it.
    EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO";
    /// Most attempts, when a client sends to a retry topic itself.
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES";
    /// When the listener got it; never on the wire.
    CONSUME_START_TIMESTAMP = "CONSUME_START_TIME";
    /// Messages in an inner batch.
    INNER_NUM = "INNER_NUM";
    /// Queue offset of the first message of an inner batch.
    INNER_BASE = "INNER_BASE";
    /// Reserved.
    DUP_INFO = "DUP_INFO";
    /// How long a half message is not checked.
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    /// Where the half message lies.
    TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET";
    /// Transaction id.
    TRANSACTION_ID = "__transactionId__";
    /// How often a half message was checked.
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES";
    /// Instance (namespace) of the producer.
    INSTANCE_ID = "INSTANCE_ID";
    /// Request and reply.
    CORRELATION_ID = "CORRELATION_ID";
    /// Request and reply.
    MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT";
    /// Request and reply.
    MESSAGE_TTL = "TTL";
    /// Request and reply.
    REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME";
    /// Request and reply.
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME";
    /// The broker's cluster; on every message.
    CLUSTER = "CLUSTER";
    /// `reply` marks replies.
    MESSAGE_TYPE = "MSG_TYPE";
    /// Receipt of a popped message.
    POP_CK = "POP_CK";
    /// Pop.
    POP_CK_OFFSET = "POP_CK_OFFSET";
    /// Pop.
    FIRST_POP_TIME = "1ST_POP_TIME";
    /// Messages with one key keep their order.
    SHARDING_KEY = "__SHARDINGKEY";
    /// Static topics.
    FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID";
    /// Redirected by the broker.
    REDIRECT = "REDIRECT";
    /// Light queues.
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH";
    /// Light queues.
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET";
    /// Tracing.
    TRACE_CONTEXT = "TRACE_CONTEXT";
    /// Delay in seconds (5.x).
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC";
    /// Delay in milliseconds (5.x).
    TIMER_DELAY_MS = "TIMER_DELAY_MS";
    /// Delivery time, Unix milliseconds (5.x).
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS";
    /// Timer (5.x).
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS";
    /// Timer (5.x).
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS";
    /// Timer (5.x).
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES";
    /// Timer (5.x).
    TIMER_OUT_MS = "TIMER_OUT_MS";
    /// Timer (5.x).
    TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY";
    /// Timer (5.x).
    TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL";
    /// Delivery time, Unix milliseconds, as another client writes it.
    START_DELIVER_TIME = "__STARTDELIVERTIME";
    /// The proxy's view of the producer.
    BORN_HOST = "__BORNHOST";
    /// The proxy's view of the producer.
    BORN_TIMESTAMP = "BORN_TIMESTAMP";
    /// CRC of everything before it, see `messages` of RocketMQ 5.
    CRC32 = "__CRC32#";
    /// Read by the proxy alone.
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC";
    /// Read by the proxy alone.
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID";
}

/// What is added on receiving and never sent starts like this.
pub const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Reserved for RocketMQ: users may not set it.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with(TRANSIENT_PREFIX)
}

/// Why a user's property cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// Would be dropped by every reader.
    #[error("property \"{name}\" has an empty name or value, which RocketMQ drops; leave it out")]
    Empty {
        /// The name.
        name: String,
    },
    /// Would be read as something else.
    #[error(
        "property \"{name}\" contains a separator of RocketMQ's encoding (byte 1 or 2); encode the value, for example as base64"
    )]
    Separator {
        /// The name, control characters escaped.
        name: String,
    },
    /// Has a meaning of its own.
    #[error("property name \"{name}\" is reserved by RocketMQ; choose another name")]
    Reserved {
        /// The name.
        name: String,
    },
}

/// Whether a user may send this property and every consumer will read it as it is.
///
/// Differs from RocketMQ: it lets separators pass, which corrupts the other properties.
pub fn check_user_property(name: &str, value: &str) -> Result<(), PropertyError> {
    let shown = || name.escape_debug().to_string();
    if name.is_empty() || value.is_empty() {
        return Err(PropertyError::Empty { name: shown() });
    }
    let separator = |b| b == NAME_VALUE_SEPARATOR || b == PROPERTY_SEPARATOR;
    if name.bytes().any(separator) || value.bytes().any(separator) {
        return Err(PropertyError::Separator { name: shown() });
    }
    if is_reserved(name) {
        return Err(PropertyError::Reserved { name: shown() });
    }
    Ok(())
}

/// Entries of an encoded list, in its order. Of two with one name the later counts.
/// Entries without a separator, with an empty name or an empty value are dropped, as
/// RocketMQ drops them. Where an entry is not UTF-8 the list ends.
#[derive(Clone)]
pub struct Iter<'a> {
    rest: &'a str,
}

impl<'a> Iter<'a> {
    /// Over the raw bytes of a message.
    pub fn new(raw: &'a [u8]) -> Self {
        Self {
            rest: whole_entries(raw),
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let raw = self.rest.as_bytes();
            let end = memchr(PROPERTY_SEPARATOR, raw).unwrap_or(raw.len());
            let (segment, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            let Some(at) = memchr(NAME_VALUE_SEPARATOR, segment.as_bytes()) else {
                continue;
            };
            let (name, value) = (&segment[..at], &segment[at + 1..]);
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

impl fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// Everything up to the first entry that is not UTF-8.
pub(super) fn whole_entries(raw: &[u8]) -> &str {
    std::str::from_utf8(raw).unwrap_or_else(|error| {
        let valid = &raw[..error.valid_up_to()];
        let end = memrchr(PROPERTY_SEPARATOR, valid).unwrap_or(0);
        std::str::from_utf8(&valid[..end]).unwrap_or_default()
    })
}

/// The value of a property in raw bytes; the last one, if there are several.
pub fn get<'a>(raw: &'a [u8], name: &str) -> Option<&'a str> {
    let mut rest = whole_entries(raw);
    let mut found = None;
    while !rest.is_empty() {
        let end = memchr(PROPERTY_SEPARATOR, rest.as_bytes()).unwrap_or(rest.len());
        if let Some(value) = rest[..end].strip_prefix(name)
            && let Some(value) = value.strip_prefix(char::from(NAME_VALUE_SEPARATOR))
            && !value.is_empty()
            && !name.is_empty()
        {
            found = Some(value);
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    found
}

/// Where the value of TAGS lies in raw bytes; the last one, if there are several. Every
/// message is searched, hence not entry by entry.
pub(super) fn find_tag(raw: &[u8]) -> Option<Range<usize>> {
    static TAG: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"TAGS\x01"));
    let mut found = None;
    for at in TAG.find_iter(raw) {
        let start = at + TAGS.len() + 1;
        let value = &raw[start..];
        let length = memchr(PROPERTY_SEPARATOR, value).unwrap_or(value.len());
        if length > 0 && (at == 0 || raw[at - 1] == PROPERTY_SEPARATOR) {
            found = Some(start..start + length);
        }
    }
    found
}

/// Encodes entries as they are given, with the last separator.
pub fn encode<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut raw = Vec::new();
    for (name, value) in entries {
        append(&mut raw, name, value);
    }
    raw
}

/// Adds an entry to an encoded list, after giving it the separator it may lack.
pub fn append(raw: &mut Vec<u8>, name: &str, value: &str) {
    if raw.last().is_some_and(|&last| last != PROPERTY_SEPARATOR) {
        raw.push(PROPERTY_SEPARATOR);
    }
    raw.extend_from_slice(name.as_bytes());
    raw.push(NAME_VALUE_SEPARATOR);
    raw.extend_from_slice(value.as_bytes());
    raw.push(PROPERTY_SEPARATOR);
}

/// Properties to be changed: unique names in the order of the wire.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Properties(Vec<(String, String)>);

impl Properties {
    /// From the raw bytes of a message. Never fails, see [`Iter`].
    pub fn decode(raw: &[u8]) -> Self {
        let mut properties = Self::default();
        for (name, value) in Iter::new(raw) {
            properties.set(name, value);
        }
        properties
    }

    /// To the bytes of a message.
    pub fn encode(&self) -> Vec<u8> {
        encode(self.iter())
    }

    /// Sets a property, in its old place if it has one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a property out.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(index).1)
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value)
    }

    /// In the order of the wire.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Number of properties.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Names only: values are the user's.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(n, _)| n))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appending_closes_an_open_list_first() {
        let mut raw = b"A\x01b".to_vec();
        append(&mut raw, "C", "d");
        assert_eq!(raw, b"A\x01b\x02C\x01d\x02");
    }

    #[test]
    fn an_edited_list_keeps_its_order() {
        let mut properties = Properties::decode(b"A\x01b\x02C\x01d\x02A\x01e");
        properties.set("D", "f");
        assert_eq!(properties.remove("C").as_deref(), Some("d"));
        assert_eq!(properties.encode(), b"A\x01e\x02D\x01f\x02");
    }

    #[test]
    fn users_may_not_set_what_would_be_lost_or_misread() {
        assert!(check_user_property("colour", "red").is_ok());
        for (name, value, text) in [
            ("", "v", "empty"),
            ("a", "", "empty"),
            ("a", "b\u{2}C\u{1}d", "separator"),
            ("TAGS", "x", "reserved"),
            ("__RMQ.TRANSIENT.x", "x", "reserved"),
        ] {
            let error = check_user_property(name, value)
                .expect_err(name)
                .to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
