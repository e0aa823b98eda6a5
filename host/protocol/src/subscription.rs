//! `SubscriptionData`: what a group wants of a topic, as heartbeats announce it.
//!
//! Brokers compare hashes of tags and clients compare the tags themselves: two tags
//! may have one hash (`Aa` and `BB`).

use std::collections::BTreeSet;

/// What the expression of a subscription is written in. RocketMQ: `ExpressionType`.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub enum ExpressionType {
    /// `TagA || TagB`, or `*`.
    #[default]
    Tag,
    /// A condition over properties, which the broker evaluates.
    Sql92,
    /// Whatever another client wrote.
    Other(String),
}

impl ExpressionType {
    /// As on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tag => "TAG",
            Self::Sql92 => "SQL92",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for ExpressionType {
    fn from(text: &str) -> Self {
        match text {
            "TAG" => Self::Tag,
            "SQL92" => Self::Sql92,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// The expression that means every message.
pub const SUB_ALL: &str = "*";

/// One topic of a group's subscription. RocketMQ: `SubscriptionData`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubscriptionData {
    /// The topic.
    pub topic: String,
    /// The expression as the user wrote it.
    pub sub_string: String,
    /// The tags; empty for `*` and for SQL.
    pub tags_set: BTreeSet<String>,
    /// Their hashes.
    pub code_set: BTreeSet<i32>,
    /// Unix milliseconds: brokers keep the highest. 0 until somebody sets it.
    pub sub_version: i64,
    /// What `sub_string` is written in.
    pub expression_type: ExpressionType,
    /// Legacy, always false.
    pub class_filter_mode: bool,
}

/// Why an expression is no subscription.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    /// It names no tag, so that no message would ever match.
    #[error(
        "the expression \"{}\" for topic \"{topic}\" names no tag; write * for every message, or tags such as TagA || TagB",
        expression.escape_debug()
    )]
    NoTag {
        /// The topic.
        topic: String,
        /// The expression.
        expression: String,
    },
    /// Only tags may be left out.
    #[error("the {expression_type} expression for topic \"{topic}\" is empty; write a condition")]
    Empty {
        /// The topic.
        topic: String,
        /// The type.
        expression_type: String,
    },
}

impl SubscriptionData {
    /// From the user's expression. For tags, empty means `*`.
    /// RocketMQ: `FilterAPI#build`, `#buildSubscriptionData`.
    ///
    /// Differs from RocketMQ: separators with nothing but blanks between them are an
    /// error, because no message would ever match.
    pub fn build(
        topic: &str,
        expression: &str,
        expression_type: ExpressionType,
    ) -> Result<Self, SubscriptionError> {
        let mut data = Self {
            topic: topic.to_owned(),
            sub_string: expression.to_owned(),
            tags_set: BTreeSet::new(),
            code_set: BTreeSet::new(),
            sub_version: 0,
            expression_type,
            class_filter_mode: false,
        };
        if data.expression_type != ExpressionType::Tag {
            if expression.is_empty() {
                return Err(SubscriptionError::Empty {
                    topic: data.topic,
                    expression_type: data.expression_type.as_str().to_owned(),
                });
            }
            return Ok(data);
        }
        if expression.is_empty() || expression == SUB_ALL {
            data.sub_string = SUB_ALL.to_owned();
            return Ok(data);
        }
        for tag in expression.split("||").map(java_trim) {
            if !tag.is_empty() {
                data.code_set.insert(tag_hash(tag));
                data.tags_set.insert(tag.to_owned());
            }
        }
        if data.tags_set.is_empty() {
            return Err(SubscriptionError::NoTag {
                topic: data.topic,
                expression: data.sub_string,
            });
        }
        Ok(data)
    }

    /// Every message of a topic.
    pub fn all(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            sub_string: SUB_ALL.to_owned(),
            tags_set: BTreeSet::new(),
            code_set: BTreeSet::new(),
            sub_version: 0,
            expression_type: ExpressionType::Tag,
            class_filter_mode: false,
        }
    }

    /// The client's check: whether a message with this tag is wanted. Without tags in
    /// the subscription every message is. RocketMQ: `PullAPIWrapper#processPullResult`.
    pub fn matches_tag(&self, tag: Option<&str>) -> bool {
        self.tags_set.is_empty() || tag.is_some_and(|tag| self.tags_set.contains(tag))
    }

    /// The broker's check, by the hash alone; expressions other than tags pass.
    /// RocketMQ: `ExpressionMessageFilter#isMatchedByConsumeQueue`.
    pub fn matches_code(&self, tags_code: i64) -> bool {
        if self.expression_type != ExpressionType::Tag || self.sub_string == SUB_ALL {
            return true;
        }
        // Truncated as Java's `Long#intValue` does.
        self.code_set.contains(&(tags_code as i32))
    }
}

/// Java's `String#hashCode`: over UTF-16 code units, wrapping.
pub fn tag_hash(tag: &str) -> i32 {
    tag.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// What brokers index a message by: 0 without a tag.
/// RocketMQ: `MessageExtBrokerInner#tagsString2tagsCode`.
pub fn tags_code(tag: Option<&str>) -> i64 {
    tag.map_or(0, |tag| i64::from(tag_hash(tag)))
}

/// Java's `String#trim`: everything up to U+0020, not Unicode's white space.
fn java_trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}
