//! What a run asks of its queue: sent to the broker, and the answer given to the run.
//!
//! Everything is bound to the run, and through it to the assignment: when either has
//! ended nothing is asked, no answer is given and no offset moves. Nothing is asked
//! again here; whether an error is worth another try is the guest's to say.
//!
//! RocketMQ: `DefaultMQPullConsumerImpl`, `PullAPIWrapper`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::message::MessageBatch;
use protocol::message::batch::UnreadableReason;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{Instant, QueueOffset};

use super::{
    PullTaskId, PullerAnswer, PullerRequest, PullerRequestId, QueuePull, QueuePullResult,
    QueuePullerError,
};
use crate::client::{Client, Purpose};
use crate::epoch::{Epoch, EpochTable};
use crate::event::{BadRecordAction, Event, Step};
use crate::listener::MessageRun;
use crate::offset::none_on_a_slave;
use crate::planted_bugs::PlantedBug;
use crate::request::{
    Destination, PullAnswer, PullMessage, PullStatus, Request, RequestError, Response,
};
use crate::route::Replica;
use crate::timers::timeout;

/// RocketMQ: the bound of `pullBatchSize`.
const PULL_BATCH_SIZE_MAX: u32 = 1_024;

/// What runs have asked, and the answers nobody has taken yet. A guest asks one thing at a
/// time, so there are about as many as runs.
#[derive(Debug, Default)]
pub(crate) struct PullerRequests {
    next: u64,
    in_flight: EpochTable<Asked>,
    pub(crate) answers: VecDeque<(PullerRequestId, Result<PullerAnswer, QueuePullerError>)>,
}

/// A question under way.
#[derive(Debug)]
struct Asked {
    id: PullerRequestId,
    run: Epoch,
    /// For a pull, what it wants.
    subscription: Option<SubscriptionData>,
    /// First offset wanted.
    offset: QueueOffset,
    broker_id: u64,
}

/// The messages of an answer that a guest may have.
#[derive(Debug, Default)]
struct Usable {
    runs: Vec<MessageRun>,
    /// Where it ended before the answer did.
    stopped_at: Option<QueueOffset>,
    /// What is wrong with the message there.
    damage: Option<String>,
    /// Messages that were skipped, and why.
    skipped: Vec<(QueueOffset, String)>,
}

impl Client {
    pub(crate) fn ask_queue_of_run(
        &mut self,
        run: PullTaskId,
        request: PullerRequest,
        now: Instant,
    ) -> PullerRequestId {
        let id = PullerRequestId(self.pull_tasks.requests.next);
        self.pull_tasks.requests.next += 1;
        if let Err(error) = self.try_ask(id, Epoch::from_u64(run.0), request, now) {
            self.answer(id, Err(error));
        }
        id
    }

