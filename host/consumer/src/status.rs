//! A snapshot for people: who owns what, how far it is, and why it is idle.
//!
//! Made on request from what the rules hold; nothing is kept for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, Instant, MessageQueue, QueueOffset};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::group::{AssignedQueue, ConsumerGroup, GroupTopic, Life, Phase, since};
use crate::offset::Start;
use crate::pull::Pull;
use crate::pull_task::run::Task;
use crate::queue_lock::LockObstacle;
use crate::route::RouteState;

/// All of one client.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// As brokers know it.
    pub client_id: Arc<str>,
    /// Name servers in the order they are asked, with their last error.
    pub name_servers: Vec<PeerStatus>,
    /// Brokers that routes name, with their last error.
    pub brokers: Vec<BrokerStatus>,
    /// By name.
    pub groups: Vec<GroupStatus>,
    /// Bytes of pull answers held.
    pub held_bytes: u64,
    /// Requests whose answer is awaited.
    pub requests_in_flight: usize,
    /// Send-backs and dead letters under way or waiting.
    pub send_backs: usize,
    /// The stop has begun.
    pub stopping: bool,
}

/// A peer and what went wrong with it last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Which.
    pub address: Address,
    /// `None` after a success.
    pub last_error: Option<String>,
}

/// A broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerStatus {
    /// Its name.
    pub broker_name: Arc<str>,
    /// 0 is the master.
    pub broker_id: u64,
    /// Where.
    pub address: Address,
    /// It has taken our latest heartbeat.
    pub knows_us: bool,
    /// `None` after a success.
    pub last_error: Option<String>,
}

/// A group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub consumer_group: Arc<str>,
    /// Where it is in its life.
    pub state: GroupState,
    /// Members when last asked; 0 before the first answer.
    pub members: usize,
    /// Calls under way.
    pub calls: u32,
    /// What keeps the whole group from consuming.
    pub waits_for: Vec<String>,
    /// By topic, the retry topic among them.
    pub topics: Vec<TopicStatus>,
}

/// Where a group is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// Consuming, or trying to.
    Running,
    /// No pulls by request.
    Paused,
    /// Waiting for its calls before it leaves.
    Draining,
    /// Storing its offsets and telling the brokers.
    Leaving,
}

/// A subscribed topic.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// Its name.
    pub topic: Arc<str>,
    /// What is known of it.
    pub route: RouteStatus,
    /// The group's share, in order.
    pub queues: Vec<QueueStatus>,
}

/// What is known of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteStatus {
    /// Not asked yet, or not answered.
    Unknown {
        /// What the name servers said last.
        last_error: Option<String>,
    },
    /// It does not exist; asked again every few seconds.
    Missing,
    /// It exists.
    Known {
        /// Queues that can be read.
        read_queues: usize,
        /// What went wrong when last asked.
        last_error: Option<String>,
    },
}

/// A queue of ours.
#[derive(Clone, Debug)]
pub struct QueueStatus {
    /// Which.
    pub queue: MessageQueue,
    /// Its assignment.
    pub epoch: Epoch,
    /// Messages fetched and not finished.
    pub cached_messages: u32,
    /// Bytes of their bodies.
    pub cached_bytes: u64,
    /// Next offset to be pulled, once known.
    pub next_offset: Option<QueueOffset>,
    /// Everything below is finished.
    pub finished_offset: Option<QueueOffset>,
    /// What the broker confirmed.
    pub committed_offset: Option<QueueOffset>,
    /// The queue's end when last heard of.
    pub max_offset: Option<QueueOffset>,
    /// Since the last answer to a pull.
    pub since_last_pull: Option<Duration>,
    /// Since the last answer of a listener.
    pub since_last_consume: Option<Duration>,
    /// What it is doing, or why it does nothing.
    pub activity: Activity,
}

/// What a queue is doing, or why it does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// An orderly group consumes a queue only under its broker's lock.
    WaitsForLock {
        /// Why it has not got it: another client has it, or the broker could not be asked.
        obstacle: Option<String>,
    },
    /// Finding out where to begin.
    Starting,
    /// It could not be found out; tried again soon.
    StartFailed {
        /// Why.
        error: String,
    },
    /// A pull is under way: the queue is live.
    Pulling,
    /// The last pull failed; tried again soon.
    PullFailed {
        /// Why.
        error: String,
    },
    /// The broker asked to slow down.
    BrokerFlowControl,
    /// The broker of the queue has no address.
    NoBroker,
    /// Enough is fetched; goes on when messages are finished.
    FlowControl(FlowControl),
    /// Its first message has failed and is tried again in a moment.
    Suspended {
        /// The message.
        offset: QueueOffset,
        /// Calls that failed.
        attempts: u32,
        /// Since the first of them.
        lasted: Duration,
    },
    /// Its pull task runs.
    TaskRuns,
    /// Between two runs of its pull task.
    TaskWaits,
    /// The last run failed; the next one comes soon.
    TaskFailed {
        /// Why.
        error: String,
    },
    /// Its pull task is due.
    TaskDue,
    /// By request.
    Paused,
    /// On its way out.
    Stopping,
}

