//! Rows of `mqlet usage`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose row it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UsageKind {
    /// One plugin, all its revisions.
    Plugin,
    /// The plugins of a tenant together.
    Tenant,
    /// What no guest computed: connections, the engine, compiling.
    Host,
    /// All of the process, as the system counts it.
    Process,
}

impl UsageKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Tenant => "tenant",
            Self::Host => "host",
            Self::Process => "process",
        }
    }
}

/// What was used since the host started. Rows of kinds `host` and `process` have CPU time
/// alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageAnswer {
    pub(crate) kind: UsageKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plugin: Option<String>,
    pub(crate) cpu_seconds: f64,
    #[serde(flatten)]
    pub(crate) of_guests: Option<GuestUsage>,
}

/// What only guests use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GuestUsage {
    /// Linear memories, in mebibytes, times seconds.
    pub(crate) memory_mib_seconds: f64,
    /// Linear memories now.
    pub(crate) memory_bytes: u64,
    /// Handed to guests; what comes again counts again.
    pub(crate) messages: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) calls: u64,
    /// By reason.
    pub(crate) kills: BTreeMap<String, u64>,
}

impl UsageAnswer {
    pub(crate) fn new(
        kind: UsageKind,
        tenant: Option<&str>,
        plugin: Option<&str>,
        used: &wasm::UsageSnapshot,
    ) -> Self {
        let kills = used.kills.iter();
        Self {
            kind,
            tenant: tenant.map(str::to_owned),
            plugin: plugin.map(str::to_owned),
            cpu_seconds: used.computed.as_secs_f64(),
            of_guests: Some(GuestUsage {
                memory_mib_seconds: used.memory_byte_seconds / f64::from(1 << 20),
                memory_bytes: used.memory_bytes,
                messages: used.messages,
                bytes_in: used.bytes_in,
                bytes_out: used.bytes_out,
                calls: used.calls,
                kills: kills
                    .map(|(reason, kills)| ((*reason).to_owned(), *kills))
                    .collect(),
            }),
        }
    }

    pub(crate) fn of_cpu(kind: UsageKind, computed: Duration) -> Self {
        Self {
            kind,
            tenant: None,
            plugin: None,
            cpu_seconds: computed.as_secs_f64(),
            of_guests: None,
        }
    }
}
