//! Groups that consume in order: which run has one, how its listeners answer, and what
//! must hold beside the rest.
//!
//! A message is handed out only when everything before it in its queue is done with; only
//! under a lock that was asked for in the last 30 s; with its failures counted exactly. A
//! queue is unlocked only when nothing of it is under way and all of it is committed, and
//! whoever leaves has unlocked everything.

use std::collections::BTreeSet;
use std::time::Duration;

use consumer::event::Event;
use consumer::listener::{
    ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeResult, OrderlyCall, OrderlyStatus,
};
use consumer::{Request, RequestError, Response};
use fastrand::Rng;
use protocol::{Instant, MessageQueue};

use crate::cluster::Cluster;
use crate::ledger::id_of;
use crate::member::{Open, PlaceState};
use crate::workload::{Mood, Outcome};

/// The group that consumes in order in most runs.
pub(crate) const ORDERLY_GROUP: &str = "G2";
/// A lock counts so long after it was asked for.
const LOCK_LIVES: Duration = Duration::from_secs(30);
/// Brokers keep a lock so long whose holder is gone.
pub(crate) const LOCK_OUTLIVES: Duration = Duration::from_secs(60);

/// How late a request can arrive.
const LATE_REQUESTS: Duration = Duration::from_secs(10);

/// How the orderly group consumes in this run.
pub(crate) fn mode(random: &mut Rng) -> ConsumeMode {
    match random.u32(0..3) {
        0 => ConsumeMode::Concurrently,
        1 => ConsumeMode::Orderly { auto_commit: true },
        _ => ConsumeMode::Orderly { auto_commit: false },
    }
}

/// What a listener answers in order, and what that means for each message. With
/// auto-commit off, what was uncommitted before shares the fate of a commit or rollback;
/// one that must commit leaves nothing uncommitted when all goes well.
pub(crate) fn result(
    messages: usize,
    auto_commit: bool,
    commits: bool,
    mood: Mood,
    random: &mut Rng,
) -> (ConsumeResult, Vec<Outcome>) {
    let all = |outcome| vec![outcome; messages];
    let fails = random.u32(0..100) < mood.failing;
    let suspend = OrderlyStatus::SuspendCurrentQueueAMoment {
        suspend: [None, Some(Duration::from_millis(100))][random.usize(..2)],
    };
    let (good, done) = match auto_commit {
        true => (OrderlyStatus::Success, Outcome::Done),
        false if commits || random.bool() => (OrderlyStatus::Commit, Outcome::Done),
        false => (OrderlyStatus::Success, Outcome::Uncommitted),
    };
    if !fails {
        return (ConsumeResult::Orderly(good), all(done));
    }
    let failed = Outcome::Failed { dead: false };
    match random.u32(0..8) {
        0 => (ConsumeResult::NotFinished, all(Outcome::Returned)),
        // Not what an orderly listener can say.
        1 => {
            let status = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
            (ConsumeResult::Concurrently(status), all(failed))
        }
        2 if !auto_commit => (
            ConsumeResult::Orderly(OrderlyStatus::Rollback),
            all(Outcome::RolledBack),
        ),
        2..=4 => {
            // Some went well, one failed, the rest was not reached.
            let well = random.usize(..messages);
            let mut calls = Vec::new();
            if well > 0 {
                let messages = u32::try_from(well).unwrap_or(u32::MAX);
                calls.push(OrderlyCall {
                    messages,
                    status: good,
                    reason: None,
                });
            }
            calls.push(OrderlyCall {
                messages: 1,
                status: suspend,
                reason: None,
            });
            let mut outcomes = vec![done; well];
            outcomes.push(failed);
            outcomes.resize(messages, Outcome::Returned);
            (ConsumeResult::OrderlyCalls(calls), outcomes)
        }
        _ => (ConsumeResult::Orderly(suspend), all(failed)),
    }
}

