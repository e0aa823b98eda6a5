//! One call to a listener: what it gets, what it answers, and the port through
//! which plugins are plugged in.
//!
//! The rules make [`ConsumeRequest`]s and take [`ConsumeResult`]s; who runs the
//! listener in between is not their business. [`MessageListener`] is one of the few
//! async signatures of this crate (the others are `publish::MessageProducer` and those of
//! `pull_task`): it is where the shell (`driver`) and the sandbox (`wasm`) meet without
//! knowing each other.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::MessageQueue;
use protocol::message::{Message, MessageBatch};

use crate::failure_reason::FailureReason;

/// Names one consume request of one client. Never used twice, so a result that
/// comes after its queue was released finds nothing to update.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumeRequestId(pub u64);

/// Whether a group divides the queues among its members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageModel {
    /// Every queue has one owner in the group.
    #[default]
    Clustering,
    /// Every member consumes every queue.
    Broadcasting,
}

/// How the messages of one queue may be consumed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConsumeMode {
    /// Any free messages, several calls at once.
    Concurrently,
    /// In queue order, one call at a time.
    Orderly {
        /// Off gives COMMIT and ROLLBACK their meaning.
        auto_commit: bool,
    },
}

/// Neighbouring messages of one pull answer. The only thing that is counted or
/// copied for a whole run is the reference to its batch.
#[derive(Clone, Debug)]
pub struct MessageRun {
    /// The pull answer.
    pub batch: Arc<MessageBatch>,
    /// Which of its messages.
    pub range: Range<u32>,
    /// Attempts that the broker does not know of (a failed send-back, an orderly
    /// suspension); added to what the message says.
    pub local_reconsume_times: u32,
}

impl MessageRun {
    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = ConsumeMessage<'_>> + Clone {
        self.range.clone().map(|index| {
            let message = self.batch.message(index);
            ConsumeMessage {
                message,
                reconsume_times: message
                    .reconsume_times()
                    .saturating_add(self.local_reconsume_times),
            }
        })
    }
}

/// Work for a listener: messages of one queue and one topic, in offset order.
#[derive(Debug)]
pub struct ConsumeRequest {
    /// Comes back with the result.
    pub id: ConsumeRequestId,
    /// The group on whose behalf.
    pub consumer_group: Arc<str>,
    /// Where the messages were pulled from; for a retry this is a queue of the retry topic.
    pub message_queue: MessageQueue,
    /// The topic as the listener sees it: for a retry the one it was first sent to.
    pub topic: Arc<str>,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Concurrently or orderly.
    pub mode: ConsumeMode,
    /// Not empty.
    pub runs: Vec<MessageRun>,
    /// At most this many messages in one call of the guest
    /// (`consume_message_batch_max_size`); a request with more takes several calls.
    pub messages_per_call: u32,
    /// Wall clock of one call, waiting for an instance not included.
    pub consume_timeout: Duration,
}

impl ConsumeRequest {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.range.len()).sum()
    }

    /// Never true for a request that the rules made.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = ConsumeMessage<'_>> + Clone {
        self.runs.iter().flat_map(MessageRun::iter)
    }
}

/// A message and how often it was tried before.
#[derive(Clone, Copy, Debug)]
pub struct ConsumeMessage<'a> {
    /// The message as stored, body decompressed.
    pub message: Message<'a>,
    /// 0 on the first delivery; local attempts included.
    pub reconsume_times: u32,
}

/// What came of a consume request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsumeResult {
    /// Answer to [`ConsumeMode::Concurrently`].
    Concurrently(ConcurrentlyStatus),
    /// Answer to [`ConsumeMode::Orderly`] for the whole request.
    Orderly(OrderlyStatus),
    /// Answer to [`ConsumeMode::Orderly`] where a request took several calls, or its
    /// messages were tried again one by one after a call failed: what each call said, in
    /// order. Each is obeyed as if it had been a request of its own. Messages beyond the
    /// last one were not reached: they stay in the queue, and no attempt of theirs counts.
    OrderlyCalls(Vec<OrderlyCall>),
    /// The listener broke (a trap, a limit, its deadline, a panic) and no message of the
    /// request got an answer: as `ReconsumeLater` without a delay level, in order as
    /// `SuspendCurrentQueueAMoment` without a time. RocketMQ: a listener that throws.
    Failed {
        /// Why.
        reason: FailureReason,
    },
    /// The call was killed or never begun because the host stops, the queue is gone or
    /// the revision was replaced: nothing happened, no attempt is counted.
    NotFinished,
}

