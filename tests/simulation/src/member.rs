//! One process with one client: its requests, its calls, and what is known of its
//! assignments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use consumer::event::Event;
use consumer::listener::{ConsumeRequest, ConsumeRequestId, ConsumeResult};
use consumer::{Client, ClientConfig, Expect, GroupId, Request, RequestId};
use embedded_broker::ConnectionId;
use protocol::{Address, Instant, MessageQueue};

use crate::broadcast::BROADCAST;
use crate::cluster::{Cluster, Due, GROUPS, NAME_SERVERS};
use crate::holds::Held;
use crate::in_order;
use crate::ledger::id_of;
use crate::network::Server;
use crate::plugins::{Answered, PluginCall};
use crate::pull_tasks::Guests;
use crate::resets::Obeyed;
use crate::workload::{self, Outcome};

/// A process. It keeps its place in the list when it is gone.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// `None` when it crashed or has stopped.
    pub(crate) client: Option<Client>,
    pub(crate) groups: BTreeMap<&'static str, GroupId>,
    pub(crate) stopping: bool,
    /// Until then it does not run.
    pub(crate) stalled_until: Instant,
    /// Calls at once.
    pub(crate) permits: usize,
    pub(crate) connections: BTreeMap<Address, ConnectionId>,
    /// Requests whose answer is awaited, by opaque.
    pub(crate) open: BTreeMap<i32, Open>,
    /// For which assignment an offset is told, by opaque.
    pub(crate) tellings: BTreeMap<i32, u64>,
    /// Groups whose listener is held.
    pub(crate) holds: BTreeMap<&'static str, Held>,
    /// Calls under way, and for which assignment.
    pub(crate) calls: BTreeMap<ConsumeRequestId, (Arc<ConsumeRequest>, Option<u64>)>,
    /// By group and queue.
    pub(crate) assignments: BTreeMap<(String, MessageQueue), Assignment>,
    /// Assignments that ended, until their last commit is looked at.
    pub(crate) given_back: Vec<(String, MessageQueue, Assignment)>,
    /// What brokers said is committed, since the last start of the queue.
    pub(crate) answered: BTreeMap<(String, MessageQueue), Vec<Option<u64>>>,
    /// Whether the last list of members was one, with us in it.
    pub(crate) listed: BTreeMap<String, bool>,
    /// Topics whose whole route it was told.
    pub(crate) routed: BTreeSet<String>,
    /// When it asked for the locks it has.
    pub(crate) locks: BTreeMap<(String, MessageQueue), Instant>,
    /// What it sends, by the order of `send`.
    pub(crate) sends: BTreeMap<consumer::SendId, u32>,
    /// Where it runs, when it consumes in broadcast.
    pub(crate) host: Option<usize>,
    /// Resets that it obeys, until their first pull.
    pub(crate) resets: BTreeMap<(String, MessageQueue), Obeyed>,
    /// Its pull tasks.
    pub(crate) guests: Guests,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) id: RequestId,
    pub(crate) expect: Expect,
    pub(crate) request: Arc<Request>,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) sent_at: Instant,
    /// When it is given up.
    pub(crate) until: Instant,
    /// The answer to it, should it arrive, is a route that lacks nothing.
    pub(crate) tells_whole_route: bool,
}

/// A queue that a member has.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// Tells it from others of the same queue.
    pub(crate) number: u64,
    start: u64,
    /// What it asked to be committed.
    pub(crate) committed: u64,
    /// The furthest that a broker stored of it.
    pub(crate) stored: u64,
    /// What it was told, while it had the queue or gave it back, that others have committed.
    pub(crate) known: u64,
    pub(crate) places: BTreeMap<u64, PlaceState>,
    /// In order: failures that were counted here.
    pub(crate) failures: BTreeMap<u64, u32>,
}

/// What an assignment did with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceState {
    InCall,
    Failed,
    /// It may be delivered again.
    MayCome,
    /// In order: a later call decides.
    Uncommitted,
    Finished,
    /// It cannot be delivered as it came; what comes before it may be undelivered yet.
    Bad,
    /// The same, and it is a dead letter now.
    Gone,
}

