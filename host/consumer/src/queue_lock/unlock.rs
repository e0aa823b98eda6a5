//! The end of a lock that we give back: after the last commit of its queue was answered,
//! after any call of it, be it one whose answer no longer counts, and after any request
//! for it, which would take the lock again.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::{Instant, MessageQueue};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::planted_bugs::PlantedBug;
use crate::request::{Destination, Request, RequestError};
use crate::route::Replica;
use crate::timers::{Timer, UNLOCK_RETRY, timeout};

/// So often a broker is told; then the lock ends by itself, within a minute.
const UNLOCK_TRIES_MAX: u32 = 3;

/// How far a release is with its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unlock {
    /// There is none, or it was given back.
    NotNeeded,
    /// The broker was told so often, without success.
    Owed { tries: u32 },
    /// The broker is being told.
    UnderWay { tries: u32 },
}

impl Client {
    /// Tells the broker that a released queue is anybody's. False when nothing will come
    /// back.
    pub(crate) fn unlock(&mut self, release_epoch: Epoch) -> bool {
        let Some(release) = self.releases.get(release_epoch) else {
            return false;
        };
        let Unlock::Owed { tries } = release.unlock else {
            return matches!(release.unlock, Unlock::UnderWay { .. });
        };
        // Its broker has just failed: the timer tells it again.
        if self.timers.is_set(Timer::Unlock(release_epoch)) {
            return true;
        }
        if self.has_bug(PlantedBug::ForgetUnlock) {
            return false;
        }
        let Some(group) = self.groups.get(release.group) else {
            return false;
        };
        // The end of the request or of the call goes on here.
        let called = group.orderly_calls.contains(&release.queue);
        if self.locks.is_asked_for(release.group, &release.queue)
            || (called && !self.has_bug(PlantedBug::UnlockUnderACall))
        {
            return true;
        }
        let request = Request::UnlockBatch {
            client_id: Arc::clone(&self.client_id),
            consumer_group: Arc::clone(&group.name),
            queues: BTreeSet::from([release.queue.clone()]),
        };
        let Ok(replica) = self.who_unlocks(&release.queue) else {
            // That is a try as well, and the timer counts it.
            self.timers
                .set(Timer::Unlock(release_epoch), Instant::ORIGIN);
            return true;
        };
        if let Some(release) = self.releases.get_mut(release_epoch) {
            release.unlock = Unlock::UnderWay { tries: tries + 1 };
        }
        self.request(
            Purpose::Unlock(release_epoch),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::LOCK,
        );
        true
    }

    pub(crate) fn handle_unlocked(
        &mut self,
        release_epoch: Epoch,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let Some(release) = self.releases.get_mut(release_epoch) else {
            return;
        };
        let Unlock::UnderWay { tries } = release.unlock else {
            return;
        };
        match result {
            Ok(()) => {
                release.unlock = Unlock::NotNeeded;
                if let Some(group) = self.groups.get(release.group) {
                    self.events.push_back(Event::QueueUnlocked {
                        consumer_group: Arc::clone(&group.name),
                        queue: release.queue.clone(),
                    });
                }
            }
            Err(error) => {
                self.try_unlock_again(release_epoch, tries, error, now);
                return;
            }
        }
        if let Some(group) = self.release_further(release_epoch) {
            self.release_ended(group, now);
        }
    }

    /// The time has come to tell a broker again.
    pub(crate) fn unlock_due(&mut self, release_epoch: Epoch, now: Instant) {
        let Some(release) = self.releases.get(release_epoch) else {
            return;
        };
        let Unlock::Owed { tries } = release.unlock else {
            return;
        };
        if let Err(error) = self.who_unlocks(&release.queue) {
            self.try_unlock_again(release_epoch, tries + 1, error, now);
        } else if let Some(group) = self.release_further(release_epoch) {
            self.release_ended(group, now);
        }
    }

    fn who_unlocks(&self, queue: &MessageQueue) -> Result<Replica, RequestError> {
        let broker = self.routes.broker_id(&queue.broker_name);
        let master = broker.and_then(|broker| self.routes.master(broker));
        let master = master.ok_or_else(|| RequestError::Unreachable {
            reason: "no master of the broker is known".to_owned(),
        })?;
        match self.refused_until(master.peer) {
            Some((_, words)) => Err(words.clone()),
            None => Ok(master),
        }
    }

    fn try_unlock_again(
        &mut self,
        release_epoch: Epoch,
        tries: u32,
        error: RequestError,
        now: Instant,
    ) {
        if tries < UNLOCK_TRIES_MAX {
            if let Some(release) = self.releases.get_mut(release_epoch) {
                release.unlock = Unlock::Owed { tries };
            }
            let at = now + UNLOCK_RETRY;
            self.timers.set(Timer::Unlock(release_epoch), at);
            return;
        }
        self.unlock_failed(release_epoch, error);
        if let Some(group) = self.release_further(release_epoch) {
            self.release_ended(group, now);
        }
    }

    /// Nobody tells the broker again.
    fn unlock_failed(&mut self, release_epoch: Epoch, error: RequestError) {
        let Some(release) = self.releases.get_mut(release_epoch) else {
            return;
        };
        release.unlock = Unlock::NotNeeded;
        if let Some(group) = self.groups.get(release.group) {
            self.events.push_back(Event::UnlockFailed {
                consumer_group: Arc::clone(&group.name),
                queue: release.queue.clone(),
                error,
            });
        }
    }

    /// A request for locks or a call has ended: releases may have waited for it.
    pub(crate) fn unlock_waiting(&mut self, group: Epoch, now: Instant) {
        if self.releases.is_empty() {
            return;
        }
        let waiting: Vec<Epoch> = self
            .releases
            .iter()
            .filter(|(_, release)| release.group == group && release.waits_for_unlock())
            .map(|(epoch, _)| epoch)
            .collect();
        for release in waiting {
            if let Some(group) = self.release_further(release) {
                self.release_ended(group, now);
            }
        }
    }
}
