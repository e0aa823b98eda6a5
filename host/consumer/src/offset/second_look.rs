//! Looks again at what is committed before the first commit of a queue that another
//! member may have had a moment ago.
//!
//! The broker stores whatever it is told, so two members that each believe a queue to be
//! theirs step its offset back. They do so when a queue changes hands (the old owner's
//! last commit comes after the new owner's question) and after a cut (the broker has
//! forgotten everybody, and whoever returns first sees no one else). Alone in its group a
//! client does not look: nobody else commits.
//!
//! Differs from RocketMQ, which commits what it has; seen there: hundreds of messages
//! committed again after a cut.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, Instant, MessageQueue, QueueOffset};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::listener::ConsumeMode;
use crate::request::{Destination, Request, RequestError, RequestId, Response};
use crate::route::Replica;
use crate::timers::{PULL_DELAY_WHEN_ERROR, Timer, timeout};

/// After a queue was taken: the old owner has been told at the same time, and may wait for
/// the end of its last rebalance (a second) before it gives the queue back.
const SECOND_LOOK_DELAY: Duration = Duration::from_secs(2);

/// After the last change of the members: by then all of them have rebalanced and given
/// back what is not theirs.
const SETTLED: Duration = Duration::from_secs(30);

/// Whether somebody else may have committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Contest {
    /// Nobody else.
    #[default]
    Alone,
    /// Perhaps; asked from this time on.
    Due(Instant),
    /// Asked.
    Asked,
    /// This is what the broker had. Nothing up to it is committed again.
    Known(Option<QueueOffset>),
}

impl Contest {
    /// Whether a commit would be blind.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Due(_) | Self::Asked)
    }

    /// What must not be committed again.
    pub(super) fn known(self) -> Option<QueueOffset> {
        match self {
            Self::Known(offset) => offset,
            Self::Alone | Self::Due(_) | Self::Asked => None,
        }
    }
}

impl Client {
    /// Whether other members may commit offsets of the group's queues. Not when they need
    /// the broker's lock for it; and a guest that sets its offset itself may set it back.
    pub(super) fn is_shared(&self, group: Epoch) -> bool {
        self.groups.get(group).is_some_and(|group| {
            // Of a member beside us with our id only the clash is seen.
            (group.rebalance.members.len() > 1 || group.rebalance.identity_clash)
                && group.config.mode() == ConsumeMode::Concurrently
                && group.config.pull_task_interval().is_none()
                && !group.is_broadcasting()
        })
    }

    /// A queue was taken.
    pub(crate) fn contest_taken(&mut self, epoch: Epoch, now: Instant) {
        let group = self.queues.get(epoch).map(|queue| queue.group);
        if group.is_some_and(|group| self.is_shared(group))
            && let Some(queue) = self.queues.get_mut(epoch)
        {
            queue.commit.contest(now + SECOND_LOOK_DELAY);
        }
    }

    /// The members of a group are known again. Whoever was alone is not any more; and when
    /// all has been quiet for a while, a last commit of somebody else that came late, and
    /// moved what is committed back, is found and told again.
    pub(crate) fn contest_by_members(&mut self, group_epoch: Epoch, changed: bool, now: Instant) {
        let is_shared = self.is_shared(group_epoch);
        let Some(group) = self.groups.get_mut(group_epoch) else {
            return;
        };
        let looks_at = &mut group.rebalance.looks_at;
        let is_settled = !changed && looks_at.is_some_and(|at| at <= now);
        if changed {
            *looks_at = Some(now + SETTLED);
        } else if is_settled {
            *looks_at = None;
        } else {
            return;
        }
        let held: Vec<Epoch> = group.held().collect();
        for epoch in held {
            let Some(queue) = self.queues.get_mut(epoch) else {
                continue;
            };
            let at = match queue.commit.contest {
                // What is being looked up stays so: a slave may have said where it stands.
                open if !is_shared && open.is_open() => continue,
                _ if !is_shared && is_settled => {
                    queue.commit.contest = Contest::Alone;
                    continue;
                }
                Contest::Alone if is_shared => now + SECOND_LOOK_DELAY,
                Contest::Known(_) if is_shared && is_settled => now,
                _ => continue,
            };
            queue.commit.contest(at);
            if queue.commit.list() {
                self.changed_offsets.push(epoch);
            }
            self.timers.set_earliest(Timer::PersistOffsets, at);
        }
    }

