//! Every fact of this crate that a log line, a metric or a test may want. One event for
//! a call or a change of state, never for a message.

use std::sync::Arc;
use std::time::Duration;

use protocol::MessageQueue;
use serde::{Deserialize, Serialize};

use crate::component::ListenerKind;
use crate::failure::FailureRecord;

/// Gets every event, in the thread where it happens: it must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The instance pool could not be made; every instance is made on demand, which
    /// takes four times as long.
    PoolRefused {
        /// Why.
        reason: String,
    },
    /// An instance was made and its `init` ran.
    InstanceCreated {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Outside the pool, because it is full or the component too large for it.
        on_demand: bool,
        /// Instantiating and `init` together.
        wall: Duration,
        /// Linear memories after `init`.
        memory_bytes: u64,
    },
    /// A warm instance is gone.
    InstanceRecycled {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Why.
        reason: RecycleReason,
        /// Calls it served.
        calls: u64,
    },
    /// A call of the guest came back.
    CallFinished(CallReport),
    /// A call of the guest failed, or making an instance for one: the one record of it.
    CallFailed(Arc<FailureRecord>),
    /// A call was dropped while it ran: the host stops, or the queue is gone.
    CallKilled {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Messages of the call.
        messages: u32,
    },
    /// A listener got messages that are for a listener of another kind: its group
    /// consumes in another way than the revision does. They are not finished.
    RequestOfAnotherKind {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Where they were pulled from.
        message_queue: MessageQueue,
        /// What the plugin is.
        listener: ListenerKind,
    },
    /// A call was ended, or not begun, because the tenant has no memory left. Its messages
    /// are not finished, and no attempt is counted.
    TenantMemoryUsedUp {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Messages of the call.
        messages: u32,
    },
    /// The tenant's buckets could not be read or written; the guest was told, too.
    KeyValueFailed {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// What it had opened.
        bucket: Arc<str>,
        /// Why.
        reason: String,
    },
    /// The guest returned something that has no meaning; it was put right.
    AnswerCorrected {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// What was wrong.
        problem: AnswerProblem,
    },
    /// The worker process of a plugin ended by itself, or was ended for what it did. A new
    /// one is started when it is needed.
    WorkerEnded {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// Why, for people.
        reason: Arc<str>,
    },
    /// A line that a guest logged or wrote.
    LogLine {
        /// The plugin.
        plugin: Arc<str>,
        /// Its revision.
        revision: Arc<str>,
        /// The line.
        line: LogLine,
    },
}

/// What a call took. Time is the guest's: waiting for a slot or an instance apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallReport {
    /// The plugin.
    pub plugin: Arc<str>,
    /// Its revision.
    pub revision: Arc<str>,
    /// Where its messages were pulled from.
    pub message_queue: MessageQueue,
    /// Messages of the call; of a pull task, those that it pulled.
    pub messages: u32,
    /// Wall clock from entering the guest to its answer.
    pub wall: Duration,
    /// CPU time.
    pub computed: Duration,
    /// Waiting for a slot and an instance, before the guest was entered.
    pub waited: Duration,
    /// Linear memories of the instance after the call.
    pub memory_bytes: u64,
    /// Log lines passed on.
    pub log_lines: u32,
    /// Log lines over a limit.
    pub log_lines_dropped: u32,
    /// The text, when the guest returned an error.
    pub error: Option<String>,
}

/// Why a warm instance was replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecycleReason {
    /// Its call trapped, was killed or broke a limit.
    Failed,
    /// It served `recycle_after_calls`.
    Calls,
    /// It reached `recycle_after_age`.
    Age,
    /// It holds more than the memory mark.
    Memory,
    /// It had nothing to do.
    Idle,
    /// The revision ends.
    Closed,
}

/// What was wrong with an answer. `Display` is for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerProblem {
    /// Outside −1 … messages − 1; clamped.
    #[error("ack_index {ack_index} for {messages} messages; it is −1 to {messages} − 1")]
    AckIndexOutOfRange {
        /// As returned.
        ack_index: i32,
        /// Of the call.
        messages: u32,
    },
    /// Missing outcomes count as "reconsume later", superfluous ones are ignored.
    #[error("{outcomes} outcomes for {messages} messages; one each is needed")]
    WrongNumberOfOutcomes {
        /// As returned.
        outcomes: u32,
        /// Of the call.
        messages: u32,
    },
    /// Taken as success, as RocketMQ does.
    #[error("{status} has no meaning while consume.auto_commit is true; it counts as success")]
    AutoCommitIsOn {
        /// What was returned: `commit` or `rollback`.
        status: &'static str,
    },
}

/// One line of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// How it said it.
    pub source: LogSource,
    /// As given to `wasi:logging`; stdout counts as info, stderr as a warning.
    pub level: LogLevel,
    /// The `context` of `wasi:logging`, else empty.
    pub context: String,
    /// Without its end.
    pub text: String,
    /// It was longer than `LOG_LINE_BYTES_MAX`.
    pub is_cut: bool,
}

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum LogSource {
    /// `wasi:logging`.
    Logging,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Levels of `wasi:logging`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// Decisions.
    Debug,
    /// Changes.
    Info,
    /// Unusual.
    Warn,
    /// Someone must act.
    Error,
    /// It cannot go on.
    Critical,
}
