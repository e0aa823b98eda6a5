//! Queue locks of orderly groups: requests 41 and 42.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::body;
use crate::message::MessageQueue;

/// Asks for locks, or renews them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBatchRequestBody {
    /// Who wants them.
    pub client_id: String,
    /// For which group.
    pub consumer_group: String,
    /// The queues.
    pub mq_set: BTreeSet<MessageQueue>,
    /// Do not ask the other replicas (5.x).
    pub only_this_broker: bool,
}

/// Which queues are locked now; those that are absent are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockBatchResponseBody {
    /// The queues.
    #[serde(rename = "lockOKMQSet")]
    pub lock_ok_mq_set: BTreeSet<MessageQueue>,
}

/// Gives locks back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnlockBatchRequestBody {
    /// Who holds them.
    pub client_id: String,
    /// For which group.
    pub consumer_group: String,
    /// The queues.
    pub mq_set: BTreeSet<MessageQueue>,
    /// Do not tell the other replicas (5.x).
    pub only_this_broker: bool,
}

body!(
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody
);
