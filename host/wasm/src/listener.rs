//! `ComponentListener`: the port `MessageListener` for one revision of one plugin.
//!
//! A request is split into calls of `messages_per_call`; each is made in an instance of
//! its own for as long as it runs. When a call with several messages fails, its messages
//! run again one by one in fresh instances, in order, so that only what fails alone
//! counts an attempt. Dropping the future kills the call and drops the instance.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeMessage, ConsumeMode, ConsumeRequest,
    ConsumeResult, MessageListener, MessageOutcome, OrderlyStatus,
};
use consumer::publish::MessageProducer;

use crate::artefact::Artefact;
use crate::component::ListenerKind;
use crate::convert;
use crate::deadline::Budget;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::event::{CallReport, Event, FailureRecord, MESSAGE_IDS_MAX, Observer};
use crate::instance::{Instance, Maker, NoInstance};
use crate::instance_pool::InstancePool;
use crate::outcome;
use crate::plugin::{Plugin, PluginConfig};
use crate::run_slots::RunSlot;
use crate::store::RunningCall;

/// A request whose instance could not be made is given back after so long: its messages
/// are not at fault, and trying at once again would be a loop.
const NO_INSTANCE_PAUSE: Duration = Duration::from_secs(1);

/// A loaded plugin.
pub struct ComponentListener {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    plugin: Arc<Plugin>,
    pool: Arc<InstancePool>,
}

impl std::fmt::Debug for ComponentListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComponentListener")
            .field("plugin", &self.shared.plugin.config.plugin)
            .field("revision", &self.shared.plugin.config.revision)
            .finish_non_exhaustive()
    }
}

impl ComponentListener {
    /// Links compiled code and makes the first instance, `init` included.
    ///
    /// # Errors
    /// When the code does not fit this engine or the contract, or the first instance
    /// fails; its failure record is then told as an event, too.
    pub async fn load(
        engine: &Engine,
        artefact: &Artefact,
        config: PluginConfig,
        producer: Arc<dyn MessageProducer>,
        observer: Observer,
    ) -> Result<Self, LoadError> {
        if config.listener != ListenerKind::Concurrent {
            return Err(LoadError::NotYet(config.listener));
        }
        let plugin = Arc::new(Plugin::new(config, producer, observer));
        let maker = Maker::new(engine, artefact, &plugin)?;
        if !maker.exports_concurrent() {
            return Err(LoadError::NoSuchListener(ListenerKind::Concurrent));
        }
        let pool = Arc::new(InstancePool::new(engine, &plugin, maker));
        {
            let _ticking = engine.ticking();
            let mut slot = engine.slots().slot();
            slot.acquire().await;
            match pool.make(&mut slot).await {
                Ok(instance) => pool.give_back(instance, &mut slot).await,
                Err(NoInstance::Contract(reason)) => return Err(LoadError::Contract { reason }),
                Err(NoInstance::Failed(record)) => {
                    plugin.emit(&Event::CallFailed(record.clone()));
                    return Err(LoadError::FirstInstance(record));
                }
            }
        }
        Ok(Self {
            shared: Arc::new(Shared {
                engine: engine.clone(),
                plugin,
                pool,
            }),
        })
    }

    /// Ends the revision: idle instances shut down now, those in a call when it is done.
    /// Calls that come later still work, each in a fresh instance.
    pub async fn close(&self) {
        self.shared.pool.close().await;
    }

    /// Warm instances without a call.
    pub fn idle_instances(&self) -> usize {
        self.shared.pool.idle_count()
    }

    /// What it was loaded with.
    pub fn config(&self) -> &PluginConfig {
        &self.shared.plugin.config
    }
}

impl MessageListener for ComponentListener {
    fn consume_message(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.consume(&request, &cancel).await })
    }
}

/// Which messages of the request a call has.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    messages: usize,
    /// A message of a failed batch, alone.
    isolated: bool,
}

/// What a call came to.
enum Called {
    Answered(ConcurrentlyStatus),
    /// The guest failed; it was told.
    Failed,
    /// The guest was never entered; it was told.
    NoInstance,
}

