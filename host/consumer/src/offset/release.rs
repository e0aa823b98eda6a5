//! The end of an assignment: its last commit, then its lock.
//!
//! What is finished is told to the master, after whatever commit is still under way, and
//! after a look at what is committed when another member may have come further. Until
//! that is answered the queue is not taken again: the commit would come after the
//! question for it. Nobody tries again what fails: the next owner may have committed more
//! since. Only a slave is told what its master does not take, so that whoever begins before
//! the master is back begins there; that counts as failed.

use std::sync::Arc;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, Step};
use crate::group::{AssignedQueue, ConsumerGroup};
use crate::planted_bugs::PlantedBug;
use crate::queue_lock::Unlock;
use crate::request::{RequestError, Response};
use crate::route::Replica;

/// A queue that is no longer ours, whose last offset is on its way, and then its lock.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) group: Epoch,
    pub(crate) queue: MessageQueue,
    /// To be sent once the commit before it was answered.
    next: Option<QueueOffset>,
    /// Another member may have committed more: to be looked at before `next` is sent.
    look: bool,
    /// What was last told, if anything of this assignment was.
    sent: Option<QueueOffset>,
    /// A commit is under way.
    commits: bool,
    /// The master does not take it: a slave is told, for whoever begins before the master
    /// is back.
    to_slave: bool,
    pub(crate) unlock: Unlock,
}

impl Release {
    pub(crate) fn waits_for_unlock(&self) -> bool {
        !self.commits && self.next.is_none() && matches!(self.unlock, Unlock::Owed { .. })
    }
}

impl Client {
    /// A queue is no longer ours: forgets it, with a last commit of what is finished, and
    /// gives its lock back. Whatever comes of it later finds no epoch. Until the broker
    /// has answered, the queue is not taken again: the commit would come after the
    /// question for it.
    pub(crate) fn release_queue(&mut self, epoch: Epoch) {
        let Some(queue) = self.forget_queue(epoch) else {
            return;
        };
        let forgets = self.has_bug(PlantedBug::ForgetFinalCommit);
        let reset = queue.unstored_reset();
        let unconfirmed = queue.commit.to_be_told().or(reset);
        let unconfirmed = unconfirmed.filter(|_| !forgets);
        if let Some(group) = self.groups.get(queue.group)
            && group.is_broadcasting()
        {
            self.keep_local_offset(queue.group, queue.queue, unconfirmed);
            return;
        }
        // A reset is told whatever others have committed.
        let group = self.groups.get(queue.group);
        // A guest that sets its offset itself may set it back.
        let by_guest = group.is_some_and(ConsumerGroup::is_pull_task);
        // The answer shows, too, that what a pull carries was read.
        let look = reset.is_none()
            && (self.is_shared(queue.group)
                || queue.commit.contest.is_open()
                || !by_guest && self.may_come_later(&queue));
        // A commit under way must not arrive after the last one.
        let request = queue.commit.request.or(queue.awaits_commit);
        let under_way = request.and_then(|id| {
            let in_flight = self.in_flight.get(id.0)?;
            let told = self.routes.is_master(queue.broker, in_flight.peer);
            match in_flight.purpose {
                Purpose::Commit(_, offset) => Some((id, Some(offset).filter(|_| told))),
                Purpose::CommitBefore(_) => Some((id, None)),
                _ => None,
            }
        });
        // What the master is being told of this assignment.
        let sent = under_way.and_then(|(_, sent)| sent);
        let unlock = queue.unlock();
        if unconfirmed.is_none() && under_way.is_none() && unlock == Unlock::NotNeeded {
            if let Some(group) = self.groups.get_mut(queue.group) {
                group.releasing.remove(&queue.queue);
            }
            return;
        }
        let release = self.begin_release(Release {
            group: queue.group,
            next: unconfirmed.filter(|&offset| reset.is_some() || Some(offset) != sent),
            look,
            sent: sent.or(unconfirmed),
            commits: under_way.is_some(),
            to_slave: false,
            unlock,
            queue: queue.queue,
        });
        if let Some((id, _)) = under_way
            && let Some(in_flight) = self.in_flight.get_mut(id.0)
        {
            in_flight.purpose = Purpose::FinalCommit(release);
        }
        self.release_further(release);
    }

    /// The end of a queue without a commit: somebody else may have committed more.
    /// Returns its group when that is all.
    pub(crate) fn release_uncommitted(&mut self, queue: AssignedQueue) -> Option<Epoch> {
        let release = self.begin_release(Release {
            group: queue.group,
            next: None,
            look: false,
            sent: None,
            commits: false,
            to_slave: false,
            unlock: queue.unlock(),
            queue: queue.queue,
        });
        self.release_further(release)
    }

    fn begin_release(&mut self, release: Release) -> Epoch {
        if let Some(group) = self.groups.get_mut(release.group) {
            group.releasing.insert(release.queue.clone());
        }
        self.releases.insert(release)
    }

    /// The next step of a release: its commit, its unlock, its end. Returns its group when
    /// it has ended.
    pub(crate) fn release_further(&mut self, epoch: Epoch) -> Option<Epoch> {
        let release = self.releases.get(epoch)?;
        if release.commits || (release.next.is_some() && self.commit_last(epoch)) {
            return None;
        }
        if self.unlock(epoch) {
            return None;
        }
        let release = self.releases.remove(epoch)?;
        if let Some(group) = self.groups.get_mut(release.group) {
            group.releasing.remove(&release.queue);
        }
        Some(release.group)
    }

    /// A queue of the group may be taken again, by anybody.
    pub(crate) fn release_ended(&mut self, group: Epoch, now: Instant) {
        self.rebalance_soon(group, now);
        self.leave_further(group);
    }

