//! Where a topic lives: the answer to 105.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::body;
use crate::address::Address;

/// The brokers and queues of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// The brokers.
    pub broker_datas: Vec<BrokerData>,
    /// Legacy, always empty.
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// Ordered topics: `broker:queues;broker:queues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_topic_conf: Option<String>,
    /// Queues per broker name; a broker may be missing from `broker_datas`.
    pub queue_datas: Vec<QueueData>,
}

/// One broker name and the addresses behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// By broker id; 0 is the master. Entries whose id or address is unreadable are
    /// left out: one bad registration must not hide the topic.
    #[serde(deserialize_with = "readable_addresses")]
    pub broker_addrs: BTreeMap<u64, Address>,
    /// The name.
    pub broker_name: String,
    /// The cluster.
    pub cluster: String,
    /// A slave may stand in for the master (5.x).
    pub enable_acting_master: bool,
    /// Availability zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_name: Option<String>,
}

/// A topic's queues on one broker name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// The broker name.
    pub broker_name: String,
    /// 2 write, 4 read, 6 both.
    pub perm: i32,
    /// Queues 0 up to this are readable. Any value may come: bound what you build of it.
    pub read_queue_nums: u32,
    /// Was called `topicSynFlag` up to 4.8.
    #[serde(alias = "topicSynFlag")]
    pub topic_sys_flag: i32,
    /// Queues 0 up to this are writable.
    pub write_queue_nums: u32,
}

body!(TopicRouteData);

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn readable_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, Address>, D::Error> {
    let table = BTreeMap::<i64, String>::deserialize(deserializer)?;
    Ok(table
        .into_iter()
        .filter_map(|(id, address)| Some((u64::try_from(id).ok()?, address.parse().ok()?)))
        .collect())
}