    /// The connection to a broker is gone: its queues may be given to others before it
    /// stands again.
    pub(crate) fn contest_disconnected(&mut self, address: &Address, now: Instant) {
        let Some(peer) = self.routes.peer_at(address) else {
            return;
        };
        let mut contested = Vec::new();
        let mut alone = Vec::new();
        for (epoch, queue) in self.queues.iter() {
            let master = self.routes.master(queue.broker);
            if master.is_none_or(|master| master.peer != peer) {
                continue;
            }
            if self.is_shared(queue.group) {
                contested.push(epoch);
            } else {
                alone.push(epoch);
            }
        }
        // What it had may be lost with it, and nobody else will tell it again.
        for epoch in alone {
            let Some(queue) = self.queues.get_mut(epoch) else {
                continue;
            };
            // What is to be asked of its master stays so, and is asked, whether or not
            // there is anything to commit.
            if queue.commit.contest.is_open() {
                self.offset_changed(epoch, now);
                continue;
            }
            queue.commit.contest = Contest::Alone;
            let group = self.groups.get(queue.group);
            // With others a queue may have another owner by now, and has its lock or its
            // guest to say so; what pulls carry is told then, and nothing else.
            if group
                .is_some_and(|group| group.rebalance.members.len() <= 1 && !group.is_broadcasting())
            {
                self.tell_again(epoch, now);
            }
        }
        for epoch in contested {
            if let Some(queue) = self.queues.get_mut(epoch) {
                queue.commit.contest(now);
                if queue.commit.list() {
                    self.changed_offsets.push(epoch);
                }
            }
        }
        if !self.changed_offsets.is_empty() {
            let at = now + PULL_DELAY_WHEN_ERROR;
            self.timers.set_earliest(Timer::PersistOffsets, at);
        }
    }

    /// Asks what is committed, when it is time; the commit waits for the answer.
    pub(super) fn look_before_commit(&mut self, epoch: Epoch, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let at = match queue.commit.contest {
            Contest::Due(at) => at,
            Contest::Alone | Contest::Asked | Contest::Known(_) => return,
        };
        if at > now {
            self.timers.set_earliest(Timer::PersistOffsets, at);
            return;
        }
        let (group, broker, message_queue) = (queue.group, queue.broker, queue.queue.clone());
        let purpose = Purpose::SecondLook(epoch);
        let master = self.routes.master(broker);
        if let Some(master) = master
            && self
                .request_look(purpose, group, master, message_queue)
                .is_some()
            && let Some(queue) = self.queues.get_mut(epoch)
        {
            queue.commit.contest = Contest::Asked;
        }
    }

    /// Asks what the group has committed of a queue by now.
    pub(super) fn request_look(
        &mut self,
        purpose: Purpose,
        group: Epoch,
        replica: Replica,
        queue: MessageQueue,
    ) -> Option<RequestId> {
        if self.refused_until(replica.peer).is_some() {
            return None;
        }
        let consumer_group = Arc::clone(&self.groups.get(group)?.name);
        Some(self.request(
            purpose,
            Destination::Broker(replica.address),
            Some(replica.peer),
            Request::QueryConsumerOffset {
                consumer_group,
                queue,
            },
            timeout::CONSUMER_OFFSET,
        ))
    }

    pub(crate) fn handle_second_look(
        &mut self,
        epoch: Epoch,
        peer: Option<Epoch>,
        result: &Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if queue.commit.contest != Contest::Asked {
            return;
        }
        let next = match result {
            Ok(Response::ConsumerOffset(known)) if self.routes.is_master(queue.broker, peer) => {
                queue.commit.know(*known);
                queue.commit.look_refusals = 0;
                now
            }
            // Not knowing is no reason to commit.
            answer => {
                let at = now + queue.commit.look_again_after(answer.as_ref().err());
                queue.commit.contest(at);
                at
            }
        };
        self.timers.set_earliest(Timer::PersistOffsets, next);
    }
}
