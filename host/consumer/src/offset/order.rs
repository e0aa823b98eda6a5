//! Offsets of a queue reach the broker's store in the order in which they are told.
//!
//! RocketMQ does what a client asks on several threads: commits on those of one pool,
//! pulls, which carry offsets, on those of another. What was held up on its way arrives at
//! once and is stored in any order, so that a committed offset steps back (seen on 5.5.0,
//! by a whole pull). So nothing is told while something older may still be on its way:
//! pulls carry nothing then, and the timer's commit waits until the broker has answered
//! a later request, which shows that it has read the older one, and a moment longer.
//! When nothing else is asked of the broker, it is asked what is committed.
//!
//! Differs from RocketMQ, where pulls and the timer tell what they have.

use std::time::Duration;

use protocol::Instant;

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::group::AssignedQueue;
use crate::planted_bugs::PlantedBug;
use crate::request::{RequestError, RequestId};
use crate::route::Replica;
use crate::timers::Timer;

/// How long a broker's thread may take from reading a request to having done it. Java's
/// collector stops all threads alike; this is for one that waits for its turn.
const DONE_AFTER_READ: Duration = Duration::from_millis(500);

/// What was last told of a queue, until it is known to be stored, or lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling {
    request: RequestId,
    /// Who was told.
    peer: Epoch,
    /// The request's place among all of this client.
    number: u64,
    /// It was read, or its connection is gone: by this time it is done.
    settles_at: Option<Instant>,
}

/// Whether something may be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Free,
    /// From this time on.
    FreeAt(Instant),
    /// When the broker has answered a later request.
    Taken,
}

impl Client {
    /// A request of ours tells an offset of the queue.
    pub(crate) fn begin_telling(&mut self, epoch: Epoch, request: RequestId) {
        let Some(in_flight) = self.in_flight.get(request.0) else {
            return;
        };
        let (peer, number) = (in_flight.peer, in_flight.number);
        if let (Some(queue), Some(peer)) = (self.queues.get_mut(epoch), peer) {
            queue.commit.telling = Some(Telling {
                request,
                peer,
                number,
                settles_at: None,
            });
        }
    }

    /// What came of it.
    pub(crate) fn end_telling(
        &mut self,
        epoch: Epoch,
        request: RequestId,
        error: Option<&RequestError>,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(telling) = &mut queue.commit.telling else {
            return;
        };
        if telling.request != request {
            return;
        }
        match error {
            // It may still be on its way.
            Some(RequestError::Timeout) => {}
            // What the broker has received of the connection it still reads.
            Some(RequestError::Disconnected { .. }) => {
                telling.settles_at = Some(now + DONE_AFTER_READ);
            }
            None
            | Some(
                RequestError::Refused { .. }
                | RequestError::Malformed { .. }
                | RequestError::Unreachable { .. },
            ) => queue.commit.telling = None,
        }
    }

    /// Whether this peer may be told an offset of the queue now.
    pub(super) fn way_to_store(&mut self, epoch: Epoch, peer: Epoch, now: Instant) -> Way {
        if self.has_bug(PlantedBug::TellOutOfOrder) {
            return Way::Free;
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return Way::Free;
        };
        // What a slave was told its master corrects.
        let Some(telling) = queue.commit.telling.as_mut().filter(|t| t.peer == peer) else {
            return Way::Free;
        };
        let at = match telling.settles_at {
            Some(at) => at,
            None => {
                let peer = self.routes.peers.get(peer);
                if peer.is_some_and(|peer| peer.answered < telling.number) {
                    return Way::Taken;
                }
                let at = now + DONE_AFTER_READ;
                telling.settles_at = Some(at);
                at
            }
        };
        if at > now {
            return Way::FreeAt(at);
        }
        queue.commit.telling = None;
        Way::Free
    }

    /// Whether a pull may carry an offset.
    pub(crate) fn may_carry(&mut self, epoch: Epoch, peer: Epoch, now: Instant) -> bool {
        self.way_to_store(epoch, peer, now) == Way::Free
    }

    /// Whether what was last told of a queue that goes may come after what is told next.
    /// Not a commit under way: that is waited for.
    pub(super) fn may_come_later(&self, queue: &AssignedQueue) -> bool {
        let Some(telling) = &queue.commit.telling else {
            return false;
        };
        let peer = self.routes.peers.get(telling.peer);
        queue.commit.request != Some(telling.request)
            && self.routes.is_master(queue.broker, Some(telling.peer))
            && telling.settles_at.is_none()
            && peer.is_some_and(|peer| peer.answered < telling.number)
            && !self.has_bug(PlantedBug::TellOutOfOrder)
    }

    /// Asks for an answer that shows that everything older was read; one at a time of each
    /// peer.
    pub(super) fn ask_for_order(&mut self, epoch: Epoch, replica: Replica) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        let peer = replica.peer;
        let is_asked = self.routes.peers.get(peer).is_none_or(|peer| peer.is_asked);
        if is_asked {
            return;
        }
        let (group, message_queue) = (queue.group, queue.queue.clone());
        let asked = self.request_look(Purpose::Order(peer), group, replica, message_queue);
        if let Some(peer) = self.routes.peers.get_mut(peer) {
            peer.is_asked = asked.is_some();
        }
    }

    /// It was answered, or not: what waits looks again.
    pub(crate) fn handle_order(&mut self, peer: Epoch, was_answered: bool, now: Instant) {
        if let Some(peer) = self.routes.peers.get_mut(peer) {
            peer.is_asked = false;
        }
        // Else the next round asks again.
        if was_answered && !self.changed_offsets.is_empty() {
            self.timers.set_earliest(Timer::PersistOffsets, now);
        }
    }
}