    fn try_ask(
        &mut self,
        id: PullerRequestId,
        run: Epoch,
        request: PullerRequest,
        now: Instant,
    ) -> Result<(), QueuePullerError> {
        let epoch = self.queue_of_run(run)?;
        let queue = self.queues.get(epoch).ok_or(QueuePullerError::Released)?;
        let group = self.groups.get(queue.group);
        let group = group.ok_or(QueuePullerError::Released)?;
        let (message_queue, broker) = (queue.queue.clone(), queue.broker);
        let mut asked = Asked {
            id,
            run,
            subscription: None,
            offset: QueueOffset(0),
            broker_id: 0,
        };
        let (request, replica, timeout) = match request {
            PullerRequest::Pull(pull) => {
                // A group that leaves fetches nothing more.
                if !group.life.stays() {
                    return Err(QueuePullerError::Released);
                }
                // What it holds is given back when the answer comes.
                let own = self
                    .pull_tasks
                    .runs
                    .get(run)
                    .map_or(0, |run| run.held_bytes);
                if self.memory.is_full_for(group, own).is_some() {
                    return Err(QueuePullerError::BufferFull);
                }
                let subscription = subscription(&message_queue.topic, &pull)?;
                let request = Request::PullMessage(Box::new(PullMessage {
                    consumer_group: Arc::clone(&group.name),
                    queue: message_queue,
                    queue_offset: pull.offset,
                    max_msg_nums: pull.max_messages.min(PULL_BATCH_SIZE_MAX),
                    max_msg_bytes: group.config.pull_batch_size_in_bytes(),
                    // As Java's pull consumer has it; it is not stored.
                    commit_offset: Some(QueueOffset(0)),
                    commit: false,
                    suspend: Duration::ZERO,
                    subscription: Some(subscription.sub_string.as_str().into()),
                    sub_version: 0,
                    expression_type: ExpressionType::Tag,
                    body_bytes_max: self.config.body_bytes_max,
                }));
                asked.subscription = Some(subscription);
                asked.offset = pull.offset;
                let replica = self.routes.replica_for_pull(broker, queue.preferred_broker);
                (request, replica, timeout::TASK_PULL)
            }
            PullerRequest::UpdateConsumeOffset(offset) => {
                self.set_offset(epoch, offset, now);
                self.answer(id, Ok(PullerAnswer::Updated));
                return Ok(());
            }
            PullerRequest::FetchConsumeOffset => {
                if let Some(offset) = queue.commit.finished() {
                    self.answer(id, Ok(PullerAnswer::ConsumeOffset(Some(offset))));
                    return Ok(());
                }
                // Brokers keep no offsets of these; what this host has was taken at the
                // start. RocketMQ: `LocalFileOffsetStore`.
                if group.is_broadcasting() {
                    self.answer(id, Ok(PullerAnswer::ConsumeOffset(None)));
                    return Ok(());
                }
                let request = Request::QueryConsumerOffset {
                    consumer_group: Arc::clone(&group.name),
                    queue: message_queue,
                };
                let replica = self.routes.replica_for_read(broker);
                (request, replica, timeout::CONSUMER_OFFSET)
            }
            PullerRequest::MinOffset => {
                let request = Request::GetMinOffset {
                    queue: message_queue,
                };
                (request, self.routes.master(broker), timeout::QUEUE_OFFSET)
            }
            PullerRequest::MaxOffset => {
                let request = Request::GetMaxOffset {
                    queue: message_queue,
                };
                (request, self.routes.master(broker), timeout::QUEUE_OFFSET)
            }
            PullerRequest::SearchOffset { timestamp_ms } => {
                let request = Request::SearchOffset {
                    queue: message_queue,
                    timestamp_ms,
                };
                (request, self.routes.master(broker), timeout::QUEUE_OFFSET)
            }
        };
        let Some(Replica {
            peer,
            address,
            broker_id,
        }) = replica
        else {
            let topic = group.topics[queue.topic_index].topic;
            self.ask_route(topic);
            return Err(QueuePullerError::NoBroker);
        };
        if let Some((_, words)) = self.refused_until(peer) {
            return Err(QueuePullerError::Broker(words.clone()));
        }
        if asked.subscription.is_some() {
            let offset = asked.offset;
            self.tell_step(epoch, Step::PullSent { offset });
        }
        asked.broker_id = broker_id;
        let asked = self.pull_tasks.requests.in_flight.insert(asked);
        self.request(
            Purpose::Puller(asked),
            Destination::Broker(address),
            Some(peer),
            request,
            timeout,
        );
        Ok(())
    }

    /// The queue of a run, while both are there.
    fn queue_of_run(&self, run: Epoch) -> Result<Epoch, QueuePullerError> {
        let run = self.pull_tasks.runs.get(run);
        let run = run.ok_or(QueuePullerError::Released)?;
        if self.queues.contains(run.queue) {
            Ok(run.queue)
        } else if self.has_bug(PlantedBug::TrustReleasedPuller) {
            Ok(self.queues.in_slot_of(run.queue))
        } else {
            Err(QueuePullerError::Released)
        }
    }

    fn answer(&mut self, id: PullerRequestId, result: Result<PullerAnswer, QueuePullerError>) {
        self.pull_tasks.requests.answers.push_back((id, result));
    }

    pub(crate) fn handle_puller(
        &mut self,
        asked: Epoch,
        peer: Option<Epoch>,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(asked) = self.pull_tasks.requests.in_flight.remove(asked) else {
            return;
        };
        let id = asked.id;
        let answer = match self.queue_of_run(asked.run) {
            Ok(queue) => self.queue_answered(queue, &asked, peer, result, now),
            Err(error) => Err(error),
        };
        self.answer(id, answer);
    }

