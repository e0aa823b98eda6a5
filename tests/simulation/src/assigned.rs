//! A group whose queues are given by hand, to one process at a time, and whose places are
//! moved while it consumes.
//!
//! It has no list of members and no retry topic: what fails waits in its process. A queue
//! that is set back begins again there; whatever was under way moves nothing.

use std::time::Duration;

use consumer::assignment::{AssignError, QueueSelector};
use consumer::config::ConsumeFromWhere;
use consumer::event::Event;
use consumer::{GroupConfig, SeekForward, SeekTo};
use fastrand::Rng;
use protocol::subscription::SubscriptionData;
use protocol::{MessageQueue, QueueOffset};

use crate::cluster::{Cluster, Due, MAX_RECONSUME_TIMES};

/// The group.
pub(crate) const ASSIGNED: &str = "A1";
/// What it reads.
pub(crate) const ASSIGNED_TOPIC: &str = "T2";
/// How often it is looked whether its process is still there.
const WATCHED: Duration = Duration::from_secs(1);

/// As its process has it.
pub(crate) fn config(random: &mut Rng) -> GroupConfig {
    GroupConfig::builder(ASSIGNED)
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .assign(vec![QueueSelector::topic(ASSIGNED_TOPIC)])
        .max_reconsume_times(MAX_RECONSUME_TIMES)
        .consume_thread_max(4)
        .consume_message_batch_max_size([1, 4][random.usize(..2)])
        .subscription(SubscriptionData::all(ASSIGNED_TOPIC))
        .build()
        .expect("a valid group")
}

impl Cluster {
    /// Somebody gives the queues to a process when the one before is gone.
    pub(crate) fn watches_assigned(&mut self) {
        if !self.ledger.groups.contains_key(ASSIGNED) {
            return;
        }
        self.agenda.at(self.now + WATCHED, Due::WatchesAssigned);
        let has_it = |member: &&crate::member::Member| {
            member.client.is_some() && member.groups.contains_key(ASSIGNED)
        };
        if self.members.iter().any(|member| has_it(&member)) {
            return;
        }
        if let Some(member) = self.any_member() {
            self.subscribe(member, ASSIGNED);
        }
    }

    fn assigned_member(&self) -> Option<usize> {
        let living = self.living().into_iter();
        let mut holding =
            living.filter(|&member| self.members[member].groups.contains_key(ASSIGNED));
        holding.next()
    }

    /// One of the queues goes back to an earlier place.
    pub(crate) fn seek_some(&mut self) {
        let Some(member) = self.assigned_member() else {
            return;
        };
        let held = self.members[member].assignments.iter();
        let held = held.filter(|((group, _), _)| group == ASSIGNED);
        let held: Vec<(MessageQueue, u64)> = held
            .map(|((_, queue), assignment)| (queue.clone(), assignment.committed))
            .collect();
        if held.is_empty() {
            return;
        }
        let (queue, committed) = held[self.random.usize(..held.len())].clone();
        let to = match self.random.u32(0..4) {
            0 => SeekTo::MinOffset,
            _ => SeekTo::Offset(QueueOffset(
                committed - self.random.u64(0..=committed.min(20)),
            )),
        };
        self.history
            .add(self.now, || format!("SEEK {queue} goes to {to:?}"));
        let Some(&id) = self.members[member].groups.get(ASSIGNED) else {
            return;
        };
        self.give(member, |client, now| {
            client.seek(id, &queue, to, SeekForward::Skips, now);
        });
    }

    /// Some of the queues are taken away for a while.
    pub(crate) fn assign_some(&mut self) {
        let Some(member) = self.assigned_member() else {
            return;
        };
        let some = QueueSelector {
            queue_id: Some(0),
            ..QueueSelector::topic(ASSIGNED_TOPIC)
        };
        self.assign(member, vec![some]);
        let after = Duration::from_millis(self.random.u64(1..10_000));
        self.agenda.at(self.now + after, Due::AssignsAll { member });
        self.disturbs_until(self.now + after);
    }

    /// All of them are given again.
    pub(crate) fn assigns_all(&mut self, member: usize) {
        self.assign(member, vec![QueueSelector::topic(ASSIGNED_TOPIC)]);
    }

    fn assign(&mut self, member: usize, queues: Vec<QueueSelector>) {
        let Some(&id) = self.members[member].groups.get(ASSIGNED) else {
            return;
        };
        self.history.add(self.now, || format!("ASSIGN {queues:?}"));
        let mut assigned = Ok(());
        self.give(member, |client, now| {
            assigned = client.assign(id, queues, now);
        });
        self.kinds.assigns += u64::from(assigned.is_ok());
        if !matches!(assigned, Ok(()) | Err(AssignError::Leaving)) {
            let what = format!("{assigned:?}");
            self.violated("a group by hand takes what it is given", what);
        }
    }

    /// A queue goes on somewhere else.
    pub(crate) fn note_sought(&mut self, member: usize, event: &Event) {
        if let Event::Sought {
            consumer_group,
            queue,
            ..
        } = event
        {
            let key = (consumer_group.to_string(), queue.clone());
            self.members[member].assignments.remove(&key);
            self.kinds.seeks += 1;
        }
    }
}
