//! What became of each message: looked at between the consumer and the plugin, counted,
//! and handed to the screen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consumer::GroupConfig;
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeMode, ConsumeRequest, ConsumeResult,
    MessageListener, MessageOutcome, OrderlyStatus,
};
use serde::Serialize;
use tokio::sync::mpsc;

/// Calls whose messages wait to be shown; what comes faster is counted only.
const WAITING_MAX: usize = 256;
/// Characters of a body that are shown.
const BODY_CHARS_MAX: usize = 40;

/// One message of one call.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) plugin: String,
    pub(super) topic: String,
    /// Where it was pulled from: for a retry, the retry topic.
    pub(super) queue: String,
    pub(super) queue_offset: u64,
    /// From 1.
    pub(super) attempt: u32,
    pub(super) message_id: String,
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Of the call that it was part of.
    pub(super) microseconds: u64,
    #[serde(skip)]
    pub(super) body: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Done,
    Retry,
    /// First in its queue, and comes again.
    Suspended,
    /// With auto-commit off: comes again, with what was consumed since the last commit.
    RolledBack,
    DeadLetter,
    NotFinished,
}

/// Numbers of the whole run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    done: AtomicU64,
    retried: AtomicU64,
    dead_letters: AtomicU64,
    not_finished: AtomicU64,
    not_shown: AtomicU64,
}

/// [`Counts`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Totals {
    pub(super) done: u64,
    pub(super) retried: u64,
    pub(super) dead_letters: u64,
    pub(super) not_finished: u64,
    #[serde(skip)]
    pub(super) not_shown: u64,
}

impl Counts {
    pub(super) fn totals(&self) -> Totals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals {
            done: of(&self.done),
            retried: of(&self.retried),
            dead_letters: of(&self.dead_letters),
            not_finished: of(&self.not_finished),
            not_shown: of(&self.not_shown),
        }
    }

    fn add(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Done => &self.done,
            Outcome::Retry | Outcome::Suspended | Outcome::RolledBack => &self.retried,
            Outcome::DeadLetter => &self.dead_letters,
            Outcome::NotFinished => &self.not_finished,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where listeners' outcomes go.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    counts: Arc<Counts>,
    lines: mpsc::Sender<Vec<Line>>,
}

impl Sink {
    /// A sink and what comes out of it.
    pub(super) fn new() -> (Self, Arc<Counts>, mpsc::Receiver<Vec<Line>>) {
        let (lines, receiver) = mpsc::channel(WAITING_MAX);
        let counts = Arc::new(Counts::default());
        let sink = Self {
            counts: Arc::clone(&counts),
            lines,
        };
        (sink, counts, receiver)
    }

    /// The listener of a plugin's group, looked at.
    pub(super) fn observed(
        &self,
        plugin: Arc<str>,
        listener: Arc<dyn MessageListener>,
        group: &GroupConfig,
    ) -> Arc<dyn MessageListener> {
        Arc::new(Observed {
            plugin,
            listener,
            max_reconsume_times: group.max_reconsume_times().unwrap_or(u32::MAX),
            sink: self.clone(),
        })
    }
}

struct Observed {
    plugin: Arc<str>,
    listener: Arc<dyn MessageListener>,
    max_reconsume_times: u32,
    sink: Sink,
}

impl MessageListener for Observed {
    fn consume_message(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
        let started = Instant::now();
        let call = self.listener.consume_message(Arc::clone(&request), cancel);
        let (plugin, sink) = (Arc::clone(&self.plugin), self.sink.clone());
        let max_reconsume_times = self.max_reconsume_times;
        Box::pin(async move {
            let result = call.await;
            let elapsed = started.elapsed();
            sink.take(&plugin, &request, &result, max_reconsume_times, elapsed);
            result
        })
    }
}

impl Sink {
    /// Counts the messages of a call, and hands their lines to the screen as far as it
    /// follows.
    pub(super) fn add(&self, outcomes: impl IntoIterator<Item = Outcome>, lines: Vec<Line>) {
        let shown = lines.len() as u64;
        let mut messages: u64 = 0;
        for outcome in outcomes {
            self.counts.add(outcome);
            messages += 1;
        }
        let not_shown = match self.lines.try_send(lines) {
            Ok(()) => messages.saturating_sub(shown),
            Err(_) => messages,
        };
        self.counts
            .not_shown
            .fetch_add(not_shown, Ordering::Relaxed);
    }

