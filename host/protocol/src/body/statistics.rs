//! Offsets and rates that tools show: answers to 202 and 208.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::body;
use crate::json_dialect::object_keys;
use crate::message::MessageQueue;

/// Answer to 202. RocketMQ: `TopicStatsTable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    /// By queue.
    #[serde(serialize_with = "object_keys")]
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages per second that come in.
    pub topic_put_tps: f64,
}

/// The limits of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// Store time of the newest message, Unix milliseconds; 0 is none.
    pub last_update_timestamp: i64,
    /// Next offset to be written.
    pub max_offset: i64,
    /// Oldest offset there is.
    pub min_offset: i64,
}

/// Answer to 208.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages per second that go out.
    pub consume_tps: f64,
    /// By queue.
    #[serde(serialize_with = "object_keys")]
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

/// How far a group is in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    /// Next offset to be written.
    pub broker_offset: i64,
    /// Committed.
    pub consumer_offset: i64,
    /// Store time of the last committed message, Unix milliseconds; 0 is none.
    pub last_timestamp: i64,
    /// Pulled up to (5.x).
    pub pull_offset: i64,
}

body!(TopicStatsTable, ConsumeStats);
