//! Offsets: finished up to where, told to the broker up to where. They move nowhere else.
//!
//! What is finished is what the ProcessQueue says, or, when it is empty, the next offset
//! to be pulled. It never goes back within an assignment. The broker hears of it with
//! every pull, every 5 s when it changed, and, with an answer awaited, when the queue
//! leaves us.
//!
//! RocketMQ: `RemoteBrokerOffsetStore`.

mod illegal;
mod order;
mod release;
mod reset;
mod second_look;
mod seek;
mod start;

pub(crate) use release::Release;
pub use seek::{SeekError, SeekFailure, SeekForward, SeekId, SeekTo, Sought};
pub(crate) use seek::{Seeking, Seeks};
pub(crate) use start::{Start, StartStep, none_on_a_slave};

use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::access;
use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, Step};
use crate::planted_bugs::PlantedBug;
use crate::request::{Destination, Request, RequestError, RequestId};
use crate::route::Replica;
use crate::timers::{PERSIST_OFFSETS, Timer, timeout};
use order::{Telling, Way};
use second_look::Contest;

/// What of a queue is finished and what the broker knows of it.
#[derive(Debug, Default)]
pub(crate) struct CommitState {
    /// Everything below is finished. `None` before the queue was started.
    finished: Option<QueueOffset>,
    /// What the broker has confirmed.
    confirmed: Option<QueueOffset>,
    /// The commit under way.
    request: Option<RequestId>,
    /// What was told last, by a commit or by a pull, and may not be stored yet.
    telling: Option<Telling>,
    /// It stands in the client's list of changed queues.
    listed: bool,
    failing: bool,
    /// Whether another member may have committed.
    contest: Contest,
    /// Refusals in a row to tell us.
    look_refusals: u32,
    /// The next confirmation is not believed: it may be of the group's first offset of the
    /// topic. RocketMQ's broker makes the table for these without a lock, so of first
    /// offsets that come at once one may be confirmed and lost.
    doubts_next: bool,
    /// It is told once more, confirmed or not.
    is_repeated: bool,
}

impl CommitState {
    pub(crate) fn finished(&self) -> Option<QueueOffset> {
        self.finished
    }

    pub(crate) fn confirmed(&self) -> Option<QueueOffset> {
        self.confirmed
    }

    pub(crate) fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// A planted bug's way to move it.
    pub(crate) fn force(&mut self, offset: QueueOffset) {
        self.finished = Some(offset);
        self.confirmed = Some(offset);
    }

    /// The start of an assignment.
    pub(crate) fn begin(&mut self, offset: QueueOffset) {
        debug_assert!(self.finished.is_none(), "a queue begins once");
        self.finished = Some(offset);
        self.confirmed = Some(offset);
    }

    /// The start of an assignment of which nothing was stored, and this is by now: it is
    /// told once more in a while, see `doubts_next`.
    fn begin_chosen(&mut self, offset: QueueOffset) {
        self.begin(offset);
        self.is_repeated = true;
    }

    /// What the broker does not know, or is told once more. With others in the group what
    /// it knows was looked up.
    pub(crate) fn to_be_told(&self) -> Option<QueueOffset> {
        let repeats = self.is_repeated && self.contest == Contest::Alone;
        self.unconfirmed().or(self.finished.filter(|_| repeats))
    }

    /// Says where it stands, also back; returns where it stood.
    fn set(&mut self, offset: QueueOffset) -> Option<QueueOffset> {
        let before = self.finished.replace(offset);
        if before.is_none() {
            self.doubts_next = true;
        }
        if before > self.finished {
            // Whatever the broker has, it is not this.
            self.confirmed = None;
            self.contest = Contest::Alone;
        }
        before
    }

    /// Moves on, never back. True when it moved.
    fn advance(&mut self, offset: QueueOffset) -> bool {
        let moves = self.finished.is_some_and(|finished| offset > finished);
        if moves {
            self.finished = Some(offset);
        }
        moves
    }

    /// The broker has stored this.
    pub(crate) fn confirm(&mut self, offset: QueueOffset) {
        self.failing = false;
        self.is_repeated = false;
        let is_doubted = std::mem::take(&mut self.doubts_next);
        // Beyond only when it was set back since it was sent.
        if !is_doubted && Some(offset) <= self.finished {
            self.confirmed = self.confirmed.max(Some(offset));
        }
    }

