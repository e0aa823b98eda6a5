//! Offsets: finished up to where, told to the broker up to where. They move nowhere else.
//!
//! What is finished is what the ProcessQueue says, or, when it is empty, the next offset
//! to be pulled. It never goes back within an assignment. The broker hears of it with
//! every pull, every 5 s when it changed, and, with an answer awaited, when the queue
//! leaves us.
//!
//! RocketMQ: `RemoteBrokerOffsetStore`.

mod illegal;
mod start;

pub(crate) use start::{Start, StartStep};

use std::sync::Arc;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::Phase;
use crate::planted_bugs::PlantedBug;
use crate::request::{Destination, Request, RequestError, RequestId};
use crate::timers::{PERSIST_OFFSETS, Timer, timeout};

/// What of a queue is finished and what the broker knows of it.
#[derive(Debug, Default)]
pub(crate) struct CommitState {
    /// Everything below is finished. `None` before the queue was started.
    finished: Option<QueueOffset>,
    /// What the broker has confirmed.
    confirmed: Option<QueueOffset>,
    /// The commit under way.
    request: Option<RequestId>,
    /// It stands in the client's list of changed queues.
    listed: bool,
    failing: bool,
}

impl CommitState {
    pub(crate) fn finished(&self) -> Option<QueueOffset> {
        self.finished
    }

    pub(crate) fn confirmed(&self) -> Option<QueueOffset> {
        self.confirmed
    }

    /// The start of an assignment.
    pub(crate) fn begin(&mut self, offset: QueueOffset) {
        debug_assert!(self.finished.is_none(), "a queue begins once");
        self.finished = Some(offset);
        self.confirmed = Some(offset);
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
        debug_assert!(Some(offset) <= self.finished, "confirmed beyond finished");
        self.confirmed = self.confirmed.max(Some(offset));
        self.failing = false;
    }

    /// What the broker does not know.
    fn unconfirmed(&self) -> Option<QueueOffset> {
        self.finished.filter(|_| self.finished > self.confirmed)
    }
}

