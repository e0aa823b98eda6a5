//! Scheduled pull: one run of a queue's pull task, what it may ask of its queue, and the
//! port through which plugins of that kind are plugged in.
//!
//! A group with a `pull_task_interval` has no listener. Each of its queues has one task
//! that follows the rebalance; its runs come one after the other, and what is pulled and
//! where the offset stands is the guest's word alone. The rules make
//! [`PullTaskRequest`]s (`run`) and take [`PullTaskResult`]s; in between the guest works
//! through a [`QueuePuller`] (`puller`). RocketMQ: `MQPullConsumerScheduleService`, `DefaultMQPullConsumer`.

pub(crate) mod puller;
pub(crate) mod run;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::{MessageQueue, QueueOffset};

use crate::listener::{CancelSignal, Dispatch, MessageModel, MessageRun};
use crate::request::{PullStatus, RequestError};

/// Names one run of one client. Never used twice, so what comes of a run after its queue
/// was released finds nothing to update.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PullTaskId(pub u64);

/// One run of a queue's task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PullTaskRequest {
    /// Comes back with the result.
    pub id: PullTaskId,
    /// The group on whose behalf.
    pub consumer_group: Arc<str>,
    /// The task's queue.
    pub message_queue: MessageQueue,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Wall clock of the run, waiting for an instance not included.
    pub consume_timeout: Duration,
}

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PullTaskResult {
    /// The guest returned.
    NextRun {
        /// Until the next run begins; `None`: the group's `pull_task_interval`. At least
        /// 10 ms after a run that pulled nothing.
        after: Option<Duration>,
    },
    /// The guest returned an error, trapped or was killed at its deadline. What it pulled
    /// and where it set the offset before stands.
    Failed {
        /// For people.
        reason: String,
    },
    /// The run was killed or never begun because the host stops, the queue is gone or the
    /// revision was replaced. The next one comes after the interval.
    NotFinished,
}

/// What a guest pulls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePull {
    /// As in a subscription over tags; empty or `*` is everything.
    pub sub_expression: String,
    /// First offset wanted.
    pub offset: QueueOffset,
    /// At most so many messages, at least 1; the broker has its own limits.
    pub max_messages: u32,
}

/// What a broker answered to a pull. RocketMQ: `PullResult`.
#[derive(Clone, Debug)]
pub struct QueuePullResult {
    /// Why it ended.
    pub status: PullStatus,
    /// Where to pull next.
    pub next_begin_offset: QueueOffset,
    /// The oldest offset there is.
    pub min_offset: QueueOffset,
    /// The next offset to be written.
    pub max_offset: QueueOffset,
    /// In offset order, those that match the expression; not empty when found.
    pub runs: Vec<MessageRun>,
}

/// Why a guest did not get what it asked of its queue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueuePullerError {
    /// The run has ended, the queue belongs to another member, or the consumer stops.
    /// Nothing was asked and no offset has moved.
    #[error("the queue is no longer ours")]
    Released,
    /// The expression is not one.
    #[error("{reason}")]
    IllegalExpression {
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing was asked for.
    #[error("a pull must ask for at least one message")]
    NoMessagesAskedFor,
    /// Messages that are being consumed fill the tenant's `buffer_bytes`.
    #[error("the tenant's buffer_bytes are used up; pull again later")]
    BufferFull,
    /// The next message of the queue is damaged. It is asked for again with the next pull
    /// from this offset, and skipped if it is still damaged then.
    #[error("the message at offset {offset} is damaged ({reason}); pull again")]
    Damaged {
        /// Which message.
        offset: QueueOffset,
        /// What is wrong with it.
        reason: String,
    },
    /// No address of the queue's broker is known.
    #[error("no address of the queue's broker is known")]
    NoBroker,
    /// The broker did not do it, or not in time.
    #[error("the broker: {0}")]
    Broker(#[from] RequestError),
}

/// What a run asks of its queue; [`QueuePuller`] as data, for whoever carries it to the
/// rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PullerRequest {
    /// [`QueuePuller::pull`]
    Pull(QueuePull),
    /// [`QueuePuller::fetch_consume_offset`]
    FetchConsumeOffset,
    /// [`QueuePuller::update_consume_offset`]
    UpdateConsumeOffset(QueueOffset),
    /// [`QueuePuller::min_offset`]
    MinOffset,
    /// [`QueuePuller::max_offset`]
    MaxOffset,
    /// [`QueuePuller::search_offset`]
    SearchOffset {
        /// Unix milliseconds.
        timestamp_ms: u64,
    },
}

/// The answer to a [`PullerRequest`].
#[derive(Clone, Debug)]
pub enum PullerAnswer {
    /// To a pull.
    Pulled(QueuePullResult),
    /// To the question for the group's offset.
    ConsumeOffset(Option<QueueOffset>),
    /// The group's offset was set.
    Updated,
    /// To the question for an end of the queue, or a time in it.
    Offset(QueueOffset),
}

/// Names one [`PullerRequest`] of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PullerRequestId(pub(crate) u64);

/// An answer under way. Dropping it takes no notice of the answer.
pub type QueuePullerFuture<T> = Pin<Box<dyn Future<Output = Result<T, QueuePullerError>> + Send>>;

/// The queue of one run, as the guest sees it; whoever keeps it longer gets
/// [`QueuePullerError::Released`]. Each call is bounded by RocketMQ's timeouts for it, at
/// most 10 s; whoever has less time drops the future.
pub trait QueuePuller: Send + Sync + 'static {
    /// Pulls without waiting for messages. RocketMQ: `MQPullConsumer#pull`.
    fn pull(&self, pull: QueuePull) -> QueuePullerFuture<QueuePullResult>;

    /// Where the group's offset stands: what was set here since the queue is ours, else
    /// what the broker has (broadcasting: what this host has stored). `None`: nothing yet.
    fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>>;

    /// Sets the group's offset, also back. It is told to the broker as every offset is:
    /// every few seconds, when the queue leaves us, and at the end.
    fn update_consume_offset(&self, offset: QueueOffset) -> QueuePullerFuture<()>;

    /// The oldest offset there is.
    fn min_offset(&self) -> QueuePullerFuture<QueueOffset>;

    /// The next offset to be written.
    fn max_offset(&self) -> QueuePullerFuture<QueueOffset>;

    /// The first offset stored at a time (Unix milliseconds) or later.
    fn search_offset(&self, timestamp_ms: u64) -> QueuePullerFuture<QueueOffset>;
}

/// A run under way.
pub type PullTaskFuture = Pin<Box<dyn Future<Output = PullTaskResult> + Send>>;

/// The user's code, whoever runs it. RocketMQ: `PullTaskCallback`.
pub trait PullTaskCallback: Send + Sync + 'static {
    /// One run. It keeps the request's `consume_timeout` itself. Dropping the future kills
    /// the run.
    fn do_pull_task(
        &self,
        request: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskFuture;

    /// As [`MessageListener::dispatch`](crate::listener::MessageListener::dispatch).
    fn dispatch(&self) -> Dispatch {
        Dispatch::Open
    }

    /// As [`MessageListener::properties`](crate::listener::MessageListener::properties).
    fn properties(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
