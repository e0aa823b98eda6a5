//! Lines of calls: guests' own lines, labelled with their plugin, and one line for a
//! call that failed.

use std::sync::Arc;

use ::wasm::{CallReport, Event, FailureRecord, LogLevel, LogLine, LogSource};
use tracing::{debug, error, info, trace, warn};

use crate::telemetry::repeats::Repeats;

pub(in crate::telemetry) fn event(repeats: &Repeats, tenant: &Arc<str>, event: &Event) {
    match event {
        Event::PoolRefused { reason } => {
            warn!(target: "wasm", "no instance pool: every instance is made on demand, which is slower; lower instances_max, or raise the limit of address space: {reason}");
        }
        Event::InstanceCreated {
            plugin,
            revision,
            on_demand,
            wall,
            memory_bytes,
        } => {
            debug!(target: "wasm", %tenant, %plugin, %revision, on_demand, ?wall, memory_bytes, "instance created");
        }
        Event::InstanceRecycled {
            plugin,
            revision,
            reason,
            calls,
        } => {
            debug!(target: "wasm", %tenant, %plugin, %revision, ?reason, calls, "instance recycled");
        }
        Event::CallFinished(report) => finished(repeats, tenant, report),
        Event::CallFailed(record) => failed(repeats, tenant, record),
        Event::CallKilled {
            plugin,
            revision,
            messages,
        } => {
            debug!(target: "wasm", %tenant, %plugin, %revision, messages, "call killed");
        }
        Event::TenantMemoryUsedUp {
            plugin,
            revision,
            messages,
        } => {
            if let Some(untold) = repeats.admit(&format!("memory {tenant}")) {
                warn!(target: "wasm", %tenant, %plugin, %revision, messages, untold, "tenant \"{tenant}\" has used up its budgets.memory: a call of plugin \"{plugin}\" waits, and no attempt is counted; raise it, or lower calls_max of the tenant");
            }
        }
        Event::RequestOfAnotherKind {
            plugin,
            revision,
            message_queue,
            listener,
        } => {
            if let Some(untold) = repeats.admit(&format!("kind {tenant} {plugin}")) {
                let kind = listener.name();
                error!(target: "wasm", %tenant, %plugin, %revision, queue = %message_queue, untold, "plugin \"{plugin}\" is of kind {kind}, and its group consumes in another way: its messages wait; start the host again");
            }
        }
        Event::KeyValueFailed {
            plugin,
            revision,
            bucket,
            reason,
        } => {
            if let Some(untold) = repeats.admit(&format!("buckets {tenant}")) {
                warn!(target: "wasm", %tenant, %plugin, %revision, %bucket, untold, "the buckets of tenant \"{tenant}\" cannot be used, and plugin \"{plugin}\" was told so: {reason}");
            }
        }
        Event::AnswerCorrected {
            plugin,
            revision,
            problem,
        } => {
            if let Some(untold) = repeats.admit(&format!("answer {tenant} {plugin}")) {
                warn!(target: "wasm", %tenant, %plugin, %revision, untold, "the answer of plugin \"{plugin}\" was put right: {problem}");
            }
        }
        Event::WorkerEnded {
            plugin,
            revision,
            reason,
        } => {
            if let Some(untold) = repeats.admit(&format!("worker {tenant} {plugin}")) {
                error!(target: "wasm", %tenant, %plugin, %revision, untold, "the worker process of plugin \"{plugin}\" ended: {reason}; another one is started when it is needed");
            }
        }
        Event::LogLine { plugin, line, .. } => guest_line(tenant, plugin, line),
    }
}

fn finished(repeats: &Repeats, tenant: &Arc<str>, report: &CallReport) {
    let plugin = &report.plugin;
    if report.log_lines_dropped > 0
        && let Some(untold) = repeats.admit(&format!("log lines {tenant} {plugin}"))
    {
        let dropped = report.log_lines_dropped;
        warn!(target: "wasm", %tenant, %plugin, untold, "plugin \"{plugin}\" logs more than its limits allow: {dropped} lines of a call are not shown");
    }
    if let Some(text) = &report.error
        && let Some(untold) = repeats.admit(&format!("error {tenant} {plugin}"))
    {
        let queue = &report.message_queue;
        warn!(
            target: "wasm", %tenant, %plugin, revision = %report.revision, %queue, messages = report.messages, untold,
            "plugin \"{plugin}\" returned an error, what it was given comes again: {text}"
        );
    }
}

fn failed(repeats: &Repeats, tenant: &Arc<str>, record: &FailureRecord) {
    let plugin = &record.plugin;
    let kind = record.kind.name();
    let Some(untold) = repeats.admit(&format!("failure {tenant} {plugin} {kind}")) else {
        return;
    };
    let queue = record.message_queue.as_ref().map(ToString::to_string);
    let offset = record
        .failed_messages
        .first()
        .map(|message| message.queue_offset.0);
    error!(
        target: "wasm", %tenant, %plugin, revision = %record.revision, phase = %record.phase, kind,
        queue, offset, message_ids = record.message_ids().join(" "), messages = record.messages,
        attempt = record.attempt, isolated = record.isolated, wall = ?record.wall,
        computed = ?record.computed, memory_bytes = record.memory_bytes,
        backtrace = record.backtrace.join(" < "), untold,
        "{record}"
    );
}

/// The text of the guest is the line's message, unchanged.
fn guest_line(tenant: &Arc<str>, plugin: &Arc<str>, line: &LogLine) {
    let source = match line.source {
        LogSource::Logging => "log",
        LogSource::Stdout => "stdout",
        LogSource::Stderr => "stderr",
    };
    let context = (!line.context.is_empty()).then_some(line.context.as_str());
    let cut = line.is_cut.then_some(true);
    let text = &line.text;
    match line.level {
        LogLevel::Trace => {
            trace!(target: "guest", %tenant, %plugin, source, context, cut, "{text}");
        }
        LogLevel::Debug => {
            debug!(target: "guest", %tenant, %plugin, source, context, cut, "{text}");
        }
        LogLevel::Info => info!(target: "guest", %tenant, %plugin, source, context, cut, "{text}"),
        LogLevel::Warn => warn!(target: "guest", %tenant, %plugin, source, context, cut, "{text}"),
        LogLevel::Error | LogLevel::Critical => {
            error!(target: "guest", %tenant, %plugin, source, context, cut, "{text}");
        }
    }
}