/// A queue that is no longer ours and whose last offset is on its way.
#[derive(Debug)]
pub(crate) struct Release {
    group: Epoch,
    queue: MessageQueue,
    /// To be sent once the commit before it was answered.
    next: Option<QueueOffset>,
    sent: QueueOffset,
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
        if !queue.commit.advance(finished) || queue.commit.listed {
            return;
        }
        queue.commit.listed = true;
        self.changed_offsets.push(epoch);
        if !self.timers.is_set(Timer::PersistOffsets) {
            self.timers
                .set(Timer::PersistOffsets, now + PERSIST_OFFSETS);
        }
    }

    /// Tells the brokers what changed and was not told with a pull.
    pub(crate) fn persist_offsets(&mut self, now: Instant) {
        let mut changed = std::mem::take(&mut self.changed_offsets);
        changed.retain(|&epoch| self.commit_changed(epoch));
        self.changed_offsets = changed;
        if !self.changed_offsets.is_empty() {
            self.timers
                .set(Timer::PersistOffsets, now + PERSIST_OFFSETS);
        }
    }

    /// False when there is nothing left to tell.
    fn commit_changed(&mut self, epoch: Epoch) -> bool {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return false;
        };
        let Some(offset) = queue.commit.unconfirmed() else {
            queue.commit.listed = false;
            return false;
        };
        if queue.commit.request.is_some() {
            return true;
        }
        let (group, broker, queue) = (queue.group, queue.broker, queue.queue.clone());
        let purpose = Purpose::Commit(epoch, offset);
        if let Some(id) = self.request_commit(purpose, group, broker, queue, offset)
            && let Some(queue) = self.queues.get_mut(epoch)
        {
            queue.commit.request = Some(id);
        }
        true
    }

    pub(crate) fn request_commit(
        &mut self,
        purpose: Purpose,
        group: Epoch,
        broker: crate::route::BrokerId,
        queue: MessageQueue,
        commit_offset: QueueOffset,
    ) -> Option<RequestId> {
        let replica = self.routes.master_or_any(broker)?;
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
        offset: QueueOffset,
        result: Result<(), RequestError>,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        queue.commit.request = None;
        match result {
            Ok(()) => queue.commit.confirm(offset),
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

    /// A queue is no longer ours: forgets it, with a last commit of what is finished.
    /// Whatever comes of it later finds no epoch. Until the broker has answered, the
    /// queue is not taken again: the commit would come after the question for it.
    pub(crate) fn release_queue(&mut self, epoch: Epoch) {
        let Some(queue) = self.forget_queue(epoch) else {
            return;
        };
        if self.has_bug(PlantedBug::ForgetFinalCommit) {
            return;
        }
        let unconfirmed = queue.commit.unconfirmed();
        // A commit under way must not arrive after the last one.
        let under_way = queue.commit.request.and_then(|id| {
            let in_flight = self.in_flight.get(id.0)?;
            match in_flight.purpose {
                Purpose::Commit(_, offset) => Some((id, offset)),
                _ => None,
            }
        });
        if let Some((id, sent)) = under_way {
            let release = self.releases.insert(Release {
                group: queue.group,
                queue: queue.queue.clone(),
                next: unconfirmed.filter(|&offset| offset > sent),
                sent,
            });
            if let Some(in_flight) = self.in_flight.get_mut(id.0) {
                in_flight.purpose = Purpose::FinalCommit(release);
            }
            self.note_releasing(queue.group, queue.queue);
        } else if let Some(offset) = unconfirmed {
            let release = self.releases.insert(Release {
                group: queue.group,
                queue: queue.queue.clone(),
                next: Some(offset),
                sent: offset,
            });
            self.note_releasing(queue.group, queue.queue);
            self.commit_last(release);
        }
    }

    /// Takes a queue out of every table. Its calls and send-backs find it gone.
    pub(crate) fn forget_queue(&mut self, epoch: Epoch) -> Option<crate::group::AssignedQueue> {
        let queue = self.queues.remove(epoch)?;
        for timer in crate::group::AssignedQueue::timers(epoch) {
            self.timers.cancel(timer);
        }
        self.give_memory_back(queue.process_queue.held_bytes());
        if let Some(group) = self.groups.get_mut(queue.group) {
            group.topics[queue.topic_index].held.remove(&queue.queue);
            if let Some(offset) = queue.commit.confirmed() {
                group.last_committed.insert(queue.queue.clone(), offset);
            }
        }
        Some(queue)
    }

    fn note_releasing(&mut self, group: Epoch, queue: MessageQueue) {
        if let Some(group) = self.groups.get_mut(group) {
            group.releasing.insert(queue);
        }
    }

    /// Sends what is left to commit. The group, when nobody can be asked: the release has
    /// ended.
    fn commit_last(&mut self, epoch: Epoch) -> Option<Epoch> {
        let release = self.releases.get_mut(epoch)?;
        let offset = release.next.take()?;
        release.sent = offset;
        let (group, queue) = (release.group, release.queue.clone());
        let id = self
            .routes
            .broker_id(&queue.broker_name)
            .and_then(|broker| {
                self.request_commit(Purpose::FinalCommit(epoch), group, broker, queue, offset)
            });
        if id.is_none() {
            let error = RequestError::Unreachable {
                reason: "no address of the broker is known".to_owned(),
            };
            return self.end_release(epoch, Err(error));
        }
        None
    }

    pub(crate) fn handle_final_commit(
        &mut self,
        epoch: Epoch,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let more = self
            .releases
            .get(epoch)
            .is_some_and(|release| release.next.is_some());
        let ended = match more {
            true => self.commit_last(epoch),
            false => self.end_release(epoch, result),
        };
        if let Some(group) = ended {
            self.rebalance_soon(group, now);
            self.leave_further(group);
        }
    }

    /// Nobody tries again: the next owner may have committed more since.
    fn end_release(&mut self, epoch: Epoch, result: Result<(), RequestError>) -> Option<Epoch> {
        let release = self.releases.remove(epoch)?;
        let group = self.groups.get_mut(release.group)?;
        group.releasing.remove(&release.queue);
        if let Err(error) = result {
            self.events.push_back(Event::CommitFailed {
                consumer_group: Arc::clone(&group.name),
                queue: release.queue,
                offset: release.sent,
                last: true,
                error,
            });
        }
        Some(release.group)
    }

    /// Messages of the queue are being pulled or held back: it has begun.
    pub(crate) fn is_started(&self, epoch: Epoch) -> bool {
        let queue = self.queues.get(epoch);
        queue.is_some_and(|queue| matches!(queue.phase, Phase::Pulling(_)))
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