impl Cluster {
    /// `None` for groups whose messages have no order.
    pub(crate) fn auto_commit_of(&self, group: &str) -> Option<bool> {
        let config = self
            .configs
            .iter()
            .find(|c| **c.consumer_group() == *group)?;
        match config.mode() {
            ConsumeMode::Concurrently => None,
            ConsumeMode::Orderly { auto_commit } => Some(auto_commit),
        }
    }

    /// Messages of an orderly queue reach a listener.
    pub(crate) fn check_order(&mut self, member: usize, request: &ConsumeRequest) {
        let group = &*request.consumer_group;
        let queue = &request.message_queue;
        if self.auto_commit_of(group).is_none() {
            return;
        }
        let key = (group.to_owned(), queue.clone());
        let this = &self.members[member];
        let name = this.name.clone();
        let locked = this.locks.get(&key);
        if locked.is_none_or(|&at| at + LOCK_LIVES <= self.now) {
            let what = format!("{name} consumes {queue} of {group}, locked at {locked:?}");
            self.violated("nothing is consumed without a lock", what);
        }
        let this = &self.members[member];
        if this
            .calls
            .values()
            .any(|(other, _)| *other.consumer_group == *group && other.message_queue == *queue)
        {
            let what = format!("{name} calls a listener with {queue} of {group} beside another");
            self.violated("an orderly queue has one call", what);
        }
        let mut uncommitted = BTreeSet::new();
        let mut miscounted = None;
        if let Some(assignment) = self.members[member].assignments.get(&key) {
            let places = assignment.places.iter();
            let kept = places.filter(|(_, state)| **state == PlaceState::Uncommitted);
            uncommitted.extend(kept.map(|(&offset, _)| offset));
            miscounted = request.iter().find_map(|message| {
                let offset = message.message.queue_offset().0;
                let counted = assignment.failures.get(&offset).copied().unwrap_or(0);
                let expected = message.message.reconsume_times() + counted;
                (message.reconsume_times != expected).then_some((
                    offset,
                    message.reconsume_times,
                    expected,
                ))
            });
        }
        if let Some((offset, got, expected)) = miscounted {
            let what = format!("{name} got {queue} {offset} as attempt {got}, not {expected}");
            self.violated("attempts are counted exactly", what);
        }
        let Some(first) = request.iter().next().map(|m| m.message.queue_offset().0) else {
            return;
        };
        let ledger = self.ledger.groups.get(group);
        let from = ledger
            .and_then(|ledger| ledger.in_order.get(queue))
            .copied();
        let from = from.unwrap_or(0);
        let early = (from..first)
            .find(|offset| !uncommitted.contains(offset) && !self.may_pass(group, queue, *offset));
        if let Some(early) = early {
            let what = format!("{name} got {queue} {first} of {group} before {early} was done");
            self.violated("messages come in order", what);
        } else if uncommitted.is_empty()
            && let Some(ledger) = self.ledger.groups.get_mut(group)
        {
            ledger.in_order.insert(queue.clone(), first.max(from));
        }
    }

    /// With auto-commit off, a commit or rollback decides about what went well before it.
    pub(crate) fn decide_uncommitted(
        &mut self,
        member: usize,
        key: &(String, MessageQueue),
        number: Option<u64>,
        commit: bool,
    ) {
        let this = &mut self.members[member];
        let Some(assignment) = this.assignment_of_call(key, number, true) else {
            return;
        };
        let kept = assignment.places.iter_mut();
        let kept = kept.filter(|(_, state)| **state == PlaceState::Uncommitted);
        let mut offsets = Vec::new();
        for (&offset, state) in kept {
            *state = if commit {
                PlaceState::Finished
            } else {
                PlaceState::MayCome
            };
            offsets.push(offset);
        }
        if !commit {
            return;
        }
        for offset in offsets {
            let broker = self.broker_named(&key.1.broker_name);
            let stored = broker.and_then(|broker| {
                let broker = &self.brokers[broker].broker;
                broker.message_in_queue(&key.1.topic, key.1.queue_id, offset)
            });
            let id = stored.and_then(|message| id_of(&message.body));
            if let Some(ledger) = self.ledger.group(&key.0) {
                ledger.finish(&(key.1.clone(), offset));
                ledger.done.extend(id);
            }
        }
    }