impl Shared {
    async fn consume(&self, request: &Arc<ConsumeRequest>, cancel: &CancelSignal) -> ConsumeResult {
        if request.mode != ConsumeMode::Concurrently {
            // A mistake of the wiring: the messages stay where they are.
            return ConsumeResult::Orderly(OrderlyStatus::SuspendCurrentQueueAMoment {
                suspend: None,
            });
        }
        let total = request.len();
        let per_call = (request.messages_per_call as usize).max(1);
        let mut outcomes = Outcomes::new(total);

        let Some(_permit) = self.pool.permit().await else {
            return ConsumeResult::NotFinished;
        };
        let _ticking = self.engine.ticking();
        let mut slot = self.engine.slots().slot();
        while outcomes.len() < total && !cancel.is_cancelled() {
            let part = Part {
                first: outcomes.len(),
                messages: per_call.min(total - outcomes.len()),
                isolated: false,
            };
            slot.give_way();
            match self.call(request, cancel, part, &mut slot).await {
                Called::Answered(status) if part.messages == total => {
                    return ConsumeResult::Concurrently(status);
                }
                Called::Answered(status) => outcomes.add(status, part.messages),
                Called::Failed if part.messages == 1 => outcomes.add_failed(),
                Called::Failed => {
                    self.isolate(request, cancel, part, &mut outcomes, &mut slot)
                        .await;
                    if outcomes.len() < part.first + part.messages {
                        break;
                    }
                }
                Called::NoInstance => {
                    pause(&mut slot).await;
                    break;
                }
            }
        }
        outcomes.into_result()
    }

    /// Runs the messages of a failed call again, one by one, each in a fresh instance.
    /// Ends early when the consumer stops or no instance can be made.
    async fn isolate(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: &CancelSignal,
        batch: Part,
        outcomes: &mut Outcomes,
        slot: &mut RunSlot,
    ) {
        for first in batch.first..batch.first + batch.messages {
            if cancel.is_cancelled() {
                return;
            }
            let part = Part {
                first,
                messages: 1,
                isolated: true,
            };
            slot.give_way();
            match self.call(request, cancel, part, slot).await {
                Called::Answered(status) => outcomes.add(status, 1),
                Called::Failed => outcomes.add_failed(),
                Called::NoInstance => {
                    pause(slot).await;
                    return;
                }
            }
        }
    }

    /// One call of the guest.
    async fn call(
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
        let mut unfinished = Unfinished {
            plugin: &self.plugin,
            messages: count(part.messages),
            is_over: false,
        };
        let answer = {
            let consumed: Vec<ConsumeMessage<'_>> = request
                .iter()
                .skip(part.first)
                .take(part.messages)
                .collect();
            let ids: Vec<Cow<'_, str>> = consumed
                .iter()
                .map(|consumed| convert::message_id(consumed.message))
                .collect();
            let messages: Vec<_> = consumed
                .iter()
                .zip(&ids)
                .map(|(consumed, id)| convert::message(consumed, id))
                .collect();
            let call = RunningCall {
                request: Arc::clone(request),
                cancel: cancel.clone(),
                first: part.first,
                messages: part.messages,
            };
            instance
                .consume_message(call, &messages, convert::context(request), budget, slot)
                .await
        };
        unfinished.is_over = true;
        match answer {
            Ok(answer) => {
                let answer = outcome::answer(answer, part.messages);
                self.tell_answered(request, part, waited, &answer, &mut instance);
                self.pool.give_back(instance, slot).await;
                Called::Answered(answer.status)
            }
            Err(interruption) => {
                let record = instance.record(interruption, budget);
                // Gone before anybody hears of it: the messages may go out again then.
                self.pool.drop_failed(instance);
                self.tell_failed(request, part, record);
                Called::Failed
            }
        }
    }

