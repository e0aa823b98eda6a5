//! What is known of a call that failed: one [`FailureRecord`] for each, and what a dead
//! letter says of it.
//!
//! The record is made where the call ends (`outcome.rs`, `listener/call.rs`), told once as
//! an event and never changed afterwards. Everything in it that comes from the guest
//! (back-trace, log lines, texts) is bounded and not fit for a terminal as it is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use consumer::FailureReason;
use protocol::{MessageQueue, QueueOffset};
use serde::{Deserialize, Serialize};

use crate::event::LogLine;
use crate::limits::Limits;
use crate::log_lines::cut;
use crate::outcome;
use crate::plugin::PluginConfig;

/// Messages named in one failure record.
pub const FAILED_MESSAGES_MAX: usize = 64;
/// A back-trace, or log lines, in a dead letter; all its properties together have 32 KiB.
const PROPERTY_BYTES_MAX: usize = 1024;

/// What was running.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Making the instance: start functions, global initialisers.
    Instantiate,
    /// `lifecycle.init`.
    Init,
    /// `consume-message`.
    Call,
    /// `do-pull-task`.
    PullTask,
    /// `lifecycle.shutdown`.
    Shutdown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instantiate => "instantiate",
            Self::Init => "init",
            Self::Call => "consume-message",
            Self::PullTask => "do-pull-task",
            Self::Shutdown => "shutdown",
        })
    }
}

/// Why a call failed. `Display` is for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum FailureKind {
    /// The guest trapped: `unreachable`, a panic, an access out of bounds.
    #[error("trap: {0}")]
    Trap(String),
    /// It called `exit`.
    #[error("it called exit({0}); a listener returns")]
    Exit(i32),
    /// Recursion too deep.
    #[error("its stack ran out ({0} KiB); recursion without end?")]
    StackOverflow(usize),
    /// Linear memories over `memory`.
    #[error("it needs more memory than limits.memory = {0} bytes")]
    Memory(u64),
    /// Tables over `table_elements`.
    #[error("it needs more than limits.table_elements = {0}")]
    Tables(usize),
    /// A transfer over `host_memory`, a resource table that is full, a random number
    /// that is too long.
    #[error("host limit: {0}")]
    HostLimit(String),
    /// It returned or passed what is no value of the contract: a pointer beyond its
    /// memory, a text that is not UTF-8.
    #[error("it handed over what is no value: {0}")]
    Malformed(String),
    /// CPU time over `compute_time`.
    #[error("it computed for more than {0:?}")]
    ComputeTime(Duration),
    /// Wall clock over `consume_timeout` (`init_time` while an instance is made).
    #[error("it took more than {0:?}")]
    Timeout(Duration),
    /// `init` returned an error.
    #[error("init returned an error: {0}")]
    InitError(String),
    /// Neither the pool nor the machine has room for an instance.
    #[error("no instance could be made: {0}")]
    NoInstance(String),
    /// The process of a plugin with `isolation = "process"` ended, or was ended, while the
    /// call ran.
    #[error("its worker process ended: {0}")]
    WorkerDied(String),
}

impl FailureKind {
    /// Cuts its texts as those of a guest are cut.
    pub(crate) fn bound(&mut self) {
        match self {
            Self::Trap(text)
            | Self::HostLimit(text)
            | Self::Malformed(text)
            | Self::InitError(text)
            | Self::NoInstance(text)
            | Self::WorkerDied(text) => *text = outcome::short(text),
            Self::Exit(_)
            | Self::StackOverflow(_)
            | Self::Memory(_)
            | Self::Tables(_)
            | Self::ComputeTime(_)
            | Self::Timeout(_) => {}
        }
    }

    /// A word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Trap(_) => "trap",
            Self::Exit(_) => "exit",
            Self::StackOverflow(_) => "stack_overflow",
            Self::Memory(_) => "memory",
            Self::Tables(_) => "tables",
            Self::HostLimit(_) => "host_limit",
            Self::Malformed(_) => "malformed",
            Self::ComputeTime(_) => "compute_time",
            Self::Timeout(_) => "timeout",
            Self::InitError(_) => "init_error",
            Self::NoInstance(_) => "no_instance",
            Self::WorkerDied(_) => "worker_died",
        }
    }
}