    /// Takes a queue out of every table. Its calls and send-backs find it gone.
    pub(crate) fn forget_queue(&mut self, epoch: Epoch) -> Option<AssignedQueue> {
        let queue = self.queues.remove(epoch)?;
        for timer in AssignedQueue::timers(epoch) {
            self.timers.cancel(timer);
        }
        self.locks.forget(epoch, &queue);
        self.give_memory_back(queue.group, queue.process_queue.held_bytes());
        if let Some(group) = self.groups.get_mut(queue.group) {
            if group.topics[queue.topic_index].is_retry {
                group.returns.forget_expected();
            }
            if queue.is_leaving() {
                group.leaving.remove(&queue.queue);
            } else {
                group.topics[queue.topic_index].held.remove(&queue.queue);
            }
            if let Some(offset) = queue.commit.confirmed() {
                group.last_committed.insert(queue.queue.clone(), offset);
            }
        }
        Some(queue)
    }

    /// False when no answer will come.
    fn commit_last(&mut self, epoch: Epoch) -> bool {
        let Some(release) = self.releases.get_mut(epoch) else {
            return false;
        };
        let Some(offset) = release.next else {
            return false;
        };
        release.sent = Some(offset);
        let look = release.look;
        if !look {
            release.next = None;
        }
        let (group, queue) = (release.group, release.queue.clone());
        let id = self.last_replica(epoch).and_then(|replica| {
            if look {
                self.request_look(Purpose::LastLook(epoch), group, replica, queue)
            } else {
                let purpose = Purpose::FinalCommit(epoch);
                self.request_commit(purpose, group, replica, queue, offset)
            }
        });
        let Some(release) = self.releases.get_mut(epoch) else {
            return false;
        };
        release.commits = id.is_some();
        if id.is_none() {
            release.next = None;
            let error = RequestError::Unreachable {
                reason: "no address of the broker is known, or it refuses us".to_owned(),
            };
            self.last_commit_failed(epoch, error);
        }
        id.is_some()
    }

    /// Who is told the last: the master, after that a slave.
    fn last_replica(&self, epoch: Epoch) -> Option<Replica> {
        let release = self.releases.get(epoch)?;
        let broker = self.routes.broker_id(&release.queue.broker_name)?;
        if release.to_slave {
            self.routes.slave(broker)
        } else {
            self.routes.master_or_any(broker)
        }
    }

    /// True when a slave is to be told what the master did not take.
    fn goes_to_slave(&mut self, epoch: Epoch) -> bool {
        let Some(release) = self.releases.get_mut(epoch) else {
            return false;
        };
        let before = std::mem::replace(&mut release.to_slave, true);
        !before && self.last_replica(epoch).is_some()
    }

    /// What the next owner committed is known, or not.
    pub(crate) fn handle_last_look(
        &mut self,
        epoch: Epoch,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let result = match result {
            Ok(Response::ConsumerOffset(known)) => {
                if let Some(release) = self.releases.get_mut(epoch) {
                    release.look = false;
                    release.next = release.next.filter(|&next| known < Some(next));
                }
                Ok(())
            }
            Ok(_) => Err(RequestError::Malformed {
                reason: "an answer to another question".to_owned(),
            }),
            Err(error) => Err(error),
        };
        let result = result.or_else(|error| {
            // It is looked at there, too.
            if self.goes_to_slave(epoch) {
                return Ok(());
            }
            if let Some(release) = self.releases.get_mut(epoch) {
                release.next = None;
            }
            Err(error)
        });
        self.last_step_ended(epoch, result, now);
    }

    pub(crate) fn handle_final_commit(
        &mut self,
        epoch: Epoch,
        peer: Option<Epoch>,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let Some(release) = self.releases.get(epoch) else {
            return;
        };
        let (sent, is_last) = (release.sent, release.next.is_none());
        let broker = self.routes.broker_id(&release.queue.broker_name);
        let is_slave = broker.is_some_and(|broker| self.routes.is_slave(broker, peer));
        if result.is_ok()
            && !is_slave
            && let Some(offset) = sent
        {
            let (group, queue) = (release.group, release.queue.clone());
            self.tell_last_step(group, &queue, Step::OffsetStored { offset });
        }
        let result = match result {
            Ok(()) if is_slave => Err(RequestError::Unreachable {
                reason: "only a slave could be told, which its master will correct".to_owned(),
            }),
            Err(_) if is_last && !is_slave && sent.is_some() && self.goes_to_slave(epoch) => {
                if let Some(release) = self.releases.get_mut(epoch) {
                    release.next = sent;
                }
                Ok(())
            }
            result => result,
        };
        self.last_step_ended(epoch, result, now);
    }

    /// The last look or the last commit was answered, or not.
    fn last_step_ended(&mut self, epoch: Epoch, result: Result<(), RequestError>, now: Instant) {
        let Some(release) = self.releases.get_mut(epoch) else {
            return;
        };
        release.commits = false;
        if let Err(error) = result
            && release.next.is_none()
        {
            self.last_commit_failed(epoch, error);
        }
        if let Some(group) = self.release_further(epoch) {
            self.release_ended(group, now);
        }
    }

    /// Nobody tries again: the next owner may have committed more since.
    fn last_commit_failed(&mut self, epoch: Epoch, error: RequestError) {
        let Some(release) = self.releases.get(epoch) else {
            return;
        };
        if let Some(offset) = release.sent
            && let Some(group) = self.groups.get(release.group)
        {
            self.events.push_back(Event::CommitFailed {
                consumer_group: Arc::clone(&group.name),
                queue: release.queue.clone(),
                offset,
                last: true,
                error,
            });
        }
    }
}
