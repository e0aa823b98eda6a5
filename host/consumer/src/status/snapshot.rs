//! How the snapshot is made: a walk over everything the rules hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue};

use super::{
    Activity, BrokerStatus, Cause, ClientStatus, Delivery, GroupState, GroupStatus, HoldStatus,
    OtherQueue, PauseStatus, PeerStatus, QueueStatus, Reason, RouteStatus, TopicStatus,
};
use crate::client::Client;
use crate::config::AllocateError;
use crate::epoch::Epoch;
use crate::group::{AssignedQueue, ConsumerGroup, GroupTopic, Life, Phase, since};
use crate::listener::ConsumeMode;
use crate::local_offsets::LocalOffsets;
use crate::offset::Start;
use crate::pause::{Pause, PauseScope};
use crate::pull::Pull;
use crate::pull_task::run::Task;
use crate::queue_lock::LockObstacle;
use crate::retry::returns::Missed;
use crate::route::RouteState;
use crate::subscriptions::Check;
use crate::timers::Timer;

/// The owners of other members' queues cost a division for each member: members times
/// queues that one snapshot works out, all its topics together. The others have none.
const OWNERS_WORK_MAX: usize = 100_000;
/// A pull that the broker has had for so long is held there.
const HELD_MIN: Duration = Duration::from_secs(1);

/// Calls under way of a queue or a group.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: u32,
    oldest: Option<Instant>,
}

impl Calls {
    fn add(&mut self, handed_over: Instant) {
        self.count += 1;
        self.oldest = Some(self.oldest.map_or(handed_over, |old| old.min(handed_over)));
    }
}

/// What a walk has to look up and to count.
#[derive(Debug)]
struct Walk {
    now: Instant,
    /// Calls by what they belong to.
    calls_of_groups: BTreeMap<Epoch, Calls>,
    calls_of_queues: BTreeMap<Epoch, Calls>,
    /// Of `OWNERS_WORK_MAX`.
    owners_work_left: usize,
}

impl Client {
    /// A snapshot for people. Costs a walk over everything; take it when the outputs are
    /// drained, or work that is about to be taken looks as if nobody had a permit for it.
    pub fn status(&self, now: Instant) -> ClientStatus {
        let name_servers = self.routes.name_servers.iter().map(|server| PeerStatus {
            address: server.address.clone(),
            last_error: server.last_error.clone(),
        });
        let brokers = self.routes.all_replicas().filter_map(|(name, replica)| {
            let peer = self.routes.peers.get(replica.peer)?;
            Some(BrokerStatus {
                broker_name: Arc::clone(name),
                broker_id: replica.broker_id,
                address: replica.address,
                knows_us: peer.confirmed == self.announcement.version,
                last_error: peer.last_error.clone(),
                refused: peer.access.refused().map(ToString::to_string),
            })
        });
        let mut walk = Walk {
            now,
            calls_of_groups: BTreeMap::new(),
            calls_of_queues: BTreeMap::new(),
            owners_work_left: OWNERS_WORK_MAX,
        };
        for (_, call) in self.calls.iter() {
            let queue = walk.calls_of_queues.entry(call.queue).or_default();
            queue.add(call.handed_over);
            let group = walk.calls_of_groups.entry(call.group).or_default();
            group.add(call.handed_over);
        }
        let groups = self.group_names.values();
        let groups = groups.filter_map(|&epoch| Some((epoch, self.groups.get(epoch)?)));
        ClientStatus {
            client_id: Arc::clone(&self.client_id),
            name_servers: name_servers.collect(),
            brokers: brokers.collect(),
            groups: groups
                .map(|(epoch, group)| self.group_status(epoch, group, &mut walk))
                .collect(),
            held_bytes: self.memory.held_bytes(),
            buffer_bytes: self.config.buffer_bytes,
            requests_in_flight: self.in_flight.len(),
            send_backs: self.send_backs.len(),
            stopping: self.stopping,
        }
    }

