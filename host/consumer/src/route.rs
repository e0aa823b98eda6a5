//! Topic routes, brokers and their addresses, and which replica to ask.
//!
//! [`Routes`] is the table: it takes answers of name servers in and says what changed.
//! When to ask, and what a change sets off, is decided in `name_server`.
//!
//! RocketMQ: `MQClientInstance#updateTopicRouteInfoFromNameServer`,
//! `topicRouteData2TopicSubscribeInfo`, `topicRouteData2TopicPublishInfo`.

mod name_server;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::TopicRouteData;
use protocol::{Address, Instant, MessageQueue};

use crate::epoch::{Epoch, EpochTable};
use crate::heartbeat::Peer;
use crate::rebalance::allocate::{java_order, java_queue_order};
use crate::request::RequestId;
use crate::timers::{ROUTE_REFRESH, SHRUNK_ROUTE_REFRESH, SHRUNK_ROUTE_WATCHED, stretched};

pub(crate) use name_server::NameServers;

/// Queues of a topic, on all its brokers together, that are believed; more is a mistake or
/// an attack. The first ones count.
const QUEUES_PER_TOPIC_MAX: usize = 65_536;
/// With so many topics, those that nobody needs any more are forgotten.
const TOPICS_SWEPT_FROM: usize = 1_024;
/// The same for names of brokers.
const BROKERS_SWEPT_FROM: usize = 1_024;

const PERM_READ: i32 = 4;
const PERM_WRITE: i32 = 2;
/// Broker id of a master.
const MASTER_ID: u64 = 0;

/// What is known of topics and brokers.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) name_servers: NameServers,
    pub(crate) topics: EpochTable<Topic>,
    topic_names: BTreeMap<Arc<str>, Epoch>,
    sweep_at: usize,
    brokers: EpochTable<Broker>,
    sweep_brokers_at: usize,
    broker_names: BTreeMap<Arc<str>, BrokerId>,
    pub(crate) peers: EpochTable<Peer>,
    peer_addresses: BTreeMap<Address, Epoch>,
}

/// A broker name in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BrokerId(Epoch);

#[derive(Debug)]
struct Broker {
    /// By broker id.
    peers: BTreeMap<u64, Epoch>,
    /// Topics whose route names it.
    topics: u32,
}

/// A topic that somebody reads or writes.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) state: RouteState,
    query: Option<RequestId>,
    servers_tried: usize,
    /// Queues that it had before it lost some, and until when they may come back.
    shrunk: Option<(usize, Instant)>,
    /// Answers in a row that it does not exist.
    missing_answers: u32,
    /// Refusals in a row of our access key.
    refusals: u32,
    /// When a name server last said something about it.
    pub(crate) answered_at: Option<Instant>,
    pub(crate) last_error: Option<String>,
    /// In Java's order.
    pub(crate) read_queues: Vec<MessageQueue>,
    pub(crate) write_queues: Vec<MessageQueue>,
    brokers: Vec<BrokerId>,
    /// Groups that read it.
    pub(crate) subscribers: Vec<Epoch>,
    /// Sends that cannot go on without its route.
    pub(crate) waiting_sends: Vec<Epoch>,
    /// Where the next send goes.
    pub(crate) next_write: usize,
}

/// Whether a topic exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteState {
    Unknown,
    Missing,
    Known,
}

/// What an answer changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouteChange {
    /// The topic was not known before.
    pub(crate) appeared: bool,
    /// The queues to read are others.
    pub(crate) read_queues: bool,
}

impl Topic {
    /// Notes queues that are gone, and those that are back.
    fn note_shrunk(&mut self, queues: usize, now: Instant) {
        let before = self.read_queues.len();
        if queues < before {
            let had = self.shrunk.map_or(before, |(had, _)| had.max(before));
            self.shrunk = Some((had, now + SHRUNK_ROUTE_WATCHED));
        } else if self
            .shrunk
            .is_some_and(|(had, until)| queues >= had || until <= now)
        {
            self.shrunk = None;
        }
    }

    /// How long what is known of its route is believed, by a client with so many topics.
    fn refresh(&self, topics: usize) -> Duration {
        if self.shrunk.is_some() {
            SHRUNK_ROUTE_REFRESH
        } else {
            stretched(ROUTE_REFRESH, topics)
        }
    }
}

/// A broker's address that may be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replica {
    pub(crate) peer: Epoch,
    pub(crate) address: Address,
    pub(crate) broker_id: u64,
}

impl Replica {
    pub(crate) fn is_master(&self) -> bool {
        self.broker_id == MASTER_ID
    }
}

impl Routes {
    /// Whether a heartbeat with one of these versions awaits its answer.
    pub(crate) fn is_heartbeat_under_way(&self, versions: &Range<u64>) -> bool {
        self.peers.iter().any(|(_, peer)| {
            let under_way = peer.heartbeat.as_ref();
            under_way.is_some_and(|(_, version)| versions.contains(version))
        })
    }

