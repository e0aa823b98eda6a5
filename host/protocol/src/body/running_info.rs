//! How a consumer is doing: the answer to 307.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::body;
use crate::json_dialect::object_keys;
use crate::message::MessageQueue;
use crate::subscription::SubscriptionData;

/// A consumer's state, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerRunningInfo {
    /// Stacks of every thread, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jstack: Option<String>,
    /// Queues in pop mode.
    #[serde(serialize_with = "object_keys")]
    pub mq_pop_table: BTreeMap<MessageQueue, PopProcessQueueInfo>,
    /// Queues it holds.
    #[serde(serialize_with = "object_keys")]
    pub mq_table: BTreeMap<MessageQueue, ProcessQueueInfo>,
    /// `PROP_CONSUME_TYPE` and other names that tools show; all values are text.
    pub properties: BTreeMap<String, String>,
    /// By topic.
    pub status_table: BTreeMap<String, ConsumeStatus>,
    /// What it subscribes to.
    pub subscription_set: Vec<SubscriptionData>,
    /// Free text of the application.
    pub user_consumer_info: BTreeMap<String, String>,
}

/// Names in `ConsumerRunningInfo::properties` that tools need.
pub mod running_info_property {
    /// `CONSUME_PASSIVELY`, `CONSUME_ACTIVELY` or `CONSUME_POP`.
    pub const CONSUME_TYPE: &str = "PROP_CONSUME_TYPE";
    /// `true` or `false`.
    pub const CONSUME_ORDERLY: &str = "PROP_CONSUMEORDERLY";
    /// A number.
    pub const THREADPOOL_CORE_SIZE: &str = "PROP_THREADPOOL_CORE_SIZE";
    /// Unix milliseconds.
    pub const CONSUMER_START_TIMESTAMP: &str = "PROP_CONSUMER_START_TIMESTAMP";
    /// Each address followed by a semicolon.
    pub const NAMESERVER_ADDR: &str = "PROP_NAMESERVER_ADDR";
    /// A version's name, such as `V5_3_3`.
    pub const CLIENT_VERSION: &str = "PROP_CLIENT_VERSION";
}

/// One queue that a consumer holds. Times are Unix milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessQueueInfo {
    /// Fetched and not finished.
    pub cached_msg_count: i32,
    /// Highest of them.
    pub cached_msg_max_offset: i64,
    /// Lowest of them.
    pub cached_msg_min_offset: i64,
    /// Their bodies.
    #[serde(rename = "cachedMsgSizeInMiB")]
    pub cached_msg_size_in_mib: i32,
    /// Finished up to.
    pub commit_offset: i64,
    /// Given up; the spelling is Java's.
    pub droped: bool,
    /// Last time a listener got some.
    pub last_consume_timestamp: i64,
    /// Last time the lock was renewed.
    pub last_lock_timestamp: i64,
    /// Last time it was pulled.
    pub last_pull_timestamp: i64,
    /// Whether we hold the broker's lock.
    pub locked: bool,
    /// Orderly: being consumed.
    pub transaction_msg_count: i32,
    /// Highest of them.
    pub transaction_msg_max_offset: i64,
    /// Lowest of them.
    pub transaction_msg_min_offset: i64,
    /// Attempts to give the lock back.
    pub try_unlock_times: i64,
}

/// One queue in pop mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PopProcessQueueInfo {
    /// Given up; the spelling is Java's.
    pub droped: bool,
    /// Unix milliseconds.
    pub last_pop_timestamp: i64,
    /// Not acknowledged yet.
    pub wait_ack_count: i32,
}

/// Rates of one topic; times in milliseconds, rates per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatus {
    /// Failures of the last hour.
    pub consume_failed_msgs: i64,
    /// Failure rate.
    #[serde(rename = "consumeFailedTPS")]
    pub consume_failed_tps: f64,
    /// Success rate.
    #[serde(rename = "consumeOKTPS")]
    pub consume_ok_tps: f64,
    /// Mean time in the listener.
    #[serde(rename = "consumeRT")]
    pub consume_rt: f64,
    /// Mean time of a pull.
    #[serde(rename = "pullRT")]
    pub pull_rt: f64,
    /// Rate of pulled messages.
    #[serde(rename = "pullTPS")]
    pub pull_tps: f64,
}

body!(ConsumerRunningInfo);
