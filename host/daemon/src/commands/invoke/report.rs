//! What an invocation came to: an outcome for each message, figures for each call, log
//! lines, failures, what would have been sent. Text and JSON show the same.

use std::fmt::Write as _;
use std::time::Duration;

use consumer::listener::{
    ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeResult, MessageOutcome, OrderlyStatus,
};
use consumer::publish::OutgoingMessage;
use consumer::pull_task::PullTaskResult;
use serde::Serialize;
use wasm::{CallReport, Event, FailureRecord, LogLevel, LogLine, LogSource};

use super::queue::MemoryQueue;

/// See the module.
#[derive(Serialize, Default)]
pub(super) struct Report {
    pub(super) plugin: String,
    pub(super) revision: String,
    /// Reading, checking, compiling (or the cache), the first instance and `init`.
    pub(super) load_us: u64,
    pub(super) compiled_before: bool,
    pub(super) messages: Vec<MessageView>,
    /// Of a pull task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<RunView>,
    pub(super) calls: Vec<CallView>,
    pub(super) log: Vec<LogView>,
    pub(super) sent: Vec<SentView>,
    pub(super) notes: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct MessageView {
    message_id: String,
    topic: String,
    queue_offset: u64,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_level: Option<i32>,
    /// Of a suspension, when the plugin says how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspend_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// One run of a pull task.
#[derive(Serialize)]
pub(super) struct RunView {
    queue: String,
    /// "done", "failed" or "not finished".
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Until the queue's next run, when the plugin or the manifest says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run_ms: Option<u64>,
    /// Where the task left its offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    consume_offset: Option<u64>,
    /// Messages before that offset.
    done: usize,
    /// Messages in the queue.
    messages: usize,
}

#[derive(Serialize)]
pub(super) struct CallView {
    messages: u32,
    wall_us: u64,
    compute_us: u64,
    memory_bytes: u64,
    log_lines_dropped: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureView>,
}

#[derive(Serialize)]
struct FailureView {
    kind: &'static str,
    text: String,
    phase: String,
    /// A message of a failed batch, alone.
    isolated: bool,
    backtrace: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct LogView {
    level: &'static str,
    source: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    context: String,
    text: String,
}

#[derive(Serialize)]
pub(super) struct SentView {
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<String>,
    body_bytes: usize,
}

impl Report {
    /// Adds what became of the messages of a request.
    pub(super) fn add_result(&mut self, request: &ConsumeRequest, result: &ConsumeResult) {
        if let ConsumeMode::Orderly { auto_commit } = request.mode {
            return self.add_orderly_result(request, auto_commit, result);
        }
        let outcomes = outcomes(request.len(), result);
        for (consumed, outcome) in request.iter().zip(outcomes) {
            let (name, delay_level, reason) = match outcome {
                MessageOutcome::Done => ("done", None, None),
                MessageOutcome::ReconsumeLater { delay_level } => {
                    ("reconsume later", delay_level, None)
                }
                MessageOutcome::DeadLetter { reason } => {
                    ("dead letter", None, Some(reason.to_string()))
                }
                // Its call says why.
                MessageOutcome::Failed { .. } => ("reconsume later", None, None),
                MessageOutcome::NotFinished => ("not finished", None, None),
            };
            self.messages.push(MessageView {
                message_id: consumed.message.message_id(),
                topic: request.topic.to_string(),
                queue_offset: consumed.message.queue_offset().0,
                outcome: name,
                delay_level,
                suspend_ms: None,
                reason,
            });
        }
    }

    fn add_orderly_result(
        &mut self,
        request: &ConsumeRequest,
        auto_commit: bool,
        result: &ConsumeResult,
    ) {
        for (index, consumed) in request.iter().enumerate() {
            let (outcome, suspend) = match result.orderly_status(index) {
                None => ("not finished", None),
                Some(OrderlyStatus::Success) => ("done", None),
                Some(OrderlyStatus::Commit) if auto_commit => ("done", None),
                Some(OrderlyStatus::Rollback) if auto_commit => ("done", None),
                Some(OrderlyStatus::Commit) => ("committed", None),
                Some(OrderlyStatus::Rollback) => ("rolled back", None),
                Some(OrderlyStatus::SuspendCurrentQueueAMoment { suspend }) => {
                    ("suspended", *suspend)
                }
            };
            self.messages.push(MessageView {
                message_id: consumed.message.message_id(),
                topic: request.topic.to_string(),
                queue_offset: consumed.message.queue_offset().0,
                outcome,
                delay_level: None,
                suspend_ms: suspend.map(whole_milliseconds),
                reason: None,
            });
        }
    }

    /// Adds a run of a pull task.
    pub(super) fn add_run(
        &mut self,
        request: &ConsumeRequest,
        queue: &MemoryQueue,
        result: &PullTaskResult,
        interval: Duration,
    ) {
        let (outcome, reason, next) = match result {
            PullTaskResult::NextRun { after } => ("done", None, Some(after.unwrap_or(interval))),
            PullTaskResult::Failed { reason } => ("failed", Some(reason.clone()), None),
            PullTaskResult::NotFinished => ("not finished", None, None),
        };
        let consume_offset = queue.consume_offset();
        let done = request.iter().filter(|consumed| {
            consume_offset.is_some_and(|offset| consumed.message.queue_offset() < offset)
        });
        self.runs.push(RunView {
            queue: request.message_queue.to_string(),
            outcome,
            reason,
            next_run_ms: next.map(whole_milliseconds),
            consume_offset: consume_offset.map(|offset| offset.0),
            done: done.count(),
            messages: request.len(),
        });
    }

    /// Adds what happened in a call.
    pub(super) fn add_event(&mut self, event: &Event) {
        match event {
            Event::CallFinished(report) => self.calls.push(finished(report)),
            Event::CallFailed(record) => self.calls.push(failed(record)),
            Event::LogLine { line, .. } => self.log.push(log_view(line)),
            Event::AnswerCorrected { problem, .. } => {
                self.notes
                    .push(format!("the plugin's answer was put right: {problem}"));
            }
            _ => {}
        }
    }

    /// Adds what the plugin sent.
    pub(super) fn add_sent(&mut self, message: OutgoingMessage) {
        self.sent.push(SentView {
            topic: message.topic,
            tags: message.tags,
            body_bytes: message.body.len(),
        });
    }

    /// Whether every message was consumed, or every run ended well.
    pub(super) fn is_done(&self) -> bool {
        self.messages.iter().all(MessageView::is_done)
            && self.runs.iter().all(|run| run.outcome == "done")
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        let _ = self.write(&mut text);
        text.truncate(text.trim_end().len());
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "plugin {} revision {}, loaded in {}{}",
            self.plugin,
            self.revision,
            microseconds(self.load_us),
            if self.compiled_before {
                ", compiled before"
            } else {
                ""
            }
        )?;
        for line in &self.log {
            let context = if line.context.is_empty() {
                String::new()
            } else {
                format!(" [{}]", line.context)
            };
            writeln!(text, "log {}{context} {}", line.level, line.text)?;
        }
        for call in &self.calls {
            call.write(text)?;
        }
        for sent in &self.sent {
            let tag = sent
                .tags
                .as_ref()
                .map(|tag| format!(" tag {tag}"))
                .unwrap_or_default();
            writeln!(
                text,
                "would send {} bytes to {}{tag}",
                sent.body_bytes, sent.topic
            )?;
        }
        for note in &self.notes {
            writeln!(text, "note: {note}")?;
        }
        for message in &self.messages {
            write!(
                text,
                "message {} {}: {}",
                message.queue_offset, message.message_id, message.outcome
            )?;
            if let Some(level) = message.delay_level {
                write!(text, ", delay level {level}")?;
            }
            if let Some(suspend) = message.suspend_ms {
                write!(text, " for {suspend} ms")?;
            }
            if let Some(reason) = &message.reason {
                write!(text, ", {reason}")?;
            }
            writeln!(text)?;
        }
        for run in &self.runs {
            run.write(text)?;
        }
        if self.runs.is_empty() {
            let done = self.messages.iter().filter(|one| one.is_done()).count();
            writeln!(text, "{done} of {} done", self.messages.len())
        } else {
            let done = self.runs.iter().filter(|run| run.outcome == "done").count();
            writeln!(text, "{done} of {} runs done", self.runs.len())
        }
    }
}

impl MessageView {
    fn is_done(&self) -> bool {
        matches!(self.outcome, "done" | "committed")
    }
}

impl RunView {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        write!(text, "queue {}: {}", self.queue, self.outcome)?;
        if let Some(reason) = &self.reason {
            write!(text, ", {reason}")?;
        }
        match self.consume_offset {
            Some(offset) => write!(
                text,
                ", {} of {} messages before its offset {offset}",
                self.done, self.messages
            )?,
            None => write!(text, ", no offset set")?,
        }
        match self.next_run_ms {
            Some(next) => writeln!(text, ", again after {next} ms"),
            None => writeln!(text),
        }
    }
}

impl CallView {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        write!(
            text,
            "call of {} message{}: {}, {} computing, {} memory",
            self.messages,
            if self.messages == 1 { "" } else { "s" },
            microseconds(self.wall_us),
            microseconds(self.compute_us),
            rounded(self.memory_bytes)
        )?;
        if self.log_lines_dropped > 0 {
            write!(
                text,
                ", {} log lines over the limit",
                self.log_lines_dropped
            )?;
        }
        writeln!(text)?;
        if let Some(error) = &self.error {
            writeln!(text, "  returned an error: {error}")?;
        }
        if let Some(failure) = &self.failure {
            let alone = if failure.isolated {
                ", the message alone"
            } else {
                ""
            };
            writeln!(
                text,
                "  failed in {}{alone}: {}",
                failure.phase, failure.text
            )?;
            for frame in &failure.backtrace {
                writeln!(text, "    at {frame}")?;
            }
        }
        Ok(())
    }
}

