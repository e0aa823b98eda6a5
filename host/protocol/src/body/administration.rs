//! Small bodies of administration requests.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use super::{body, known_name, named};

/// Names and texts: broker runtime information (28), order configurations (219).
/// RocketMQ: `KVTable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KVTable {
    /// The entries.
    pub table: BTreeMap<String, String>,
}

/// Answer to 206, 224, 304 and 343.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// One broker, in the answer to 304.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_addr: Option<String>,
    /// The topics.
    pub topic_list: BTreeSet<String>,
}

/// Answer to 300.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    /// The groups.
    pub group_list: BTreeSet<String>,
}

/// Answer to 351.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// Since 5.0.
    pub attributes: BTreeMap<String, String>,
    /// An ordered topic.
    pub order: bool,
    /// 2 write, 4 read, 6 both.
    pub perm: i32,
    /// Queues to read from.
    pub read_queue_nums: u32,
    /// How messages may be tagged; unknown kinds read as one tag.
    #[serde(deserialize_with = "filter_type")]
    pub topic_filter_type: TopicFilterType,
    /// The topic.
    pub topic_name: String,
    /// Bits: unit, unit subscription.
    pub topic_sys_flag: i32,
    /// Queues to write to.
    pub write_queue_nums: u32,
}

named! {
    /// How many tags a message may have.
    TopicFilterType {
        /// One.
        SingleTag = "SINGLE_TAG",
        /// Several.
        MultiTag = "MULTI_TAG",
    }
}

/// Java's defaults: 16 readable and writable queues.
impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            attributes: BTreeMap::new(),
            order: false,
            perm: 6,
            read_queue_nums: 16,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

fn filter_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopicFilterType, D::Error> {
    Ok(known_name(deserializer)?.unwrap_or(TopicFilterType::SingleTag))
}

body!(KVTable, TopicList, GroupList, TopicConfig);