    /// What the broker does not know.
    fn unconfirmed(&self) -> Option<QueueOffset> {
        let known = self.confirmed.max(self.contest.known());
        self.finished.filter(|_| self.finished > known)
    }

    /// What a pull commits on its way. Alone in the group it is told again and again, so
    /// that a broker that has lost its offsets gets them back; with others it must be news.
    pub(crate) fn carried_by_pull(&self) -> Option<QueueOffset> {
        match self.contest {
            Contest::Alone => self.finished,
            Contest::Known(_) => self.unconfirmed(),
            Contest::Due(_) | Contest::Asked => None,
        }
    }

    /// Another member may have committed: it is asked from this time on.
    fn contest(&mut self, from: Instant) {
        self.contest = Contest::Due(from);
    }

    /// After a look that told nothing.
    fn look_again_after(&mut self, error: Option<&RequestError>) -> Duration {
        if error.is_some_and(RequestError::is_access_refused) {
            self.look_refusals += 1;
            access::pause(self.look_refusals).max(PERSIST_OFFSETS)
        } else {
            PERSIST_OFFSETS
        }
    }

    /// What a slave said may be old.
    pub(crate) fn look_at_master(&mut self, now: Instant) {
        if !self.contest.is_open() {
            self.contest(now);
        }
    }

    /// This is what the broker has.
    fn know(&mut self, known: Option<QueueOffset>) {
        self.contest = Contest::Known(known);
        self.confirmed = known.min(self.finished);
    }

    /// Puts it on the list of changed queues. False when it stands there already, or there
    /// is nothing to tell.
    fn list(&mut self) -> bool {
        self.finished.is_some() && !std::mem::replace(&mut self.listed, true)
    }
}

impl Client {
    /// Messages of a queue were finished, filtered out or skipped: what may be committed
    /// may have moved, and flow control may have ended.
    pub(crate) fn finished(&mut self, epoch: Epoch, now: Instant) {
        self.advance_offset(epoch, now);
        self.end_flow_control(epoch, now);
    }

    fn advance_offset(&mut self, epoch: Epoch, now: Instant) {
        let past_unfinished = self.has_bug(PlantedBug::CommitPastUnfinished);
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let finished = queue.process_queue.head().filter(|_| !past_unfinished);
        let finished = finished.unwrap_or_else(|| {
            let end = queue.process_queue.finished_offset();
            queue.next_offset.max(end.unwrap_or_default())
        });
        if queue.commit.advance(finished) {
            self.offset_changed(epoch, now);
        }
    }

    /// A guest says where the offset of its queue stands. It may go back: that is the
    /// guest's word, and told.
    pub(crate) fn set_offset(&mut self, epoch: Epoch, offset: QueueOffset, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let before = queue.commit.set(offset);
        if let Some(from) = before.filter(|&before| before > offset)
            && let Some(group) = self.groups.get(queue.group)
        {
            self.events.push_back(Event::OffsetSetBack {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                from,
                to: offset,
            });
        }
        self.offset_changed(epoch, now);
    }

