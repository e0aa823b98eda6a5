//! What became of the messages that a pull task pulled: looked at between the consumer and
//! the plugin. A message is done when the task moved its offset past it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consumer::listener::CancelSignal;
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskRequest, PullTaskResult, QueuePull, QueuePullResult,
    QueuePuller, QueuePullerFuture,
};
use protocol::{MessageQueue, QueueOffset};

use super::outcomes::{Line, Outcome, Sink, shown};

/// Messages of one run that are shown; the rest is counted.
const SHOWN_MAX: usize = 1_000;

impl Sink {
    /// The pull task of a plugin's group, looked at.
    pub(super) fn observed_task(
        &self,
        plugin: Arc<str>,
        task: Arc<dyn PullTaskCallback>,
    ) -> Arc<dyn PullTaskCallback> {
        Arc::new(Observed {
            plugin,
            task,
            sink: self.clone(),
        })
    }
}

struct Observed {
    plugin: Arc<str>,
    task: Arc<dyn PullTaskCallback>,
    sink: Sink,
}

impl PullTaskCallback for Observed {
    fn do_pull_task(
        &self,
        request: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskFuture {
        let started = Instant::now();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let puller = Arc::new(ObservedQueue {
            plugin: Arc::clone(&self.plugin),
            queue: request.message_queue.clone(),
            puller,
            seen: Arc::clone(&seen),
        });
        let run = self.task.do_pull_task(request, puller, cancel);
        let sink = self.sink.clone();
        Box::pin(async move {
            let result = run.await;
            let seen = std::mem::take(&mut *lock(&seen));
            seen.tell(&sink, &result, started.elapsed());
            result
        })
    }
}

/// What one run pulled, and where it set the offset.
#[derive(Default)]
struct Seen {
    offsets: BTreeSet<QueueOffset>,
    lines: Vec<Line>,
    consume_offset: Option<QueueOffset>,
}

impl Seen {
    fn outcome(&self, offset: QueueOffset) -> Outcome {
        match self.consume_offset {
            Some(done) if offset < done => Outcome::Done,
            _ => Outcome::NotFinished,
        }
    }

    fn tell(mut self, sink: &Sink, result: &PullTaskResult, elapsed: Duration) {
        if self.offsets.is_empty() {
            return;
        }
        let outcomes: Vec<_> = self.offsets.iter().map(|one| self.outcome(*one)).collect();
        let mut lines = std::mem::take(&mut self.lines);
        for line in &mut lines {
            line.outcome = self.outcome(QueueOffset(line.queue_offset));
            line.microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
            line.reason = match (result, line.outcome) {
                (PullTaskResult::Failed { reason }, Outcome::NotFinished) => Some(reason.clone()),
                _ => None,
            };
        }
        sink.add(outcomes, lines);
    }
}

struct ObservedQueue {
    plugin: Arc<str>,
    queue: MessageQueue,
    puller: Arc<dyn QueuePuller>,
    seen: Arc<Mutex<Seen>>,
}

impl QueuePuller for ObservedQueue {
    fn pull(&self, pull: QueuePull) -> QueuePullerFuture<QueuePullResult> {
        let pulling = self.puller.pull(pull);
        let (plugin, queue) = (Arc::clone(&self.plugin), self.queue.clone());
        let seen = Arc::clone(&self.seen);
        Box::pin(async move {
            let result = pulling.await?;
            let mut seen = lock(&seen);
            for consumed in result.runs.iter().flat_map(|run| run.iter()) {
                let message = consumed.message;
                let offset = message.queue_offset();
                if !seen.offsets.insert(offset) {
                    continue;
                }
                if seen.lines.len() < SHOWN_MAX {
                    seen.lines.push(Line {
                        plugin: plugin.to_string(),
                        topic: queue.topic.to_string(),
                        queue: queue.to_string(),
                        queue_offset: offset.0,
                        attempt: 1,
                        message_id: message.message_id(),
                        outcome: Outcome::NotFinished,
                        reason: None,
                        microseconds: 0,
                        body: shown(message.body()),
                    });
                }
            }
            drop(seen);
            Ok(result)
        })
    }

    fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>> {
        self.puller.fetch_consume_offset()
    }

    fn update_consume_offset(&self, offset: QueueOffset) -> QueuePullerFuture<()> {
        let updating = self.puller.update_consume_offset(offset);
        let seen = Arc::clone(&self.seen);
        Box::pin(async move {
            updating.await?;
            lock(&seen).consume_offset = Some(offset);
            Ok(())
        })
    }

    fn min_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.puller.min_offset()
    }

    fn max_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.puller.max_offset()
    }

    fn search_offset(&self, timestamp_ms: u64) -> QueuePullerFuture<QueueOffset> {
        self.puller.search_offset(timestamp_ms)
    }
}

/// Whoever panicked while holding it left it whole.
fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