/// One outcome a message. RocketMQ: `ConsumeMessageConcurrentlyService#processConsumeResult`.
fn outcomes(messages: usize, result: &ConsumeResult) -> Vec<MessageOutcome> {
    let later = |delay_level| MessageOutcome::ReconsumeLater { delay_level };
    match result {
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index }) => {
            let last = ack_index.map_or(i64::MAX, i64::from);
            let outcome = |index| {
                if index <= last {
                    MessageOutcome::Done
                } else {
                    later(None)
                }
            };
            (0_i64..).take(messages).map(outcome).collect()
        }
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level }) => {
            vec![later(*delay_level); messages]
        }
        ConsumeResult::Concurrently(ConcurrentlyStatus::Each(each)) => {
            let mut each = each.clone();
            each.resize(messages, later(None));
            each
        }
        ConsumeResult::Failed { reason } => {
            let reason = reason.clone();
            vec![MessageOutcome::Failed { reason }; messages]
        }
        // A request to consume concurrently gets no orderly answer.
        ConsumeResult::Orderly(_) | ConsumeResult::OrderlyCalls(_) | ConsumeResult::NotFinished => {
            vec![MessageOutcome::NotFinished; messages]
        }
    }
}

fn finished(report: &CallReport) -> CallView {
    CallView {
        messages: report.messages,
        wall_us: whole_microseconds(report.wall),
        compute_us: whole_microseconds(report.computed),
        memory_bytes: report.memory_bytes,
        log_lines_dropped: report.log_lines_dropped,
        error: report.error.clone(),
        failure: None,
    }
}

fn failed(record: &FailureRecord) -> CallView {
    CallView {
        messages: record.messages,
        wall_us: whole_microseconds(record.wall),
        compute_us: whole_microseconds(record.computed),
        memory_bytes: record.memory_bytes,
        log_lines_dropped: record.log_lines_dropped,
        error: None,
        failure: Some(FailureView {
            kind: record.kind.name(),
            text: record.kind.to_string(),
            phase: record.phase.to_string(),
            isolated: record.isolated,
            backtrace: record.backtrace.clone(),
        }),
    }
}

fn log_view(line: &LogLine) -> LogView {
    LogView {
        level: match line.level {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
        },
        source: match line.source {
            LogSource::Logging => "logging",
            LogSource::Stdout => "stdout",
            LogSource::Stderr => "stderr",
        },
        context: line.context.clone(),
        text: line.text.clone(),
    }
}

pub(super) fn whole_microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn microseconds(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        _ => format!("{:.2} s", microseconds as f64 / 1e6),
    }
}

fn rounded(bytes: u64) -> String {
    let unit = 1_u64 << 20;
    format!("{:.1} MiB", bytes as f64 / unit as f64)
}
