//! What the guest did → what becomes of its messages, and the record of a failure.
//!
//! A status is taken as returned; nonsense is put right as RocketMQ does and told. A
//! trap, a limit or a deadline is one [`FailureRecord`]; what it means for the messages
//! is decided by `listener/`, which may try them again one by one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use consumer::FailureReason;
use consumer::listener::{ConcurrentlyStatus, ConsumeResult, MessageOutcome, OrderlyStatus};
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::bindings::exports::mqlet::listener::{concurrent as wit, orderly};
use crate::deadline::{Budget, Exceeded, Interruption};
use crate::engine::WASM_STACK_BYTES;
use crate::event::AnswerProblem;
use crate::failure::{FailureKind, FailureRecord, Phase};
use crate::instance::Said;
use crate::limits::Denied;
use crate::log_lines::cut;
use crate::plugin::Plugin;
use crate::store::State;

/// Texts of a guest that are kept: reasons and errors.
pub const REASON_BYTES_MAX: usize = 1024;
/// Frames of a back-trace that are kept.
const FRAMES_MAX: usize = 32;
/// A function name, demangled, can be of any length.
const FRAME_BYTES_MAX: usize = 256;

/// What a guest said, whatever its kind.
pub(crate) enum Status {
    Concurrently(ConcurrentlyStatus),
    Orderly(OrderlyStatus),
}

impl From<Status> for ConsumeResult {
    fn from(status: Status) -> Self {
        match status {
            Status::Concurrently(status) => Self::Concurrently(status),
            Status::Orderly(status) => Self::Orderly(status),
        }
    }
}

/// An answer that was understood.
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) problem: Option<AnswerProblem>,
    pub(crate) error: Option<String>,
}

/// What an answer means for its messages.
pub(crate) fn understood(
    said: Said,
    messages: usize,
    auto_commit: bool,
    said_by: &Arc<[(String, String)]>,
) -> Answer {
    match said {
        Said::Concurrent(answer) => concurrently(answer, messages, said_by),
        Said::Orderly(answer) => orderly(answer, auto_commit),
    }
}

/// What a concurrent listener's answer means for its messages.
fn concurrently(
    answer: Result<wit::ConsumeStatus, String>,
    messages: usize,
    said_by: &Arc<[(String, String)]>,
) -> Answer {
    let count = u32::try_from(messages).unwrap_or(u32::MAX);
    let mut problem = None;
    let mut error = None;
    let status = match answer {
        Ok(wit::ConsumeStatus::ConsumeSuccess(None)) => {
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None }
        }
        Ok(wit::ConsumeStatus::ConsumeSuccess(Some(ack_index))) => {
            if i64::from(ack_index) >= i64::from(count) || ack_index < -1 {
                problem = Some(AnswerProblem::AckIndexOutOfRange {
                    ack_index,
                    messages: count,
                });
            }
            // RocketMQ: ConsumeMessageConcurrentlyService#processConsumeResult.
            let last = i32::try_from(messages).unwrap_or(i32::MAX) - 1;
            ConcurrentlyStatus::ConsumeSuccess {
                ack_index: Some(ack_index.clamp(-1, last)),
            }
        }
        Ok(wit::ConsumeStatus::ReconsumeLater(level)) => ConcurrentlyStatus::ReconsumeLater {
            delay_level: level.map(delay_level),
        },
        Ok(wit::ConsumeStatus::Each(outcomes)) => {
            if outcomes.len() != messages {
                problem = Some(AnswerProblem::WrongNumberOfOutcomes {
                    outcomes: u32::try_from(outcomes.len()).unwrap_or(u32::MAX),
                    messages: count,
                });
            }
            let mut outcomes: Vec<_> = outcomes
                .into_iter()
                .take(messages)
                .map(|one| outcome(one, said_by))
                .collect();
            outcomes.resize(
                messages,
                MessageOutcome::ReconsumeLater { delay_level: None },
            );
            ConcurrentlyStatus::Each(outcomes)
        }
        Err(text) => {
            error = Some(short(&text));
            ConcurrentlyStatus::ReconsumeLater { delay_level: None }
        }
    };
    Answer {
        status: Status::Concurrently(status),
        problem,
        error,
    }
}

/// What an orderly listener's answer means for its messages.
fn orderly(answer: Result<orderly::ConsumeStatus, String>, auto_commit: bool) -> Answer {
    let mut problem = None;
    let mut error = None;
    // RocketMQ: ConsumeMessageOrderlyService#processConsumeResult takes them as success.
    let mut only_without_auto_commit = |status, word| {
        if auto_commit {
            problem = Some(AnswerProblem::AutoCommitIsOn { status: word });
            OrderlyStatus::Success
        } else {
            status
        }
    };
    let suspend = |suspend| OrderlyStatus::SuspendCurrentQueueAMoment { suspend };
    let status = match answer {
        Ok(orderly::ConsumeStatus::Success) => OrderlyStatus::Success,
        Ok(orderly::ConsumeStatus::SuspendCurrentQueueAMoment(milliseconds)) => {
            suspend(milliseconds.map(|milliseconds| Duration::from_millis(milliseconds.into())))
        }
        Ok(orderly::ConsumeStatus::Commit) => {
            only_without_auto_commit(OrderlyStatus::Commit, "commit")
        }
        Ok(orderly::ConsumeStatus::Rollback) => {
            only_without_auto_commit(OrderlyStatus::Rollback, "rollback")
        }
        Err(text) => {
            error = Some(short(&text));
            suspend(None)
        }
    };
    Answer {
        status: Status::Orderly(status),
        problem,
        error,
    }
}

