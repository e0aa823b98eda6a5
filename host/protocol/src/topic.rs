//! Names: retry, dead-letter and system topics, and which names are allowed.
//!
//! Rules of RocketMQ 5 (`TopicValidator`, `Validators`): the client and the broker
//! agree except where noted.

use std::borrow::Cow;

/// `%RETRY%` + group.
pub const RETRY_GROUP_TOPIC_PREFIX: &str = "%RETRY%";
/// `%DLQ%` + group.
pub const DLQ_GROUP_TOPIC_PREFIX: &str = "%DLQ%";
/// Delayed messages wait here.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Half messages wait here.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Marks of decided half messages.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Half messages checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Template of topics that brokers create when they are first sent to.
pub const AUTO_CREATE_TOPIC_KEY_TOPIC: &str = "TBW102";
/// Self test.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Offset moved events.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";
/// Names with this prefix are system topics.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Names with this prefix are system groups.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Light queues.
pub const LMQ_PREFIX: &str = "%LMQ%";
/// A group that no consumer may have.
pub const DEFAULT_CONSUMER_GROUP: &str = "DEFAULT_CONSUMER";

/// Longest topic name that users may choose.
pub const TOPIC_NAME_LENGTH_MAX: usize = 127;
/// Longest retry or dead-letter topic.
pub const RETRY_OR_DLQ_TOPIC_LENGTH_MAX: usize = 255;
/// Longest group name; 4.9 allows 255.
pub const GROUP_NAME_LENGTH_MAX: usize = 120;

const SYSTEM_TOPICS: [&str; 10] = [
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    SCHEDULE_TOPIC,
    "BenchmarkTest",
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    "CHECKPOINT_TOPIC",
];

const NOT_ALLOWED_SEND_TOPICS: [&str; 6] = [
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
];

/// Where a group's failed messages wait for their next attempt.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_GROUP_TOPIC_PREFIX}{group}")
}

/// Where a group's messages end that failed too often.
pub fn dead_letter_topic(group: &str) -> String {
    format!("{DLQ_GROUP_TOPIC_PREFIX}{group}")
}

/// Some group's retry topic.
pub fn is_retry_topic(topic: &str) -> bool {
    topic.starts_with(RETRY_GROUP_TOPIC_PREFIX)
}

/// Some group's dead-letter topic.
pub fn is_dead_letter_topic(topic: &str) -> bool {
    topic.starts_with(DLQ_GROUP_TOPIC_PREFIX)
}

/// The broker's own. RocketMQ: `TopicValidator#isSystemTopic`.
pub fn is_system_topic(topic: &str) -> bool {
    SYSTEM_TOPICS.contains(&topic) || topic.starts_with(SYSTEM_TOPIC_PREFIX)
}

/// The broker refuses what clients send there.
/// RocketMQ: `TopicValidator#isNotAllowedSendTopic`.
pub fn is_not_allowed_send_topic(topic: &str) -> bool {
    NOT_ALLOWED_SEND_TOPICS.contains(&topic)
}

/// Which rule a name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or nothing but white space.
    #[error("the {what} is blank; give it a name")]
    Blank {
        /// `topic` or `group`.
        what: &'static str,
    },
    /// A character outside the alphabet.
    #[error(
        "the {what} \"{}\" contains {character:?}; only letters, digits, %, |, _ and - are allowed",
        name.escape_debug()
    )]
    Character {
        /// `topic` or `group`.
        what: &'static str,
        /// The name.
        name: String,
        /// The first of them.
        character: char,
    },
    /// Over the limit.
    #[error("the {what} \"{name}\" has {length} characters, more than the {length_max} allowed")]
    TooLong {
        /// `topic` or `group`.
        what: &'static str,
        /// The name.
        name: String,
        /// Its length.
        length: usize,
        /// The limit.
        length_max: usize,
    },
}

/// Whether a broker takes this topic name. RocketMQ: `TopicValidator#validateTopic`.
///
/// Its client stops at 127 characters for retry topics as well.
pub fn check_topic_name(topic: &str) -> Result<(), NameError> {
    let length_max = if is_retry_topic(topic) || is_dead_letter_topic(topic) {
        RETRY_OR_DLQ_TOPIC_LENGTH_MAX
    } else {
        TOPIC_NAME_LENGTH_MAX
    };
    check_name("topic", topic, length_max)
}

/// Whether client and broker take this group name. RocketMQ: `Validators#checkGroup`.
pub fn check_group_name(group: &str) -> Result<(), NameError> {
    check_name("group", group, GROUP_NAME_LENGTH_MAX)
}

fn check_name(what: &'static str, name: &str, length_max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { what });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-');
    if let Some(character) = name.chars().find(|&c| !allowed(c)) {
        return Err(NameError::Character {
            what,
            name: name.to_owned(),
            character,
        });
    }
    if name.len() > length_max {
        return Err(NameError::TooLong {
            what,
            name: name.to_owned(),
            length: name.len(),
            length_max,
        });
    }
    Ok(())
}

/// A topic or group inside a client-side namespace: `namespace%name`, the prefix of a
/// retry or dead-letter topic staying in front. System names, empty names and names
/// already inside stay as they are. RocketMQ: `NamespaceUtil#wrapNamespace`.
pub fn wrap_namespace<'a>(namespace: &str, name: &'a str) -> Cow<'a, str> {
    if namespace.is_empty()
        || name.is_empty()
        || is_system_topic(name)
        || name.starts_with(SYSTEM_GROUP_PREFIX)
    {
        return name.into();
    }
    let (prefix, rest) = split_prefix(name);
    if inside(namespace, rest).is_some() {
        return name.into();
    }
    format!("{prefix}{namespace}%{rest}").into()
}

/// The name as the user knows it: without this namespace, if it is inside.
/// RocketMQ: `NamespaceUtil#withoutNamespace`.
pub fn without_namespace<'a>(namespace: &str, name: &'a str) -> Cow<'a, str> {
    let (prefix, rest) = split_prefix(name);
    match inside(namespace, rest) {
        Some(rest) if !namespace.is_empty() => format!("{prefix}{rest}").into(),
        _ => name.into(),
    }
}

fn split_prefix(name: &str) -> (&str, &str) {
    let prefix = [RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX]
        .into_iter()
        .find(|prefix| name.starts_with(prefix));
    name.split_at(prefix.map_or(0, str::len))
}

fn inside<'a>(namespace: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(namespace)?.strip_prefix('%')
}
