//! Offsets that are moved from outside: by an operator, or by the broker's word that
//! there is no such offset.
//!
//! The assignment ends, with everything that was fetched for it: calls under way find
//! their queue gone and commit nothing. A new assignment begins at the new offset, which
//! is committed, once and with an answer, before its first pull. Whatever of the old
//! assignment may still reach the broker's store is waited for: a commit under way until
//! it is answered, a pull that carries an offset for a moment. An orderly queue asks for
//! its lock again, and its first call waits for the one under way.
//!
//! Differs from RocketMQ: `DefaultMQPushConsumerImpl#resetOffset` pauses the whole group
//! and sleeps for ten seconds in place of that.

use std::sync::Arc;

use protocol::body::ResetOffsetBody;
use protocol::code::request_code;
use protocol::header::{Header as _, ResetOffsetRequestHeader};
use protocol::{ExtFields, Instant, QueueOffset, RemotingCommand};

use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::group::{AssignedQueue, Phase};
use crate::offset::StartStep;
use crate::planted_bugs::PlantedBug;
use crate::pull::Pull;
use crate::request::RequestId;
use crate::timers::{RESET_SETTLE, Timer};

/// What of an assignment that ends may still move the stored offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftovers {
    /// A commit under way.
    commit: Option<RequestId>,
    /// When a pull that carries an offset has settled.
    settled_at: Option<Instant>,
}

impl Client {
    /// A broker passes on an operator's reset. RocketMQ: `ClientRemotingProcessor#
    /// resetOffset`. Queues that are named and not ours are somebody else's.
    pub(crate) fn reset_offsets(&mut self, command: &RemotingCommand, now: Instant) {
        debug_assert_eq!(command.code, request_code::RESET_CONSUMER_CLIENT_OFFSET);
        let none = ExtFields::default();
        let header = ResetOffsetRequestHeader::decode(command.ext_fields.as_ref().unwrap_or(&none));
        let header = match header {
            Ok(header) => header,
            Err(error) => return self.ignore_reset("", "", error.to_string()),
        };
        let (group, topic) = (header.group.as_str(), header.topic.as_str());
        let Some(&epoch) = self.group_names.get(group) else {
            return self.ignore_reset(group, topic, "we are not in this group".to_owned());
        };
        let table = match ResetOffsetBody::decode(&command.body) {
            Ok(body) => body.offset_table,
            Err(error) => return self.ignore_reset(group, topic, error.to_string()),
        };
        let Some(ours) = self.groups.get(epoch) else {
            return;
        };
        if !ours.life.stays() {
            return self.ignore_reset(group, topic, "the group is leaving".to_owned());
        }
        if ours.config.pull_task_interval().is_some() {
            // As in RocketMQ: whoever pulls for itself says where.
            let reason = "its pull tasks choose their own offsets".to_owned();
            return self.ignore_reset(group, topic, reason);
        }
        let Some(held) = ours.topics.iter().find(|t| *t.name == *topic) else {
            return self.ignore_reset(group, topic, "the group does not read it".to_owned());
        };
        let mut resets: Vec<(Epoch, QueueOffset)> = Vec::new();
        let mut negative = None;
        for (queue, &offset) in &table {
            match (held.held.get(queue), QueueOffset::from_wire(offset)) {
                (Some(&queue), Some(offset)) => resets.push((queue, offset)),
                (Some(_), None) => negative = Some((queue.clone(), offset)),
                (None, _) => {}
            }
        }
        if let Some((queue, offset)) = negative {
            let reason = format!("{offset} is no offset of {queue}");
            self.ignore_reset(group, topic, reason);
        }
        for (queue, offset) in resets {
            self.reset_queue(queue, offset, now);
        }
    }

    fn ignore_reset(&mut self, group: &str, topic: &str, reason: String) {
        self.events.push_back(Event::ResetIgnored {
            consumer_group: group.to_owned(),
            topic: topic.to_owned(),
            reason,
        });
    }

    fn reset_queue(&mut self, epoch: Epoch, to: QueueOffset, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        if queue.start_step() == Some(StartStep::Commit(to, StartPolicy::Reset)) {
            // The same reset again; the first one is under way.
            return;
        }
        if let Some(group) = self.groups.get(queue.group) {
            self.events.push_back(Event::OffsetReset {
                consumer_group: Arc::clone(&group.name),
                queue: queue.queue.clone(),
                from: queue.commit.finished(),
                to,
            });
        }
        if self.has_bug(PlantedBug::ResetKeepsCalls)
            && let Some(queue) = self.queues.get_mut(epoch)
            && queue.commit.finished().is_some()
        {
            queue.next_offset = to;
            queue.commit.force(to);
            return;
        }
        self.begin_again(epoch, to, StartPolicy::Reset, None, now);
    }

