//! One call of the guest with some of a request's messages: an instance, the guards, what
//! is told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::listener::{CancelSignal, ConsumeMessage, ConsumeRequest};
use protocol::MessageQueue;

use super::Shared;
use crate::convert;
use crate::deadline::Budget;
use crate::event::{CallReport, Event};
use crate::failure::{FAILED_MESSAGES_MAX, FailedMessage, FailureKind, FailureRecord};
use crate::instance::NoInstance;
use crate::limits::TenantMemoryUsedUp;
use crate::outbox;
use crate::outcome::{self, Answer, Status};
use crate::plugin::Plugin;
use crate::run_slots::RunSlot;
use crate::serving::Instance;
use crate::store::RunningMessages;

/// Bodies and properties that one call hands to a guest, in bytes: RocketMQ's
/// `maxMessageSize`. A call with more has fewer messages, and one always. Where they do not
/// lie side by side in a broker's answer they are copied for as long as the call runs, so a
/// host holds at most this times its calls in addition to its buffers, but for larger
/// messages.
pub const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A request that could not be begun is given back after so long: its messages are not at
/// fault, and trying at once again would be a loop.
pub(super) const NOT_BEGUN_PAUSE: Duration = Duration::from_secs(1);

/// Which messages of the request a call has.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) first: usize,
    pub(super) messages: usize,
    /// A message of a failed batch, alone.
    pub(super) isolated: bool,
}

impl Part {
    /// As many of the request's messages from this one on as a call may have.
    pub(super) fn from(first: usize, request: &ConsumeRequest) -> Self {
        let per_call = (request.messages_per_call as usize).max(1);
        let left = request.len().saturating_sub(first);
        Self {
            first,
            messages: within_bytes(request, first, per_call.min(left)),
            isolated: false,
        }
    }

    /// One message alone.
    pub(super) fn alone(index: usize) -> Self {
        Self {
            first: index,
            messages: 1,
            isolated: true,
        }
    }
}

fn within_bytes(request: &ConsumeRequest, first: usize, messages: usize) -> usize {
    // Hardly ever is so much pulled at once, and then nothing need be added up.
    let pulled = request.runs.iter().map(|run| run.batch.bytes());
    if pulled.sum::<usize>() <= CALL_BYTES_MAX {
        return messages;
    }
    let wanted = request.iter().skip(first).take(messages);
    let mut bytes: usize = 0;
    let fit = wanted.take_while(|consumed| {
        bytes = bytes.saturating_add(convert::size(consumed.message));
        bytes <= CALL_BYTES_MAX
    });
    fit.count().max(1)
}

/// What a call came to.
pub(super) enum Called {
    Answered(Status),
    /// The guest failed; it was told.
    Failed(Arc<FailureRecord>),
    /// The guest was never entered, or its tenant has no memory left; it was told.
    NoInstance,
}

impl Shared {
    /// One call of the guest.
    pub(super) async fn call(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        part: Part,
        slot: &mut RunSlot,
    ) -> Called {
        let asked = Instant::now();
        slot.acquire().await;
        let taken = if part.isolated {
            self.pool.make(slot).await
        } else {
            self.pool.take(slot).await
        };
        let mut instance = match taken {
            Ok(instance) => instance,
            Err(no_instance) => {
                self.tell_no_instance(request, part, no_instance);
                return Called::NoInstance;
            }
        };
        let waited = asked.elapsed();
        let budget = Budget {
            compute: self.plugin.config.limits.compute_time,
            wall: request.consume_timeout,
        };
        let mut unfinished = Unfinished::new(&self.plugin, count(part.messages));
        let answer = {
            let messages = convert::Messages::of_request(request, part.first, part.messages);
            self.plugin
                .usage
                .add_handed(part.messages, messages.data.len());
            let call = RunningMessages {
                request: Arc::clone(request),
                cancel: cancel.clone(),
                first: part.first,
                messages: part.messages,
            };
            instance
                .consume_message(call, &messages, convert::context(request), budget, slot)
                .await
        };
        match answer {
            Ok(mut answer) => {
                if outbox::finishes(&answer.status)
                    && let Err(stuck) = instance.empty_outbox(slot).await
                {
                    answer.status = outbox::all_again(&answer.status);
                    answer.error = Some(stuck.to_string());
                }
                unfinished.is_over = true;
                self.tell_answered(request, part, waited, &answer, &mut instance);
                self.pool.give_back(instance, slot).await;
                Called::Answered(answer.status)
            }
            Err(_) if instance.is_over_tenant_budget() => {
                unfinished.is_over = true;
                self.pool.drop_failed(instance);
                self.tell_over_budget(part.messages);
                Called::NoInstance
            }
            Err(interruption) => {
                unfinished.is_over = true;
                let record = instance.record(interruption, budget);
                // Gone before anybody hears of it: the messages may go out again then.
                self.pool.drop_failed(instance);
                Called::Failed(self.tell_failed(request, part, record))
            }
        }
    }

