//! The loop: what is due next happens, everybody concerned is drained, and so on, until
//! the faults are over and everything has settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use consumer::listener::{ConsumeMode, ConsumeRequestId};
use consumer::local_offsets::PendingLocalOffsets;
use consumer::publish::{OutgoingMessage, SendMode};
use consumer::pull_task::{PullTaskId, PullerAnswer, QueuePullerError};
use consumer::testing::PlantedBug;
use consumer::{GroupConfig, PauseScope, Request, RequestError, RequestId, Response};
use embedded_broker::{Broker, ConnectionId};
use fastrand::Rng;
use protocol::{Instant, MessageQueue, RemotingCommand};

use crate::assigned;
use crate::broadcast::Host;
use crate::clock::Agenda;
use crate::faults::{FAULTS_END, Fault, Weather, plan};
use crate::handover::HandOver;
use crate::history::History;
use crate::invariants::Violation;
use crate::ledger::{GroupLedger, Ledger, Place, Sent};
use crate::member::Member;
use crate::network::{Connection, Server};
use crate::plugins::{PluginCall, Plugins};
use crate::pull_tasks::TaskLedger;
use crate::recovery::Recovery;
use crate::setup::{broker, group_configs};
use crate::spoiled::Damage;
use crate::swaps::Swaps;
use crate::workload::Mood;
use crate::{Kinds, Summary};

/// Topics and their queues on each broker.
pub(crate) const TOPICS: &[(&str, u32)] = &[("T1", 3), ("T2", 2)];
/// What each group reads.
pub(crate) const GROUPS: &[(&str, &[(&str, &str)])] = &[
    ("G1", &[("T1", "*"), ("T2", "A || C")]),
    ("G2", &[("T1", "*")]),
];
/// Attempts after the first one.
pub(crate) const MAX_RECONSUME_TIMES: u32 = 3;
pub(crate) const NAME_SERVERS: usize = 2;
/// So long a healed cluster may take to settle.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// More things than this without time passing are a loop at full speed.
const STEPS_AT_ONCE_MAX: u64 = 100_000;
pub(crate) const MEMBERS_MAX: usize = 5;

/// A broker and its state in the network.
#[derive(Debug)]
pub(crate) struct BrokerNode {
    pub(crate) name: String,
    pub(crate) broker: Broker,
    pub(crate) away_until: Instant,
}