    fn group_status(&self, epoch: Epoch, group: &ConsumerGroup, walk: &mut Walk) -> GroupStatus {
        let now = walk.now;
        let of_group = walk
            .calls_of_groups
            .get(&epoch)
            .copied()
            .unwrap_or_default();
        let pauses = group.pauses.iter();
        let mut status = GroupStatus {
            consumer_group: self.without_namespace(&group.name),
            state: match group.life {
                Life::Running if group.pauses.get(&PauseScope::Group).is_some() => {
                    GroupState::Paused
                }
                Life::Running => GroupState::Running,
                Life::Draining => GroupState::Stopping,
                Life::Committing | Life::Silent { .. } | Life::Unregistering => GroupState::Leaving,
            },
            message_model: group.config.message_model(),
            mode: group.config.mode(),
            members: group.rebalance.members.clone(),
            calls: group.calls,
            calls_max: group.config.consume_thread_max(),
            oldest_call: since(of_group.oldest, now),
            consume_timeout: group.config.consume_timeout(),
            mean_call: group.call_time.mean(),
            held_bytes: group.memory.held_bytes(),
            buffer_bytes: group.config.buffer_bytes(),
            send_backs: group.send_backs,
            sent_back: group.returns.sent_back,
            came_back: group.returns.came_back,
            pauses: pauses
                .map(|(scope, pause)| self.pause_status(scope, pause, now))
                .collect(),
            hold: group.hold.reason().map(|reason| HoldStatus {
                reason: Arc::clone(reason),
                probe_in: self.due_in(Timer::Hold(epoch), now),
            }),
            rebalance_in: self.due_in(Timer::Rebalance(epoch), now),
            reasons: Vec::new(),
            topics: Vec::new(),
        };
        let topics = group.topics.iter();
        let mut topics: Vec<TopicStatus> = topics
            .map(|topic| self.topic_status(group, topic, &status, walk))
            .collect();
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        status.topics = topics;
        let obstacle = group.rebalance.obstacle.as_deref();
        let clash = group.rebalance.identity_clash.then_some(&*self.client_id);
        status.reasons = {
            let topics = group.topics.iter();
            let refused = topics.filter_map(|topic| self.not_accepted(topic));
            refused.collect()
        };
        status.reasons.extend(status.find_reasons(obstacle, clash));
        status.reasons.extend(local_offsets(&group.local));
        status.reasons.extend(other_subscriptions(group));
        status
            .reasons
            .extend(self.missed(group, walk.now).map(missed));
        status
    }

    fn topic_status(
        &self,
        group: &ConsumerGroup,
        topic: &GroupTopic,
        of_group: &GroupStatus,
        walk: &mut Walk,
    ) -> TopicStatus {
        let route = self.routes.topics.get(topic.topic);
        let last_error = route.and_then(|route| route.last_error.clone());
        let mut status = TopicStatus {
            topic: self.without_namespace(&topic.name),
            expression: topic.subscription.sub_string.clone(),
            is_retry: topic.is_retry,
            route: match route.map(|route| route.state) {
                None | Some(RouteState::Unknown) => RouteStatus::Unknown { last_error },
                Some(RouteState::Missing) => RouteStatus::Missing,
                Some(RouteState::Known) => RouteStatus::Known {
                    read_queues: route.map_or(0, |route| route.read_queues.len()),
                    last_error,
                },
            },
            route_in: self.due_in(Timer::Route(topic.topic), walk.now),
            reason: None,
            queues: topic
                .held
                .values()
                .filter_map(|&epoch| Some((epoch, self.queues.get(epoch)?)))
                .map(|(epoch, queue)| self.queue_status(group, of_group, epoch, queue, walk))
                .collect(),
            others: self.other_queues(group, topic, &mut walk.owners_work_left),
        };
        let not_allocated = topic.not_allocated.clone().map(|error| match error {
            AllocateError::QueueWithoutRoom { queue } => {
                let queue = self.queue_without_namespace(&queue);
                AllocateError::QueueWithoutRoom { queue }.to_string()
            }
            error => error.to_string(),
        });
        status.reason = status.find_reason(not_allocated.as_deref());
        status
    }

    /// Queues of a topic that are not ours, and who should have them.
    fn other_queues(
        &self,
        group: &ConsumerGroup,
        topic: &GroupTopic,
        work_left: &mut usize,
    ) -> Vec<OtherQueue> {
        let Some(route) = self.routes.topics.get(topic.topic) else {
            return Vec::new();
        };
        let members = &group.rebalance.members;
        let mut owners: BTreeMap<MessageQueue, &String> = BTreeMap::new();
        let work = members.len().saturating_mul(route.read_queues.len());
        if topic.held.len() < route.read_queues.len()
            && let Some(left) = work_left.checked_sub(work)
        {
            *work_left = left;
            let strategy = group.config.allocate_message_queue_strategy();
            for member in members.iter().filter(|id| **id != *self.client_id) {
                let share =
                    strategy.allocate_topic(member, &route.read_queues, members, topic.is_retry);
                let share = share.unwrap_or_default();
                owners.extend(share.into_iter().map(|queue| (queue, member)));
            }
        }
        let others = route.read_queues.iter();
        others
            .filter(|queue| !topic.held.contains_key(queue))
            .map(|queue| OtherQueue {
                queue: self.queue_without_namespace(queue),
                owner: owners.get(queue).map(|owner| (*owner).clone()),
                releasing: group.releasing.contains(queue),
            })
            .collect()
    }