    pub(crate) fn new(name_servers: Vec<Address>) -> Self {
        Self {
            name_servers: NameServers::new(name_servers),
            topics: EpochTable::default(),
            topic_names: BTreeMap::new(),
            sweep_at: TOPICS_SWEPT_FROM,
            brokers: EpochTable::default(),
            sweep_brokers_at: BROKERS_SWEPT_FROM,
            broker_names: BTreeMap::new(),
            peers: EpochTable::default(),
            peer_addresses: BTreeMap::new(),
        }
    }

    /// The topic of this name, made if need be.
    pub(crate) fn topic(&mut self, name: &str) -> Epoch {
        if let Some(&epoch) = self.topic_names.get(name) {
            return epoch;
        }
        if self.topics.len() >= self.sweep_at {
            self.forget_unused_topics();
            self.sweep_at = TOPICS_SWEPT_FROM.max(2 * self.topics.len());
        }
        let name: Arc<str> = name.into();
        let epoch = self.topics.insert(Topic {
            name: Arc::clone(&name),
            state: RouteState::Unknown,
            query: None,
            servers_tried: 0,
            shrunk: None,
            missing_answers: 0,
            refusals: 0,
            answered_at: None,
            last_error: None,
            read_queues: Vec::new(),
            write_queues: Vec::new(),
            brokers: Vec::new(),
            subscribers: Vec::new(),
            waiting_sends: Vec::new(),
            next_write: 0,
        });
        self.topic_names.insert(name, epoch);
        epoch
    }

    pub(crate) fn peer_at(&self, address: &Address) -> Option<Epoch> {
        self.peer_addresses.get(address).copied()
    }

    /// Takes a name server's answer in.
    fn apply(&mut self, epoch: Epoch, data: &TopicRouteData, now: Instant) -> Option<RouteChange> {
        let mut brokers: Vec<BrokerId> = Vec::new();
        for broker in &data.broker_datas {
            let id = self.broker(&broker.broker_name);
            if !brokers.contains(&id) {
                brokers.push(id);
            }
            self.set_addresses(id, &broker.broker_addrs);
        }
        let topic = self.topics.get(epoch)?;
        let name = Arc::clone(&topic.name);
        let before = topic.brokers.clone();
        for id in brokers.iter().filter(|id| !before.contains(id)) {
            if let Some(broker) = self.brokers.get_mut(id.0) {
                broker.topics += 1;
            }
        }
        self.leave_brokers(before.into_iter().filter(|id| !brokers.contains(id)));
        let read_queues = self.read_queues(&name, data);
        let write_queues = self.write_queues(&name, data);
        let topic = self.topics.get_mut(epoch)?;
        let change = RouteChange {
            appeared: topic.state != RouteState::Known,
            read_queues: topic.read_queues != read_queues,
        };
        topic.note_shrunk(read_queues.len(), now);
        topic.state = RouteState::Known;
        topic.last_error = None;
        topic.brokers = brokers;
        topic.read_queues = read_queues;
        topic.write_queues = write_queues;
        Some(change)
    }

    fn read_queues(&self, topic: &Arc<str>, data: &TopicRouteData) -> Vec<MessageQueue> {
        let mut queues = Vec::new();
        for queue_data in &data.queue_datas {
            if queue_data.perm & PERM_READ == 0 {
                continue;
            }
            let broker_name = self.broker_name(&queue_data.broker_name);
            let room = QUEUES_PER_TOPIC_MAX - queues.len();
            let all = (0..queue_data.read_queue_nums).take(room);
            queues.extend(all.map(|queue_id| MessageQueue {
                topic: Arc::clone(topic),
                broker_name: Arc::clone(&broker_name),
                queue_id,
            }));
        }
        queues.sort_by(java_queue_order);
        queues.dedup();
        queues
    }

    fn write_queues(&self, topic: &Arc<str>, data: &TopicRouteData) -> Vec<MessageQueue> {
        let queues_of = |broker_name: &Arc<str>, count: u32| {
            let (topic, broker_name) = (Arc::clone(topic), Arc::clone(broker_name));
            (0..count).map(move |queue_id| MessageQueue {
                topic: Arc::clone(&topic),
                broker_name: Arc::clone(&broker_name),
                queue_id,
            })
        };
        let mut queues = Vec::new();
        if let Some(conf) = data.order_topic_conf.as_deref().filter(|c| !c.is_empty()) {
            for item in conf.split(';') {
                if let Some((name, count)) = item.split_once(':')
                    && let Ok(count) = count.trim().parse()
                {
                    let name = self.broker_name(name.trim());
                    let room = QUEUES_PER_TOPIC_MAX - queues.len();
                    queues.extend(queues_of(&name, count).take(room));
                }
            }
            return queues;
        }
        let mut datas: Vec<_> = data.queue_datas.iter().collect();
        datas.sort_by(|a, b| java_order(&a.broker_name, &b.broker_name));
        for queue_data in datas {
            let has_master = data.broker_datas.iter().any(|broker| {
                broker.broker_name == queue_data.broker_name
                    && broker.broker_addrs.contains_key(&MASTER_ID)
            });
            if queue_data.perm & PERM_WRITE != 0 && has_master {
                let name = self.broker_name(&queue_data.broker_name);
                let room = QUEUES_PER_TOPIC_MAX - queues.len();
                queues.extend(queues_of(&name, queue_data.write_queue_nums).take(room));
            }
        }
        queues
    }