/// Everything known about one failed call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureRecord {
    /// When it was made.
    pub at: SystemTime,
    /// The plugin.
    pub plugin: Arc<str>,
    /// Its revision.
    pub revision: Arc<str>,
    /// SHA-256 of its component, in hexadecimal; empty when nobody said.
    pub component: Arc<str>,
    /// What was running.
    pub phase: Phase,
    /// What happened.
    pub kind: FailureKind,
    /// The guest's frames, innermost first.
    pub backtrace: Vec<String>,
    /// The last lines it logged or wrote in this call.
    pub last_log_lines: Vec<LogLine>,
    /// Where its messages were pulled from; `None` while a plugin is loaded.
    pub message_queue: Option<MessageQueue>,
    /// At most [`FAILED_MESSAGES_MAX`]; of a pull task, those of its last pull.
    pub failed_messages: Vec<FailedMessage>,
    /// Messages of the call; of a pull task, those that it pulled.
    pub messages: u32,
    /// Which attempt this was for its first message, from 1; 0 for a
    /// pull task, which has no attempts.
    pub attempt: u32,
    /// A message of a failed batch, alone: the batch was counted before.
    pub isolated: bool,
    /// Wall clock of the failed phase.
    pub wall: Duration,
    /// CPU time of the failed phase.
    pub computed: Duration,
    /// Linear memories when it failed.
    pub memory_bytes: u64,
    /// Log lines over a limit.
    pub log_lines_dropped: u32,
    /// The box at the time.
    pub limits: Arc<Limits>,
    /// What the phase could take by the wall clock.
    pub wall_max: Duration,
}

/// A message that a failed call had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedMessage {
    /// As listeners see it.
    pub message_id: String,
    /// In [`FailureRecord::message_queue`].
    pub queue_offset: QueueOffset,
}

impl FailureRecord {
    /// Ids of [`FailureRecord::failed_messages`].
    pub fn message_ids(&self) -> Vec<&str> {
        let messages = self.failed_messages.iter();
        messages.map(|message| &*message.message_id).collect()
    }

    /// About how much memory it holds, in bytes; for whoever keeps some.
    pub fn bytes(&self) -> usize {
        let frames = self.backtrace.iter().map(|frame| frame.len() + 24);
        let lines = self.last_log_lines.iter();
        let lines = lines.map(|line| line.text.len() + line.context.len() + 64);
        let messages = self.failed_messages.iter();
        let messages = messages.map(|message| message.message_id.len() + 40);
        size_of::<Self>() + frames.chain(lines).chain(messages).sum::<usize>()
    }
}

/// What the dead letters of a plugin say of it, beside its name.
pub(crate) fn dead_letter_properties(plugin: &PluginConfig) -> Vec<(String, String)> {
    of_revision(&plugin.revision, &plugin.component)
}

/// What is not known is not said.
fn of_revision(revision: &Arc<str>, component: &Arc<str>) -> Vec<(String, String)> {
    let texts = [("MQLET_REVISION", revision), ("MQLET_COMPONENT", component)];
    let known = texts.into_iter().filter(|(_, text)| !text.is_empty());
    known
        .map(|(name, text)| (name.to_owned(), text.to_string()))
        .collect()
}

/// What a dead letter says when its last attempt was this.
impl From<&FailureRecord> for FailureReason {
    fn from(record: &FailureRecord) -> Self {
        let property = |name: &str, value: String| (name.to_owned(), value);
        let mut properties = of_revision(&record.revision, &record.component);
        properties.push(property("MQLET_FAILURE", record.kind.name().to_owned()));
        let lines = record.last_log_lines.iter().map(|line| &*line.text);
        for (name, text) in [
            ("MQLET_BACKTRACE", record.backtrace.join(" < ")),
            ("MQLET_LOG", lines.collect::<Vec<_>>().join(" | ")),
        ] {
            if !text.is_empty() {
                properties.push(property(name, cut(&text, PROPERTY_BYTES_MAX).0.to_owned()));
            }
        }
        Self::from(record.kind.to_string()).with_properties(properties.into())
    }
}

/// One line for people; back-trace and log lines are fields.
impl fmt::Display for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "plugin \"{}\" ({}) failed in {}: {}",
            self.plugin, self.revision, self.phase, self.kind
        )
    }
}