    fn queue_answered(
        &mut self,
        epoch: Epoch,
        asked: &Asked,
        peer: Option<Epoch>,
        result: Result<Response, RequestError>,
        now: Instant,
    ) -> Result<PullerAnswer, QueuePullerError> {
        let broker = self.queues.get(epoch).map(|queue| queue.broker);
        let is_master = broker.is_some_and(|broker| self.routes.is_master(broker, peer));
        match (result, &asked.subscription) {
            (Ok(Response::Pull(answer)), Some(wanted)) => {
                self.task_pull_worked(epoch, &answer, now);
                let result = self.usable_answer(epoch, asked.run, asked.offset, wanted, answer);
                result.map(PullerAnswer::Pulled)
            }
            (Ok(Response::Offset(offset)), None) => Ok(PullerAnswer::Offset(offset)),
            (Ok(Response::ConsumerOffset(None)), None) if is_master => {
                Ok(PullerAnswer::ConsumeOffset(None))
            }
            (Ok(Response::ConsumerOffset(None)), None) => Err(none_on_a_slave().into()),
            (Ok(Response::ConsumerOffset(Some(offset))), None) => {
                let offset = self.offset_fetched(epoch, offset, is_master, now);
                Ok(PullerAnswer::ConsumeOffset(Some(offset)))
            }
            (Ok(_), _) => Err(QueuePullerError::Broker(RequestError::Malformed {
                reason: "an answer to another question".to_owned(),
            })),
            (Err(error), wanted) => {
                if wanted.is_some() {
                    self.task_pull_failed(epoch, asked.broker_id, &error);
                }
                Err(QueuePullerError::Broker(error))
            }
        }
    }

    /// The memory of an offset begins with what the broker has, unless the guest was first.
    fn offset_fetched(
        &mut self,
        epoch: Epoch,
        offset: QueueOffset,
        is_master: bool,
        now: Instant,
    ) -> QueueOffset {
        self.note_step_back(epoch, offset);
        let Some(queue) = self.queues.get_mut(epoch) else {
            return offset;
        };
        if queue.commit.finished().is_none() {
            queue.commit.begin(offset);
            // A slave may be behind its master: it is looked at before the first commit.
            if !is_master {
                queue.commit.look_at_master(now);
            }
        }
        queue.commit.finished().unwrap_or(offset)
    }

    fn task_pull_worked(&mut self, epoch: Epoch, answer: &PullAnswer, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.pulled_at = Some(now);
        queue.preferred_broker = answer.suggest_which_broker_id;
        queue.max_offset = Some(answer.max_offset);
        queue.last_error = None;
        let failures = std::mem::take(&mut queue.failures);
        if std::mem::take(&mut queue.failure_told)
            && let Some(group) = self.groups.get(queue.group)
        {
            self.events.push_back(Event::PullRecovered {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                failures,
            });
        }
    }

