//! When and from where a queue is pulled, what holds it back, what an answer means.
//!
//! One pull loop per assignment: a queue is either being asked for, held back by a
//! threshold (`flow_control`), or waiting for its timer. RocketMQ:
//! `DefaultMQPushConsumerImpl#pullMessage`, `PullAPIWrapper`.

mod answer;

pub(crate) use answer::BadRecord;

use std::sync::Arc;
use std::time::Duration;

use protocol::code::response_code;
use protocol::{Instant, QueueOffset};

use crate::access;
use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, Step};
use crate::group::{AssignedQueue, Life, Phase};
use crate::planted_bugs::PlantedBug;
use crate::pull_task::run::Task;
use crate::request::{
    Destination, PullAnswer, PullMessage, PullStatus, Request, RequestError, RequestId, Response,
};
use crate::status::FlowControl;
use crate::timers::{
    PULL_DELAY_WHEN_BROKER_FLOW_CONTROL, PULL_DELAY_WHEN_ERROR, PULL_SUSPEND, Timer, stretched,
    timeout,
};

/// An empty answer that comes sooner is suspicious: the broker should have waited.
const EMPTY_ANSWER_MIN: Duration = Duration::from_millis(10);
/// So many of them in a row are let pass.
const FRUITLESS_MAX: u32 = 8;
/// RocketMQ: `GO_AWAY`, the broker wants us to connect again.
const GO_AWAY: i32 = 1500;

/// Where the pull loop of a queue stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pull {
    /// About to be asked for.
    Due,
    /// Asked for.
    InFlight {
        request: RequestId,
        asked_at: Instant,
        /// How long the broker may hold it.
        suspend: Duration,
        /// The replica asked.
        broker_id: u64,
        /// Committed by this request, if it is answered.
        carried: Option<QueueOffset>,
    },
    /// The last answer was an error; the timer asks again.
    Failed,
    /// The broker asked to slow down; the timer asks again.
    BrokerFlowControl,
    /// The broker has yet to hear of the subscription; its answer to the heartbeat asks
    /// again.
    Unannounced,
    /// No address; the timer asks again.
    NoBroker,
    /// Over a threshold; finished messages ask again.
    FlowControl(FlowControl),
    /// By request; its end asks again.
    Paused,
    /// The group leaves.
    Stopped,
}