/// What will happen.
#[derive(Debug)]
pub(crate) enum Due {
    ToServer {
        connection: ConnectionId,
        command: RemotingCommand,
        request: Arc<Request>,
    },
    /// A thread of a broker does what it has read.
    Done {
        connection: ConnectionId,
        command: RemotingCommand,
        request: Arc<Request>,
    },
    ToMember {
        connection: ConnectionId,
        command: RemotingCommand,
    },
    Fails {
        member: usize,
        opaque: i32,
        error: RequestError,
    },
    AnsweredAgain {
        member: usize,
        id: RequestId,
        result: Result<Response, RequestError>,
    },
    CallEnds {
        member: usize,
        id: ConsumeRequestId,
    },
    /// The guest of a pull task has what it asked for.
    GuestGoesOn {
        member: usize,
        id: PullTaskId,
        answer: Result<PullerAnswer, QueuePullerError>,
    },
    /// Both ends of a connection.
    Closes {
        connection: ConnectionId,
    },
    ClosesAtServer {
        connection: ConnectionId,
    },
    Fault(Fault),
    Resume {
        member: usize,
        group: &'static str,
    },
    Subscribe {
        member: usize,
        group: &'static str,
    },
    /// A disk has done what it was asked.
    Disk {
        member: usize,
        pending: PendingLocalOffsets,
    },
    /// A member is told of another filter.
    Swaps {
        member: usize,
    },
    ReadsTopicAgain,
    /// The queues that are given by hand need a process.
    WatchesAssigned,
    AssignsAll {
        member: usize,
    },
    Send,
    Heal,
    Probe,
    WellAgain,
    /// A queue was unlocked a while ago.
    LooksForLock {
        queue: MessageQueue,
        unlocked_at: Instant,
    },
    HandedOver,
    Look,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) now: Instant,
    pub(crate) random: Rng,
    pub(crate) history: History,
    pub(crate) ledger: Ledger,
    pub(crate) violation: Option<Violation>,
    pub(crate) agenda: Agenda<Due>,
    pub(crate) brokers: Vec<BrokerNode>,
    pub(crate) name_servers_away: [Instant; NAME_SERVERS],
    /// The first one only sends.
    pub(crate) members: Vec<Member>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) partitions: BTreeMap<(usize, Server), Instant>,
    pub(crate) next_connection: u64,
    pub(crate) next_opaque: i32,
    /// Assignments so far.
    pub(crate) assignments: u64,
    pub(crate) weather: Vec<(Weather, Instant)>,
    pub(crate) healed: bool,
    pub(crate) recovery: Recovery,
    settled: bool,
    pub(crate) bug: Option<PlantedBug>,
    pub(crate) configs: Vec<GroupConfig>,
    pub(crate) buffer_bytes: u64,
    /// Members consume in broadcast too.
    pub(crate) broadcasts: bool,
    pub(crate) hosts: Vec<Host>,
    /// Members have pull tasks too.
    pub(crate) has_tasks: bool,
    pub(crate) tasks: TaskLedger,
    pub(crate) swaps: Swaps,
    /// `None`: listeners that are always there.
    pub(crate) plugins: Option<Box<dyn Plugins>>,
    /// Calls that plugins have ended, until that has happened.
    pub(crate) killed: BTreeSet<PluginCall>,
    pub(crate) handover: HandOver,
    /// How often an answer was damaged at a place, by group.
    pub(crate) damaged: BTreeMap<(String, Place), Damage>,
    config_seed: u64,
    next_message: u32,
    steps: u64,
    pub(crate) kinds: Kinds,
}

impl Cluster {
    pub(crate) fn new(seed: u64, bug: Option<PlantedBug>, history: History) -> Self {
        let mut random = Rng::with_seed(seed);
        let now = Instant::ORIGIN;
        let brokers = 1 + random.usize(..2);
        let brokers = (0..brokers).map(|index| broker(index, now)).collect();
        let config_seed = random.u64(..);
        let mut configs = group_configs(config_seed, &Swaps::default());
        let mut buffer_bytes = [4 << 10, 64 << 10, 1 << 30][random.usize(..3)];
        let by_hand = ConsumeMode::Orderly { auto_commit: false };
        if configs.iter().any(|config| config.mode() == by_hand) {
            // What waits for a commit must not keep the messages away that bring it.
            buffer_bytes = 1 << 30;
        }
        let broadcasts = random.u32(0..3) == 0;
        let has_tasks = random.u32(0..3) == 0;
        let has_assigned = random.u32(0..3) == 0;
        if has_assigned {
            configs.push(assigned::config(&mut random));
        }
        if broadcasts || has_tasks || has_assigned {
            // One more group for the same memory: enough for more than a pull at a time,
            // or what has piled up is not consumed in time.
            buffer_bytes = buffer_bytes.max(64 << 10);
        }
        let mut cluster = Self {
            now,
            history,
            ledger: Ledger::default(),
            violation: None,
            agenda: Agenda::default(),
            brokers,
            name_servers_away: [now; NAME_SERVERS],
            members: Vec::new(),
            connections: BTreeMap::new(),
            partitions: BTreeMap::new(),
            next_connection: 0,
            next_opaque: 0,
            assignments: 0,
            weather: Vec::new(),
            healed: false,
            recovery: Recovery::default(),
            settled: false,
            bug,
            configs,
            buffer_bytes,
            broadcasts,
            hosts: Vec::new(),
            has_tasks,
            tasks: TaskLedger::default(),
            swaps: Swaps::default(),
            plugins: None,
            killed: BTreeSet::new(),
            handover: HandOver::default(),
            damaged: BTreeMap::new(),
            config_seed,
            next_message: 0,
            steps: 0,
            kinds: Kinds::default(),
            random,
        };
        for (group, _) in GROUPS {
            cluster.ledger.groups.entry(group).or_default();
        }
        if has_assigned {
            cluster
                .ledger
                .groups
                .insert(assigned::ASSIGNED, GroupLedger::default());
            cluster.agenda.at(now, Due::WatchesAssigned);
        }
        for (at, fault) in plan(&mut cluster.random) {
            cluster.agenda.at(at, Due::Fault(fault));
        }
        cluster.agenda.at(now, Due::Send);
        cluster.agenda.at(now + FAULTS_END, Due::Heal);
        cluster.new_member(false);
        for _ in 0..1 + cluster.random.usize(..3) {
            cluster.join();
        }
        cluster
    }

