//! Scheduled pull: the plugin decides what to pull, and where its offset stands.
//! RocketMQ: `PullTaskCallback` of `MQPullConsumerScheduleService`.
//!
//! For each queue that the group's member owns the host calls the task again and again,
//! one call at a time. Nothing is retried or committed by the host: a message counts as
//! done when the task moves the offset past it.

use std::time::Duration;

use crate::Error;
use crate::bindings::exports::mqlet::listener::concurrent::BatchContext;
#[cfg(target_family = "wasm")]
use crate::bindings::scheduled_pull::mqlet::listener::pull_consumer as host;
use crate::message::{Batch, Message};
use crate::orderly::milliseconds;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::pull_consumer as host;

pub use crate::bindings::scheduled_pull::mqlet::listener::pull_consumer::PullStatus;

/// Works one queue at a time, on a schedule.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pull task",
    note = "implement `mqlet_guest::PullTask` for it"
)]
pub trait PullTask: 'static {
    /// One run for one queue.
    ///
    /// # Errors
    /// The next run comes after the configured delay for failures; the text goes to the
    /// operator. What the offset was moved past stays done.
    fn do_pull_task(&mut self, queue: &PullQueue) -> Result<NextRun, Error>;
}

/// When a queue is worked again. RocketMQ: `pullNextDelayTimeMillis`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextRun {
    /// After the manifest's `pull_task_interval`.
    AsConfigured,
    /// After this time. The host has a bound after a run that pulled nothing: 10 ms.
    After(Duration),
}

impl NextRun {
    pub(crate) fn to_milliseconds(self) -> Option<u32> {
        match self {
            Self::AsConfigured => None,
            Self::After(after) => Some(milliseconds(after)),
        }
    }
}

/// The queue of the running task. Everything here asks the host, and is an error when
/// the queue was taken away meanwhile.
#[derive(Clone, Debug)]
pub struct PullQueue {
    context: BatchContext,
}

impl PullQueue {
    pub(crate) fn new(context: BatchContext) -> Self {
        Self { context }
    }

    /// Pulls at most `messages_max` (1 to 1024) messages from `offset` on. The expression
    /// is one of tags, as in a subscription: `"*"`, `"TagA || TagB"`.
    ///
    /// # Errors
    /// The broker does not answer, refuses, or the numbers are out of range.
    pub fn pull(
        &self,
        sub_expression: &str,
        offset: u64,
        messages_max: u32,
    ) -> Result<Pulled, Error> {
        let result = host::pull(sub_expression, offset, messages_max)?;
        Ok(Pulled {
            status: result.status,
            next_begin_offset: result.next_begin_offset,
            min_offset: result.min_offset,
            max_offset: result.max_offset,
            messages: Batch::pulled(self.context.clone(), result.messages, result.data),
        })
    }

    /// The offset committed for the group; `None` when there is none yet.
    ///
    /// # Errors
    /// It could not be asked for.
    pub fn fetch_consume_offset(&self) -> Result<Option<u64>, Error> {
        Ok(host::fetch_consume_offset()?)
    }

    /// Commits an offset: everything before it is done.
    ///
    /// # Errors
    /// The queue was taken away.
    pub fn update_consume_offset(&self, offset: u64) -> Result<(), Error> {
        Ok(host::update_consume_offset(offset)?)
    }

    /// The first offset the queue still has.
    ///
    /// # Errors
    /// It could not be asked for.
    pub fn min_offset(&self) -> Result<u64, Error> {
        Ok(host::min_offset()?)
    }

    /// One more than the last offset of the queue.
    ///
    /// # Errors
    /// It could not be asked for.
    pub fn max_offset(&self) -> Result<u64, Error> {
        Ok(host::max_offset()?)
    }

    /// The first offset stored at or after this time, since 1970.
    ///
    /// # Errors
    /// It could not be asked for.
    pub fn search_offset(&self, timestamp: Duration) -> Result<u64, Error> {
        let timestamp_ms = u64::try_from(timestamp.as_millis()).unwrap_or(u64::MAX);
        Ok(host::search_offset(timestamp_ms)?)
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.context.topic
    }

    /// The plugin's consumer group.
    pub fn consumer_group(&self) -> &str {
        &self.context.consumer_group
    }

    /// Its broker.
    pub fn broker_name(&self) -> &str {
        &self.context.broker_name
    }

    /// Its number at that broker.
    pub fn queue_id(&self) -> u32 {
        self.context.queue_id
    }

    /// Every member of the group works every queue.
    pub fn is_broadcasting(&self) -> bool {
        self.context.broadcasting
    }
}

/// The answer to a pull.
#[derive(Debug)]
pub struct Pulled {
    /// What the broker said.
    pub status: PullStatus,
    /// Where to pull next.
    pub next_begin_offset: u64,
    /// The first offset the queue still has.
    pub min_offset: u64,
    /// One more than the last offset of the queue.
    pub max_offset: u64,
    /// Not empty when the status is `Found`.
    messages: Batch,
}

impl Pulled {
    /// The messages in offset order; none unless the status is `Found`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Message<'_>> + Clone {
        self.messages.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
