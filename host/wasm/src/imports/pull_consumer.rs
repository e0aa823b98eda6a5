//! `mqlet:listener/pull-consumer`: the queue of the running pull task, through the port
//! `QueuePuller`, within the time the run has left.
//!
//! Outside a run (in `init`, in a listener of another kind) everything is an error. So is
//! one more question than [`QUESTIONS_MAX`]: a run that asks without end would keep its
//! broker busy, and its queue from ever being told that time has passed.

use std::sync::Arc;

use consumer::listener::MessageRun;
use consumer::pull_task::{QueuePull, QueuePullResult, QueuePuller, QueuePullerError};
use consumer::request::PullStatus;
use protocol::QueueOffset;

use crate::bindings::scheduled_pull::mqlet::listener::pull_consumer as wit;
use crate::convert;
use crate::outbox;
use crate::store::{RunningCall, RunningPullTask, State};

/// What one run may ask of its queue, pulls and offsets together.
pub const QUESTIONS_MAX: u32 = 1_000;
/// Messages in one pull; RocketMQ's own bound for `pullBatchSize`.
pub const PULL_MESSAGES_MAX: u32 = 1024;
/// Larger numbers are no offsets on the wire.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl wit::Host for State {
    async fn pull(
        &mut self,
        sub_expression: String,
        offset: u64,
        max_messages: u32,
    ) -> Result<wit::PullResult, String> {
        let puller = self.puller()?;
        if !(1..=PULL_MESSAGES_MAX).contains(&max_messages) {
            return Err(format!(
                "max-messages is {max_messages}; it must be 1 to {PULL_MESSAGES_MAX}"
            ));
        }
        let pull = QueuePull {
            sub_expression,
            offset: checked(offset)?,
            max_messages,
        };
        let mut result = puller.pull(pull).await.map_err(|error| said(&error))?;
        let bytes_max = self.plugin.config.limits.host_memory;
        cut(&mut result, max_messages, bytes_max);
        let answer = answer(&result);
        self.plugin
            .usage
            .add_handed(answer.messages.len(), answer.data.len());
        if let Ok(task) = self.pull_task() {
            let messages = u32::try_from(answer.messages.len()).unwrap_or(u32::MAX);
            task.pulled = task.pulled.saturating_add(messages);
            task.last_pull = result.runs;
        }
        Ok(answer)
    }

    async fn fetch_consume_offset(&mut self) -> Result<Option<u64>, String> {
        let offset = self
            .puller()?
            .fetch_consume_offset()
            .await
            .map_err(|error| said(&error))?;
        Ok(offset.map(|offset| offset.0))
    }

    async fn update_consume_offset(&mut self, offset: u64) -> Result<(), String> {
        let puller = self.puller()?;
        let offset = checked(offset)?;
        // What was sent for the messages before the offset leaves before they are done.
        let parcels = self.outbox.take_waiting();
        let remaining = self.clock.remaining();
        let leaving = outbox::leave(parcels, &self.plugin, remaining);
        if let Err(stuck) = leaving.await {
            let reason = stuck.to_string();
            // The guest may try again, and must not get past it then.
            self.outbox.put_back(stuck.into_kept());
            return Err(reason);
        }
        let updating = puller.update_consume_offset(offset);
        updating.await.map_err(|error| said(&error))
    }

    async fn min_offset(&mut self) -> Result<u64, String> {
        let offset = self
            .puller()?
            .min_offset()
            .await
            .map_err(|error| said(&error))?;
        Ok(offset.0)
    }

    async fn max_offset(&mut self) -> Result<u64, String> {
        let offset = self
            .puller()?
            .max_offset()
            .await
            .map_err(|error| said(&error))?;
        Ok(offset.0)
    }

    async fn search_offset(&mut self, timestamp_ms: u64) -> Result<u64, String> {
        let searching = self.puller()?.search_offset(timestamp_ms);
        Ok(searching.await.map_err(|error| said(&error))?.0)
    }
}

impl State {
    fn pull_task(&mut self) -> Result<&mut RunningPullTask, String> {
        match &mut self.call {
            Some(RunningCall::PullTask(task)) => Ok(task),
            Some(RunningCall::Messages(_) | RunningCall::InWorker(_)) | None => {
                Err("no pull task is running; only do-pull-task has a queue".into())
            }
        }
    }

    /// For one more question.
    fn puller(&mut self) -> Result<Arc<dyn QueuePuller>, String> {
        let task = self.pull_task()?;
        if task.questions >= QUESTIONS_MAX {
            return Err(format!(
                "this run has asked {QUESTIONS_MAX} times; return, and say when to run again"
            ));
        }
        task.questions += 1;
        Ok(Arc::clone(&task.puller))
    }
}

fn checked(offset: u64) -> Result<QueueOffset, String> {
    if offset > OFFSET_MAX {
        return Err(format!("offset is {offset}; it must be 0 to {OFFSET_MAX}"));
    }
    Ok(QueueOffset(offset))
}

fn said(error: &QueuePullerError) -> String {
    error.to_string()
}

/// Leaves out what is over the bounds, at least one message stays: the next pull begins
/// there.
fn cut(result: &mut QueuePullResult, messages_max: u32, bytes_max: usize) {
    let mut messages = 0;
    let mut bytes: usize = 0;
    let mut cut_at = None;
    'runs: for (run_index, run) in result.runs.iter().enumerate() {
        for (message_index, consumed) in (0_u32..).zip(run.iter()) {
            let message = consumed.message;
            bytes = bytes
                .saturating_add(message.body().len())
                .saturating_add(message.raw_properties().len());
            if messages == messages_max || (messages > 0 && bytes > bytes_max) {
                cut_at = Some((run_index, message_index, message.queue_offset()));
                break 'runs;
            }
            messages += 1;
        }
    }
    if let Some((run_index, message_index, offset)) = cut_at {
        result.runs.truncate(run_index + 1);
        if let Some(run) = result.runs.last_mut() {
            run.range.end = run.range.start + message_index;
        }
        result.next_begin_offset = offset;
    }
}

/// What the guest gets.
fn answer(result: &QueuePullResult) -> wit::PullResult {
    let messages =
        convert::Messages::laid_end_to_end(result.runs.iter().flat_map(MessageRun::iter));
    wit::PullResult {
        status: match result.status {
            PullStatus::Found => wit::PullStatus::Found,
            PullStatus::NoNewMessage => wit::PullStatus::NoNewMessage,
            PullStatus::NoMatchedMessage => wit::PullStatus::NoMatchedMessage,
            PullStatus::OffsetIllegal => wit::PullStatus::OffsetIllegal,
        },
        next_begin_offset: result.next_begin_offset.0,
        min_offset: result.min_offset.0,
        max_offset: result.max_offset.0,
        messages: messages
            .records
            .iter()
            .map(convert::pulled_message)
            .collect(),
        data: messages.data.into_owned(),
    }
}