fn outcome(outcome: wit::Outcome, said_by: &Arc<[(String, String)]>) -> MessageOutcome {
    match outcome {
        wit::Outcome::Done => MessageOutcome::Done,
        wit::Outcome::ReconsumeLater(level) => MessageOutcome::ReconsumeLater {
            delay_level: level.map(delay_level),
        },
        wit::Outcome::DeadLetter(reason) => MessageOutcome::DeadLetter {
            reason: FailureReason::from(cut(&reason, REASON_BYTES_MAX).0)
                .with_properties(Arc::clone(said_by)),
        },
    }
}

fn delay_level(level: u32) -> i32 {
    i32::try_from(level).unwrap_or(i32::MAX)
}

/// A guest's text as it is kept.
pub(crate) fn short(text: &str) -> String {
    cut(text, REASON_BYTES_MAX).0.to_string()
}

/// The record of a phase that was interrupted; facts about messages are added by who
/// knows them.
pub(crate) fn interrupted(
    state: &mut State,
    phase: Phase,
    interruption: Interruption,
    budget: Budget,
) -> FailureRecord {
    match interruption {
        Interruption::Waited => {
            let kind = FailureKind::Timeout(budget.wall);
            failure(state, phase, kind, Vec::new(), budget)
        }
        Interruption::Guest(error) => {
            let kind = kind(state, &error, budget);
            let backtrace = backtrace(&error);
            failure(state, phase, kind, backtrace, budget)
        }
    }
}

/// A record with what the store knows.
pub(crate) fn failure(
    state: &mut State,
    phase: Phase,
    kind: FailureKind,
    backtrace: Vec<String>,
    budget: Budget,
) -> FailureRecord {
    let lines = state.lines.finish_call(&state.plugin);
    FailureRecord {
        phase,
        backtrace,
        last_log_lines: lines.last.into(),
        log_lines_dropped: lines.dropped,
        wall: state.clock.wall(),
        computed: state.clock.computed(),
        memory_bytes: state.memory.memory_bytes(),
        wall_max: budget.wall,
        ..no_instance(&state.plugin, kind, Duration::ZERO)
    }
}

/// A record when there is no store.
pub(crate) fn no_instance(plugin: &Plugin, kind: FailureKind, wall: Duration) -> FailureRecord {
    FailureRecord {
        at: SystemTime::now(),
        plugin: plugin.name(),
        revision: plugin.revision(),
        component: Arc::clone(&plugin.config.component),
        phase: Phase::Instantiate,
        kind,
        backtrace: Vec::new(),
        last_log_lines: Vec::new(),
        message_queue: None,
        failed_messages: Vec::new(),
        messages: 0,
        attempt: 0,
        isolated: false,
        wall,
        computed: Duration::ZERO,
        memory_bytes: 0,
        log_lines_dropped: 0,
        limits: Arc::clone(&plugin.limits),
        wall_max: plugin.init_time(),
    }
}

fn kind(state: &mut State, error: &wasmtime::Error, budget: Budget) -> FailureKind {
    let limits = &state.plugin.config.limits;
    let denied = state.memory.take_denied();
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        return match exceeded {
            Exceeded::Compute => FailureKind::ComputeTime(budget.compute),
            Exceeded::Wall => FailureKind::Timeout(budget.wall),
        };
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return FailureKind::Exit(exit.0);
    }
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::StackOverflow) {
        return FailureKind::StackOverflow(WASM_STACK_BYTES / 1024);
    }
    match denied {
        // Guests rarely survive a refused growth, and say so by a trap.
        Some(Denied::Memory) => FailureKind::Memory(limits.memory),
        Some(Denied::Table) => FailureKind::Tables(limits.table_elements),
        Some(Denied::TenantMemory) | None => match trap {
            Some(trap) => FailureKind::Trap(trap.to_string()),
            // The root cause is the one that names the limit; what stands above it is
            // the back-trace.
            None => by_the_host(&error.root_cause().to_string(), limits.host_memory),
        },
    }
}

/// What wasmtime and WASI refused by themselves. They have words for it and no types: what
/// is no limit is a value that cannot be read.
fn by_the_host(text: &str, host_memory: usize) -> FailureKind {
    const LIMITS: [&str; 4] = [
        "resource limit exceeded",
        "resource table has no free keys",
        "exceeds limit",
        "check-write allows",
    ];
    if text.contains("fuel allocated for hostcalls has been exhausted") {
        FailureKind::HostLimit(format!(
            "one transfer to the host has more than limits.host_memory = {host_memory} bytes"
        ))
    } else if LIMITS.iter().any(|limit| text.contains(limit)) {
        FailureKind::HostLimit(short(text))
    } else {
        FailureKind::Malformed(short(text))
    }
}

fn backtrace(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return Vec::new();
    };
    // Its own text has the names demangled, a frame a line below a heading.
    bounded_frames(backtrace.to_string().lines().skip(1))
}

/// As many as are kept, and of each as much.
pub(crate) fn bounded_frames<'a>(frames: impl Iterator<Item = &'a str>) -> Vec<String> {
    frames
        .take(FRAMES_MAX)
        .map(|frame| cut(frame.trim(), FRAME_BYTES_MAX).0.to_string())
        .collect()
}