impl ConsumeResult {
    /// What a failure is in order.
    pub(crate) const SUSPEND: &OrderlyStatus =
        &OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };

    /// What the call that had the message with this index of its request answered, when
    /// it is an orderly answer; `None` also when no call reached it.
    pub fn orderly_status(&self, index: usize) -> Option<&OrderlyStatus> {
        match self {
            Self::Orderly(status) => Some(status),
            Self::OrderlyCalls(calls) => {
                let mut end: usize = 0;
                let call = calls.iter().find(|call| {
                    end = end.saturating_add(call.messages as usize);
                    index < end
                });
                call.map(|call| &call.status)
            }
            Self::Failed { .. } => Some(Self::SUSPEND),
            Self::Concurrently(_) | Self::NotFinished => None,
        }
    }
}

/// RocketMQ: `ConsumeConcurrentlyStatus` with its context, and one outcome a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcurrentlyStatus {
    /// Messages up to and including the ack index are done, later ones are sent back.
    /// `None` means all; RocketMQ: `context.ackIndex`.
    ConsumeSuccess {
        /// Index into the request; below −1 counts as −1, beyond the last as the last.
        ack_index: Option<i32>,
    },
    /// Every message is sent back.
    ReconsumeLater {
        /// `None` or 0: the broker's schedule. −1: dead letter.
        delay_level: Option<i32>,
    },
    /// One outcome for each message; missing ones mean "reconsume later".
    Each(Vec<MessageOutcome>),
}

/// What becomes of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageOutcome {
    /// Consumed.
    Done,
    /// Sent back to the broker.
    ReconsumeLater {
        /// `None`: the broker's schedule, 3 + attempts.
        delay_level: Option<i32>,
    },
    /// The listener broke on this message: as `ReconsumeLater` without a delay level, and
    /// its dead letter says why once attempts run out.
    Failed {
        /// Why.
        reason: FailureReason,
    },
    /// Straight to the dead letters.
    DeadLetter {
        /// For people; kept with the message.
        reason: FailureReason,
    },
    /// As [`ConsumeResult::NotFinished`], for this message alone.
    NotFinished,
}

/// RocketMQ: `ConsumeOrderlyStatus` with its context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderlyStatus {
    /// The batch is done.
    Success,
    /// The batch stays first in its queue.
    SuspendCurrentQueueAMoment {
        /// `None`: the group's `suspend_current_queue_time`.
        suspend: Option<Duration>,
    },
    /// With auto-commit off: all that was consumed since the last commit is done.
    Commit,
    /// With auto-commit off: all that was consumed since the last commit comes again.
    Rollback,
}

/// What one call of several answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderlyCall {
    /// Messages of the call; they follow those of the call before.
    pub messages: u32,
    /// Its answer. Only the last call of a request has one that keeps its messages in the
    /// queue (suspend; rollback with auto-commit off).
    pub status: OrderlyStatus,
    /// The listener broke in this call, and this is why: for the dead letter of its message,
    /// if that was its last attempt.
    pub reason: Option<FailureReason>,
}

/// Tells a running call that its answer will not be used: the consumer stops or the
/// queue was taken away. A listener may finish early; it need not.
#[derive(Clone, Default)]
pub struct CancelSignal(Arc<AtomicBool>);

impl CancelSignal {
    /// Raises the signal, for every clone.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for CancelSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelSignal({})", self.is_cancelled())
    }
}

/// Whether a listener wants to be called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Dispatch {
    /// As often as its group may.
    #[default]
    Open,
    /// It keeps failing: not for this long, and then with one message, while no other call
    /// is under way, until it says otherwise.
    Held {
        /// Zero: a probe is due.
        pause: Duration,
        /// Why, for people.
        reason: Arc<str>,
    },
}

/// A listener call under way.
pub type ConsumeFuture = Pin<Box<dyn Future<Output = ConsumeResult> + Send>>;

/// The user's code, whoever runs it.
pub trait MessageListener: Send + Sync + 'static {
    /// Consumes the messages of one request. It keeps the request's `consume_timeout`
    /// itself, for each call of the guest. Dropping the future kills the call.
    fn consume_message(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture;

    /// Whether it wants to be called; asked after each of its calls, and must not wait.
    fn dispatch(&self) -> Dispatch {
        Dispatch::Open
    }

    /// What runs the listener now, for people: names and values that tools show beside the
    /// settings of its group. Asked for rarely; must not wait.
    fn properties(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