    /// What the broker was told may be lost; it is to hear of it again.
    fn tell_again(&mut self, epoch: Epoch, now: Instant) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.commit.is_repeated = true;
        }
        self.offset_changed(epoch, now);
    }

    /// The broker is to hear of it.
    fn offset_changed(&mut self, epoch: Epoch, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if std::mem::replace(&mut queue.commit.listed, true) {
            return;
        }
        self.changed_offsets.push(epoch);
        if !self.timers.is_set(Timer::PersistOffsets) {
            self.timers
                .set(Timer::PersistOffsets, now + PERSIST_OFFSETS);
        }
    }

    /// Tells the brokers what changed and was not told with a pull.
    pub(crate) fn persist_offsets(&mut self, now: Instant) {
        let mut changed = std::mem::take(&mut self.changed_offsets);
        changed.retain(|&epoch| self.commit_changed(epoch, now));
        self.changed_offsets = changed;
        self.store_unstored_local_offsets();
        if !self.changed_offsets.is_empty() {
            self.timers
                .set_earliest(Timer::PersistOffsets, now + PERSIST_OFFSETS);
        }
    }

    /// False when there is nothing left to tell.
    fn commit_changed(&mut self, epoch: Epoch, now: Instant) -> bool {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return false;
        };
        if queue.commit.contest.is_open() {
            self.look_before_commit(epoch, now);
            return true;
        }
        if queue.commit.request.is_some() {
            return true;
        }
        let Some(offset) = queue.commit.to_be_told() else {
            queue.commit.listed = false;
            return false;
        };
        if let Some(group) = self.groups.get(queue.group)
            && group.is_broadcasting()
        {
            let (group, queue) = (queue.group, queue.queue.clone());
            self.note_local_offset(group, queue, offset);
            self.store_local_offsets_soon(group);
            return true;
        }
        let (group, broker, queue) = (queue.group, queue.broker, queue.queue.clone());
        let purpose = Purpose::Commit(epoch, offset);
        let Some(replica) = self.routes.replica_for_read(broker) else {
            return true;
        };
        match self.way_to_store(epoch, replica.peer, now) {
            Way::Free => {}
            Way::FreeAt(at) => {
                self.timers.set_earliest(Timer::PersistOffsets, at);
                return true;
            }
            Way::Taken => {
                self.ask_for_order(epoch, replica);
                return true;
            }
        }
        if let Some(id) = self.request_commit(purpose, group, replica, queue, offset) {
            if let Some(queue) = self.queues.get_mut(epoch) {
                queue.commit.request = Some(id);
            }
            self.begin_telling(epoch, id);
        }
        true
    }

    /// Tells the broker now, unless that has just failed. True when there is nothing to be
    /// told.
    pub(crate) fn commit_at_once(&mut self, epoch: Epoch, now: Instant) -> bool {
        let Some(queue) = self.queues.get(epoch) else {
            return true;
        };
        if queue.commit.to_be_told().is_none() {
            return true;
        }
        // What has just failed is tried again by the next round.
        if !queue.commit.failing {
            self.commit_changed(epoch, now);
        }
        false
    }

    fn request_commit(
        &mut self,
        purpose: Purpose,
        group: Epoch,
        replica: Replica,
        queue: MessageQueue,
        commit_offset: QueueOffset,
    ) -> Option<RequestId> {
        if self.refused_until(replica.peer).is_some() {
            return None;
        }
        let consumer_group = Arc::clone(&self.groups.get(group)?.name);
        Some(self.request(
            purpose,
            Destination::Broker(replica.address),
            Some(replica.peer),
            Request::UpdateConsumerOffset {
                consumer_group,
                queue,
                commit_offset,
            },
            timeout::CONSUMER_OFFSET,
        ))
    }

    pub(crate) fn handle_commit(
        &mut self,
        epoch: Epoch,
        peer: Option<Epoch>,
        offset: QueueOffset,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if let Some(request) = queue.commit.request.take() {
            self.end_telling(epoch, request, result.as_ref().err(), now);
        }
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        match result {
            // What a slave was told is not the master's: it is told again when it is back.
            Ok(()) if self.routes.is_master(queue.broker, peer) => {
                queue.commit.confirm(offset);
                self.tell_step(epoch, Step::OffsetStored { offset });
            }
            Ok(()) => {}
            // It is still listed: the next round tries again.
            Err(error) => {
                if !std::mem::replace(&mut queue.commit.failing, true)
                    && let Some(group) = self.groups.get(queue.group)
                {
                    self.events.push_back(Event::CommitFailed {
                        consumer_group: Arc::clone(&group.name),
                        queue: queue.queue.clone(),
                        offset,
                        last: false,
                        error,
                    });
                }
            }
        }
    }

    /// The bug of that name.
    pub(crate) fn trust_stale_epoch(&mut self, epoch: Epoch, offset: QueueOffset) {
        if self.has_bug(PlantedBug::TrustStaleEpoch)
            && let Some(queue) = self.queues.get_mut(self.queues.in_slot_of(epoch))
        {
            queue.commit.advance(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_never_goes_back_and_is_never_made_up() {
        let mut commit = CommitState::default();
        assert!(!commit.advance(QueueOffset(5)), "not begun");
        assert_eq!(commit.finished(), None);
        commit.begin(QueueOffset(5));
        assert_eq!(commit.unconfirmed(), None);
        assert!(commit.advance(QueueOffset(8)));
        assert!(!commit.advance(QueueOffset(6)));
        assert_eq!(commit.unconfirmed(), Some(QueueOffset(8)));
        commit.confirm(QueueOffset(7));
        commit.confirm(QueueOffset(6));
        assert_eq!(commit.unconfirmed(), Some(QueueOffset(8)));
        commit.confirm(QueueOffset(8));
        assert_eq!(commit.unconfirmed(), None);
    }
}
