//! Two exchanges about one client: checking a subscription (46) and consuming one
//! message on demand (309).

use serde::{Deserialize, Serialize};

use super::{body, known_name, named};
use crate::subscription::SubscriptionData;

/// Request 46: would this subscription work?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientRequestBody {
    /// The client's id.
    pub client_id: String,
    /// The group.
    pub group: String,
    /// The namespace, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The subscription in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_data: Option<SubscriptionData>,
}

/// Answer to 309.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeMessageDirectlyResult {
    /// Orderly consumption commits by itself; normally true.
    pub auto_commit: bool,
    /// How it ended.
    #[serde(
        deserialize_with = "known_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub consume_result: Option<CMResult>,
    /// An orderly listener consumed it.
    pub order: bool,
    /// Text for people, such as the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Time in the listener, milliseconds; the spelling is Java's.
    pub spent_time_mills: i64,
}

named! {
    /// How consuming on demand ended.
    CMResult {
        /// The listener took it.
        Success = "CR_SUCCESS",
        /// It wants it again later.
        Later = "CR_LATER",
        /// Orderly: rolled back.
        Rollback = "CR_ROLLBACK",
        /// Orderly: committed.
        Commit = "CR_COMMIT",
        /// It failed.
        ThrowException = "CR_THROW_EXCEPTION",
        /// It said nothing.
        ReturnNull = "CR_RETURN_NULL",
    }
}

body!(CheckClientRequestBody, ConsumeMessageDirectlyResult);