impl Assignment {
    pub(crate) fn new(number: u64, start: u64) -> Self {
        Self {
            number,
            start,
            committed: start,
            stored: 0,
            known: 0,
            places: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Everything delivered below is finished.
    pub(crate) fn finished(&self) -> u64 {
        let mut finished = self.start;
        for (&offset, state) in &self.places {
            match state {
                PlaceState::Finished => finished = offset + 1,
                PlaceState::Gone if offset == finished => finished = offset + 1,
                PlaceState::Bad | PlaceState::Gone => return finished,
                _ => return offset,
            }
        }
        finished
    }
}

impl Member {
    /// The assignment for which a call was made. One in order may have been given back
    /// meanwhile, and still counts.
    pub(crate) fn assignment_of_call(
        &mut self,
        key: &(String, MessageQueue),
        number: Option<u64>,
        in_order: bool,
    ) -> Option<&mut Assignment> {
        let given_back = self.given_back.iter_mut().filter(|_| in_order);
        let given_back = given_back.map(|(_, _, assignment)| assignment);
        let current = self.assignments.get_mut(key).into_iter();
        let mut all = current.chain(given_back);
        all.find(|assignment| Some(assignment.number) == number)
    }
}

impl Cluster {
    /// A new process; its wall clock is its own.
    pub(crate) fn new_member(&mut self, consumes: bool) -> usize {
        let member = self.members.len();
        let name = format!("10.2.0.{member}@{member}#sim");
        let name_servers = (0..NAME_SERVERS).map(|index| Server::NameServer(index).address());
        let mut config = ClientConfig::new(name.clone(), name_servers.collect());
        config.buffer_bytes = self.buffer_bytes;
        config.pid = u32::try_from(member).unwrap_or(0) + 1;
        config.send_backs_max = [2, 256][self.random.usize(..2)];
        // Read once: a step of it is the next process's, forwards or backwards.
        let skew = Duration::from_secs(self.random.u64(0..7200));
        let unix_now = Duration::from_secs(1_700_000_000 - 3600) + self.now.since_origin() + skew;
        let mut client = Client::new(config, self.random.u64(..), self.now, unix_now);
        if let Some(bug) = self.bug {
            client.plant(bug);
        }
        self.members.push(Member {
            name,
            client: Some(client),
            groups: BTreeMap::new(),
            stopping: false,
            stalled_until: self.now,
            permits: 2 + self.random.usize(..7),
            connections: BTreeMap::new(),
            open: BTreeMap::new(),
            tellings: BTreeMap::new(),
            holds: BTreeMap::new(),
            calls: BTreeMap::new(),
            assignments: BTreeMap::new(),
            given_back: Vec::new(),
            answered: BTreeMap::new(),
            listed: BTreeMap::new(),
            routed: BTreeSet::new(),
            locks: BTreeMap::new(),
            sends: BTreeMap::new(),
            host: None,
            resets: BTreeMap::new(),
            guests: Guests::default(),
        });
        if consumes {
            for (group, _) in GROUPS {
                self.subscribe(member, group);
            }
            self.joins_broadcast(member);
            self.joins_tasks(member);
        }
        member
    }

    pub(crate) fn join(&mut self) {
        let member = self.new_member(true);
        let name = self.members[member].name.clone();
        self.history.add(self.now, || format!("{name} joins"));
    }

    pub(crate) fn subscribe(&mut self, member: usize, group: &'static str) {
        let config = self.configs.iter().find(|c| **c.consumer_group() == *group);
        let (Some(config), false) = (config.cloned(), self.members[member].stopping) else {
            return;
        };
        let now = self.now;
        // Topics that nobody read meanwhile are forgotten.
        self.members[member].routed.clear();
        let Some(client) = &mut self.members[member].client else {
            return;
        };
        match client.subscribe(config, now) {
            Ok(id) => {
                self.members[member].groups.insert(group, id);
                self.members[member].holds.remove(group);
            }
            // The group is still on its way out.
            Err(_) => self.agenda.at(
                now + Duration::from_secs(1),
                Due::Subscribe { member, group },
            ),
        }
        self.drain(member);
    }

    /// A process is no more.
    pub(crate) fn gone(&mut self, member: usize) {
        let this = &mut self.members[member];
        this.client = None;
        this.open.clear();
        this.calls.clear();
        this.holds.clear();
        this.assignments.clear();
        this.given_back.clear();
        this.locks.clear();
        this.guests = Guests::default();
        self.killed.retain(|call| call.member != member);
        if let Some(plugins) = &mut self.plugins {
            plugins.crashed(member);
        }
        let this = &mut self.members[member];
        let connections: Vec<ConnectionId> = this.connections.values().copied().collect();
        this.connections.clear();
        for id in connections {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.open_at_member = false;
            }
            // A system that is gone with its process says nothing.
            let silent = !self.healed && self.random.u32(0..3) == 0;
            let after = if silent { 20_000 } else { 1 };
            let after = Duration::from_millis(self.random.u64(0..=after));
            let what = Due::ClosesAtServer { connection: id };
            self.agenda.at(self.now + after, what);
        }
    }

    /// Takes everything out of a client.
    pub(crate) fn drain(&mut self, member: usize) {
        loop {
            let mut nothing = true;
            while let Some(event) = self.with_client(member, Client::poll_event) {
                nothing = false;
                self.history.add(self.now, || {
                    format!("{} {event:?}", self.members[member].name)
                });
                self.check_reset_event(member, &event);
                self.note_task_event(member, &event);
                self.note_sought(member, &event);
                if !self.check_broadcast_event(member, &event) {
                    self.check_event(member, &event);
                    self.check_lock_event(member, &event);
                }
                if matches!(event, Event::Stopped) {
                    self.stopped(member);
                }
            }
            while let Some(request) = self.with_client(member, Client::poll_request) {
                nothing = false;
                self.send_request(member, &request);
            }
            while let Some(pending) = self.with_client(member, Client::poll_local_offsets) {
                nothing = false;
                self.asks_disk(member, pending);
            }
            while self.members[member].calls.len() < self.members[member].permits
                && let Some(request) = self.with_client(member, Client::poll_consume_request)
            {
                nothing = false;
                self.begin_call(member, request);
            }
            while self.begins_run(member) || self.answers_guest(member) {
                nothing = false;
            }
            while let Some((send, result)) = self.with_client(member, Client::poll_send_result) {
                let id = self.members[member].sends.remove(&send);
                if let Some(sent) = id.and_then(|id| self.ledger.sent.get_mut(&id)) {
                    sent.acknowledged = result.is_ok();
                }
            }
            while self.with_client(member, Client::poll_seek_result).is_some() {}
            while self.with_client(member, Client::poll_answer).is_some() {}
            if nothing {
                return;
            }
        }
    }

    fn with_client<T>(
        &mut self,
        member: usize,
        poll: impl FnOnce(&mut Client) -> Option<T>,
    ) -> Option<T> {
        self.members[member].client.as_mut().and_then(poll)
    }

    /// Gives a client something, and takes out what comes of it.
    pub(crate) fn give(&mut self, member: usize, input: impl FnOnce(&mut Client, Instant)) {
        let now = self.now;
        if let Some(client) = &mut self.members[member].client {
            input(client, now);
            self.drain(member);
        }
    }

    /// Messages reach a listener.
    fn begin_call(&mut self, member: usize, request: Arc<ConsumeRequest>) {
        let group = request.consumer_group.to_string();
        let queue = request.message_queue.clone();
        let name = self.members[member].name.clone();
        self.history.add(self.now, || {
            let offsets: Vec<u64> = request.iter().map(|m| m.message.queue_offset().0).collect();
            format!("{name} calls the listener of {group} with {queue} {offsets:?}")
        });
        self.check_order(member, &request);
        self.check_held(member, &request);
        let key = (group.clone(), queue.clone());
        for message in request.iter() {
            let place = message.message.queue_offset().0;
            self.ledger.deliveries += 1;
            let Some(ledger) = self.ledger.groups.get_mut(&*group) else {
                continue;
            };
            let logged = (
                queue.broker_name.to_string(),
                message.message.commit_log_offset(),
            );
            ledger.logged.insert(logged, (queue.clone(), place));
            if ledger.is_finished(&queue, place) {
                self.ledger.repeats += 1;
            }
            let assignment = self.members[member].assignments.get_mut(&key);
            let before = assignment.map(|a| a.places.insert(place, PlaceState::InCall));
            match before {
                Some(None | Some(PlaceState::MayCome | PlaceState::Bad)) => {}
                Some(Some(state)) => {
                    let what = format!("{name} got {queue} {place} of {group}, it was {state:?}");
                    self.violated("an assignment delivers a message once", what);
                }
                None => {
                    let what = format!("{name} got {queue} {place} of {group}");
                    self.violated("only what is assigned is delivered", what);
                }
            }
        }
        let mood = self.mood();
        let time = workload::call_time(mood, &mut self.random);
        let id = request.id;
        let this = &mut self.members[member];
        let number = this
            .assignments
            .get(&key)
            .map(|assignment| assignment.number);
        this.calls.insert(id, (request, number));
        self.agenda
            .at(self.now + time, Due::CallEnds { member, id });
        self.plugin_begins(PluginCall { member, id }, &group, &queue);
    }

    /// A listener answers.
    pub(crate) fn end_call(&mut self, member: usize, id: ConsumeRequestId) {
        let call = PluginCall { member, id };
        if !self.members[member].calls.contains_key(&id)
            || self.plugin_answers(call) == Answered::Lost
        {
            return;
        }
        let Some((request, number)) = self.members[member].calls.remove(&id) else {
            return;
        };
        let mood = self.mood();
        let key = (
            request.consumer_group.to_string(),
            request.message_queue.clone(),
        );
        let (result, outcomes) = match self.auto_commit_of(&key.0) {
            _ if self.killed.remove(&call) => {
                let returned = vec![Outcome::Returned; request.len()];
                (ConsumeResult::NotFinished, returned)
            }
            None => workload::result(request.len(), mood, &mut self.random),
            Some(auto_commit) => {
                let assignment = self.members[member].assignments.get(&key);
                let kept = assignment
                    .is_some_and(|a| a.places.values().any(|s| *s == PlaceState::Uncommitted));
                // What is left uncommitted may find nobody who commits it.
                let commits = kept || self.healed;
                in_order::result(request.len(), auto_commit, commits, mood, &mut self.random)
            }
        };
        if key.0 == BROADCAST {
            self.answered_in_broadcast(member, &request, &outcomes);
        }
        let name = self.members[member].name.clone();
        self.history.add(self.now, || {
            let first = request.iter().next().map(|m| m.message.queue_offset().0);
            format!(
                "{name} listener answers {} from {first:?}: {result:?}",
                request.message_queue
            )
        });
        if outcomes.contains(&Outcome::RolledBack) {
            self.decide_uncommitted(member, &key, number, false);
        } else if self.auto_commit_of(&key.0) == Some(false) && outcomes.contains(&Outcome::Done) {
            self.decide_uncommitted(member, &key, number, true);
        }
        let in_order = self.auto_commit_of(&key.0).is_some();
        for (message, outcome) in request.iter().zip(outcomes) {
            let offset = message.message.queue_offset().0;
            let place = (request.message_queue.clone(), offset);
            let Some(id) = id_of(message.message.body()) else {
                continue;
            };
            let Some(ledger) = self.ledger.group(&key.0) else {
                continue;
            };
            let state = match outcome {
                Outcome::Done => {
                    ledger.done.insert(id);
                    ledger.finish(&place);
                    PlaceState::Finished
                }
                Outcome::Failed { dead } => {
                    *ledger.failures.entry(id).or_default() += 1;
                    if dead {
                        ledger.said_dead.insert(id);
                    }
                    ledger.failed.entry(id).or_default().push(place);
                    PlaceState::Failed
                }
                Outcome::Returned | Outcome::RolledBack => PlaceState::MayCome,
                Outcome::Uncommitted => PlaceState::Uncommitted,
            };
            // The queue may have been taken again since.
            if let Some(assignment) =
                self.members[member].assignment_of_call(&key, number, in_order)
            {
                assignment.places.insert(offset, state);
                if state == PlaceState::Failed && in_order {
                    *assignment.failures.entry(offset).or_default() += 1;
                    // It stays where it is, unless it is a dead letter.
                    assignment.places.insert(offset, PlaceState::MayCome);
                }
            }
        }
        self.dispatch_after_call(member, &key.0);
        let again = self.random.u32(0..50) == 0;
        self.give(member, |client, now| {
            client.handle_consume_result(id, result.clone(), now);
            if again {
                client.handle_consume_result(id, result, now);
            }
        });
    }

    fn stopped(&mut self, member: usize) {
        let name = self.members[member].name.clone();
        self.history.add(self.now, || format!("{name} has stopped"));
        let groups: Vec<&'static str> = self.members[member].groups.keys().copied().collect();
        for group in groups {
            self.check_last_commits(member, group);
        }
        self.gone(member);
    }
}