    fn take(
        &self,
        plugin: &Arc<str>,
        request: &ConsumeRequest,
        result: &ConsumeResult,
        max_reconsume_times: u32,
        elapsed: Duration,
    ) {
        // Only made when somebody looks at them.
        let place = self.lines.try_reserve().ok();
        let mut lines = Vec::new();
        for (index, message) in request.iter().enumerate() {
            let attempts_used_up = message.reconsume_times >= max_reconsume_times;
            let (outcome, reason) = match request.mode {
                ConsumeMode::Concurrently => outcome(result, index, attempts_used_up),
                ConsumeMode::Orderly { auto_commit } => {
                    orderly_outcome(result, index, auto_commit, attempts_used_up)
                }
            };
            self.counts.add(outcome);
            if place.is_none() {
                self.counts.not_shown.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            lines.push(Line {
                plugin: plugin.to_string(),
                topic: request.topic.to_string(),
                queue: request.message_queue.to_string(),
                queue_offset: message.message.queue_offset().0,
                attempt: message.reconsume_times.saturating_add(1),
                message_id: message.message.message_id(),
                outcome,
                reason: reason.map(|reason| reason.to_string()),
                microseconds: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                body: shown(message.message.body()),
            });
        }
        if let Some(place) = place {
            place.send(lines);
        }
    }
}

/// What becomes of the message with this index in the request.
fn outcome(
    result: &ConsumeResult,
    index: usize,
    attempts_used_up: bool,
) -> (Outcome, Option<Arc<str>>) {
    let later = || match attempts_used_up {
        true => (
            Outcome::DeadLetter,
            Some(Arc::from("its attempts are used up")),
        ),
        false => (Outcome::Retry, None),
    };
    let status = match result {
        ConsumeResult::Concurrently(status) => status,
        ConsumeResult::Failed { reason } if !attempts_used_up => {
            return (Outcome::Retry, Some(Arc::clone(reason.text())));
        }
        ConsumeResult::Failed { .. } => return later(),
        ConsumeResult::Orderly(_) | ConsumeResult::OrderlyCalls(_) | ConsumeResult::NotFinished => {
            return (Outcome::NotFinished, None);
        }
    };
    match status {
        ConcurrentlyStatus::ConsumeSuccess { ack_index } => match ack_index {
            Some(ack) if i64::try_from(index).unwrap_or(i64::MAX) > i64::from(*ack) => later(),
            _ => (Outcome::Done, None),
        },
        ConcurrentlyStatus::ReconsumeLater {
            delay_level: Some(-1),
        } => (Outcome::DeadLetter, None),
        ConcurrentlyStatus::ReconsumeLater { .. } => later(),
        ConcurrentlyStatus::Each(outcomes) => match outcomes.get(index) {
            Some(MessageOutcome::Done) => (Outcome::Done, None),
            Some(MessageOutcome::DeadLetter { reason }) => {
                (Outcome::DeadLetter, Some(Arc::clone(reason.text())))
            }
            Some(MessageOutcome::Failed { reason }) if !attempts_used_up => {
                (Outcome::Retry, Some(Arc::clone(reason.text())))
            }
            Some(MessageOutcome::Failed { .. }) => later(),
            Some(MessageOutcome::NotFinished) => (Outcome::NotFinished, None),
            Some(MessageOutcome::ReconsumeLater {
                delay_level: Some(-1),
            }) => (Outcome::DeadLetter, None),
            Some(MessageOutcome::ReconsumeLater { .. }) | None => later(),
        },
    }
}

/// The same in a request of an orderly listener.
fn orderly_outcome(
    result: &ConsumeResult,
    index: usize,
    auto_commit: bool,
    attempts_used_up: bool,
) -> (Outcome, Option<Arc<str>>) {
    match result.orderly_status(index) {
        None => (Outcome::NotFinished, None),
        Some(OrderlyStatus::Success | OrderlyStatus::Commit) => (Outcome::Done, None),
        Some(OrderlyStatus::Rollback) if auto_commit => (Outcome::Done, None),
        Some(OrderlyStatus::Rollback) => (Outcome::RolledBack, None),
        Some(OrderlyStatus::SuspendCurrentQueueAMoment { .. }) if attempts_used_up => (
            Outcome::DeadLetter,
            Some(Arc::from("its attempts are used up")),
        ),
        Some(OrderlyStatus::SuspendCurrentQueueAMoment { .. }) => (Outcome::Suspended, None),
    }
}

/// The beginning of a body for people.
pub(super) fn shown(body: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(body) else {
        return format!("{} bytes", body.len());
    };
    let mut shown: String = text.chars().take(BODY_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Done => "done",
            Outcome::Retry => "retry",
            Outcome::Suspended => "suspended",
            Outcome::RolledBack => "rolled back",
            Outcome::DeadLetter => "dead letter",
            Outcome::NotFinished => "not finished",
        };
        let time = Duration::from_micros(self.microseconds);
        write!(
            f,
            "{outcome:<12} {}  queue {}  offset {}  attempt {}  {time:.1?}  {}",
            self.plugin, self.queue, self.queue_offset, self.attempt, self.body
        )?;
        match &self.reason {
            Some(reason) => write!(f, "  ({reason})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use consumer::listener::OrderlyCall;

    use super::*;

    fn outcomes(result: &ConsumeResult, messages: usize) -> Vec<Outcome> {
        (0..messages)
            .map(|index| outcome(result, index, false).0)
            .collect()
    }

    #[test]
    fn every_message_has_its_outcome() {
        use Outcome::{DeadLetter, Done, NotFinished, Retry};
        let success = |ack_index| {
            ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index })
        };
        assert_eq!(outcomes(&success(None), 2), [Done, Done]);
        assert_eq!(outcomes(&success(Some(0)), 2), [Done, Retry]);
        assert_eq!(outcomes(&success(Some(-1)), 2), [Retry, Retry]);
        let each = ConsumeResult::Concurrently(ConcurrentlyStatus::Each(vec![
            MessageOutcome::Done,
            MessageOutcome::DeadLetter {
                reason: "no".into(),
            },
            MessageOutcome::NotFinished,
        ]));
        assert_eq!(outcomes(&each, 4), [Done, DeadLetter, NotFinished, Retry]);
        assert_eq!(outcomes(&ConsumeResult::NotFinished, 1), [NotFinished]);
    }

    #[test]
    fn orderly_message_has_the_outcome_of_its_call() {
        use Outcome::{DeadLetter, Done, NotFinished, RolledBack, Suspended};
        let suspend = OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };
        let call = |messages, status| OrderlyCall {
            messages,
            status,
            reason: None,
        };
        let result = ConsumeResult::OrderlyCalls(vec![
            call(2, OrderlyStatus::Success),
            call(1, suspend.clone()),
        ]);
        let outcomes = |result: &ConsumeResult, auto_commit, used_up| {
            (0..4)
                .map(|index| orderly_outcome(result, index, auto_commit, used_up).0)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            outcomes(&result, true, false),
            [Done, Done, Suspended, NotFinished]
        );
        assert_eq!(
            outcomes(&result, true, true),
            [Done, Done, DeadLetter, NotFinished]
        );
        let rollback = ConsumeResult::Orderly(OrderlyStatus::Rollback);
        assert_eq!(outcomes(&rollback, false, false), [RolledBack; 4]);
        assert_eq!(outcomes(&rollback, true, false), [Done; 4]);
        assert_eq!(
            outcomes(&ConsumeResult::NotFinished, true, false),
            [NotFinished; 4]
        );
    }

    #[test]
    fn last_attempt_is_followed_by_the_dead_letters() {
        let later =
            ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None });
        assert_eq!(outcome(&later, 0, true).0, Outcome::DeadLetter);
    }

    #[test]
    fn body_is_shown_on_one_line_and_not_whole() {
        assert_eq!(shown(b"a\nb"), r#""a\nb""#);
        assert_eq!(shown(&[0xff, 0xfe]), "2 bytes");
        assert_eq!(shown("x".repeat(100).as_bytes()).chars().count(), 43);
    }
}
