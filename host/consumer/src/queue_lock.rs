//! Locks of queues: an orderly group consumes a queue only while the queue's broker says
//! that it is ours.
//!
//! A new assignment asks for its lock before anything else; what is committed is asked
//! after it, since before it another owner may still have moved the offset. All locks of
//! a broker are renewed together every 20 s. A lock counts for 30 s from when it was asked
//! for, half of what brokers grant, so that it ends here before anybody else can get it.
//! A lock that is lost ends the assignment: nothing that was fetched or finished under it
//! is trusted, and a new one begins with the next lock. A queue that leaves us is unlocked
//! after its call has ended and its last commit was answered; until that is answered too
//! we do not ask for it again, so that a late unlock never hits a new lock.
//!
//! RocketMQ: `RebalanceImpl#lockAll`, `RebalanceImpl#lock`, `RebalancePushImpl
//! #removeUnnecessaryMessageQueue`. Differs from RocketMQ: a lost lock drops what was
//! fetched; a renewal that failed is repeated every second, not after 20 s.

mod unlock;

pub(crate) use unlock::Unlock;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{Address, Instant, MessageQueue};

use crate::access;
use crate::client::{Client, Purpose};
use crate::epoch::{Epoch, EpochTable};
use crate::event::{Event, LockLoss, StartPolicy};
use crate::group::{AssignedQueue, ConsumerGroup, Phase};
use crate::listener::{ConsumeMode, MessageModel};
use crate::offset::{Start, StartStep};
use crate::planted_bugs::PlantedBug;
use crate::request::{Destination, Request, RequestError, Response};
use crate::route::BrokerId;
use crate::timers::{
    LOCK_LIVE_TIME, LOCK_RENEWAL, LOCK_RETRY, LOCK_RETRY_WHEN_ERROR, Timer, timeout,
};

/// What is known of the lock of an assignment.
#[derive(Debug)]
pub(crate) struct QueueLock {
    /// When to ask, or to ask again.
    ask_at: Instant,
    /// A request that names it is under way.
    asked: bool,
    /// It was asked for at least once: the broker may have granted it.
    ever_asked: bool,
    /// It is ours until then.
    live_until: Option<Instant>,
    /// Why it is not ours; told once for each reason.
    pub(crate) obstacle: Option<LockObstacle>,
    /// Answers in a row that we may not have it, whoever else has.
    refusals: u32,
}

/// Why a queue has no lock yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LockObstacle {
    /// Another client has it.
    Refused,
    /// The broker could not be asked.
    Failed(String),
}

/// The locks of a client beside those that stand with their queues.
#[derive(Debug, Default)]
pub(crate) struct QueueLocks {
    rounds: EpochTable<LockRound>,
    /// When each lock ends unless it is renewed.
    ends: BTreeSet<(Instant, Epoch)>,
}

/// A request for locks, under way.
#[derive(Debug)]
struct LockRound {
    group: Epoch,
    sent_at: Instant,
    queues: Vec<(Epoch, MessageQueue)>,
}

impl QueueLock {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            ask_at: now,
            asked: false,
            ever_asked: false,
            live_until: None,
            obstacle: None,
            refusals: 0,
        }
    }

    /// The end of its life, if it is or was ours.
    pub(crate) fn live_until(&self) -> Option<Instant> {
        self.live_until
    }

    /// RocketMQ: `ProcessQueue#isLockExpired`, the other way round.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        self.live_until.is_some_and(|until| now < until)
    }

    /// The broker may hold it for us.
    pub(crate) fn needs_unlock(&self) -> bool {
        self.ever_asked
    }

    /// Of the assignment before, of the same queue: what the broker may hold for us stays
    /// owed to it.
    pub(crate) fn inherit(&mut self, before: &Self) {
        self.ever_asked |= before.ever_asked;
    }

    /// It has been ours, as far as we know, since the assignment began.
    pub(crate) fn is_held(&self) -> bool {
        self.live_until.is_some()
    }
}

