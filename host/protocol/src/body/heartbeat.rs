//! What a client announces about its groups: request 34.

use serde::{Deserialize, Serialize};

use super::{body, known_name, named};
use crate::subscription::SubscriptionData;

/// A heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// The client's id.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Its consumer groups.
    pub consumer_data_set: Vec<ConsumerData>,
    /// Not 0 selects heartbeat v2 (5.x).
    pub heartbeat_fingerprint: i32,
    /// Its producer groups.
    pub producer_data_set: Vec<ProducerData>,
    /// Heartbeat v2: leave the known subscriptions alone.
    pub without_sub: bool,
}

/// One consumer group of a client. Enums are `None` when absent or of a newer kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Where a new group starts.
    #[serde(
        deserialize_with = "known_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub consume_from_where: Option<ConsumeFromWhere>,
    /// Pull, push or pop.
    #[serde(
        deserialize_with = "known_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub consume_type: Option<ConsumeType>,
    /// The group.
    pub group_name: String,
    /// Whether its members share the messages.
    #[serde(
        deserialize_with = "known_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub message_model: Option<MessageModel>,
    /// What it wants, retry topic included.
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Units of deployment; normally false.
    pub unit_mode: bool,
}

/// One producer group of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// The group.
    pub group_name: String,
}

named! {
    /// How a group gets its messages.
    ConsumeType {
        /// The application pulls.
        Actively = "CONSUME_ACTIVELY",
        /// The client pulls and calls listeners.
        Passively = "CONSUME_PASSIVELY",
        /// The broker deals out messages (5.x).
        Pop = "CONSUME_POP",
    }
}

named! {
    /// Whether the members of a group share the messages.
    MessageModel {
        /// Every member gets every message.
        Broadcasting = "BROADCASTING",
        /// One member gets each message.
        Clustering = "CLUSTERING",
    }
}

named! {
    /// Where a group without a stored offset starts.
    ConsumeFromWhere {
        /// At the end.
        LastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// At the beginning.
        FirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At a point in time.
        Timestamp = "CONSUME_FROM_TIMESTAMP",
        /// Deprecated.
        LastOffsetAndMinWhenBootFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Deprecated.
        MinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Deprecated.
        MaxOffset = "CONSUME_FROM_MAX_OFFSET",
    }
}

body!(HeartbeatData);
