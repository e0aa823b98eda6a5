//! Where an assignment begins: what the group committed, else what its policy says.
//!
//! Three questions at most, one after the other: what is committed; if nothing, where
//! the policy points; then the choice is committed before the first pull, so that a
//! crash does not choose again. "None stored" and "could not ask" are different answers:
//! the second starts nothing and is asked again. RocketMQ: `RebalancePushImpl#
//! computePullFromWhere`; differing choices are in the design, §11.6.

use std::sync::Arc;

use protocol::{Instant, QueueOffset};

use crate::access;
use crate::client::{Client, Purpose};
use crate::config::ConsumeFromWhere;
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::group::{ConsumerGroup, Phase};
use crate::planted_bugs::PlantedBug;
use crate::pull::Pull;
use crate::request::{Destination, Request, RequestError, RequestId, Response};
use crate::route::BrokerId;
use crate::timers::{PULL_DELAY_WHEN_ERROR, Timer, timeout};

/// A start under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) step: StartStep,
    pub(crate) request: Option<RequestId>,
}

/// What is to be found out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartStep {
    /// What did the group commit?
    Committed,
    /// Nothing: where does the policy point?
    Chosen(StartPolicy),
    /// Commit the choice.
    Commit(QueueOffset, StartPolicy),
}

impl Start {
    pub(crate) fn new(step: StartStep) -> Self {
        Self {
            step,
            request: None,
        }
    }
}

