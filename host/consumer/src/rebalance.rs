//! Wanted queues against held queues: take, give back, keep when unsure.
//!
//! Every 20 s, every second while unbalanced, and when somebody asks, a group's members
//! are asked of one broker that knows us; the answer divides every topic whose route is
//! known. A list that failed, is empty or lacks us keeps what is held. Wake-ups within a
//! second of the last run wait for its end.
//!
//! RocketMQ: `RebalanceService`, `RebalanceImpl#rebalanceByTopic`.

pub(crate) mod allocate;
pub(crate) mod compare;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue};

use crate::access;
use crate::assignment;
use crate::client::{Client, Purpose};
use crate::config::AllocateError;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::{AssignedQueue, ConsumerGroup};
use crate::offset::StartStep;
use crate::planted_bugs::PlantedBug;
use crate::queue_lock::QueueLock;
use crate::request::{Destination, Request, RequestError, RequestId, Response};
use crate::route::RouteState;
use crate::timers::{REBALANCE, REBALANCE_MIN, Timer, stretched, timeout};

/// A broker that has lost its connections forgets the members: whoever is back first
/// sees nobody else. So long the others, who have kept their queues, are waited for.
/// Reconnecting takes them up to `BackoffConfig::max` and a fifth.
const RETURN_MAX: Duration = Duration::from_secs(4);

/// How far a group is with its rebalancing.
#[derive(Debug, Default)]
pub(crate) struct Rebalance {
    query: Option<RequestId>,
    /// Somebody asked while the query was under way.
    again: bool,
    last: Option<Instant>,
    /// Refusals in a row to list the members to us.
    refusals: u32,
    /// Client ids of the members when last heard of, in the order that queues are divided.
    pub(crate) members: Vec<String>,
    /// The members have changed: when to look at what is committed once more.
    pub(crate) looks_at: Option<Instant>,
    /// Why the last one changed nothing.
    pub(crate) obstacle: Option<String>,
    /// Another client has our id.
    pub(crate) identity_clash: bool,
}