    pub(crate) fn run(mut self) -> Result<Summary, Box<Violation>> {
        let end = Instant::ORIGIN + FAULTS_END + SETTLE_MAX;
        let mut at_once = 0;
        while !self.settled {
            let before = self.now;
            self.step();
            self.steps += 1;
            at_once = if self.now > before { 0 } else { at_once + 1 };
            if at_once > STEPS_AT_ONCE_MAX {
                self.violated("nothing runs in a circle", "time stands still".to_owned());
            }
            if self.now > end {
                let reasons = self.unsettled().join("; ");
                self.violated("a healed cluster settles", reasons);
            }
            if let Some(violation) = self.violation.take() {
                return Err(Box::new(violation));
            }
        }
        Ok(Summary {
            sent: self.ledger.sent.values().filter(|s| s.acknowledged).count(),
            deliveries: self.ledger.deliveries,
            repeats: self.ledger.repeats,
            dead: self
                .ledger
                .groups
                .values()
                .map(|group| group.dead.len())
                .sum(),
            seconds: self.now.since_origin().as_secs(),
            steps: self.steps,
            kinds: self.kinds,
        })
    }

    /// One thing that is due, or everybody's timers.
    fn step(&mut self) {
        if let Some(due) = self.agenda.pop_due(self.now) {
            self.happens(due);
            return;
        }
        let mut ran = false;
        for broker in 0..self.brokers.len() {
            let node = &mut self.brokers[broker];
            if node.away_until <= self.now
                && node.broker.poll_timeout() <= Some(self.now)
                && node.broker.poll_timeout().is_some()
            {
                node.broker.handle_timeout(self.now);
                self.drain_broker(broker);
                ran = true;
            }
        }
        for member in 0..self.members.len() {
            if self.timeout_of(member).is_some_and(|at| at <= self.now) {
                self.give(member, |client, now| client.handle_timeout(now));
                ran = true;
            }
        }
        ran |= self.plugin_timers();
        if !ran {
            let plugins = self.plugins.as_ref().and_then(|one| one.poll_timeout());
            let brokers = self.brokers.iter().filter_map(|node| {
                let at = node.broker.poll_timeout()?;
                Some(at.max(node.away_until))
            });
            let members = (0..self.members.len()).filter_map(|member| self.timeout_of(member));
            let next = brokers.chain(members).chain(self.agenda.next());
            let next = next.chain(plugins).min();
            self.now = next
                .unwrap_or(self.now + Duration::from_secs(1))
                .max(self.now);
        }
    }

    fn timeout_of(&self, member: usize) -> Option<Instant> {
        let member = &self.members[member];
        let at = member.client.as_ref()?.poll_timeout()?;
        Some(at.max(member.stalled_until))
    }

