//! What is asked and answered about plugins and their revisions: plain types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::revisions::ledger::Entry;

/// What is to be deployed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeployRequest {
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// A component or a manifest (absolute, on the host's machine), or an address of a
    /// component.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// In place of a path: the text of a manifest.
    #[serde(default)]
    pub(crate) manifest: Option<String>,
    /// Number of the revision that serves now.
    #[serde(default)]
    pub(crate) expect: Option<u64>,
    /// Though it was taken back before.
    #[serde(default)]
    pub(crate) again: bool,
    #[serde(default)]
    pub(crate) canary: Option<CanaryRequest>,
    #[serde(default)]
    pub(crate) shadow: Option<ShadowRequest>,
}

/// How a shadow is run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShadowRequest {
    /// Of the requests, in a thousand; 1 to 1000.
    pub(crate) share_per_mille: u16,
    pub(crate) length_ms: u64,
}

/// How a canary is tried.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CanaryRequest {
    /// Of the keys or queues, in a thousand; 1 to 999.
    pub(crate) share_per_mille: u16,
    pub(crate) length_ms: u64,
    /// Messages.
    pub(crate) sample_min: u64,
    /// Messages that it failed and the other revision finished, in a thousand.
    pub(crate) worse_per_mille_max: u16,
    /// Messages that it wanted among the dead letters and the other did not, in a thousand.
    #[serde(default)]
    pub(crate) dead_per_mille_max: Option<u16>,
    /// Calls that broke, in a thousand, beyond those of the other revision.
    #[serde(default)]
    pub(crate) broken_per_mille_max: Option<u16>,
    /// By how much longer 99 of a hundred messages take, in a hundred.
    #[serde(default)]
    pub(crate) slower_percent_max: Option<u32>,
}

/// Which revision is to serve again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackRequest {
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// Its number; without it the one that served before.
    #[serde(default)]
    pub(crate) to: Option<u64>,
    #[serde(default)]
    pub(crate) expect: Option<u64>,
}

/// `promote`, `abort` or `cancel`; for `/v1/remove` none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeRequest {
    pub(crate) plugin: String,
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    #[serde(default)]
    pub(crate) change: Option<String>,
    #[serde(default)]
    pub(crate) expect: Option<u64>,
}

/// What is to be read of the ledger.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryRequest {
    /// `None`: of all plugins.
    #[serde(default)]
    pub(crate) plugin: Option<String>,
    /// At most so many, the newest.
    #[serde(default)]
    pub(crate) newest: Option<usize>,
}

/// The ledger.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HistoryAnswer {
    /// Oldest first.
    pub(crate) entries: Vec<Entry>,
    /// Lines that were changed or are missing, in words.
    pub(crate) damage: Vec<String>,
}

/// A component that was brought.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UploadAnswer {
    /// What to deploy; it stays until eight others came.
    pub(crate) path: String,
    pub(crate) sha256: String,
}

/// All plugins, and what is wrong with files of their folders.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PluginsAnswer {
    pub(crate) plugins: Vec<PluginAnswer>,
    /// Each changes nothing until it is mended.
    pub(crate) problems: Vec<String>,
}

/// One plugin.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PluginAnswer {
    pub(crate) tenant: String,
    pub(crate) plugin: String,
    pub(crate) consumer_group: String,
    /// `serving`, `loading` or `failed`.
    pub(crate) state: String,
    /// Number of the revision that serves.
    pub(crate) number: Option<u64>,
    pub(crate) revision: Option<String>,
    /// Digest of its component.
    pub(crate) component: Option<String>,
    /// Requests under way in it.
    pub(crate) calls: u64,
    /// Steps of the newest deployment that are done, and what each took.
    pub(crate) steps: Vec<StepAnswer>,
    /// The step that runs.
    pub(crate) step: Option<String>,
    pub(crate) canary: Option<CanaryAnswer>,
    /// Number of the revision that gets copies.
    #[serde(default)]
    pub(crate) shadow: Option<u64>,
    /// Revisions that still have calls, besides.
    pub(crate) draining: usize,
    /// Why the newest deployment does not serve.
    pub(crate) failure: Option<String>,
    /// Who has put something in the place of the manifest.
    pub(crate) pinned_by: Option<String>,
    /// Where the manifest is.
    pub(crate) manifest: String,
    /// Oldest first.
    pub(crate) revisions: Vec<RevisionAnswer>,
}

/// A step that is done.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StepAnswer {
    pub(crate) step: String,
    pub(crate) ms: f64,
}

/// A revision on trial.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CanaryAnswer {
    pub(crate) number: Option<u64>,
    pub(crate) revision: String,
    /// Messages that it had.
    pub(crate) sample: u64,
    pub(crate) failed: u64,
    /// Of those, the ones that the other revision finished.
    pub(crate) worse: u64,
    /// Messages that it wanted among the dead letters and the other did not.
    #[serde(default)]
    pub(crate) dead: u64,
    /// Its calls that trapped, broke a limit or ran out of time.
    #[serde(default)]
    pub(crate) broken: u64,
    /// Of a hundred messages 99 took no longer.
    #[serde(default)]
    pub(crate) p99_ms: Option<f64>,
    /// The same of the revision that serves, in the same time.
    #[serde(default)]
    pub(crate) p99_serving_ms: Option<f64>,
}

/// A revision that is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RevisionAnswer {
    pub(crate) number: u64,
    pub(crate) revision: String,
    pub(crate) component: String,
    /// Where that came from; empty where it is not known.
    #[serde(default)]
    pub(crate) source: String,
    pub(crate) by: String,
    pub(crate) at_ms: u64,
    /// It would serve again without a step.
    pub(crate) warm: bool,
    /// It was taken back, and why.
    pub(crate) refused: Option<String>,
}