    fn queue_status(
        &self,
        group: &ConsumerGroup,
        of_group: &GroupStatus,
        epoch: Epoch,
        queue: &AssignedQueue,
        walk: &Walk,
    ) -> QueueStatus {
        let now = walk.now;
        let started = matches!(queue.phase, Phase::Pulling(_) | Phase::Task(_));
        let of_queue = walk
            .calls_of_queues
            .get(&epoch)
            .copied()
            .unwrap_or_default();
        let process_queue = &queue.process_queue;
        let first = process_queue.head();
        let last = process_queue.last();
        let mut status = QueueStatus {
            queue: self.queue_without_namespace(&queue.queue),
            epoch,
            cached_messages: process_queue.messages(),
            free_messages: process_queue.free_messages(),
            local_retries: u32::try_from(queue.local_retries.len()).unwrap_or(u32::MAX),
            cached_bytes: process_queue.body_bytes(),
            cached_offsets: first.zip(last),
            calls: of_queue.count,
            oldest_call: since(of_queue.oldest, now),
            next_offset: started.then_some(queue.next_offset),
            finished_offset: queue.commit.finished(),
            committed_offset: queue.commit.confirmed(),
            max_offset: queue.max_offset,
            since_last_pull: since(queue.pulled_at, now),
            since_last_consume: since(queue.consumed_at, now),
            locked_for: queue
                .lock
                .as_ref()
                .filter(|lock| lock.is_live(now))
                .and_then(|lock| Some(lock.live_until()? - now)),
            activity: self.activity(group, epoch, queue, now),
            delivery: delivery(group, queue, of_queue.count),
            reason: Reason::default(),
        };
        status.reason = status.find_reason(of_group, queue.last_error.as_ref());
        status
    }

    fn pause_status(&self, scope: &PauseScope, pause: &Pause, now: Instant) -> PauseStatus {
        PauseStatus {
            scope: self.scope_without_namespace(scope),
            kind: pause.kind,
            drained: pause.drained,
            by: Arc::clone(&pause.by),
            since: now - pause.since,
        }
    }

    /// What a broker has against the topic's expression, in its words.
    fn not_accepted(&self, topic: &GroupTopic) -> Option<Reason> {
        let (subscription, check) = match &topic.pending {
            Some((subscription, check)) => (subscription, check),
            None => (&topic.subscription, &topic.check),
        };
        let expression = format!(
            "the {} expression \"{}\" for topic \"{}\"",
            subscription.expression_type.as_str(),
            subscription.sub_string,
            self.without_namespace(&topic.name)
        );
        let (what, remedy) = match check {
            Check::Passed => return None,
            Check::Due | Check::Asked(_) => (
                format!("no broker has said yet whether it accepts {expression}"),
                "look whether the brokers of the topic are up and reachable",
            ),
            Check::Refused(words) => (
                format!("a broker does not accept {expression}: {words}"),
                "correct it, or let the broker evaluate SQL92 (enablePropertyFilter = true)",
            ),
        };
        let then = match topic.pending {
            Some(_) => "the filter before it stays; the broker is asked again every 30 s",
            None => "the group consumes nothing until then; the broker is asked again every 30 s",
        };
        Some(Reason::new(Cause::SubscriptionRefused, what, then, remedy))
    }

