//! The queue of a pull task that is invoked without a broker: the messages that were given,
//! in memory.

use std::sync::{Arc, Mutex, PoisonError};

use consumer::listener::{ConsumeRequest, MessageRun};
use consumer::pull_task::{
    QueuePull, QueuePullResult, QueuePuller, QueuePullerError, QueuePullerFuture,
};
use consumer::request::PullStatus;
use protocol::QueueOffset;
use protocol::message::Message;
use protocol::subscription::{ExpressionType, SubscriptionData};

/// See the module. Its offset is nobody's at first.
pub(super) struct MemoryQueue {
    topic: Arc<str>,
    runs: Vec<MessageRun>,
    consume_offset: Mutex<Option<QueueOffset>>,
}

impl MemoryQueue {
    pub(super) fn new(request: &ConsumeRequest) -> Self {
        Self {
            topic: Arc::clone(&request.topic),
            runs: request.runs.clone(),
            consume_offset: Mutex::default(),
        }
    }

    /// Where the task left it.
    pub(super) fn consume_offset(&self) -> Option<QueueOffset> {
        *self
            .consume_offset
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let consumed = self.runs.iter().flat_map(MessageRun::iter);
        consumed.map(|consumed| consumed.message)
    }

    fn first(&self) -> QueueOffset {
        let offsets = self.messages().map(|message| message.queue_offset());
        offsets.min().unwrap_or(QueueOffset(0))
    }

    fn end(&self) -> QueueOffset {
        let offsets = self.messages().map(|message| message.queue_offset());
        offsets.max().map_or(QueueOffset(0), QueueOffset::next)
    }

    fn answer(&self, pull: &QueuePull) -> Result<QueuePullResult, QueuePullerError> {
        let subscription =
            SubscriptionData::build(&self.topic, &pull.sub_expression, ExpressionType::Tag)
                .map_err(|error| QueuePullerError::IllegalExpression {
                    reason: error.to_string(),
                })?;
        let (min_offset, max_offset) = (self.first(), self.end());
        let result = |status, next_begin_offset, runs| QueuePullResult {
            status,
            next_begin_offset,
            min_offset,
            max_offset,
            runs,
        };
        if pull.offset < min_offset || pull.offset > max_offset {
            let inside = pull.offset.clamp(min_offset, max_offset);
            return Ok(result(PullStatus::OffsetIllegal, inside, Vec::new()));
        }
        if pull.offset == max_offset {
            return Ok(result(PullStatus::NoNewMessage, max_offset, Vec::new()));
        }
        let mut found = Vec::new();
        for run in &self.runs {
            for index in run.range.clone() {
                let message = run.batch.message(index);
                if found.len() == pull.max_messages as usize {
                    let next = message.queue_offset();
                    return Ok(result(PullStatus::Found, next, found));
                }
                if message.queue_offset() >= pull.offset && subscription.matches_tag(message.tags())
                {
                    found.push(MessageRun {
                        range: index..index + 1,
                        ..run.clone()
                    });
                }
            }
        }
        let status = if found.is_empty() {
            PullStatus::NoMatchedMessage
        } else {
            PullStatus::Found
        };
        Ok(result(status, max_offset, found))
    }
}

fn ready<T: Send + 'static>(answer: Result<T, QueuePullerError>) -> QueuePullerFuture<T> {
    Box::pin(std::future::ready(answer))
}

impl QueuePuller for MemoryQueue {
    fn pull(&self, pull: QueuePull) -> QueuePullerFuture<QueuePullResult> {
        ready(self.answer(&pull))
    }

    fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>> {
        ready(Ok(self.consume_offset()))
    }

    fn update_consume_offset(&self, offset: QueueOffset) -> QueuePullerFuture<()> {
        let mut consume_offset = self
            .consume_offset
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *consume_offset = Some(offset);
        ready(Ok(()))
    }

    fn min_offset(&self) -> QueuePullerFuture<QueueOffset> {
        ready(Ok(self.first()))
    }

    fn max_offset(&self) -> QueuePullerFuture<QueueOffset> {
        ready(Ok(self.end()))
    }

    fn search_offset(&self, timestamp_ms: u64) -> QueuePullerFuture<QueueOffset> {
        let later = |message: &Message<'_>| message.store_timestamp_ms() >= timestamp_ms;
        let found = self.messages().find(later);
        ready(Ok(
            found.map_or(self.end(), |message| message.queue_offset())
        ))
    }
}
