//! What goes wrong, and when: a plan made from the seed before the run begins.
//!
//! Some faults happen at a moment (a crash, a cut); others last a while and make the
//! network or the servers worse. After [`FAULTS_END`] everything is healed.

use std::time::Duration;

use consumer::{Client, PauseKind, PauseScope};
use embedded_broker::ConnectionId;
use fastrand::Rng;
use protocol::{Instant, MessageQueue};

use crate::cluster::{Cluster, Due, GROUPS, MEMBERS_MAX, NAME_SERVERS};
use crate::history::History;
use crate::in_order::ORDERLY_GROUP;
use crate::network::Server;

/// When the last fault ends.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(600);

/// One thing that goes wrong. Members and servers are chosen when it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A member's process is gone, without a word.
    Crash,
    /// A member stops in order.
    Stop,
    /// A member comes.
    Join,
    /// A member's group leaves and comes back later.
    Resubscribe,
    /// A member's group pauses for a while.
    Pause(Duration),
    /// A member's process does not run for a while; then its clock has jumped.
    Stall(Duration),
    /// A member's listener keeps failing, and is not called but now and then.
    Hold(Duration),
    /// A connection breaks, and both sides notice.
    Cut,
    /// A connection swallows everything for a while, then breaks.
    Silence(Duration),
    /// A member's connection breaks, and the broker does not notice for a while.
    HalfOpen(Duration),
    /// A member cannot reach a server.
    Partition(Duration),
    /// A broker is away for a while; perhaps it forgets what was committed lately.
    BrokerRestart { away: Duration, rolled_back: bool },
    /// A name server is away.
    NameServerAway(Duration),
    /// An operator moves offsets of a group back.
    Reset,
    /// Somebody moves a queue that was given by hand back.
    Seek,
    /// Queues that were given by hand are taken away for a while.
    Assign,
    /// The filter of a group changes.
    Swap,
    /// A group does not read one of its topics for a while.
    SwapTopics(Duration),
    /// The disk of a host is full for a while.
    DiskFull(Duration),
    /// The disk of a host cannot be read for a while.
    DiskUnreadable(Duration),
    /// A weather for a while.
    Weather(Weather, Duration),
}

/// What makes everything worse for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weather {
    /// Name servers say less than they should.
    WrongRoutes,
    /// Member lists are empty, wrong or lack the one who asks.
    WrongMembers,
    /// Everything takes up to some seconds.
    SlowNetwork,
    /// Requests and answers get lost.
    LossyNetwork,
    /// Answers come twice.
    RepeatedAnswers,
    /// Brokers refuse what they are asked, before or after having done it.
    Refusals,
    /// Brokers take no message back.
    NoSendBacks,
    /// Listeners are slow.
    SlowListeners,
    /// Listeners fail.
    FailingListeners,
    /// Answers to pulls are damaged.
    DamagedAnswers,
    /// Answers to pulls are too large.
    HugeAnswers,
    /// One name server knows less than the other.
    DisagreeingNameServers,
    /// Brokers' threads do what they have read later, and in any order.
    BusyBrokers,
}

impl Weather {
    pub(crate) const ALL: [Self; 13] = [
        Self::WrongRoutes,
        Self::WrongMembers,
        Self::SlowNetwork,
        Self::LossyNetwork,
        Self::RepeatedAnswers,
        Self::Refusals,
        Self::NoSendBacks,
        Self::SlowListeners,
        Self::FailingListeners,
        Self::DamagedAnswers,
        Self::HugeAnswers,
        Self::DisagreeingNameServers,
        Self::BusyBrokers,
    ];
}

/// The faults of a run.
pub(crate) fn plan(random: &mut Rng) -> Vec<(Instant, Fault)> {
    let mut plan = Vec::new();
    // Some runs are calm, some are wild.
    let pause_max = [4_000, 10_000, 25_000][random.usize(..3)];
    let mut at = Duration::from_secs(10);
    loop {
        at += Duration::from_millis(random.u64(200..pause_max));
        if at >= FAULTS_END {
            return plan;
        }
        plan.push((Instant::after_origin(at), fault(random)));
    }
}