/// Which threshold a queue is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControl {
    /// `pull_threshold_for_queue`
    Count,
    /// `pull_threshold_size_for_queue`
    Size,
    /// `consume_concurrently_max_span`
    Span,
    /// The client's `buffer_bytes`
    Buffer,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitsForLock { obstacle: None } => f.write_str("asking its broker for the lock"),
            Self::WaitsForLock {
                obstacle: Some(obstacle),
            } => write!(f, "waiting for its lock: {obstacle}"),
            Self::Suspended {
                offset,
                attempts,
                lasted,
            } => write!(
                f,
                "suspended: message {offset} has failed {attempts} times in {} s and holds up the queue",
                lasted.as_secs()
            ),
            Self::Starting => f.write_str("finding out where to begin"),
            Self::StartFailed { error } => write!(f, "cannot find out where to begin: {error}"),
            Self::Pulling => f.write_str("pulling"),
            Self::PullFailed { error } => write!(f, "the last pull failed: {error}"),
            Self::BrokerFlowControl => f.write_str("the broker asked to slow down"),
            Self::NoBroker => f.write_str("no address of its broker is known"),
            Self::FlowControl(FlowControl::Count) => {
                f.write_str("over pull_threshold_for_queue, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Size) => {
                f.write_str("over pull_threshold_size_for_queue, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Span) => {
                f.write_str("over consume_concurrently_max_span, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Buffer) => {
                f.write_str("the tenant's buffer_bytes are used up, waiting for listeners")
            }
            Self::TaskRuns => f.write_str("its pull task runs"),
            Self::TaskWaits => f.write_str("between two runs of its pull task"),
            Self::TaskFailed { error } => {
                write!(
                    f,
                    "the last run of its pull task failed, trying again: {error}"
                )
            }
            Self::TaskDue => f.write_str("its pull task is due, waiting for a free call"),
            Self::Paused => f.write_str("paused"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

impl Client {
    /// A snapshot for people. Costs a walk over everything.
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
            })
        });
        let groups = self.group_names.values();
        let groups = groups.filter_map(|&epoch| self.groups.get(epoch));
        ClientStatus {
            client_id: Arc::clone(&self.client_id),
            name_servers: name_servers.collect(),
            brokers: brokers.collect(),
            groups: groups.map(|group| self.group_status(group, now)).collect(),
            held_bytes: self.held_bytes,
            requests_in_flight: self.in_flight.len(),
            send_backs: self.send_backs.len(),
            stopping: self.stopping,
        }
    }

    fn group_status(&self, group: &ConsumerGroup, now: Instant) -> GroupStatus {
        let mut topics: Vec<TopicStatus> = group
            .topics
            .iter()
            .map(|topic| self.topic_status(group, topic, now))
            .collect();
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        GroupStatus {
            consumer_group: Arc::clone(&group.name),
            state: match group.life {
                Life::Running => GroupState::Running,
                Life::Paused => GroupState::Paused,
                Life::Draining => GroupState::Draining,
                Life::Committing | Life::Silent { .. } | Life::Unregistering => GroupState::Leaving,
            },
            members: group.rebalance.members,
            calls: group.calls,
            waits_for: self.waits_for(group),
            topics,
        }
    }

    /// What keeps a whole group from consuming, or is wrong with it.
    fn waits_for(&self, group: &ConsumerGroup) -> Vec<String> {
        let mut reasons = Vec::new();
        let topics = group.topics.iter().filter(|topic| !topic.is_retry);
        for topic in topics {
            let Some(route) = self.routes.topics.get(topic.topic) else {
                continue;
            };
            match route.state {
                RouteState::Missing => reasons.push(format!(
                    "topic \"{}\" does not exist yet; it is asked for again every few seconds",
                    topic.name
                )),
                RouteState::Unknown => reasons.push(format!(
                    "the route of topic \"{}\" is not known: {}",
                    topic.name,
                    route.last_error.as_deref().unwrap_or("not answered yet")
                )),
                RouteState::Known if route.read_queues.is_empty() => {
                    reasons.push(format!("topic \"{}\" has no readable queue", topic.name));
                }
                RouteState::Known => {}
            }
        }
        if let Some(obstacle) = &group.rebalance.obstacle {
            reasons.push(format!("the members are not known: {obstacle}"));
        }
        for topic in &group.topics {
            if let Some(error) = &topic.not_allocated {
                reasons.push(format!(
                    "the queues of topic \"{}\" cannot be divided: {error}",
                    topic.name
                ));
            }
        }
        if group.rebalance.identity_clash {
            reasons.push(format!(
                "another client has our id {}; give each its own instance_name",
                self.client_id
            ));
        }
        let held = group.held().next().is_some();
        if reasons.is_empty() && !held && group.rebalance.members > 0 {
            reasons.push(format!(
                "no queue is left for us: the group has {} members",
                group.rebalance.members
            ));
        }
        for queue in group.leaving.keys() {
            reasons.push(format!("{queue} is given back when its call has ended"));
        }
        if group.life == Life::Draining {
            reasons.push(format!(
                "stopping: {} calls and {} send-backs are under way",
                group.calls, group.send_backs
            ));
        }
        reasons
    }

    fn topic_status(&self, group: &ConsumerGroup, topic: &GroupTopic, now: Instant) -> TopicStatus {
        let route = self.routes.topics.get(topic.topic);
        let last_error = route.and_then(|route| route.last_error.clone());
        TopicStatus {
            topic: Arc::clone(&topic.name),
            route: match route.map(|route| route.state) {
                None | Some(RouteState::Unknown) => RouteStatus::Unknown { last_error },
                Some(RouteState::Missing) => RouteStatus::Missing,
                Some(RouteState::Known) => RouteStatus::Known {
                    read_queues: route.map_or(0, |route| route.read_queues.len()),
                    last_error,
                },
            },
            queues: topic
                .held
                .values()
                .filter_map(|&epoch| Some((epoch, self.queues.get(epoch)?)))
                .map(|(epoch, queue)| queue_status(group, epoch, queue, now))
                .collect(),
        }
    }
}

