//! What must hold (the project's design, "what must hold"), looked at from outside.
//!
//! At every step: no commit passes a message that is neither done with nor kept by the
//! broker for later; no assignment commits less than before, begins at an offset that no
//! broker told it, or delivers a message again that it has done with; nothing is given
//! back without a list of members that says so, and not without its last commit.
//! At the end: everything sent is done with or a dead letter with a reason, everything is
//! committed, and every queue has one owner.

use std::collections::BTreeMap;
use std::fmt;

use consumer::event::{BadRecordAction, Event, StartPolicy};
use consumer::{Request, RequestError, Response};
use protocol::MessageQueue;

use crate::assigned::{ASSIGNED, ASSIGNED_TOPIC};
use crate::cluster::{Cluster, GROUPS, MAX_RECONSUME_TIMES, TOPICS};
use crate::ledger::{Id, Sent, id_of};
use crate::member::{Assignment, PlaceState};
use crate::pull_tasks::{TASKS, TASKS_TOPIC};
use crate::swaps::{SWAPPED_GROUP, SWAPPED_TOPIC, lets_pass};

/// A rule that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: &'static str,
    /// How it was broken.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl Cluster {
    /// The first violation counts.
    pub(crate) fn violated(&mut self, rule: &'static str, what: String) {
        self.history
            .add(self.now, || format!("VIOLATION {rule}: {what}"));
        self.violation.get_or_insert(Violation { rule, what });
    }

    /// A client says what happened.
    pub(crate) fn check_event(&mut self, member: usize, event: &Event) {
        match event {
            Event::QueueStarted {
                consumer_group,
                queue,
                offset,
                policy,
            } => self.check_start(member, consumer_group, queue, offset.0, *policy),
            Event::Rebalanced {
                consumer_group,
                released,
                ..
            } => {
                let listed = self.members[member].listed.get(&**consumer_group);
                let is_divided = **consumer_group != *ASSIGNED;
                if is_divided && !released.is_empty() && listed != Some(&true) {
                    let name = &self.members[member].name;
                    let what = format!("{name} gave {released:?} of {consumer_group} back");
                    self.violated("a list that is no list changes nothing", what);
                }
                for queue in released {
                    self.given_back(member, consumer_group, queue);
                }
            }
            Event::OffsetCorrected {
                consumer_group,
                queue,
                from,
                to,
                ..
            } if to <= from => {
                let key = (consumer_group.to_string(), queue.clone());
                self.members[member].assignments.remove(&key);
            }
            Event::SentBack {
                consumer_group,
                queue,
                offset,
                ..
            }
            | Event::DeadLettered {
                consumer_group,
                queue,
                offset,
                ..
            } => self.set_place(
                member,
                consumer_group,
                queue,
                offset.0,
                PlaceState::Finished,
            ),
            Event::SendBackFailed {
                consumer_group,
                queue,
                offset,
                ..
            }
            | Event::RetriedHere {
                consumer_group,
                queue,
                offset,
                ..
            } => self.set_place(member, consumer_group, queue, offset.0, PlaceState::MayCome),
            Event::BadRecord {
                consumer_group,
                queue,
                offset,
                action: BadRecordAction::AskedAgain | BadRecordAction::DeadLetter,
                ..
            } => self.set_place(member, consumer_group, queue, offset.0, PlaceState::MayCome),
            Event::CommitFailed {
                consumer_group,
                queue,
                last: true,
                ..
            } => {
                let member = &mut self.members[member];
                member
                    .given_back
                    .retain(|(group, q, _)| **group != **consumer_group || q != queue);
                let key = (consumer_group.to_string(), queue.clone());
                member.assignments.remove(&key);
            }
            Event::GroupLeft { consumer_group } => {
                let held = &self.members[member].assignments;
                let held: Vec<MessageQueue> = held
                    .keys()
                    .filter(|(group, _)| **group == **consumer_group)
                    .map(|(_, queue)| queue.clone())
                    .collect();
                for queue in held {
                    self.given_back(member, consumer_group, &queue);
                }
                self.check_last_commits(member, consumer_group);
            }
            _ => {}
        }
    }

    fn check_start(
        &mut self,
        member: usize,
        group: &str,
        queue: &MessageQueue,
        offset: u64,
        policy: StartPolicy,
    ) {
        let key = (group.to_owned(), queue.clone());
        let name = self.members[member].name.clone();
        let answered = self.members[member].answered.remove(&key);
        let answered = answered.unwrap_or_default();
        let told = match policy {
            StartPolicy::Corrected | StartPolicy::Reset | StartPolicy::Sought => true,
            StartPolicy::Committed => answered.contains(&Some(offset)),
            _ => answered.contains(&None),
        };
        if !told {
            let what = format!(
                "{name} begins {queue} of {group} at {offset} ({policy:?}), brokers said {answered:?}"
            );
            self.violated("an assignment begins where the broker says", what);
        }
        self.assignments += 1;
        let assignment = Assignment::new(self.assignments, offset);
        if self.members[member]
            .assignments
            .insert(key, assignment)
            .is_some()
        {
            let what = format!("{name} took {queue} of {group} again while it had it");
            self.violated("one assignment of a queue at a time", what);
        }
    }

    fn given_back(&mut self, member: usize, group: &str, queue: &MessageQueue) {
        let member = &mut self.members[member];
        let key = (group.to_owned(), queue.clone());
        if let Some(assignment) = member.assignments.remove(&key) {
            member.given_back.push((key.0, key.1, assignment));
        }
    }

    /// What was given back is committed as far as it was finished.
    pub(crate) fn check_last_commits(&mut self, member: usize, group: &str) {
        let given_back = std::mem::take(&mut self.members[member].given_back);
        let (of_group, others): (Vec<_>, Vec<_>) =
            given_back.into_iter().partition(|(g, ..)| g == group);
        self.members[member].given_back = others;
        for (group, queue, assignment) in of_group {
            if assignment.committed.max(assignment.known) < assignment.finished() {
                let what = format!(
                    "{} gave {queue} of {group} back finished up to {}, committed up to {}",
                    self.members[member].name,
                    assignment.finished(),
                    assignment.committed
                );
                self.violated("what was finished is committed at the end", what);
            }
        }
    }

    fn set_place(
        &mut self,
        member: usize,
        group: &str,
        queue: &MessageQueue,
        offset: u64,
        state: PlaceState,
    ) {
        let key = (group.to_owned(), queue.clone());
        if let Some(assignment) = self.members[member].assignments.get_mut(&key) {
            let undelivered =
                [None, Some(&PlaceState::Bad)].contains(&assignment.places.get(&offset));
            let state = match state {
                PlaceState::Finished if undelivered => PlaceState::Gone,
                PlaceState::MayCome if undelivered => PlaceState::Bad,
                state => state,
            };
            assignment.places.insert(offset, state);
        }
    }

    /// A client asks a broker to store an offset.
    pub(crate) fn check_commit_sent(
        &mut self,
        member: usize,
        group: &str,
        queue: &MessageQueue,
        offset: u64,
    ) {
        let key = (group.to_owned(), queue.clone());
        let this = &mut self.members[member];
        for (g, q, assignment) in &mut this.given_back {
            if g == group && q == queue {
                assignment.committed = assignment.committed.max(offset);
            }
        }
        let Some(assignment) = this.assignments.get_mut(&key) else {
            self.note_stored_reset(member, &key, offset);
            return;
        };
        let before = std::mem::replace(&mut assignment.committed, offset);
        if offset < before {
            let name = this.name.clone();
            let what = format!("{name} commits {offset} of {queue} of {group} after {before}");
            self.violated("a committed offset never goes back", what);
        }
    }

    /// A client has heard what is committed of a queue of its: when another member has come
    /// further, nothing is left to be told.
    pub(crate) fn note_known_commit(
        &mut self,
        member: usize,
        request: &Request,
        result: &Result<Response, RequestError>,
    ) {
        let Request::QueryConsumerOffset {
            consumer_group,
            queue,
        } = request
        else {
            return;
        };
        let Ok(Response::ConsumerOffset(Some(offset))) = result else {
            return;
        };
        let member = &mut self.members[member];
        let key = (consumer_group.to_string(), queue.clone());
        let held = member.assignments.get_mut(&key).into_iter();
        let given_back = member.given_back.iter_mut();
        let given_back = given_back.filter(|(g, q, _)| *g == key.0 && *q == key.1);
        for assignment in held.chain(given_back.map(|(_, _, assignment)| assignment)) {
            assignment.known = assignment.known.max(offset.0);
        }
    }

    /// A broker has stored an offset.
    pub(crate) fn check_committed(&mut self, group: &str, queue: &MessageQueue, offset: i64) {
        let Some(ledger) = self.ledger.groups.get_mut(group) else {
            return;
        };
        ledger
            .commits
            .entry(queue.clone())
            .or_default()
            .push(offset);
        let from = ledger.checked.get(queue).copied().unwrap_or(0);
        let to = u64::try_from(offset).unwrap_or(0);
        let unfinished = (from..to).find(|&offset| !self.may_pass(group, queue, offset));
        if let Some(ledger) = self.ledger.groups.get_mut(group) {
            ledger.checked.insert(queue.clone(), to.max(from));
        }
        if let Some(unfinished) = unfinished {
            let what = format!("{group} committed {offset} of {queue}, {unfinished} is unfinished");
            self.violated("no commit passes an unfinished message", what);
        }
    }

    pub(crate) fn may_pass(&self, group: &str, queue: &MessageQueue, offset: u64) -> bool {
        let ledger = &self.ledger.groups[group];
        if ledger.is_finished(queue, offset) {
            return true;
        }
        let Some(broker) = self.broker_named(&queue.broker_name) else {
            return false;
        };
        let stored =
            self.brokers[broker]
                .broker
                .message_in_queue(&queue.topic, queue.queue_id, offset);
        let id = stored.and_then(|message| id_of(&message.body));
        let sent = id.and_then(|id| Some((id, self.ledger.sent.get(&id)?)));
        // What the subscription does not want is nobody's; retries are wanted.
        !queue.topic.starts_with("%RETRY%")
            && sent.is_some_and(|(id, sent)| !self.is_wanted(group, id, sent))
    }

    /// Whether a group must have a message.
    pub(crate) fn is_wanted(&self, group: &str, id: Id, sent: &Sent) -> bool {
        match (group, sent.topic) {
            (SWAPPED_GROUP, SWAPPED_TOPIC) => self.swaps.is_needed(id),
            (ASSIGNED, topic) => topic == ASSIGNED_TOPIC,
            (group, topic) => wants(group, topic, sent.tag),
        }
    }

    /// Reads new dead letters; each must have failed often enough, or been condemned.
    pub(crate) fn check_dead_letters(&mut self) {
        let mut unexplained = None;
        for (&group, ledger) in &mut self.ledger.groups {
            let topic = format!("%DLQ%{group}");
            for (index, node) in self.brokers.iter().enumerate() {
                let seen = ledger.dead_seen.entry(index).or_default();
                while *seen < node.broker.max_offset(&topic, 0) {
                    let message = node.broker.message_in_queue(&topic, 0, *seen);
                    *seen += 1;
                    let Some(id) = message.and_then(|message| id_of(&message.body)) else {
                        continue;
                    };
                    ledger.dead.insert(id);
                    let failures = ledger.failures.get(&id).copied().unwrap_or(0);
                    if failures <= MAX_RECONSUME_TIMES && !ledger.said_dead.contains(&id) {
                        unexplained = Some(format!("m{id} of {group} after {failures} failures"));
                    }
                }
            }
        }
        if let Some(what) = unexplained {
            self.violated("a dead letter has a reason", what);
        }
    }

    /// What keeps the healed cluster from having settled.
    pub(crate) fn unsettled(&mut self) -> Vec<String> {
        self.check_dead_letters();
        let mut reasons = Vec::new();
        for (&group, ledger) in &self.ledger.groups {
            let open = self.ledger.sent.iter().filter(|(id, sent)| {
                sent.acknowledged
                    && self.is_wanted(group, **id, sent)
                    && !ledger.done.contains(id)
                    && !ledger.dead.contains(id)
            });
            for (id, sent) in open.take(3) {
                reasons.push(format!("{group} has not consumed m{id} of {}", sent.topic));
            }
        }
        reasons.extend(self.queues_without_one_owner());
        for (group, queue) in self.divided_queues() {
            let node = self.broker_named(&queue.broker_name);
            let Some(node) = node.map(|index| &self.brokers[index].broker) else {
                continue;
            };
            let max = node.max_offset(&queue.topic, queue.queue_id);
            let committed = node.committed_offset(group, &queue.topic, queue.queue_id);
            if max > 0 && committed != i64::try_from(max).ok() {
                reasons.push(format!(
                    "{group} committed {committed:?} of {max} in {queue}"
                ));
            }
        }
        reasons.extend(self.members_that_do_not_stop());
        reasons.extend(self.unsettled_broadcast());
        reasons.extend(self.unsettled_tasks());
        let plugins = self.plugins.iter();
        reasons.extend(plugins.flat_map(|plugins| plugins.unsettled()));
        reasons
    }

    /// Members that were told to stop and are still there.
    pub(crate) fn members_that_do_not_stop(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for member in self.members.iter().filter(|member| member.stopping) {
            if let Some(client) = &member.client {
                let groups = client.status(self.now).groups;
                let of_groups = groups.into_iter().flat_map(|group| group.reasons);
                let waits: Vec<String> = of_groups.map(|reason| reason.to_string()).collect();
                reasons.push(format!("{} does not stop: {waits:?}", member.name));
            }
        }
        reasons
    }

    /// Every queue that one member of a group has to have.
    fn divided_queues(&self) -> Vec<(&'static str, MessageQueue)> {
        let mut topics: Vec<(&'static str, String, u32)> = Vec::new();
        for (group, subscriptions) in GROUPS {
            let own = subscriptions.iter();
            topics.extend(own.map(|(topic, _)| (*group, (*topic).to_owned(), queues_of(topic))));
            topics.push((group, format!("%RETRY%{group}"), 1));
        }
        // What fails in these groups waits elsewhere.
        if self.has_tasks {
            topics.push((TASKS, TASKS_TOPIC.to_owned(), queues_of(TASKS_TOPIC)));
        }
        if self.ledger.groups.contains_key(ASSIGNED) {
            let queues = queues_of(ASSIGNED_TOPIC);
            topics.push((ASSIGNED, ASSIGNED_TOPIC.to_owned(), queues));
        }
        let mut all = Vec::new();
        for (group, topic, queues) in topics {
            for node in &self.brokers {
                let queues = (0..queues).map(|id| MessageQueue::new(&topic, &node.name, id));
                all.extend(queues.map(|queue| (group, queue)));
            }
        }
        all
    }

    /// Queues that nobody has, or more than one.
    pub(crate) fn queues_without_one_owner(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let owners = self.owners();
        for (group, queue) in self.divided_queues() {
            let owners = owners.get(&(group, queue.clone()));
            let owners = owners.map_or(&[][..], Vec::as_slice);
            if owners.len() != 1 {
                reasons.push(format!("{queue} of {group} is owned by {owners:?}"));
            }
        }
        reasons
    }

    fn owners(&self) -> BTreeMap<(&'static str, MessageQueue), Vec<&str>> {
        let mut owners: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for member in &self.members {
            let Some(client) = &member.client else {
                continue;
            };
            for group in client.status(self.now).groups {
                let names = GROUPS.iter().map(|(name, _)| *name);
                let mut names = names.chain([TASKS, ASSIGNED]);
                let Some(name) = names.find(|name| *name == &*group.consumer_group) else {
                    continue;
                };
                for queue in group.topics.into_iter().flat_map(|topic| topic.queues) {
                    let key = (name, queue.queue);
                    owners.entry(key).or_default().push(&member.name);
                }
            }
        }
        owners
    }
}

/// Whether a group wants a message of a topic with this tag.
fn wants(group: &str, topic: &str, tag: Option<&str>) -> bool {
    let subscriptions = GROUPS.iter().find(|(name, _)| *name == group);
    let topics = subscriptions.map_or(&[][..], |(_, topics)| topics);
    let mut filters = topics.iter().filter(|(name, _)| *name == topic);
    filters.any(|(_, filter)| lets_pass(filter, tag))
}

pub(crate) fn queues_of(topic: &str) -> u32 {
    TOPICS
        .iter()
        .find(|(name, _)| *name == topic)
        .map_or(0, |(_, queues)| *queues)
}