    pub(crate) fn happens(&mut self, due: Due) {
        match due {
            Due::ToServer {
                connection,
                command,
                request,
            } => self.at_server(connection, command, request),
            Due::Done {
                connection,
                command,
                request,
            } => self.done_at_server(connection, command, &request),
            Due::ToMember {
                connection,
                command,
            } => self.at_member(connection, command),
            Due::Fails {
                member,
                opaque,
                error,
            } => self.request_fails(member, opaque, error),
            Due::AnsweredAgain { member, id, result } => {
                self.give(member, |client, now| {
                    client.handle_response(id, result, now);
                });
            }
            Due::CallEnds { member, id } => {
                let stalled_until = self.members[member].stalled_until;
                if stalled_until > self.now {
                    self.agenda.at(stalled_until, Due::CallEnds { member, id });
                } else {
                    self.end_call(member, id);
                }
            }
            Due::Closes { connection } => {
                self.close_at_server(connection);
                self.close_at_member(connection);
            }
            Due::ClosesAtServer { connection } => self.close_at_server(connection),
            Due::Fault(fault) => self.goes_wrong(fault),
            Due::Resume { member, group } => {
                if let Some(&id) = self.members[member].groups.get(group) {
                    self.give(member, |client, now| {
                        // It may have left, or begun anew, meanwhile.
                        client.resume(id, &PauseScope::Group, now).ok();
                    });
                }
            }
            Due::GuestGoesOn { member, id, answer } => self.guest_goes_on(member, id, answer),
            Due::Disk { member, pending } => {
                let stalled_until = self.members[member].stalled_until;
                if stalled_until > self.now {
                    self.agenda.at(stalled_until, Due::Disk { member, pending });
                } else {
                    self.at_disk(member, &pending);
                }
            }
            Due::Subscribe { member, group } => self.subscribe(member, group),
            Due::Swaps { member } => self.swaps_member(member),
            Due::ReadsTopicAgain => self.reads_topic_again(),
            Due::WatchesAssigned => self.watches_assigned(),
            Due::AssignsAll { member } => self.assigns_all(member),
            Due::Send => self.send_some(),
            Due::Heal => self.heal(),
            Due::Probe => self.probe(),
            Due::WellAgain => self.check_well_again(),
            Due::LooksForLock { queue, unlocked_at } => self.check_next_owner(&queue, unlocked_at),
            Due::HandedOver => self.recovery.checked = true,
            Due::Look => {
                let settled = self.recovery.checked && self.unsettled().is_empty();
                self.settled |= settled;
                self.agenda.at(self.now + Duration::from_secs(1), Due::Look);
            }
        }
    }

    pub(crate) fn new_message_id(&mut self) -> u32 {
        self.next_message += 1;
        self.next_message
    }

    fn send_some(&mut self) {
        if self.healed {
            return;
        }
        for _ in 0..self.random.u32(1..6) {
            let id = self.new_message_id();
            let (topic, _) = TOPICS[self.random.usize(..TOPICS.len())];
            let tag = [None, Some("A"), Some("B"), Some("C")][self.random.usize(..4)];
            let sent = Sent {
                topic,
                tag,
                acknowledged: false,
            };
            self.swaps.note_sent(id, topic, tag, self.now);
            self.ledger.sent.insert(id, sent);
            let message = OutgoingMessage {
                topic: topic.to_owned(),
                body: format!("m{id}").into(),
                tags: tag.map(str::to_owned),
                ..OutgoingMessage::default()
            };
            let now = self.now;
            if let Some(client) = &mut self.members[0].client {
                let timeout = Duration::from_secs(3);
                let send = client.send(vec![message], SendMode::Sync, timeout, now);
                self.members[0].sends.insert(send, id);
            }
            self.drain(0);
        }
        let after = Duration::from_millis(self.random.u64(20..2_500));
        self.agenda.at(self.now + after, Due::Send);
    }

    /// Whoever subscribes from now on does so with the filter of now.
    pub(crate) fn renew_configs(&mut self) {
        for config in group_configs(self.config_seed, &self.swaps) {
            let group = config.consumer_group();
            let mut configs = self.configs.iter_mut();
            if let Some(before) = configs.find(|before| before.consumer_group() == group) {
                *before = config;
            }
        }
    }

    pub(crate) fn is(&self, weather: Weather) -> bool {
        let mut now = self.weather.iter();
        now.any(|(kind, until)| *kind == weather && *until > self.now)
    }

    pub(crate) fn mood(&self) -> Mood {
        let slow = self.is(Weather::SlowListeners);
        let failing = self.is(Weather::FailingListeners);
        Mood {
            slow: if slow { 30 } else { u32::from(!self.healed) },
            failing: if failing {
                60
            } else {
                4 * u32::from(!self.healed)
            },
        }
    }

    pub(crate) fn broker_named(&self, name: &str) -> Option<usize> {
        self.brokers.iter().position(|node| node.name == name)
    }
}
