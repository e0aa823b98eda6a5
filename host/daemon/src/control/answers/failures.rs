//! Failed calls: what is asked and answered.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasm::{FailureRecord, Limits, LogLevel, LogLine, LogSource};

use super::milliseconds;

/// Whose failed calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailuresRequest {
    /// `None`: of all plugins.
    #[serde(default)]
    pub(crate) plugin: Option<String>,
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// At most so many of each tenant, the newest.
    pub(crate) newest: usize,
}

/// One failed call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FailureAnswer {
    /// RFC 3339.
    pub(crate) at: String,
    pub(crate) tenant: String,
    pub(crate) plugin: String,
    pub(crate) revision: String,
    /// SHA-256 of the component.
    pub(crate) component_sha256: String,
    pub(crate) phase: String,
    pub(crate) kind: String,
    pub(crate) reason: String,
    /// Innermost frame first.
    pub(crate) backtrace: Vec<String>,
    pub(crate) last_log_lines: Vec<LogLineAnswer>,
    pub(crate) log_lines_dropped: u32,
    pub(crate) queue: Option<String>,
    pub(crate) messages: u32,
    /// The first of them.
    pub(crate) failed_messages: Vec<FailedMessageAnswer>,
    pub(crate) attempt: u32,
    /// A message of a failed batch, alone.
    pub(crate) isolated: bool,
    pub(crate) wall_ms: f64,
    pub(crate) compute_ms: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) limits: LimitsAnswer,
}

/// A line that the guest logged or wrote.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogLineAnswer {
    pub(crate) level: String,
    pub(crate) source: String,
    pub(crate) context: String,
    pub(crate) text: String,
}

/// A message that the call had.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FailedMessageAnswer {
    pub(crate) message_id: String,
    pub(crate) queue_offset: u64,
}

/// The box at the time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LimitsAnswer {
    pub(crate) isolation: String,
    pub(crate) memory_bytes: u64,
    pub(crate) compute_time_ms: u64,
    /// Of the call, or of making the instance.
    pub(crate) wall_ms: u64,
    pub(crate) host_memory_bytes: usize,
    pub(crate) table_elements: usize,
}

impl FailureAnswer {
    pub(crate) fn new(tenant: &str, record: &FailureRecord) -> Self {
        let messages = record.failed_messages.iter();
        Self {
            at: humantime::format_rfc3339_millis(record.at).to_string(),
            tenant: tenant.to_owned(),
            plugin: record.plugin.to_string(),
            revision: record.revision.to_string(),
            component_sha256: record.component.to_string(),
            phase: record.phase.to_string(),
            kind: record.kind.name().to_owned(),
            reason: record.kind.to_string(),
            backtrace: record.backtrace.clone(),
            last_log_lines: record.last_log_lines.iter().map(log_line).collect(),
            log_lines_dropped: record.log_lines_dropped,
            queue: record.message_queue.as_ref().map(ToString::to_string),
            messages: record.messages,
            failed_messages: messages
                .map(|message| FailedMessageAnswer {
                    message_id: message.message_id.clone(),
                    queue_offset: message.queue_offset.0,
                })
                .collect(),
            attempt: record.attempt,
            isolated: record.isolated,
            wall_ms: fine_milliseconds(record.wall),
            compute_ms: fine_milliseconds(record.computed),
            memory_bytes: record.memory_bytes,
            limits: limits(&record.limits, record.wall_max),
        }
    }
}

fn limits(limits: &Limits, wall_max: Duration) -> LimitsAnswer {
    LimitsAnswer {
        isolation: limits.isolation.name().to_owned(),
        memory_bytes: limits.memory,
        compute_time_ms: milliseconds(limits.compute_time),
        wall_ms: milliseconds(wall_max),
        host_memory_bytes: limits.host_memory,
        table_elements: limits.table_elements,
    }
}

fn log_line(line: &LogLine) -> LogLineAnswer {
    LogLineAnswer {
        level: match line.level {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
        }
        .to_owned(),
        source: match line.source {
            LogSource::Logging => "logging",
            LogSource::Stdout => "stdout",
            LogSource::Stderr => "stderr",
        }
        .to_owned(),
        context: line.context.clone(),
        text: line.text.clone(),
    }
}

/// With microseconds.
fn fine_milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