    fn activity(
        &self,
        group: &ConsumerGroup,
        epoch: Epoch,
        queue: &AssignedQueue,
        now: Instant,
    ) -> Activity {
        if !group.life.stays() {
            return Activity::Stopping;
        }
        if let Some(row) = &queue.orderly.row {
            return Activity::Suspended {
                offset: row.offset,
                attempts: row.attempts,
                lasted: now - row.since,
            };
        }
        let again_in = self.due_in(Timer::Queue(epoch), now);
        if let Phase::Pulling(_) | Phase::Task(_) = &queue.phase
            && let Some((scope, pause)) = group.pauses.of(&queue.queue)
        {
            return Activity::Paused(self.pause_status(scope, pause, now));
        }
        let failed = |error| Activity::PullFailed { error, again_in };
        let error = queue.last_error.clone().filter(|_| queue.failures > 0);
        match (&queue.phase, error) {
            (Phase::Locking(_), _) => {
                let obstacle = queue.lock.as_ref().and_then(|lock| lock.obstacle.as_ref());
                let obstacle = obstacle.map(|obstacle| match obstacle {
                    LockObstacle::Refused => "another client has it".to_owned(),
                    LockObstacle::Failed(error) => format!("its broker cannot be asked: {error}"),
                });
                Activity::WaitsForLock { obstacle }
            }
            (Phase::Starting(Start { .. }), Some(error)) => {
                Activity::StartFailed { error, again_in }
            }
            (Phase::Starting(_), None) => Activity::Starting,
            (Phase::Task(task), _) => match task {
                Task::Running => Activity::TaskRuns,
                Task::Waiting | Task::Paused => Activity::TaskWaits { again_in },
                Task::Failed => Activity::TaskFailed {
                    error: queue.task_error.clone().unwrap_or_default(),
                    again_in,
                },
                Task::Due => Activity::TaskDue,
                Task::Stopped => Activity::Stopping,
            },
            (Phase::Pulling(pull), error) => match (pull, error) {
                (Pull::BrokerFlowControl, _) => Activity::BrokerFlowControl,
                (Pull::InFlight { .. } | Pull::Failed, Some(error)) => failed(error),
                (
                    Pull::InFlight {
                        asked_at, suspend, ..
                    },
                    None,
                ) => {
                    let waited = now - *asked_at;
                    Activity::Pulling {
                        answered_in: Some(suspend.saturating_sub(waited)),
                        is_held: waited >= HELD_MIN,
                    }
                }
                (Pull::Due | Pull::Failed | Pull::Paused, _) => Activity::Pulling {
                    answered_in: None,
                    is_held: false,
                },
                (Pull::Unannounced, _) => Activity::Unannounced { again_in },
                (Pull::NoBroker, _) => Activity::NoBroker { again_in },
                (Pull::FlowControl(threshold), _) => Activity::FlowControl(*threshold),
                (Pull::Stopped, _) => Activity::Stopping,
            },
        }
    }

    fn due_in(&self, timer: Timer, now: Instant) -> Option<Duration> {
        let at = self.timers.at(timer)?;
        Some(if at > now { at - now } else { Duration::ZERO })
    }
}

fn delivery(group: &ConsumerGroup, queue: &AssignedQueue, calls: u32) -> Delivery {
    let messages = queue.process_queue.messages();
    if messages == 0 {
        Delivery::Nothing
    } else if calls > 0 && group.config.mode() != ConsumeMode::Concurrently {
        Delivery::Calling
    } else if queue.process_queue.free_messages() > 0 && group.life.stays() {
        let is_retry = group.topics[queue.topic_index].is_retry;
        let leaves_calls = is_retry && group.calls_under_way().retries_have_all_but_one();
        if group.may_call() && !leaves_calls {
            Delivery::WaitsForPermit
        } else {
            Delivery::WaitsForCalls
        }
    } else if calls > 0 {
        Delivery::Calling
    } else if queue.local_retries.is_empty() {
        Delivery::SendingBack
    } else {
        Delivery::WaitsForRetry
    }
}

/// What another member reads that we do not, or the reverse.
fn other_subscriptions(group: &ConsumerGroup) -> Option<Reason> {
    let difference = group.comparison.difference.as_ref()?;
    Some(Reason::new(
        Cause::SubscriptionsDiffer,
        format!(
            "member {} of the group has other subscriptions: {}",
            difference.member, difference.what
        ),
        "what one of them does not want may be consumed by nobody; it is asked again within a \
         minute",
        "give all members of the group the same subscriptions, or a group of their own",
    ))
}

/// What was sent back and has not come again.
fn missed(missed: Missed) -> Reason {
    Reason::new(
        Cause::RetriesMissed,
        format!(
            "{} messages that were sent back have not come again, though everything in the \
             retry topic was fetched; the first should have come {} s ago at the latest",
            missed.messages,
            missed.lasted.as_secs()
        ),
        "they are consumed as soon as the broker delivers them",
        "look whether the broker's schedule of delayed messages stands still, and at its \
         messageDelayLevel",
    )
}

/// What is wrong with the offsets that this host keeps.
fn local_offsets(local: &LocalOffsets) -> Option<Reason> {
    let problem = local.problem()?;
    let (what, next) = if local.is_loaded() {
        (
            "stored",
            "consuming goes on, and they are stored again soon",
        )
    } else {
        (
            "read",
            "none of its queues starts before they are, and they are asked for again soon",
        )
    };
    Some(Reason::new(
        Cause::LocalOffsets,
        format!("its local offsets cannot be {what}: {problem}"),
        next,
        "see to the host's state_dir",
    ))
}
