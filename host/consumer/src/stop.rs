//! The ordered end of a group, and of the client.
//!
//! No more pulls, no more calls; wait for the calls and send-backs under way; store the
//! last offsets, give back the locks, and wait for the answers; no more heartbeats, and wait for those under
//! way; tell the brokers; gone. Whoever cannot wait for
//! a call any longer answers for it that nothing happened. Offsets are stored before the
//! brokers hear of the end: another member may ask for them at once.
//!
//! RocketMQ: `DefaultMQPushConsumerImpl#shutdown`, with the order that its clients mean.

use std::sync::Arc;

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::{Life, Phase};
use crate::heartbeat::CLIENT_INNER_PRODUCER_GROUP;
use crate::pull::Pull;
use crate::pull_task::run::Task;
use crate::request::{Destination, Request, RequestError};
use crate::timers::{Timer, Timers, timeout};

/// So often a broker is told that a group has left.
const UNREGISTER_TRIES_MAX: u32 = 3;

impl Client {
    /// A group begins to leave.
    pub(crate) fn leave(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if !group.life.stays() {
            return;
        }
        group.life = Life::Draining;
        group.ready.clear();
        self.timers.cancel(Timer::Rebalance(epoch));
        self.timers.cancel(Timer::Compare(epoch));
        self.forget_direct_calls(epoch);
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let held: Vec<Epoch> = group.held().collect();
        for queue_epoch in held {
            for timer in crate::group::AssignedQueue::timers(queue_epoch) {
                self.timers.cancel(timer);
            }
            let Some(queue) = self.queues.get_mut(queue_epoch) else {
                continue;
            };
            queue.is_ready = false;
            match &mut queue.phase {
                // Nothing was begun, nothing is to be committed.
                Phase::Locking(_) | Phase::Starting(_) => {
                    self.release_queue(queue_epoch);
                }
                // The answer under way is thrown away when it comes.
                Phase::Pulling(Pull::InFlight { .. }) => {}
                Phase::Pulling(pull) => *pull = Pull::Stopped,
                // The run under way is awaited, as every call is.
                Phase::Task(Task::Running) => {}
                Phase::Task(task) => *task = Task::Stopped,
            }
        }
        self.leave_further(epoch);
    }

    /// Goes on with a group's end as far as possible.
    pub(crate) fn leave_further(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if group.life == Life::Draining && group.calls == 0 && group.send_backs == 0 {
            group.life = Life::Committing;
            let held: Vec<Epoch> = group.held().collect();
            for queue in held {
                self.release_queue(queue);
            }
        }
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if group.life == Life::Committing && !group.has_stored_offsets() {
            self.local_offsets_due.insert(epoch);
        }
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if group.life == Life::Committing && group.has_stored_offsets() {
            group.life = Life::Silent {
                from_version: self.announcement.next(),
            };
        }
        if let Life::Silent { from_version } = group.life {
            let named_in = group.since_version..from_version;
            if !self.routes.is_heartbeat_under_way(&named_in) {
                group.life = Life::Unregistering;
                self.unregister(epoch);
            }
        }
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        if group.life == Life::Unregistering && group.unregistering == 0 {
            self.forget_group(epoch);
        }
    }

    /// Goes on with groups that wait for the heartbeats that name them.
    pub(crate) fn leave_after_heartbeat(&mut self) {
        let silent: Vec<Epoch> = self
            .groups
            .iter()
            .filter(|(_, group)| matches!(group.life, Life::Silent { .. }))
            .map(|(epoch, _)| epoch)
            .collect();
        for group in silent {
            self.leave_further(group);
        }
    }

    /// Tells every broker that may know the group, those whose answer to the heartbeat was
    /// lost among them. The last group takes our name as a sender
    /// with it.
    fn unregister(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.get(epoch) else {
            return;
        };
        let since = group.since_version;
        let peers: Vec<_> = self
            .routes
            .peers
            .iter()
            .filter(|(_, peer)| peer.announced >= since)
            .map(|(epoch, _)| epoch)
            .collect();
        let count = peers.len();
        for peer in peers {
            self.unregister_from(epoch, peer, 0);
        }
        if let Some(group) = self.groups.get_mut(epoch) {
            group.unregistering = u32::try_from(count).unwrap_or(u32::MAX);
        }
    }

    /// False when there is nobody to tell.
    fn unregister_from(&mut self, epoch: Epoch, peer_epoch: Epoch, tries: u32) -> bool {
        let (Some(group), Some(peer)) = (self.groups.get(epoch), self.routes.peers.get(peer_epoch))
        else {
            return false;
        };
        let others = self
            .groups
            .iter()
            .any(|(other, group)| other != epoch && group.life.is_announced());
        let request = Request::UnregisterClient {
            client_id: Arc::clone(&self.client_id),
            consumer_group: Some(Arc::clone(&group.name)),
            producer_group: (!others).then(|| CLIENT_INNER_PRODUCER_GROUP.into()),
        };
        let address = peer.address.clone();
        self.request(
            Purpose::Unregister(epoch, peer_epoch, tries),
            Destination::Broker(address),
            Some(peer_epoch),
            request,
            timeout::UNREGISTER,
        );
        true
    }

    /// A broker that does not hear of the end keeps a silent member, whose share of the
    /// queues nobody reads: it is told again. Not when the connection is gone, or is about
    /// to be: that ends the membership too.
    pub(crate) fn handle_unregistered(
        &mut self,
        epoch: Epoch,
        peer: Epoch,
        tries: u32,
        result: &Result<(), RequestError>,
    ) {
        let unheard = matches!(
            result,
            Err(RequestError::Timeout
                | RequestError::Refused { .. }
                | RequestError::Malformed { .. })
        );
        if unheard
            && !self.stopping
            && tries + 1 < UNREGISTER_TRIES_MAX
            && self.unregister_from(epoch, peer, tries + 1)
        {
            return;
        }
        if let Some(group) = self.groups.get_mut(epoch) {
            group.unregistering -= 1;
            self.leave_further(epoch);
        }
    }

    fn forget_group(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.remove(epoch) else {
            return;
        };
        debug_assert!(group.held().next().is_none(), "a group left with queues");
        debug_assert!(group.leaving.is_empty(), "a group left with a call");
        self.timers.cancel(Timer::Lock(epoch));
        self.timers.cancel(Timer::Hold(epoch));
        self.group_names.remove(&group.name);
        debug_assert_eq!(group.memory.held_bytes(), 0, "a group left with messages");
        self.forget_memory_of(epoch);
        for topic in &group.topics {
            if let Some(route) = self.routes.topics.get_mut(topic.topic) {
                route.subscribers.retain(|&subscriber| subscriber != epoch);
                if route.subscribers.is_empty() {
                    self.timers.cancel(Timer::Route(topic.topic));
                }
            }
            self.routes.forget_if_unused(topic.topic);
        }
        self.announce_change();
        self.events.push_back(Event::GroupLeft {
            consumer_group: group.name,
        });
    }

    /// Says once that everything has ended.
    pub(crate) fn tell_when_stopped(&mut self) {
        if self.stopping && !self.stopped && self.groups.is_empty() && self.sends.is_empty() {
            self.stopped = true;
            self.timers = Timers::default();
            self.events.push_back(Event::Stopped);
        }
    }
}