    fn tell_answered(
        &self,
        request: &ConsumeRequest,
        part: Part,
        waited: Duration,
        answer: &outcome::Answer,
        instance: &mut Instance,
    ) {
        if let Some(problem) = &answer.problem {
            self.plugin.emit(&Event::AnswerCorrected {
                plugin: self.plugin.name(),
                revision: self.plugin.revision(),
                problem: problem.clone(),
            });
        }
        let taken = instance.taken();
        self.plugin.emit(&Event::CallFinished(CallReport {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            message_queue: request.message_queue.clone(),
            messages: count(part.messages),
            wall: taken.wall,
            computed: taken.computed,
            waited,
            memory_bytes: taken.memory_bytes,
            log_lines: taken.lines.lines,
            log_lines_dropped: taken.lines.dropped,
            error: answer.error.clone(),
        }));
    }

    fn tell_failed(&self, request: &ConsumeRequest, part: Part, record: FailureRecord) {
        let mut messages = request
            .iter()
            .skip(part.first)
            .take(part.messages)
            .peekable();
        let attempt = messages
            .peek()
            .map_or(1, |first| first.reconsume_times.saturating_add(1));
        let record = FailureRecord {
            message_queue: Some(request.message_queue.clone()),
            message_ids: messages
                .take(MESSAGE_IDS_MAX)
                .map(|consumed| convert::message_id(consumed.message).into_owned())
                .collect(),
            messages: count(part.messages),
            attempt,
            isolated: part.isolated,
            ..record
        };
        self.plugin.emit(&Event::CallFailed(Box::new(record)));
    }

    fn tell_no_instance(&self, request: &ConsumeRequest, part: Part, no_instance: NoInstance) {
        let record = match no_instance {
            NoInstance::Failed(record) => *record,
            NoInstance::Contract(reason) => outcome::no_instance(
                &self.plugin,
                crate::event::FailureKind::NoInstance(reason),
                Duration::ZERO,
            ),
        };
        self.tell_failed(request, part, record);
    }
}

/// Tells of a call whose future was dropped while it ran.
struct Unfinished<'a> {
    plugin: &'a Plugin,
    messages: u32,
    is_over: bool,
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

/// Outcomes of the calls of one request, in order.
struct Outcomes {
    each: Vec<MessageOutcome>,
    total: usize,
}

impl Outcomes {
    fn new(total: usize) -> Self {
        Self {
            each: Vec::new(),
            total,
        }
    }

    fn len(&self) -> usize {
        self.each.len()
    }

    fn add(&mut self, status: ConcurrentlyStatus, messages: usize) {
        if self.each.capacity() == 0 {
            self.each.reserve_exact(self.total);
        }
        let later = |delay_level| MessageOutcome::ReconsumeLater { delay_level };
        match status {
            ConcurrentlyStatus::ConsumeSuccess { ack_index } => {
                let done = match ack_index {
                    None => messages,
                    // −1 and below: none.
                    Some(ack_index) => usize::try_from(i64::from(ack_index) + 1)
                        .unwrap_or(0)
                        .min(messages),
                };
                self.each.extend((0..messages).map(|index| {
                    if index < done {
                        MessageOutcome::Done
                    } else {
                        later(None)
                    }
                }));
            }
            ConcurrentlyStatus::ReconsumeLater { delay_level } => {
                self.each.extend((0..messages).map(|_| later(delay_level)));
            }
            ConcurrentlyStatus::Each(outcomes) => self.each.extend(outcomes),
        }
    }

    /// A message that failed alone: an attempt, and the broker's schedule.
    fn add_failed(&mut self) {
        self.each
            .push(MessageOutcome::ReconsumeLater { delay_level: None });
    }

    /// What was not reached is not finished.
    fn into_result(mut self) -> ConsumeResult {
        if self.each.is_empty() {
            return ConsumeResult::NotFinished;
        }
        self.each.resize(self.total, MessageOutcome::NotFinished);
        let all_done = self
            .each
            .iter()
            .all(|outcome| *outcome == MessageOutcome::Done);
        ConsumeResult::Concurrently(if all_done {
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None }
        } else {
            ConcurrentlyStatus::Each(self.each)
        })
    }
}

async fn pause(slot: &mut RunSlot) {
    slot.release();
    tokio::time::sleep(NO_INSTANCE_PAUSE).await;
}

fn count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}
