//! Offsets per queue: resets (220, 222) and what a group holds in memory (221, 223).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::body;
use crate::json_dialect::object_keys;
use crate::message::MessageQueue;

/// Where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    /// New offset of each queue. Brokers write it as a list when the tool that asked
    /// for the reset was written in C++; both are read.
    #[serde(
        serialize_with = "object_keys",
        deserialize_with = "offset_table_or_list"
    )]
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

/// What groups hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerStatusBody {
    /// A broker's answer to a tool: offsets by client id.
    #[serde(serialize_with = "offsets_by_client")]
    pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    /// A client's answer to a broker.
    #[serde(serialize_with = "object_keys")]
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}

body!(ResetOffsetBody, GetConsumerStatusBody);

fn offsets_by_client<S: serde::Serializer>(
    table: &BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    struct Offsets<'a>(&'a BTreeMap<MessageQueue, i64>);
    impl Serialize for Offsets<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            object_keys(self.0, serializer)
        }
    }
    serializer.collect_map(
        table
            .iter()
            .map(|(client, offsets)| (client, Offsets(offsets))),
    )
}

fn offset_table_or_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<MessageQueue, i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Item {
        broker_name: String,
        offset: i64,
        queue_id: u32,
        topic: String,
    }

    struct Either;
    impl<'de> Visitor<'de> for Either {
        type Value = BTreeMap<MessageQueue, i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map from queues to offsets, or a list of queues with offsets")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut table = BTreeMap::new();
            while let Some((queue, offset)) = map.next_entry()? {
                table.insert(queue, offset);
            }
            Ok(table)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut table = BTreeMap::new();
            while let Some(item) = list.next_element::<Item>()? {
                let queue = MessageQueue::new(&item.topic, &item.broker_name, item.queue_id);
                table.insert(queue, item.offset);
            }
            Ok(table)
        }
    }
    deserializer.deserialize_any(Either)
}