fn fault(random: &mut Rng) -> Fault {
    let seconds = |random: &mut Rng, max: u64| Duration::from_millis(random.u64(100..max * 1000));
    match random.u32(0..42) {
        0..=1 => Fault::Crash,
        2..=3 => Fault::Stop,
        4..=6 => Fault::Join,
        7 => Fault::Resubscribe,
        8 => Fault::Pause(seconds(random, 40)),
        9 => Fault::Stall(seconds(random, 50)),
        10..=12 => Fault::Cut,
        13..=14 => Fault::Silence(seconds(random, 40)),
        15 => Fault::HalfOpen(seconds(random, 130)),
        16 => Fault::Partition(seconds(random, 40)),
        17..=18 => Fault::BrokerRestart {
            away: seconds(random, 20),
            rolled_back: random.bool(),
        },
        19 => Fault::NameServerAway(seconds(random, 60)),
        20 => Fault::Reset,
        21 => Fault::DiskFull(seconds(random, 60)),
        22 => Fault::DiskUnreadable(seconds(random, 30)),
        23 => Fault::Seek,
        24 => Fault::Assign,
        25 => Fault::Swap,
        26 => Fault::SwapTopics(seconds(random, 60)),
        27..=28 => Fault::Hold(seconds(random, 40)),
        _ => Fault::Weather(
            Weather::ALL[random.usize(..Weather::ALL.len())],
            seconds(random, 40),
        ),
    }
}

impl Cluster {
    /// Members that consume and go on doing so.
    pub(crate) fn living(&self) -> Vec<usize> {
        let indices = 1..self.members.len();
        let lives = |&index: &usize| {
            let member = &self.members[index];
            member.client.is_some() && !member.stopping
        };
        indices.filter(lives).collect()
    }

    pub(crate) fn any_member(&mut self) -> Option<usize> {
        let living = self.living();
        (!living.is_empty()).then(|| living[self.random.usize(..living.len())])
    }

    fn any_connection(&mut self) -> Option<ConnectionId> {
        let open = self.connections.iter();
        let open = open.filter(|(_, c)| c.open_at_member && c.open_at_server);
        let open: Vec<ConnectionId> = open.map(|(&id, _)| id).collect();
        (!open.is_empty()).then(|| open[self.random.usize(..open.len())])
    }

    fn any_server(&mut self) -> Server {
        if self.random.u32(0..3) == 0 {
            Server::NameServer(self.random.usize(..NAME_SERVERS))
        } else {
            Server::Broker(self.random.usize(..self.brokers.len()))
        }
    }

