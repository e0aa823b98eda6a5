//! What is asked and answered about shadows: plain types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShadowOf {
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) tenant: Option<String>,
}

/// The plugin's last shadow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShadowAnswer {
    pub(crate) plugin: String,
    /// Number of its revision, while it gets copies.
    pub(crate) number: Option<u64>,
    /// It gets copies.
    pub(crate) is_running: bool,
    pub(crate) share_per_mille: u16,
    /// Requests that it got a copy of.
    pub(crate) copied: u64,
    /// Requests that it should have had, and there was no room.
    pub(crate) left_out: u64,
    /// Copies that were compared.
    pub(crate) compared: u64,
    /// Messages of those.
    pub(crate) messages: u64,
    /// Messages of those with another outcome.
    pub(crate) other_outcomes: u64,
    /// Copies of those with other effects.
    pub(crate) other_effects: u64,
    /// What it would have done outside, and did not.
    pub(crate) not_performed: u64,
    /// The first differences.
    pub(crate) samples: Vec<DifferenceAnswer>,
}

/// Something that was not the same.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DifferenceAnswer {
    pub(crate) queue: String,
    pub(crate) queue_offset: u64,
    pub(crate) message_id: String,
    /// `outcome` or `effects`.
    pub(crate) kind: String,
    pub(crate) serving: String,
    pub(crate) shadow: String,
}