    pub(crate) fn broker(&mut self, name: &str) -> BrokerId {
        if let Some(&id) = self.broker_names.get(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        let id = BrokerId(self.brokers.insert(Broker {
            peers: BTreeMap::new(),
            topics: 0,
        }));
        self.broker_names.insert(name, id);
        id
    }

    /// The name as it is shared by all that mention it.
    fn broker_name(&self, name: &str) -> Arc<str> {
        let known = self.broker_names.get_key_value(name);
        known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// So many names are known that some may be left over from long ago.
    fn has_many_brokers(&self) -> bool {
        self.brokers.len() >= self.sweep_brokers_at
    }

    /// Forgets names that no route has any more and none of the `held` ones is.
    fn forget_unused_brokers(&mut self, held: &BTreeSet<BrokerId>) {
        let brokers = &mut self.brokers;
        self.broker_names.retain(|_, id| {
            let used = brokers.get(id.0).is_some_and(|broker| broker.topics > 0);
            used || held.contains(id) || brokers.remove(id.0).is_none()
        });
        self.sweep_brokers_at = BROKERS_SWEPT_FROM.max(2 * self.brokers.len());
    }

    fn peers_of(&self, id: BrokerId) -> Option<&BTreeMap<u64, Epoch>> {
        Some(&self.brokers.get(id.0)?.peers)
    }

    pub(crate) fn broker_id(&self, name: &str) -> Option<BrokerId> {
        self.broker_names.get(name).copied()
    }

    fn set_addresses(&mut self, id: BrokerId, addresses: &BTreeMap<u64, Address>) {
        let Some(before) = self.peers_of(id) else {
            return;
        };
        let same = addresses.len() == before.len()
            && addresses.iter().all(|(broker_id, address)| {
                let peer = before.get(broker_id);
                peer.is_some_and(|peer| self.peer_addresses.get(address) == Some(peer))
            });
        if same {
            return;
        }
        let mut peers = BTreeMap::new();
        for (&broker_id, address) in addresses {
            let peer = match self.peer_addresses.get(address) {
                Some(&peer) => peer,
                None => {
                    let peer = self.peers.insert(Peer::new(address.clone()));
                    self.peer_addresses.insert(address.clone(), peer);
                    peer
                }
            };
            if let Some(peer) = self.peers.get_mut(peer) {
                peer.references += 1;
            }
            peers.insert(broker_id, peer);
        }
        if let Some(broker) = self.brokers.get_mut(id.0) {
            let before = std::mem::replace(&mut broker.peers, peers);
            self.release_peers(before.into_values());
        }
    }

    fn release_peers(&mut self, peers: impl Iterator<Item = Epoch>) {
        for epoch in peers {
            let Some(peer) = self.peers.get_mut(epoch) else {
                continue;
            };
            peer.references -= 1;
            if peer.references == 0
                && let Some(peer) = self.peers.remove(epoch)
            {
                self.peer_addresses.remove(&peer.address);
            }
        }
    }

    fn leave_brokers(&mut self, brokers: impl Iterator<Item = BrokerId>) {
        for id in brokers {
            let Some(broker) = self.brokers.get_mut(id.0) else {
                continue;
            };
            broker.topics -= 1;
            if broker.topics == 0 {
                let peers = std::mem::take(&mut broker.peers);
                self.release_peers(peers.into_values());
            }
        }
    }

    /// Forgets a topic that nobody needs any more.
    pub(crate) fn forget_if_unused(&mut self, epoch: Epoch) {
        let unused = self
            .topics
            .get(epoch)
            .is_some_and(|topic| topic.subscribers.is_empty() && topic.waiting_sends.is_empty());
        if unused && let Some(topic) = self.topics.remove(epoch) {
            self.topic_names.remove(&topic.name);
            self.leave_brokers(topic.brokers.into_iter());
        }
    }

    fn forget_unused_topics(&mut self) {
        let topics: Vec<_> = self.topics.iter().map(|(epoch, _)| epoch).collect();
        for epoch in topics {
            self.forget_if_unused(epoch);
        }
    }

    fn replica(&self, peers: Option<(&u64, &Epoch)>) -> Option<Replica> {
        let (&broker_id, &peer) = peers?;
        Some(Replica {
            peer,
            address: self.peers.get(peer)?.address.clone(),
            broker_id,
        })
    }

    /// The master of a broker.
    pub(crate) fn master(&self, broker: BrokerId) -> Option<Replica> {
        self.replica(self.peers_of(broker)?.get_key_value(&MASTER_ID))
    }

    /// The master, else anyone.
    pub(crate) fn master_or_any(&self, broker: BrokerId) -> Option<Replica> {
        self.replica(self.peers_of(broker)?.first_key_value())
    }

    /// A slave that answers.
    pub(crate) fn slave(&self, broker: BrokerId) -> Option<Replica> {
        let mut slaves = self.peers_of(broker)?.range(MASTER_ID + 1..);
        self.replica(slaves.find(|(_, peer)| self.is_healthy_peer(**peer)))
    }

    /// The master while it answers, else a slave that does.
    pub(crate) fn replica_for_read(&self, broker: BrokerId) -> Option<Replica> {
        let peers = self.peers_of(broker)?;
        let healthy = peers.iter().find(|(_, peer)| self.is_healthy_peer(**peer));
        self.replica(healthy.or_else(|| peers.first_key_value()))
    }

    /// Whether this peer stands for the broker as a slave.
    pub(crate) fn is_slave(&self, broker: BrokerId, peer: Option<Epoch>) -> bool {
        let peers = self.peers_of(broker).into_iter().flatten();
        let mut ids = peers.filter(|(_, epoch)| Some(**epoch) == peer);
        ids.next().is_some_and(|(&id, _)| id != MASTER_ID)
    }

    /// Whether this peer is the broker's master now. One that was asked and is gone from
    /// the route is not: it may have been a slave.
    pub(crate) fn is_master(&self, broker: BrokerId, peer: Option<Epoch>) -> bool {
        let master = self
            .peers_of(broker)
            .and_then(|peers| peers.get(&MASTER_ID));
        master.is_some_and(|&master| Some(master) == peer)
    }

    /// Whether it answered when it was last asked.
    pub(crate) fn is_healthy(&self, replica: &Replica) -> bool {
        self.is_healthy_peer(replica.peer)
    }

    fn is_healthy_peer(&self, peer: Epoch) -> bool {
        self.peers.get(peer).is_some_and(Peer::is_healthy)
    }

    /// Whom to pull from: the preferred one; if it is a slave and missing, the next;
    /// else anyone. RocketMQ: `MQClientInstance#findBrokerAddressInSubscribe`.
    ///
    /// Differs from RocketMQ: one that does not answer is passed over for one that does. A
    /// slave would send us back to a master that is down with every answer.
    pub(crate) fn replica_for_pull(&self, broker: BrokerId, preferred: u64) -> Option<Replica> {
        let peers = self.peers_of(broker)?;
        let asked = peers.get_key_value(&preferred);
        if !asked.is_some_and(|(_, peer)| self.is_healthy_peer(*peer))
            && let Some(other) = peers.iter().find(|(_, peer)| self.is_healthy_peer(**peer))
        {
            return self.replica(Some(other));
        }
        let found = asked
            .or_else(|| {
                let next = preferred
                    .checked_add(1)
                    .filter(|_| preferred != MASTER_ID)?;
                peers.get_key_value(&next)
            })
            .or_else(|| peers.first_key_value());
        self.replica(found)
    }

    /// Another replica than this one, in turn.
    pub(crate) fn next_broker_id(&self, broker: BrokerId, after: u64) -> u64 {
        let Some(peers) = self.peers_of(broker) else {
            return MASTER_ID;
        };
        let next = peers.range(after.saturating_add(1)..).next();
        next.or_else(|| peers.first_key_value())
            .map_or(MASTER_ID, |(&id, _)| id)
    }

    /// Addresses of a topic's brokers, masters first.
    pub(crate) fn replicas_of_topic(&self, topic: Epoch) -> Vec<Replica> {
        let Some(topic) = self.topics.get(topic) else {
            return Vec::new();
        };
        let mut replicas: Vec<_> = topic
            .brokers
            .iter()
            .filter_map(|broker| self.peers_of(*broker))
            .flatten()
            .filter_map(|peer| self.replica(Some(peer)))
            .collect();
        replicas.sort_by_key(|replica| !replica.is_master());
        replicas
    }

    /// Every address of every broker, by name, for people.
    pub(crate) fn all_replicas(&self) -> impl Iterator<Item = (&Arc<str>, Replica)> {
        self.broker_names.iter().flat_map(move |(name, id)| {
            let peers = self.peers_of(*id).into_iter().flatten();
            peers.filter_map(move |peer| Some((name, self.replica(Some(peer))?)))
        })
    }
}