    /// A client is told about locks, or not.
    pub(crate) fn note_locks(
        &mut self,
        member: usize,
        open: &Open,
        result: &Result<Response, RequestError>,
    ) {
        if let (
            Request::LockBatch {
                consumer_group,
                queues,
                ..
            },
            Ok(Response::Locked(locked)),
        ) = (&*open.request, result)
        {
            for queue in queues {
                let key = (consumer_group.to_string(), queue.clone());
                let locks = &mut self.members[member].locks;
                if locked.contains(queue) {
                    let before = locks.get(&key).copied().unwrap_or(Instant::ORIGIN);
                    locks.insert(key, open.sent_at.max(before));
                } else {
                    locks.remove(&key);
                }
            }
        }
    }

    /// A client gives locks back.
    pub(crate) fn check_unlock(&mut self, member: usize, group: &str, queue: &MessageQueue) {
        let this = &self.members[member];
        let name = this.name.clone();
        let calls = this
            .calls
            .values()
            .any(|(other, _)| *other.consumer_group == *group && other.message_queue == *queue);
        let given_back = this.given_back.iter();
        let mut given_back = given_back.filter(|(g, q, _)| g == group && q == queue);
        let broker = self.broker_named(&queue.broker_name);
        let committed = broker.and_then(|broker| {
            let broker = &self.brokers[broker].broker;
            broker.committed_offset(group, &queue.topic, queue.queue_id)
        });
        let committed = committed.and_then(|offset| u64::try_from(offset).ok());
        let behind = given_back.any(|(_, _, assignment)| Some(assignment.finished()) > committed);
        // Nobody can know at once that a broker has forgotten its locks: until they are
        // renewed a queue may have two owners, and the one may commit less than the other.
        let forgotten = self.ledger.locks_forgotten;
        let two_owners = forgotten.is_some_and(|at| self.now < at + LOCK_OUTLIVES);
        let explained = self.ledger.rolled_back || two_owners;
        if calls {
            let what = format!("{name} unlocks {queue} of {group} while a listener has it");
            self.violated("a queue is unlocked when nothing of it is under way", what);
        }
        if behind && !explained {
            let what = format!("{name} unlocks {queue} of {group} at {committed:?}");
            self.violated("a queue is unlocked when it is committed", what);
        }
        let key = (group.to_owned(), queue.clone());
        self.members[member].locks.remove(&key);
    }

    pub(crate) fn check_lock_event(&mut self, member: usize, event: &Event) {
        match event {
            // What was under way is somebody else's business now.
            Event::QueueLockLost {
                consumer_group,
                queue,
                ..
            } => {
                let key = (consumer_group.to_string(), queue.clone());
                let this = &mut self.members[member];
                this.assignments.remove(&key);
                this.given_back
                    .retain(|(group, q, _)| *group != key.0 || *q != key.1);
                this.locks.remove(&key);
            }
            Event::UnlockFailed {
                consumer_group,
                queue,
                ..
            } => {
                let key = (consumer_group.to_string(), queue.clone());
                self.members[member].locks.remove(&key);
                self.disturbs_until(self.now + LOCK_OUTLIVES);
            }
            Event::GroupLeft { consumer_group } => {
                let this = &self.members[member];
                let locks = this.locks.iter();
                let mut kept = locks.filter(|((group, _), at)| {
                    **group == **consumer_group && **at + LOCK_LIVES > self.now
                });
                if let Some(((group, queue), _)) = kept.next() {
                    let what = format!("{} left {group} and keeps {queue}", this.name);
                    self.violated("whoever leaves unlocks", what);
                }
            }
            _ => {}
        }
    }

    /// A process that crashes leaves its locks to the brokers, and with them those that
    /// it has just asked for.
    pub(crate) fn leaves_locks(&mut self) {
        if self.auto_commit_of(ORDERLY_GROUP).is_some() {
            self.disturbs_until(self.now + LOCK_OUTLIVES + LATE_REQUESTS);
        }
    }
}