impl Client {
    /// Asks for messages of a queue, or notes what holds it back.
    pub(crate) fn pull(&mut self, epoch: Epoch, now: Instant) {
        let by_version_alone = self.has_bug(PlantedBug::FilterByVersionAlone);
        let queues = self.queues.len();
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let Phase::Pulling(pull) = &mut queue.phase else {
            return;
        };
        if matches!(pull, Pull::InFlight { .. }) {
            return;
        }
        if queue.orderly.is_leaving {
            *pull = Pull::Stopped;
            return;
        }
        match group.life {
            Life::Running if group.pauses.of(&queue.queue).is_some() => {
                *pull = Pull::Paused;
                return;
            }
            Life::Running => {}
            Life::Draining | Life::Committing | Life::Silent { .. } | Life::Unregistering => {
                *pull = Pull::Stopped;
                return;
            }
        }
        if let Some(threshold) = queue.over_threshold(group) {
            queue.phase = Phase::Pulling(Pull::FlowControl(threshold));
            return;
        }
        if let Some(bound) = self.memory.is_full_for(group, 0) {
            self.wait_for_memory(epoch, bound);
            return;
        }
        let topic = &group.topics[queue.topic_index];
        let replica = self
            .routes
            .replica_for_pull(queue.broker, queue.preferred_broker);
        let Some(replica) = replica else {
            let topic = topic.topic;
            self.ask_route(topic);
            self.pull_later(epoch, Pull::NoBroker, now + PULL_DELAY_WHEN_ERROR);
            return;
        };
        let peer = self.routes.peers.get(replica.peer);
        let is_told =
            topic.known_from == 0 || peer.is_some_and(|peer| peer.confirmed >= topic.known_from);
        if !is_told {
            self.pull_later(epoch, Pull::Unannounced, now + PULL_DELAY_WHEN_ERROR);
            return;
        }
        if let Some(access) = peer.map(|peer| &peer.access)
            && let (Some(at), Some(words)) = (access.retry_at(), access.refused())
        {
            queue.last_error = Some(words.clone());
            queue.failures = queue.failures.max(1);
            self.pull_later(epoch, Pull::Failed, at.max(now + PULL_DELAY_WHEN_ERROR));
            return;
        }
        let of_group = queue.group;
        if let Some((at, words)) = self.group_refused_until(replica.peer, of_group, now) {
            let words = words.clone();
            if let Some(queue) = self.queues.get_mut(epoch) {
                queue.failures = queue.failures.max(1);
                queue.last_error = Some(words);
            }
            self.pull_later(epoch, Pull::Failed, at);
            return;
        }
        let carries = !group.is_broadcasting() && self.may_carry(epoch, replica.peer, now);
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let topic = &group.topics[queue.topic_index];
        // Zero is what a broker assumes anyway, and slaves keep no offsets.
        let (commit_offset, commit) = if group.is_broadcasting() {
            (Some(QueueOffset(0)), false)
        } else {
            let carried = queue.commit.carried_by_pull().filter(|_| carries);
            let commit = replica.is_master() && carried > Some(QueueOffset(0));
            (queue.commit.finished(), commit)
        };
        let carried_filter = topic.carried_filter.clone();
        let alone = queue.bad_record.is_some();
        let suspend = stretched(PULL_SUSPEND, queues);
        let request = Request::PullMessage(Box::new(PullMessage {
            consumer_group: Arc::clone(&group.name),
            queue: queue.queue.clone(),
            queue_offset: queue.next_offset,
            max_msg_nums: if alone {
                1
            } else {
                group.config.pull_batch_size()
            },
            max_msg_bytes: group.config.pull_batch_size_in_bytes(),
            commit_offset,
            commit,
            suspend,
            subscription: carried_filter.filter(|_| !by_version_alone),
            sub_version: topic.pull_version,
            expression_type: topic.subscription.expression_type.clone(),
            body_bytes_max: self.config.body_bytes_max,
        }));
        let step = Step::PullSent {
            offset: queue.next_offset,
        };
        let broker_id = replica.broker_id;
        let request = self.request(
            Purpose::Pull(epoch),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            suspend + timeout::PULL_BEYOND_SUSPEND,
        );
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.phase = Phase::Pulling(Pull::InFlight {
                request,
                asked_at: now,
                suspend,
                broker_id,
                carried: commit_offset.filter(|_| commit),
            });
        }
        if commit {
            self.begin_telling(epoch, request);
        }
        self.tell_step(epoch, step);
    }

    /// Waits for the timer with this pull.
    pub(crate) fn pull_later(&mut self, epoch: Epoch, state: Pull, at: Instant) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.phase = Phase::Pulling(state);
            self.timers.set(Timer::Queue(epoch), at);
        }
    }

    /// A broker is there again: what failed need not wait for its timer.
    pub(crate) fn pull_failed_again(&mut self, now: Instant) {
        let failed = |queue: &AssignedQueue| match &queue.phase {
            Phase::Pulling(pull) => matches!(pull, Pull::Failed),
            Phase::Starting(start) => start.request.is_none(),
            Phase::Locking(_) | Phase::Task(_) => false,
        };
        let queues = self.queues.iter().filter(|(_, queue)| failed(queue));
        for (epoch, _) in queues {
            self.timers.set_earliest(Timer::Queue(epoch), now);
        }
    }

    /// A broker has taken a heartbeat that says more: what waited for it is pulled.
    pub(crate) fn pull_what_is_announced(&mut self, now: Instant) {
        for (epoch, queue) in self.queues.iter() {
            if matches!(queue.phase, Phase::Pulling(Pull::Unannounced)) {
                self.timers.set_earliest(Timer::Queue(epoch), now);
            }
        }
    }

    /// The end of a pause.
    pub(crate) fn resume_pull(&mut self, epoch: Epoch, now: Instant) {
        if self.has_bug(PlantedBug::PauseNeverEnds) {
            return;
        }
        match self.queues.get(epoch).map(|queue| &queue.phase) {
            Some(Phase::Pulling(Pull::Paused)) => self.pull(epoch, now),
            Some(Phase::Task(Task::Paused)) => self.task_due(epoch),
            _ => {}
        }
    }

    /// The timer of a queue.
    pub(crate) fn queue_due(&mut self, epoch: Epoch, now: Instant) {
        match self.queues.get(epoch).map(|queue| &queue.phase) {
            Some(Phase::Pulling(_)) => self.pull(epoch, now),
            Some(Phase::Task(_)) => self.task_due(epoch),
            Some(Phase::Locking(_) | Phase::Starting(_)) => self.go_on_starting(epoch, now),
            None => {}
        }
    }

    pub(crate) fn handle_pull(
        &mut self,
        epoch: Epoch,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let epoch = if self.has_bug(PlantedBug::AcceptOldAnswer) {
            self.queues.in_slot_of(epoch)
        } else {
            epoch
        };
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Phase::Pulling(Pull::InFlight {
            request,
            asked_at,
            broker_id,
            carried,
            ..
        }) = queue.phase
        else {
            return;
        };
        queue.phase = Phase::Pulling(Pull::Due);
        if carried.is_some() {
            self.end_telling(epoch, request, result.as_ref().err(), now);
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        match result {
            Ok(Response::Pull(answer)) => {
                if let Some(offset) = carried {
                    queue.commit.confirm(offset);
                }
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
                let messages = answer.batch.as_ref().map_or(0, |batch| batch.len());
                let messages = u32::try_from(messages).unwrap_or(u32::MAX);
                self.tell_step(epoch, Step::PullAnswered { messages });
                if let Some(offset) = carried {
                    self.tell_step(epoch, Step::OffsetStored { offset });
                }
                self.pull_answered(epoch, answer, asked_at, now);
            }
            Ok(_) => {
                let error = RequestError::Malformed {
                    reason: "not an answer to a pull".to_owned(),
                };
                self.pull_failed(epoch, broker_id, error, now);
            }
            Err(error) => self.pull_failed(epoch, broker_id, error, now),
        }
    }

    fn pull_answered(&mut self, epoch: Epoch, answer: PullAnswer, asked_at: Instant, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let stays = self
            .groups
            .get(queue.group)
            .is_some_and(|group| group.life.stays());
        if !stays || queue.is_leaving() {
            // Whoever comes next gets it.
            queue.phase = Phase::Pulling(Pull::Stopped);
            return;
        }
        let group = self.groups.get(queue.group);
        if group.is_some_and(|group| group.pauses.of(&queue.queue).is_some()) {
            // Asked for again when the pause ends.
            queue.phase = Phase::Pulling(Pull::Paused);
            return;
        }
        let requested = queue.next_offset;
        match answer.status {
            PullStatus::OffsetIllegal => {
                self.offset_illegal(epoch, answer, now);
                return;
            }
            PullStatus::Found => {
                let (group, topic_index) = (queue.group, queue.topic_index);
                let messages = answer.batch.as_ref().map_or(0, |batch| batch.len() as u64);
                if let Some(group) = self.groups.get_mut(group) {
                    let statistics = &mut group.topics[topic_index].statistics;
                    statistics.add_pull(messages, now - asked_at, now);
                }
                if !self.keep_answer(epoch, answer, now) {
                    return;
                }
            }
            PullStatus::NoNewMessage | PullStatus::NoMatchedMessage => {
                queue.next_offset = answer.next_begin_offset;
                queue.bad_record = None;
            }
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let fruitless = queue.next_offset == requested && now - asked_at < EMPTY_ANSWER_MIN;
        queue.fruitless = if fruitless { queue.fruitless + 1 } else { 0 };
        let too_fast = queue.fruitless > FRUITLESS_MAX;
        self.finished(epoch, now);
        if too_fast {
            let at = now + PULL_DELAY_WHEN_BROKER_FLOW_CONTROL;
            self.pull_later(epoch, Pull::BrokerFlowControl, at);
        } else {
            self.pull(epoch, now);
        }
    }

    fn pull_failed(&mut self, epoch: Epoch, broker_id: u64, error: RequestError, now: Instant) {
        if error == RequestError::Timeout && self.has_bug(PlantedBug::PullLoopDies) {
            return;
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let topic = group.topics[queue.topic_index].topic;
        let code = error.code();
        queue.failures += 1;
        queue.last_error = Some(error.clone());
        match code {
            Some(response_code::FLOW_CONTROL | GO_AWAY) => {
                let at = now + PULL_DELAY_WHEN_BROKER_FLOW_CONTROL;
                self.pull_later(epoch, Pull::BrokerFlowControl, at);
                return;
            }
            Some(
                response_code::SUBSCRIPTION_NOT_EXIST
                | response_code::SUBSCRIPTION_NOT_LATEST
                | response_code::FILTER_DATA_NOT_EXIST
                | response_code::FILTER_DATA_NOT_LATEST,
            ) => {
                // The broker forgot us, or has yet to read the heartbeat: no noise.
                self.owe_heartbeats_of(topic);
                self.pull_later(epoch, Pull::Failed, now + PULL_DELAY_WHEN_ERROR);
                return;
            }
            Some(_) => {}
            None => {
                // Another replica may do; the route may be old.
                queue.preferred_broker = self.routes.next_broker_id(queue.broker, broker_id);
            }
        }
        let is_access_refused = error.is_access_refused();
        let failures = queue.failures;
        let delay = if is_access_refused {
            access::pause(failures)
        } else {
            PULL_DELAY_WHEN_ERROR
        };
        if !std::mem::replace(&mut queue.failure_told, true) {
            self.events.push_back(Event::PullFailed {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                error,
            });
        }
        if is_access_refused && failures == 1 {
            // The heartbeat finds out whether it is us or only this queue.
            self.owe_heartbeats_of(topic);
        }
        if code.is_none() {
            self.ask_route_if_old(topic, now);
        }
        self.pull_later(epoch, Pull::Failed, now + delay);
    }

    fn owe_heartbeats_of(&mut self, topic: Epoch) {
        for replica in self.routes.replicas_of_topic(topic) {
            self.owe_heartbeat(replica.peer);
        }
    }
}