impl Client {
    /// Asks the next question of a start.
    pub(crate) fn go_on_starting(&mut self, epoch: Epoch, now: Instant) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        if let Phase::Locking(_) = queue.phase {
            self.lock_soon(queue.group, now);
            return;
        }
        if queue.awaits_commit.is_some() {
            return;
        }
        let Phase::Starting(Start {
            step,
            request: None,
        }) = queue.phase
        else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        if !group.life.stays() {
            return;
        }
        if let StartStep::Commit(offset, policy @ StartPolicy::Reset) = step
            && self.has_bug(PlantedBug::ForgetResetCommit)
        {
            self.start_pulling(epoch, offset, policy, now);
            return;
        }
        if group.is_broadcasting() && self.goes_on_starting_here(epoch, step, now) {
            return;
        }
        self.ask_for_start(epoch, step, now);
    }

    /// Puts the question of a step to a broker.
    fn ask_for_start(&mut self, epoch: Epoch, step: StartStep, now: Instant) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let message_queue = queue.queue.clone();
        let (broker, topic) = (queue.broker, group.topics[queue.topic_index].topic);
        let (request, timeout) = match step {
            StartStep::Committed => (
                Request::QueryConsumerOffset {
                    consumer_group: Arc::clone(&group.name),
                    queue: message_queue,
                },
                timeout::CONSUMER_OFFSET,
            ),
            StartStep::Chosen(policy) => (
                match policy {
                    StartPolicy::LastOffset => Request::GetMaxOffset {
                        queue: message_queue,
                    },
                    StartPolicy::Timestamp(timestamp_ms) => Request::SearchOffset {
                        queue: message_queue,
                        timestamp_ms,
                    },
                    _ => Request::GetMinOffset {
                        queue: message_queue,
                    },
                },
                timeout::QUEUE_OFFSET,
            ),
            StartStep::Commit(commit_offset, _) => (
                Request::UpdateConsumerOffset {
                    consumer_group: Arc::clone(&group.name),
                    queue: message_queue,
                    commit_offset,
                },
                timeout::CONSUMER_OFFSET,
            ),
        };
        let Some(replica) = self.start_replica(step, broker) else {
            self.ask_route(topic);
            let error = RequestError::Unreachable {
                reason: match step {
                    StartStep::Committed => "no address of the broker is known",
                    _ => "no master of the broker is known",
                }
                .to_owned(),
            };
            self.start_failed(epoch, error, now);
            return;
        };
        if let Some((at, words)) = self.refused_until(replica.peer) {
            let words = words.clone();
            if let Some(queue) = self.queues.get_mut(epoch) {
                queue.failures += 1;
                queue.last_error = Some(words);
            }
            let at = at.max(now + PULL_DELAY_WHEN_ERROR);
            self.timers.set(Timer::Queue(epoch), at);
            return;
        }
        let id = self.request(
            Purpose::Start(epoch),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout,
        );
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.phase = Phase::Starting(Start {
                step,
                request: Some(id),
            });
        }
    }

    /// What is committed may be asked of a slave; ends of a queue only the master knows,
    /// and what a slave was told is not stored.
    fn start_replica(&self, step: StartStep, broker: BrokerId) -> Option<crate::route::Replica> {
        match step {
            StartStep::Committed => self.routes.replica_for_read(broker),
            StartStep::Chosen(_) | StartStep::Commit(..) => self.routes.master(broker),
        }
    }

    pub(crate) fn handle_start(
        &mut self,
        epoch: Epoch,
        peer: Option<Epoch>,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let unasked_is_zero = self.has_bug(PlantedBug::UnaskedIsZero);
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Phase::Starting(start) = &mut queue.phase else {
            return;
        };
        start.request = None;
        let step = start.step;
        let is_master = self.routes.is_master(queue.broker, peer);
        let next = match (step, result) {
            (StartStep::Committed, Ok(Response::ConsumerOffset(Some(offset)))) => {
                self.note_step_back(epoch, offset);
                self.start_pulling(epoch, offset, StartPolicy::Committed, now);
                // A slave may be behind its master: it is looked at before the first commit.
                if !is_master && let Some(queue) = self.queues.get_mut(epoch) {
                    queue.commit.look_at_master(now);
                }
                return;
            }
            (StartStep::Committed, Ok(Response::ConsumerOffset(None))) if is_master => {
                self.choose_start(epoch, now);
                return;
            }
            (StartStep::Committed, Ok(Response::ConsumerOffset(None))) => {
                self.start_failed(epoch, none_on_a_slave(), now);
                return;
            }
            (StartStep::Chosen(policy), Ok(Response::Offset(offset))) => {
                StartStep::Commit(offset, policy)
            }
            (StartStep::Commit(offset, policy), Ok(Response::Done)) => {
                self.start_pulling(epoch, offset, policy, now);
                return;
            }
            (_, Ok(_)) => {
                let error = RequestError::Malformed {
                    reason: "an answer to another question".to_owned(),
                };
                self.start_failed(epoch, error, now);
                return;
            }
            (StartStep::Committed, Err(_)) if unasked_is_zero => {
                self.start_pulling(epoch, QueueOffset(0), StartPolicy::Committed, now);
                return;
            }
            (_, Err(error)) => {
                self.start_failed(epoch, error, now);
                return;
            }
        };
        self.start_further(epoch, next, now);
    }

    /// Nothing is committed: the policy says where to begin.
    pub(crate) fn choose_start(&mut self, epoch: Epoch, now: Instant) {
        let step = StartStep::Chosen(self.start_policy(epoch));
        self.start_further(epoch, step, now);
    }

    fn start_further(&mut self, epoch: Epoch, step: StartStep, now: Instant) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.failures = 0;
            queue.failure_told = false;
            queue.last_error = None;
            queue.phase = Phase::Starting(Start::new(step));
        }
        self.go_on_starting(epoch, now);
    }

    /// Tells when the broker knows less than it confirmed to us before: it lost offsets,
    /// or somebody reset them.
    pub(crate) fn note_step_back(&mut self, epoch: Epoch, offset: QueueOffset) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        let Some(group) = self.groups.get_mut(queue.group) else {
            return;
        };
        if let Some(from) = group.last_committed.remove(&queue.queue)
            && offset < from
        {
            self.events.push_back(Event::CommittedOffsetWentBack {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                from,
                to: offset,
            });
        }
    }

    /// Nothing starts; the same question is asked again.
    fn start_failed(&mut self, epoch: Epoch, error: RequestError, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.failures += 1;
        queue.last_error = Some(error.clone());
        let delay = if error.is_access_refused() {
            access::pause(queue.failures)
        } else {
            PULL_DELAY_WHEN_ERROR
        };
        self.timers.set(Timer::Queue(epoch), now + delay);
        if !std::mem::replace(&mut queue.failure_told, true)
            && let Some(group) = self.groups.get(queue.group)
        {
            self.events.push_back(Event::QueueStartFailed {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                error,
            });
        }
    }

    fn start_policy(&self, epoch: Epoch) -> StartPolicy {
        if self.has_bug(PlantedBug::NothingCommittedIsTheEnd) {
            return StartPolicy::LastOffset;
        }
        let Some(queue) = self.queues.get(epoch) else {
            return StartPolicy::AppearedLater;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return StartPolicy::AppearedLater;
        };
        let topic = &group.topics[queue.topic_index];
        let first = topic.first_queues.as_ref();
        if topic.is_retry {
            StartPolicy::RetryTopic
        } else if !first.is_some_and(|queues| queues.contains(&queue.queue))
            || group.local.knows_topic(&topic.name)
        {
            StartPolicy::AppearedLater
        } else {
            match group.config.consume_from_where() {
                ConsumeFromWhere::LastOffset => StartPolicy::LastOffset,
                ConsumeFromWhere::FirstOffset => StartPolicy::FirstOffset,
                ConsumeFromWhere::Timestamp(unix_ms) => StartPolicy::Timestamp(unix_ms),
            }
        }
    }

    pub(crate) fn start_pulling(
        &mut self,
        epoch: Epoch,
        offset: QueueOffset,
        policy: StartPolicy,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.failures = 0;
        queue.failure_told = false;
        queue.last_error = None;
        queue.next_offset = offset;
        let group = self.groups.get(queue.group);
        let is_stored_elsewhere = group.is_some_and(ConsumerGroup::is_broadcasting);
        let is_new_to_broker = policy != StartPolicy::Committed && !is_stored_elsewhere;
        if is_new_to_broker {
            queue.commit.begin_chosen(offset);
        } else {
            queue.commit.begin(offset);
        }
        queue.phase = Phase::Pulling(Pull::Due);
        if let Some(group) = group {
            self.events.push_back(Event::QueueStarted {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                offset,
                policy,
            });
        }
        if is_new_to_broker {
            self.offset_changed(epoch, now);
        }
        let is_task = self.queues.get(epoch).is_some_and(|queue| {
            let group = self.groups.get(queue.group);
            group.is_some_and(|group| group.config.pull_task_interval().is_some())
        });
        if is_task {
            self.begin_task(epoch);
        } else {
            self.pull(epoch, now);
        }
    }
}

/// A slave gets its master's offsets from time to time: that it has none says nothing.
pub(crate) fn none_on_a_slave() -> RequestError {
    RequestError::Unreachable {
        reason: "a slave knows no offset of the group, and its master, which has to say \
                 whether there is one, does not answer"
            .to_owned(),
    }
}