impl QueueLocks {
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|&(at, _)| at)
    }

    /// The lock of an assignment that is gone.
    pub(crate) fn forget(&mut self, epoch: Epoch, queue: &AssignedQueue) {
        if let Some(until) = queue.lock.as_ref().and_then(|lock| lock.live_until) {
            self.ends.remove(&(until, epoch));
        }
    }

    /// A request under way names the queue.
    pub(crate) fn is_asked_for(&self, group: Epoch, queue: &MessageQueue) -> bool {
        self.rounds
            .iter()
            .any(|(_, round)| round.group == group && round.queues.iter().any(|(_, q)| q == queue))
    }
}

impl ConsumerGroup {
    /// Broadcasting shares no queue with anybody.
    pub(crate) fn needs_locks(&self) -> bool {
        matches!(self.config.mode(), ConsumeMode::Orderly { .. })
            && self.config.message_model() == MessageModel::Clustering
    }
}

impl Client {
    /// A new assignment waits for its lock.
    pub(crate) fn lock_soon(&mut self, group: Epoch, now: Instant) {
        self.timers.set_earliest(Timer::Lock(group), now);
    }

    /// The connection to a broker is gone, and perhaps the broker with its locks, which it
    /// keeps in memory only: they are renewed at once, so that a queue has two owners for
    /// a moment at most.
    pub(crate) fn renew_locks_of(&mut self, address: &Address, now: Instant) {
        let held = self.queues.iter().filter(|(_, queue)| {
            queue.lock.as_ref().is_some_and(QueueLock::is_held)
                && self
                    .routes
                    .master(queue.broker)
                    .is_some_and(|master| master.address == *address)
        });
        let held: Vec<Epoch> = held.map(|(epoch, _)| epoch).collect();
        for epoch in held {
            if let Some(queue) = self.queues.get_mut(epoch)
                && let Some(lock) = &mut queue.lock
            {
                lock.ask_at = now;
                self.timers.set_earliest(Timer::Lock(queue.group), now);
            }
        }
    }

    /// Asks for the locks of a group that are due, all of one broker together.
    pub(crate) fn ask_for_locks(&mut self, group_epoch: Epoch, now: Instant) {
        let Some(group) = self.groups.get(group_epoch) else {
            return;
        };
        // Those on their way out keep theirs until their call has ended.
        let queues: Vec<Epoch> = group
            .held()
            .chain(group.leaving.values().copied())
            .collect();
        let locks = queues.iter().filter_map(|&epoch| {
            let lock = self.queues.get(epoch)?.lock.as_ref()?;
            (!lock.asked).then_some(lock)
        });
        let renews = locks
            .clone()
            .any(|lock| lock.is_held() && lock.ask_at <= now);
        let is_due = |lock: &QueueLock| lock.ask_at <= now || (renews && lock.is_held());
        let next = locks
            .filter(|lock| !is_due(lock))
            .map(|lock| lock.ask_at)
            .min();
        let mut due: BTreeMap<BrokerId, Vec<(Epoch, MessageQueue)>> = BTreeMap::new();
        for epoch in queues {
            if let Some(queue) = self.queues.get_mut(epoch)
                && let Some(lock) = &mut queue.lock
                && !lock.asked
                && is_due(lock)
            {
                lock.asked = true;
                let of_broker = due.entry(queue.broker).or_default();
                of_broker.push((epoch, queue.queue.clone()));
            }
        }
        if let Some(at) = next {
            self.timers.set_earliest(Timer::Lock(group_epoch), at);
        }
        for (broker, queues) in due {
            self.ask_broker_for_locks(group_epoch, broker, queues, now);
        }
    }

