//! The members of a group: the answer to 38.

use serde::{Deserialize, Serialize};

use super::body;

/// RocketMQ: `GetConsumerListByGroupResponseBody`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerList {
    /// Client ids as the broker lists them: any order, repetitions possible.
    #[serde(rename = "consumerIdList")]
    pub consumer_ids: Vec<String>,
}

body!(ConsumerList);