impl Client {
    /// Within a second of the last run, at the latest.
    pub(crate) fn rebalance_soon(&mut self, epoch: Epoch, now: Instant) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let earliest = group.rebalance.last.map(|last| last + REBALANCE_MIN);
        let at = earliest.unwrap_or(now).max(now);
        self.timers.set_earliest(Timer::Rebalance(epoch), at);
    }

    /// Something appeared that nobody can know yet: no waiting.
    pub(crate) fn rebalance_at_once(&mut self, epoch: Epoch, now: Instant) {
        self.timers.set_earliest(Timer::Rebalance(epoch), now);
    }

    /// A broker knows the group now: the first rebalance need not wait.
    pub(crate) fn rebalance_when_known(&mut self, epoch: Epoch, now: Instant) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        if group.held().next().is_none() {
            self.rebalance_at_once(epoch, now);
        } else {
            self.rebalance_soon(epoch, now);
        }
    }

    /// Asks for the members of a group.
    pub(crate) fn rebalance(&mut self, epoch: Epoch, now: Instant) {
        let pause = stretched(REBALANCE, self.groups.len());
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if !group.life.stays() {
            return;
        }
        self.timers.set(Timer::Rebalance(epoch), now + pause);
        if group.rebalance.query.is_some() {
            group.rebalance.again = true;
            return;
        }
        let is_checked = group.is_checked();
        let since = group.since_version;
        let topics: Vec<Epoch> = group.topics.iter().map(|topic| topic.topic).collect();
        self.check_subscriptions(epoch, None);
        self.look_for_missed(epoch, now);
        if !is_checked {
            return;
        }
        let known = topics.iter().any(|&topic| {
            let topic = self.routes.topics.get(topic);
            topic.is_some_and(|topic| topic.state == RouteState::Known)
        });
        if !known {
            // The first route will ask again.
            return;
        }
        // Only whoever has taken our heartbeat can list us.
        let replicas = topics
            .iter()
            .flat_map(|&topic| self.routes.replicas_of_topic(topic));
        let knowing: Vec<_> = replicas
            .filter(|replica| {
                let peer = self.routes.peers.get(replica.peer);
                peer.is_some_and(|peer| {
                    peer.confirmed >= since
                        && peer.access.refused().is_none()
                        && !peer.refused_groups.contains_key(&epoch)
                })
            })
            .collect();
        // One that does not answer is asked when there is nobody else.
        let healthy: Vec<_> = knowing
            .iter()
            .filter(|replica| self.routes.is_healthy(replica))
            .cloned()
            .collect();
        let knowing = if healthy.is_empty() { knowing } else { healthy };
        let masters = knowing.iter().take_while(|r| r.is_master()).count();
        let choices = if masters > 0 { masters } else { knowing.len() };
        if choices == 0 {
            // The first heartbeat that is taken will ask again.
            let refusing = topics
                .iter()
                .flat_map(|&topic| self.routes.replicas_of_topic(topic))
                .find_map(|replica| {
                    let of_group = || self.group_refused_until(replica.peer, epoch, now);
                    let (_, words) = self.refused_until(replica.peer).or_else(of_group)?;
                    Some(format!(
                        "broker {} refuses our access key, or what the group may do: {words}",
                        replica.address
                    ))
                });
            if let Some(group) = self.groups.get_mut(epoch) {
                let unknown = || "no broker has taken our heartbeat yet".to_owned();
                group.rebalance.obstacle = Some(refusing.unwrap_or_else(unknown));
            }
            return;
        }
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if group.is_broadcasting() || group.assigned.is_some() {
            // No share: what is ours does not depend on who else there is.
            group.rebalance.last = Some(now);
            group.rebalance.obstacle = None;
            if !self.divide_topics(epoch, &[], now) {
                self.rebalance_soon(epoch, now);
            }
            return;
        }
        let replica = knowing[self.random.usize(..choices)].clone();
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let request = Request::GetConsumerListByGroup {
            consumer_group: Arc::clone(&group.name),
        };
        let id = self.request(
            Purpose::Members(epoch, replica.peer),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::CONSUMER_LIST,
        );
        if let Some(group) = self.groups.get_mut(epoch) {
            group.rebalance.query = Some(id);
            group.rebalance.last = Some(now);
        }
    }

    pub(crate) fn handle_members(
        &mut self,
        epoch: Epoch,
        peer: Epoch,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        group.rebalance.query = None;
        if !group.life.stays() {
            return;
        }
        let again = std::mem::take(&mut group.rebalance.again);
        let members = match result {
            Ok(Response::ConsumerList(members)) => members,
            Ok(_) => Vec::new(),
            Err(error) => {
                // "No consumer for this group": it has forgotten us.
                let refusals = if error.is_access_refused() {
                    group.rebalance.refusals += 1;
                    group.rebalance.refusals
                } else {
                    0
                };
                if error.code().is_some() {
                    self.owe_heartbeat(peer);
                }
                self.members_unknown(epoch, error.to_string(), refusals, now);
                return;
            }
        };
        let ours = members.iter().filter(|id| **id == *self.client_id).count();
        if ours == 0 {
            self.owe_heartbeat(peer);
            let reason = if members.is_empty() {
                "the broker listed no members".to_owned()
            } else {
                format!("we are not among the {} members listed", members.len())
            };
            self.members_unknown(epoch, reason, 0, now);
            return;
        }
        group.rebalance.refusals = 0;
        let listing = self.routes.peers.get(peer);
        let regained_at = listing.and_then(|peer| peer.regained_at);
        let known = group.rebalance.members.iter();
        let absent = known.filter(|known| !members.contains(known)).count();
        if absent > 0 && regained_at.is_some_and(|at| now < at + RETURN_MAX) {
            let reason = format!(
                "the broker has lost its connections, and {absent} members that may have kept \
                 their queues are not back yet"
            );
            self.members_unknown(epoch, reason, 0, now);
            return;
        }
        let mut members = members;
        members.sort_by(|a, b| allocate::java_order(a, b));
        // A heartbeat that a broker reads after its connection has ended stays with it for
        // two minutes, beside the same member's new connection. Differs from RocketMQ: Java
        // counts both, and the share of the second is nobody's as long.
        members.dedup();
        let changed = group.rebalance.members != members;
        group.rebalance.members.clone_from(&members);
        group.rebalance.obstacle = None;
        group.rebalance.identity_clash = ours > 1;
        let balanced = self.divide_topics(epoch, &members, now);
        self.contest_by_members(epoch, changed, now);
        self.compare_later(epoch, peer, changed, now);
        if again || !balanced {
            self.rebalance_soon(epoch, now);
        }
    }

    /// What is held stays held; asked again soon.
    fn members_unknown(&mut self, epoch: Epoch, reason: String, refusals: u32, now: Instant) {
        if self.has_bug(PlantedBug::ReleaseOnFailedMembers) {
            let topics = self.groups.get(epoch).map_or(0, |group| group.topics.len());
            for topic in 0..topics {
                self.take_and_give_back(epoch, topic, &[], &[], now);
            }
        }
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let told = group.rebalance.obstacle.as_ref() == Some(&reason);
        group.rebalance.obstacle = Some(reason.clone());
        if !told {
            self.events.push_back(Event::MembersUnknown {
                consumer_group: Arc::clone(&group.name),
                reason,
            });
        }
        self.timers
            .set_earliest(Timer::Rebalance(epoch), now + access::pause(refusals));
    }

    /// False when something that is wanted could not be taken yet.
    fn divide_topics(&mut self, epoch: Epoch, members: &[String], now: Instant) -> bool {
        let mut balanced = true;
        let topics = self.groups.get(epoch).map_or(0, |group| group.topics.len());
        for topic_index in 0..topics {
            let Some(group) = self.groups.get(epoch) else {
                return balanced;
            };
            let Some(route) = self.routes.topics.get(group.topics[topic_index].topic) else {
                continue;
            };
            if route.state != RouteState::Known {
                continue;
            }
            let topic = &group.topics[topic_index];
            let strategy = group.config.allocate_message_queue_strategy();
            let share = if let Some(given) = &group.assigned {
                Ok(assignment::select(given, &route.read_queues))
            } else if group.is_broadcasting() {
                Ok(route.read_queues.clone())
            } else {
                strategy.allocate_topic(
                    &self.client_id,
                    &route.read_queues,
                    members,
                    topic.is_retry,
                )
            };
            match share {
                Ok(wanted) => {
                    self.note_allocated(epoch, topic_index);
                    balanced &= self.take_and_give_back(epoch, topic_index, &wanted, members, now);
                }
                // What is held stays held, as in RocketMQ.
                Err(error) => self.note_not_allocated(epoch, topic_index, &error),
            }
        }
        balanced
    }

    fn note_allocated(&mut self, epoch: Epoch, topic_index: usize) {
        if let Some(group) = self.groups.get_mut(epoch) {
            group.topics[topic_index].not_allocated = None;
        }
    }

    fn note_not_allocated(&mut self, epoch: Epoch, topic_index: usize, error: &AllocateError) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        let topic = &mut group.topics[topic_index];
        // A topic without queues is told of by its route.
        if *error == AllocateError::NoQueues || topic.not_allocated.as_ref() == Some(error) {
            return;
        }
        topic.not_allocated = Some(error.clone());
        self.events.push_back(Event::QueuesNotAllocated {
            consumer_group: Arc::clone(&group.name),
            topic: Arc::clone(&topic.name),
            error: error.clone(),
        });
    }

    fn take_and_give_back(
        &mut self,
        epoch: Epoch,
        topic_index: usize,
        wanted: &[MessageQueue],
        members: &[String],
        now: Instant,
    ) -> bool {
        let Some(group) = self.groups.get(epoch) else {
            return true;
        };
        let topic = &group.topics[topic_index];
        let kept: BTreeSet<&MessageQueue> = wanted.iter().collect();
        let unwanted: Vec<(MessageQueue, Epoch)> = topic
            .held
            .iter()
            .filter(|(queue, _)| !kept.contains(queue))
            .map(|(queue, &epoch)| (queue.clone(), epoch))
            .collect();
        let missing = wanted
            .iter()
            .filter(|queue| !topic.held.contains_key(queue));
        // Its last commit must be answered before it is asked what is committed.
        let (waiting, taken): (Vec<_>, Vec<_>) = missing
            .cloned()
            .partition(|queue| group.releasing.contains(queue));
        if !unwanted.is_empty() || !taken.is_empty() {
            let topic_name = Arc::clone(&topic.name);
            self.events.push_back(Event::Rebalanced {
                consumer_group: Arc::clone(&group.name),
                topic: topic_name,
                members: u32::try_from(members.len()).unwrap_or(u32::MAX),
                taken: taken.clone(),
                released: unwanted.iter().map(|(queue, _)| queue.clone()).collect(),
            });
            self.assignment_changed(epoch, topic_index, now);
        }
        let shares_grow = !unwanted.is_empty();
        for (message_queue, queue) in unwanted {
            self.give_queue_back(queue);
            self.end_pause_of(epoch, &message_queue);
        }
        for queue in taken {
            let step = StartStep::Committed;
            let queue = self.new_assignment(epoch, topic_index, queue, step, now);
            self.contest_taken(queue, now);
            self.begin_queue(queue, now);
        }
        if shares_grow {
            self.topic_shares_changed(epoch, topic_index, now);
        }
        waiting.is_empty()
    }

    fn begin_queue(&mut self, epoch: Epoch, now: Instant) {
        let group = self.queues.get(epoch).map(|queue| queue.group);
        let group = group.and_then(|group| self.groups.get(group));
        // One that broadcasts waits for what this host has stored.
        let begins = |group: &ConsumerGroup| group.is_pull_task() && !group.is_broadcasting();
        if group.is_some_and(begins) {
            self.begin_task(epoch);
        } else {
            self.go_on_starting(epoch, now);
        }
    }

    /// A new assignment, with an epoch of its own.
    pub(crate) fn new_assignment(
        &mut self,
        group: Epoch,
        topic_index: usize,
        queue: MessageQueue,
        step: StartStep,
        now: Instant,
    ) -> Epoch {
        let broker = self.routes.broker(&queue.broker_name);
        let needs_lock = self
            .groups
            .get(group)
            .is_some_and(ConsumerGroup::needs_locks);
        let epoch = self.queues.insert(AssignedQueue::new(
            group,
            topic_index,
            queue.clone(),
            broker,
            step,
            needs_lock.then(|| QueueLock::new(now)),
        ));
        if let Some(group) = self.groups.get_mut(group) {
            let before = group.topics[topic_index].held.insert(queue, epoch);
            debug_assert!(before.is_none(), "one assignment of a queue at a time");
        }
        epoch
    }

    /// RocketMQ: `RebalancePushImpl#messageQueueChanged`.
    fn assignment_changed(&mut self, epoch: Epoch, topic_index: usize, now: Instant) {
        let unix_ms = i64::try_from(self.clock.unix_ms(now)).unwrap_or(i64::MAX);
        if let Some(group) = self.groups.get_mut(epoch) {
            let version = &mut group.topics[topic_index].subscription.sub_version;
            *version = unix_ms.max(*version);
        }
        self.announce_again();
    }
}