    fn task_pull_failed(&mut self, epoch: Epoch, broker_id: u64, error: &RequestError) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.failures += 1;
        queue.last_error = Some(error.clone());
        if error.code().is_none() {
            // Another replica may do.
            queue.preferred_broker = self.routes.next_broker_id(queue.broker, broker_id);
        }
        if !std::mem::replace(&mut queue.failure_told, true)
            && let Some(group) = self.groups.get(queue.group)
        {
            self.events.push_back(Event::PullFailed {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                error: error.clone(),
            });
        }
    }

    /// What the guest gets of an answer. RocketMQ: `PullAPIWrapper#processPullResult`.
    fn usable_answer(
        &mut self,
        epoch: Epoch,
        run: Epoch,
        from: QueueOffset,
        wanted: &SubscriptionData,
        answer: PullAnswer,
    ) -> Result<QueuePullResult, QueuePullerError> {
        let mut result = QueuePullResult {
            status: answer.status,
            next_begin_offset: answer.next_begin_offset,
            min_offset: answer.min_offset,
            max_offset: answer.max_offset,
            runs: Vec::new(),
        };
        let Some(batch) = answer.batch else {
            return Ok(result);
        };
        self.hold_for_run(run, answer.frame_bytes)?;
        let messages = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        self.tell_step(epoch, Step::PullAnswered { messages });
        let damaged_before = self.queues.get(epoch).and_then(|queue| queue.damaged);
        let usable = usable(&batch, from, wanted, damaged_before);
        for (offset, reason) in usable.skipped {
            self.message_skipped(epoch, offset, reason);
        }
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.damaged = usable.stopped_at.filter(|_| usable.damage.is_some());
        }
        if let Some(offset) = usable.stopped_at {
            result.next_begin_offset = offset;
            if let (Some(reason), true) = (usable.damage, usable.runs.is_empty()) {
                return Err(QueuePullerError::Damaged { offset, reason });
            }
        }
        if usable.runs.is_empty() {
            result.status = PullStatus::NoMatchedMessage;
        }
        let messages: usize = usable.runs.iter().map(|run| run.range.len()).sum();
        if let Some(run) = self.pull_tasks.runs.get_mut(run) {
            let messages = u32::try_from(messages).unwrap_or(u32::MAX);
            run.messages = run.messages.saturating_add(messages);
        }
        result.runs = usable.runs;
        Ok(result)
    }

    /// Counts the answer's memory until the run pulls again or ends.
    fn hold_for_run(&mut self, run: Epoch, bytes: u64) -> Result<(), QueuePullerError> {
        let Some(of_run) = self.pull_tasks.runs.get_mut(run) else {
            return Err(QueuePullerError::Released);
        };
        let group_epoch = of_run.group;
        // What the run has read before is its guest's to forget.
        let before = std::mem::take(&mut of_run.held_bytes);
        self.give_memory_back(group_epoch, before);
        let group = self.groups.get(group_epoch);
        let group = group.ok_or(QueuePullerError::Released)?;
        if self.memory.is_too_much_for(group, bytes).is_some() {
            return Err(QueuePullerError::BufferFull);
        }
        self.hold_memory(group_epoch, bytes);
        if let Some(run) = self.pull_tasks.runs.get_mut(run) {
            run.held_bytes = bytes;
        }
        Ok(())
    }

    fn message_skipped(&mut self, epoch: Epoch, offset: QueueOffset, reason: String) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        if let Some(group) = self.groups.get(queue.group) {
            self.events.push_back(Event::BadRecord {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                offset,
                reason,
                action: BadRecordAction::Skipped,
            });
        }
    }
}

fn subscription(topic: &str, pull: &QueuePull) -> Result<SubscriptionData, QueuePullerError> {
    if pull.max_messages == 0 {
        return Err(QueuePullerError::NoMessagesAskedFor);
    }
    let subscription = SubscriptionData::build(topic, &pull.sub_expression, ExpressionType::Tag);
    subscription.map_err(|error| QueuePullerError::IllegalExpression {
        reason: error.to_string(),
    })
}

/// Sorts the messages of an answer. A damaged one may be whole the next time, so it ends
/// the answer; the second time in a row it is skipped.
fn usable(
    batch: &Arc<MessageBatch>,
    from: QueueOffset,
    wanted: &SubscriptionData,
    damaged_before: Option<QueueOffset>,
) -> Usable {
    let mut usable = Usable::default();
    let unreadable = batch.unreadable().map(|unreadable| {
        let offset = unreadable.previous.map_or(from, QueueOffset::next);
        (offset, unreadable.reason)
    });
    for index in 0..u32::try_from(batch.len()).unwrap_or(u32::MAX) {
        let message = batch.message(index);
        let offset = message.queue_offset();
        if unreadable.is_some_and(|(from, _)| offset >= from) {
            break;
        }
        if let Some(fault) = message.fault() {
            if damaged_before == Some(offset) {
                usable.skipped.push((offset, fault.to_string()));
                continue;
            }
            usable.stopped_at = Some(offset);
            usable.damage = Some(fault.to_string());
            return usable;
        }
        if !wanted.matches_tag(message.tags()) {
            continue;
        }
        match usable.runs.last_mut() {
            Some(run) if run.range.end == index => run.range.end += 1,
            _ => usable.runs.push(MessageRun {
                batch: Arc::clone(batch),
                range: index..index + 1,
                local_reconsume_times: 0,
            }),
        }
    }
    if let Some((offset, reason)) = unreadable {
        usable.stopped_at = Some(offset);
        if too_much(reason) {
            // Nothing is wrong with the rest.
        } else if damaged_before == Some(offset) {
            // What is behind it is asked for anew.
            usable.skipped.push((offset, reason.to_string()));
            usable.stopped_at = Some(offset.next());
        } else {
            usable.damage = Some(reason.to_string());
        }
    }
    usable
}

fn too_much(reason: UnreadableReason) -> bool {
    matches!(
        reason,
        UnreadableReason::DecompressedTooMuch | UnreadableReason::TooMany
    )
}