    /// Ends an assignment and begins another at this offset.
    pub(crate) fn begin_again(
        &mut self,
        epoch: Epoch,
        offset: QueueOffset,
        policy: StartPolicy,
        not_before: Option<Instant>,
        now: Instant,
    ) -> Option<Epoch> {
        let leftovers = self.leftovers(epoch)?;
        let old = self.forget_queue(epoch)?;
        if let Some(group) = self.groups.get_mut(old.group) {
            // It goes back with reason.
            group.last_committed.remove(&old.queue);
        }
        let step = StartStep::Commit(offset, policy);
        Some(self.assign_again(old, step, leftovers, not_before, now))
    }

    /// Another assignment of the same queue, which waits for what the one before may still
    /// do to the broker's store, and owes the broker the same lock.
    pub(crate) fn assign_again(
        &mut self,
        old: AssignedQueue,
        step: StartStep,
        leftovers: Leftovers,
        not_before: Option<Instant>,
        now: Instant,
    ) -> Epoch {
        let new = self.new_assignment(old.group, old.topic_index, old.queue, step, now);
        if let Some(queue) = self.queues.get_mut(new) {
            queue.awaits_commit = leftovers.commit;
            if let (Some(lock), Some(before)) = (&mut queue.lock, &old.lock) {
                lock.inherit(before);
            }
        }
        if let Some(in_flight) = leftovers.commit.and_then(|id| self.in_flight.get_mut(id.0)) {
            in_flight.purpose = Purpose::CommitBefore(new);
        }
        let at = leftovers.settled_at.max(not_before);
        match at.filter(|&at| at > now) {
            Some(at) => self.timers.set(Timer::Queue(new), at),
            None => self.go_on_starting(new, now),
        }
        new
    }

    /// What an assignment may still do to the broker's store when it ends now.
    pub(crate) fn leftovers(&self, epoch: Epoch) -> Option<Leftovers> {
        let settled_at = match self.queues.get(epoch)?.phase {
            Phase::Pulling(Pull::InFlight {
                asked_at,
                carried: Some(_),
                ..
            }) => Some(asked_at + RESET_SETTLE),
            Phase::Pulling(_) | Phase::Task(_) => None,
            Phase::Locking(_) | Phase::Starting(_) => self.timers.at(Timer::Queue(epoch)),
        };
        Some(Leftovers {
            commit: self.may_reach_the_store(epoch),
            settled_at,
        })
    }

    /// The request for this queue that moves the offset which the broker stores.
    fn may_reach_the_store(&self, epoch: Epoch) -> Option<RequestId> {
        let queue = self.queues.get(epoch)?;
        let request = match &queue.phase {
            Phase::Starting(start) if matches!(start.step, StartStep::Commit(..)) => start.request,
            Phase::Locking(_) | Phase::Starting(_) => None,
            Phase::Pulling(_) | Phase::Task(_) => queue.commit.request(),
        };
        let request = request.or(queue.awaits_commit)?;
        self.in_flight.get(request.0).map(|_| request)
    }

    /// The commit of an assignment that ended was answered, whatever it was: the next one
    /// goes on.
    pub(crate) fn handle_commit_before(&mut self, epoch: Epoch, now: Instant) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.awaits_commit = None;
            if !self.timers.is_set(Timer::Queue(epoch)) {
                self.go_on_starting(epoch, now);
            }
        }
    }
}

impl AssignedQueue {
    fn start_step(&self) -> Option<StartStep> {
        match &self.phase {
            Phase::Locking(step) => Some(*step),
            Phase::Starting(start) => Some(start.step),
            Phase::Pulling(_) | Phase::Task(_) => None,
        }
    }

    /// Where an operator moved it, which the broker may not have stored yet: nobody else
    /// knows of it.
    pub(crate) fn unstored_reset(&self) -> Option<QueueOffset> {
        self.unstored_word().map(|(offset, _)| offset)
    }

    /// The same with how it was moved.
    pub(crate) fn unstored_word(&self) -> Option<(QueueOffset, StartPolicy)> {
        match self.start_step()? {
            StartStep::Commit(offset, how @ (StartPolicy::Reset | StartPolicy::Sought)) => {
                Some((offset, how))
            }
            _ => None,
        }
    }
}