    pub(crate) fn goes_wrong(&mut self, fault: Fault) {
        self.history.add(self.now, || format!("FAULT {fault:?}"));
        let now = self.now;
        match fault {
            Fault::Join => {
                if self.living().len() < MEMBERS_MAX {
                    self.join();
                }
            }
            Fault::Reset => self.reset_some(),
            Fault::Seek => self.seek_some(),
            Fault::Assign => self.assign_some(),
            Fault::Swap => self.swap(),
            Fault::SwapTopics(time) => self.swap_topics(time),
            Fault::DiskFull(time) | Fault::DiskUnreadable(time) => {
                let end = Some(now + time);
                if !self.hosts.is_empty() {
                    let index = self.random.usize(..self.hosts.len());
                    let host = &mut self.hosts[index];
                    match fault {
                        Fault::DiskFull(_) => host.full_until = end,
                        _ => host.unreadable_until = end,
                    }
                }
            }
            Fault::Weather(weather, time) => self.weather.push((weather, now + time)),
            Fault::NameServerAway(time) => {
                let index = self.random.usize(..NAME_SERVERS);
                self.name_servers_away[index] = now + time;
                self.cut_server(Server::NameServer(index));
            }
            Fault::BrokerRestart { away, rolled_back } => {
                let index = self.random.usize(..self.brokers.len());
                self.brokers[index].away_until = now + away;
                self.cut_server(Server::Broker(index));
                // Locks are kept in memory only.
                self.brokers[index].broker.revoke_locks(ORDERLY_GROUP);
                self.ledger.locks_forgotten = Some(now + away);
                if rolled_back {
                    self.ledger.rolled_back = true;
                    self.roll_back(index);
                }
            }
            Fault::Cut => {
                if let Some(connection) = self.any_connection() {
                    self.happens(Due::Closes { connection });
                }
            }
            Fault::Silence(time) => {
                if let Some(id) = self.any_connection() {
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.silent_until = now + time;
                    }
                    self.agenda.at(now + time, Due::Closes { connection: id });
                }
            }
            Fault::HalfOpen(time) => {
                if let Some(connection) = self.any_connection() {
                    self.close_at_member(connection);
                    self.agenda
                        .at(now + time, Due::ClosesAtServer { connection });
                }
            }
            _ => {
                if let Some(member) = self.any_member() {
                    self.goes_wrong_at(member, fault);
                }
            }
        }
    }

    fn goes_wrong_at(&mut self, member: usize, fault: Fault) {
        let now = self.now;
        let name = self.members[member].name.clone();
        self.history.add(now, || format!("FAULT hits {name}"));
        let group = GROUPS[self.random.usize(..GROUPS.len())].0;
        match fault {
            Fault::Crash => {
                self.leaves_locks();
                self.gone(member);
            }
            Fault::Stop => {
                self.members[member].stopping = true;
                self.give(member, Client::stop);
            }
            Fault::Resubscribe => {
                self.leaves_for_a_while(member, group, Duration::from_secs(20));
            }
            Fault::Pause(time) => {
                if let Some(&id) = self.members[member].groups.get(group) {
                    self.give(member, |client, now| {
                        let by = "the simulation".into();
                        let group = PauseScope::Group;
                        // A group that leaves is not paused.
                        client.pause(id, &group, PauseKind::Pause, &by, now).ok();
                    });
                    self.agenda.at(now + time, Due::Resume { member, group });
                }
            }
            Fault::Hold(time) => self.hold(member, group, time),
            Fault::Stall(time) => {
                let end = Instant::after_origin(FAULTS_END);
                self.members[member].stalled_until = (now + time).min(end);
            }
            Fault::Partition(time) => {
                let server = self.any_server();
                self.partitions.insert((member, server), now + time);
                for (id, connection) in &mut self.connections {
                    if connection.member == member && connection.server == server {
                        connection.silent_until = now + time;
                        self.agenda.at(now + time, Due::Closes { connection: *id });
                    }
                }
            }
            _ => {}
        }
    }

    fn cut_server(&mut self, server: Server) {
        let cut = self.connections.iter().filter(|(_, c)| c.server == server);
        let cut: Vec<ConnectionId> = cut.map(|(&id, _)| id).collect();
        for connection in cut {
            self.happens(Due::Closes { connection });
        }
    }

    /// A broker comes back with what it had stored a while ago.
    fn roll_back(&mut self, broker: usize) {
        let node = &mut self.brokers[broker];
        for (&group, ledger) in &mut self.ledger.groups {
            for (queue, commits) in &mut ledger.commits {
                if *queue.broker_name != *node.name || commits.len() < 2 {
                    continue;
                }
                let back = self.random.usize(1..commits.len().min(4));
                let offset = commits[commits.len() - 1 - back];
                node.broker
                    .roll_back_offset(group, &queue.topic, queue.queue_id, offset);
                commits.push(offset);
                note_roll_back(&self.history, self.now, group, queue, offset);
            }
        }
    }

    /// Listeners are slow no more.
    fn end_calls_soon(&mut self) {
        for (member, this) in self.members.iter().enumerate() {
            for &id in this.calls.keys() {
                let after = Duration::from_millis(self.random.u64(1..40));
                self.agenda
                    .at(self.now + after, Due::CallEnds { member, id });
            }
        }
    }

    /// The end of everything that goes wrong.
    pub(crate) fn heal(&mut self) {
        self.history.add(self.now, || "HEALED".to_owned());
        self.healed = true;
        if let Some(plugins) = &mut self.plugins {
            plugins.healed();
        }
        self.weather.clear();
        self.partitions.clear();
        self.heal_disks();
        self.name_servers_away = [self.now; NAME_SERVERS];
        for node in &mut self.brokers {
            node.away_until = self.now;
        }
        let broken = self.connections.iter().filter(|(_, connection)| {
            connection.silent_until > self.now
                || connection.open_at_member != connection.open_at_server
        });
        let broken: Vec<ConnectionId> = broken.map(|(&id, _)| id).collect();
        for connection in broken {
            self.happens(Due::Closes { connection });
        }
        for member in self.living() {
            for (group, _) in GROUPS {
                self.happens(Due::Resume { member, group });
            }
        }
        if self.living().is_empty() {
            self.join();
        }
        self.end_calls_soon();
        self.expect_recovery();
    }
}

fn note_roll_back(history: &History, now: Instant, group: &str, queue: &MessageQueue, to: i64) {
    history.add(now, || {
        format!("FAULT {queue} of {group} is rolled back to {to}")
    });
}
