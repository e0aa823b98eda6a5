//! Who is connected for a group: the answer to 203.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ConsumeFromWhere, ConsumeType, MessageModel, body, known_name};
use crate::subscription::SubscriptionData;

/// The connections of a group and what it announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// Its clients.
    pub connection_set: Vec<Connection>,
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
    /// Whether its members share the messages.
    #[serde(
        deserialize_with = "known_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub message_model: Option<MessageModel>,
    /// By topic.
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// One connected client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// `host:port` of the socket.
    pub client_addr: String,
    /// The client's id.
    pub client_id: String,
    /// Name of a language, see `Language::name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Version ordinal.
    pub version: i32,
}

body!(ConsumerConnection);