    fn ask_broker_for_locks(
        &mut self,
        group_epoch: Epoch,
        broker: BrokerId,
        queues: Vec<(Epoch, MessageQueue)>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get(group_epoch) else {
            return;
        };
        let Some(replica) = self.routes.master(broker) else {
            let topics: Vec<Epoch> = group.topics.iter().map(|topic| topic.topic).collect();
            for topic in topics {
                self.ask_route(topic);
            }
            let error = RequestError::Unreachable {
                reason: "no master of the broker is known".to_owned(),
            };
            for (epoch, _) in queues {
                self.lock_failed(epoch, &error, now);
            }
            return;
        };
        if let Some((at, words)) = self.refused_until(replica.peer) {
            let obstacle = LockObstacle::Failed(words.to_string());
            let at = at.max(now + LOCK_RETRY_WHEN_ERROR);
            for (epoch, _) in queues {
                self.note_lock_obstacle(epoch, obstacle.clone(), at);
            }
            return;
        }
        let request = Request::LockBatch {
            client_id: Arc::clone(&self.client_id),
            consumer_group: Arc::clone(&group.name),
            queues: queues.iter().map(|(_, queue)| queue.clone()).collect(),
        };
        for &(epoch, _) in &queues {
            if let Some(lock) = self.queues.get_mut(epoch).and_then(|q| q.lock.as_mut()) {
                lock.ever_asked = true;
            }
        }
        let round = self.locks.rounds.insert(LockRound {
            group: group_epoch,
            sent_at: now,
            queues,
        });
        self.request(
            Purpose::Lock(round),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::LOCK,
        );
    }

    pub(crate) fn handle_locked(
        &mut self,
        round: Epoch,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(round) = self.locks.rounds.remove(round) else {
            return;
        };
        let locked = match result {
            Ok(Response::Locked(queues)) => Ok(queues),
            Ok(_) => Err(RequestError::Malformed {
                reason: "not an answer to a request for locks".to_owned(),
            }),
            Err(error) => Err(error),
        };
        for (epoch, queue) in &round.queues {
            match &locked {
                Ok(locked) if locked.contains(queue) => {
                    self.lock_granted(*epoch, round.sent_at, now);
                }
                Ok(_) if self.has_bug(PlantedBug::ConsumeWithoutLock) => {
                    self.lock_granted(*epoch, round.sent_at, now);
                }
                Ok(_) => self.lock_refused(*epoch, now),
                Err(error) => self.lock_failed(*epoch, error, now),
            }
        }
        self.unlock_waiting(round.group, now);
    }

    fn lock_granted(&mut self, epoch: Epoch, sent_at: Instant, now: Instant) {
        let until = sent_at + LOCK_LIVE_TIME;
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(lock) = &mut queue.lock else {
            return;
        };
        lock.asked = false;
        // An answer that took so long says nothing any more.
        if until <= now {
            lock.ask_at = now;
            let group = queue.group;
            self.lock_soon(group, now);
            return;
        }
        lock.obstacle = None;
        lock.refusals = 0;
        lock.ask_at = sent_at + LOCK_RENEWAL;
        if let Some(before) = lock.live_until.replace(until) {
            self.locks.ends.remove(&(before, epoch));
        }
        self.locks.ends.insert((until, epoch));
        let (group_epoch, ask_at) = (queue.group, lock.ask_at);
        self.timers.set_earliest(Timer::Lock(group_epoch), ask_at);
        let Phase::Locking(step) = queue.phase else {
            return;
        };
        queue.phase = Phase::Starting(Start::new(step));
        let message_queue = queue.queue.clone();
        if let Some(group) = self.groups.get(queue.group) {
            self.events.push_back(Event::QueueLocked {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
            });
        }
        if self.has_bug(PlantedBug::OffsetBeforeLock)
            && let Some(group) = self.groups.get(group_epoch)
            && let Some(&offset) = group.last_committed.get(&message_queue)
        {
            self.start_pulling(epoch, offset, StartPolicy::Committed, now);
            return;
        }
        // Unless what the assignment before may still store is waited for.
        if !self.timers.is_set(Timer::Queue(epoch)) {
            self.go_on_starting(epoch, now);
        }
    }

    fn lock_refused(&mut self, epoch: Epoch, now: Instant) {
        let lock = self.queues.get_mut(epoch).and_then(|q| q.lock.as_mut());
        let Some(lock) = lock else {
            return;
        };
        lock.refusals = 0;
        if lock.is_held() {
            self.lock_lost(epoch, LockLoss::Refused, now);
            return;
        }
        let pause = if self.has_bug(PlantedBug::RefusedLockWaits) {
            LOCK_RENEWAL
        } else {
            LOCK_RETRY
        };
        self.note_lock_obstacle(epoch, LockObstacle::Refused, now + pause);
    }