    fn tell_answered(
        &self,
        request: &ConsumeRequest,
        part: Part,
        waited: Duration,
        answer: &Answer,
        instance: &mut Instance,
    ) {
        if let Some(problem) = &answer.problem {
            self.plugin.emit(&Event::AnswerCorrected {
                plugin: self.plugin.name(),
                revision: self.plugin.revision(),
                problem: problem.clone(),
            });
        }
        self.tell_finished(
            Finished {
                message_queue: &request.message_queue,
                messages: count(part.messages),
                waited,
                error: answer.error.clone(),
            },
            instance,
        );
    }

    /// Tells of a call that came back.
    pub(super) fn tell_finished(&self, call: Finished<'_>, instance: &mut Instance) {
        let taken = instance.taken();
        self.plugin.emit(&Event::CallFinished(CallReport {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            message_queue: call.message_queue.clone(),
            messages: call.messages,
            wall: taken.wall,
            computed: taken.computed,
            waited: call.waited,
            memory_bytes: taken.memory_bytes,
            log_lines: taken.lines.lines,
            log_lines_dropped: taken.lines.dropped,
            error: call.error,
        }));
    }

    fn tell_failed(
        &self,
        request: &ConsumeRequest,
        part: Part,
        record: FailureRecord,
    ) -> Arc<FailureRecord> {
        let messages = request.iter().skip(part.first).take(part.messages);
        let first = messages.clone().next();
        let record = Arc::new(FailureRecord {
            message_queue: Some(request.message_queue.clone()),
            failed_messages: failed_messages(messages),
            messages: count(part.messages),
            attempt: first.map_or(1, |first| first.reconsume_times.saturating_add(1)),
            isolated: part.isolated,
            ..record
        });
        self.plugin.emit(&Event::CallFailed(Arc::clone(&record)));
        record
    }

    /// Tells that the tenant's memory is used up.
    pub(super) fn tell_over_budget(&self, messages: usize) {
        self.plugin.emit(&Event::TenantMemoryUsedUp {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            messages: count(messages),
        });
    }

    fn tell_no_instance(&self, request: &ConsumeRequest, part: Part, no_instance: NoInstance) {
        if matches!(no_instance, NoInstance::TenantMemory) {
            self.tell_over_budget(part.messages);
            return;
        }
        let record = self.no_instance(no_instance);
        self.tell_failed(request, part, record);
    }

    /// The record of an instance that could not be made.
    pub(super) fn no_instance(&self, no_instance: NoInstance) -> FailureRecord {
        match no_instance {
            NoInstance::Failed(record) => *record,
            NoInstance::TenantMemory => outcome::no_instance(
                &self.plugin,
                FailureKind::NoInstance(TenantMemoryUsedUp.to_string()),
                Duration::ZERO,
            ),
            NoInstance::Contract(reason) => outcome::no_instance(
                &self.plugin,
                FailureKind::NoInstance(reason),
                Duration::ZERO,
            ),
        }
    }
}

/// The messages of a failed call as its record names them.
pub(super) fn failed_messages<'a>(
    messages: impl Iterator<Item = ConsumeMessage<'a>>,
) -> Vec<FailedMessage> {
    let named = messages.take(FAILED_MESSAGES_MAX);
    named
        .map(|consumed| FailedMessage {
            message_id: convert::message_id(consumed.message).into_owned(),
            queue_offset: consumed.message.queue_offset(),
        })
        .collect()
}

/// What is known of a call that came back, beside what its instance knows.
pub(super) struct Finished<'a> {
    pub(super) message_queue: &'a MessageQueue,
    pub(super) messages: u32,
    pub(super) waited: Duration,
    pub(super) error: Option<String>,
}

/// Tells of a call whose future was dropped while it ran.
pub(super) struct Unfinished<'a> {
    plugin: &'a Plugin,
    messages: u32,
    pub(super) is_over: bool,
}

impl<'a> Unfinished<'a> {
    pub(super) fn new(plugin: &'a Plugin, messages: u32) -> Self {
        Self {
            plugin,
            messages,
            is_over: false,
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.plugin.emit(&Event::CallKilled {
                plugin: self.plugin.name(),
                revision: self.plugin.revision(),
                messages: self.messages,
            });
        }
    }
}

/// Waits where no instance could be made.
pub(super) async fn pause(slot: &mut RunSlot) {
    slot.release();
    tokio::time::sleep(NOT_BEGUN_PAUSE).await;
}

pub(super) fn count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}