fn queue_status(
    group: &ConsumerGroup,
    epoch: Epoch,
    queue: &AssignedQueue,
    now: Instant,
) -> QueueStatus {
    let started = matches!(queue.phase, Phase::Pulling(_));
    QueueStatus {
        queue: queue.queue.clone(),
        epoch,
        cached_messages: queue.process_queue.messages(),
        cached_bytes: queue.process_queue.body_bytes(),
        next_offset: started.then_some(queue.next_offset),
        finished_offset: queue.commit.finished(),
        committed_offset: queue.commit.confirmed(),
        max_offset: queue.max_offset,
        since_last_pull: since(queue.pulled_at, now),
        since_last_consume: since(queue.consumed_at, now),
        activity: activity(group, queue, now),
    }
}

fn activity(group: &ConsumerGroup, queue: &AssignedQueue, now: Instant) -> Activity {
    if !group.life.stays() {
        return Activity::Stopping;
    }
    let error = || queue.last_error.clone().unwrap_or_default();
    if let Some(row) = &queue.orderly.row {
        return Activity::Suspended {
            offset: row.offset,
            attempts: row.attempts,
            lasted: now - row.since,
        };
    }
    match &queue.phase {
        Phase::Locking(_) => {
            let obstacle = queue.lock.as_ref().and_then(|lock| lock.obstacle.as_ref());
            let obstacle = obstacle.map(|obstacle| match obstacle {
                LockObstacle::Refused => "another client has it".to_owned(),
                LockObstacle::Failed(error) => format!("its broker cannot be asked: {error}"),
            });
            Activity::WaitsForLock { obstacle }
        }
        Phase::Starting(Start { .. }) if queue.failures > 0 => {
            Activity::StartFailed { error: error() }
        }
        Phase::Starting(_) => Activity::Starting,
        Phase::Pulling(Pull::InFlight { .. }) if queue.failures > 0 => {
            Activity::PullFailed { error: error() }
        }
        Phase::Pulling(Pull::InFlight { .. } | Pull::Due) => Activity::Pulling,
        Phase::Pulling(Pull::Failed) => Activity::PullFailed { error: error() },
        Phase::Pulling(Pull::BrokerFlowControl) => Activity::BrokerFlowControl,
        Phase::Pulling(Pull::NoBroker) => Activity::NoBroker,
        Phase::Pulling(Pull::FlowControl(threshold)) => Activity::FlowControl(*threshold),
        Phase::Pulling(Pull::Paused) => Activity::Paused,
        Phase::Pulling(Pull::Stopped) | Phase::Task(Task::Stopped) => Activity::Stopping,
        Phase::Task(Task::Running) => Activity::TaskRuns,
        Phase::Task(Task::Waiting) => Activity::TaskWaits,
        Phase::Task(Task::Failed) => Activity::TaskFailed { error: error() },
        Phase::Task(Task::Due) => Activity::TaskDue,
        Phase::Task(Task::Paused) => Activity::Paused,
    }
}