    fn lock_failed(&mut self, epoch: Epoch, error: &RequestError, now: Instant) {
        let lock = self.queues.get_mut(epoch).and_then(|q| q.lock.as_mut());
        let Some(lock) = lock else {
            return;
        };
        let delay = if error.is_access_refused() {
            lock.refusals += 1;
            access::pause(lock.refusals)
        } else {
            LOCK_RETRY_WHEN_ERROR
        };
        let obstacle = LockObstacle::Failed(error.to_string());
        self.note_lock_obstacle(epoch, obstacle, now + delay);
    }

    /// A broker that refused us takes our heartbeats: locks that could not be asked for
    /// need not wait for their time.
    pub(crate) fn ask_for_failed_locks(&mut self, now: Instant) {
        let waiting = self.queues.iter().filter(|(_, queue)| {
            let lock = queue.lock.as_ref();
            lock.is_some_and(|lock| matches!(lock.obstacle, Some(LockObstacle::Failed(_))))
        });
        let waiting: Vec<Epoch> = waiting.map(|(epoch, _)| epoch).collect();
        for epoch in waiting {
            if let Some(queue) = self.queues.get_mut(epoch)
                && let Some(lock) = &mut queue.lock
            {
                lock.ask_at = now;
                self.timers.set_earliest(Timer::Lock(queue.group), now);
            }
        }
    }

    fn note_lock_obstacle(&mut self, epoch: Epoch, obstacle: LockObstacle, ask_at: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(lock) = &mut queue.lock else {
            return;
        };
        lock.asked = false;
        lock.ask_at = ask_at;
        self.timers.set_earliest(Timer::Lock(queue.group), ask_at);
        if lock.obstacle.as_ref() == Some(&obstacle) {
            return;
        }
        if let Some(group) = self.groups.get(queue.group) {
            let consumer_group = Arc::clone(&group.name);
            let queue = queue.queue.clone();
            self.events.push_back(match &obstacle {
                LockObstacle::Refused => Event::QueueLockRefused {
                    consumer_group,
                    queue,
                },
                LockObstacle::Failed(error) => Event::QueueLockFailed {
                    consumer_group,
                    queue,
                    error: error.clone(),
                },
            });
        }
        lock.obstacle = Some(obstacle);
    }

    /// Ends the assignments whose lock has ended. Before any input is looked at: time may
    /// have passed unnoticed.
    pub(crate) fn end_expired_locks(&mut self, now: Instant) {
        while let Some(&(until, epoch)) = self.locks.ends.first()
            && until <= now
        {
            self.locks.ends.pop_first();
            if self.has_bug(PlantedBug::TrustExpiredLock) {
                let lock = self.queues.get_mut(epoch).and_then(|q| q.lock.as_mut());
                if let Some(lock) = lock {
                    lock.live_until = Some(now + LOCK_LIVE_TIME * 1000);
                }
                continue;
            }
            self.lock_lost(epoch, LockLoss::Expired, now);
        }
    }

    /// Nothing of the assignment counts any more. The next one begins with a lock.
    fn lock_lost(&mut self, epoch: Epoch, loss: LockLoss, now: Instant) {
        let leftovers = self.leftovers(epoch);
        let (Some(queue), Some(leftovers)) = (self.forget_queue(epoch), leftovers) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        self.events.push_back(Event::QueueLockLost {
            consumer_group: Arc::clone(&group.name),
            queue: queue.queue.clone(),
            loss,
        });
        if group.life.stays() && !queue.is_leaving() {
            // An operator's word is not forgotten with the lock.
            let step = queue
                .unstored_word()
                .map_or(StartStep::Committed, |(offset, how)| {
                    StartStep::Commit(offset, how)
                });
            self.assign_again(queue, step, leftovers, None, now);
        } else {
            let group = queue.group;
            self.release_uncommitted(queue);
            self.release_ended(group, now);
        }
    }
}
