//! What we announce, to whom, and who has taken it.
//!
//! Brokers know a group's members and subscriptions from heartbeats alone. Every address
//! of every broker gets one every 30 s, and at once when it is new, when a connection to
//! it was made, and when what we announce has changed. A heartbeat that could not be sent
//! or was not taken is owed until it is (RocketMQ forgets it for up to 30 s).
//!
//! RocketMQ: `MQClientInstance#sendHeartbeatToAllBroker`.

mod parts;

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, ProducerData};
use protocol::{Address, Instant, body};

use crate::access::Access;
use crate::client::{Client, Purpose};
use crate::config;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::ConsumerGroup;
use crate::listener::MessageModel;
use crate::request::{Destination, Request, RequestError, RequestId};
use crate::timers::{
    HEARTBEAT, HEARTBEAT_PAUSE_MAX, HEARTBEAT_PAUSE_PER_GROUP, HEARTBEAT_RETRY, Timer, timeout,
};
use parts::{After, Part, Parts, RefusedGroup};

/// Our name as a sender. RocketMQ: `MixAll#CLIENT_INNER_PRODUCER_GROUP`.
pub(crate) const CLIENT_INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";

/// What the next heartbeat says.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    /// Encoded once for everybody, until something changes.
    body: Option<Bytes>,
    /// Counts changes of groups and their topics. 0 is nothing.
    pub(crate) version: u64,
}

impl Announcement {
    /// Begins another version.
    pub(crate) fn next(&mut self) -> u64 {
        self.body = None;
        self.version += 1;
        self.version
    }
}

/// One address of a broker.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    /// Broker names and ids that stand for it.
    pub(crate) references: u32,
    /// The heartbeat under way, and the version it announces.
    pub(crate) heartbeat: Option<(RequestId, u64)>,
    owed: bool,
    sent_at: Option<Instant>,
    /// Version that it took on its present connection; 0 is none.
    pub(crate) confirmed: u64,
    /// Version that it may have read on its present connection, whatever it answered.
    pub(crate) announced: u64,
    /// An earlier connection on which it took a heartbeat was lost.
    was_lost: bool,
    /// When it took the first heartbeat after that.
    pub(crate) regained_at: Option<Instant>,
    failing: bool,
    pub(crate) access: Access,
    /// Groups that it refuses to hear of, beside others that it takes.
    pub(crate) refused_groups: BTreeMap<Epoch, RefusedGroup>,
    parts: Parts,
    pub(crate) last_error: Option<String>,
    /// The number of the latest request that it has answered: it has read all before.
    pub(crate) answered: u64,
    /// It was asked for an answer that says so.
    pub(crate) is_asked: bool,
}

impl Peer {
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            references: 0,
            heartbeat: None,
            owed: false,
            sent_at: None,
            confirmed: 0,
            announced: 0,
            was_lost: false,
            regained_at: None,
            failing: false,
            access: Access::default(),
            refused_groups: BTreeMap::new(),
            parts: Parts::default(),
            last_error: None,
            answered: 0,
            is_asked: false,
        }
    }

    /// Nothing went wrong with it lately.
    pub(crate) fn is_healthy(&self) -> bool {
        self.last_error.is_none() && self.access.refused().is_none()
    }
}

impl Peer {
    /// Its connection is gone, and what it knew of us with it.
    fn forget_confirmed(&mut self) {
        self.was_lost |= self.confirmed > 0;
        self.confirmed = 0;
        self.announced = 0;
        self.parts = Parts::default();
    }
}

impl Client {
    /// The set of groups, or of topics they read, has changed: everybody must know.
    pub(crate) fn announce_change(&mut self) {
        self.announcement.next();
        self.announce_again();
    }

    /// A subscription's version has changed.
    pub(crate) fn announce_again(&mut self) {
        self.announcement.body = None;
        let peers: Vec<_> = self.routes.peers.iter().map(|(epoch, _)| epoch).collect();
        for peer in peers {
            self.owe_heartbeat(peer);
        }
    }

    pub(crate) fn owe_heartbeats_to_new_peers(&mut self) {
        let new: Vec<_> = self
            .routes
            .peers
            .iter()
            .filter(|(_, peer)| peer.sent_at.is_none())
            .map(|(epoch, _)| epoch)
            .collect();
        for peer in new {
            self.owe_heartbeat(peer);
        }
    }

    pub(crate) fn owe_heartbeat(&mut self, epoch: Epoch) {
        if let Some(peer) = self.routes.peers.get_mut(epoch)
            && !peer.owed
        {
            peer.owed = true;
            self.owed_heartbeats.push(epoch);
        }
    }

    /// Sends what is owed, once for all changes of one input.
    pub(crate) fn send_owed_heartbeats(&mut self, now: Instant) {
        let mut owed = std::mem::take(&mut self.owed_heartbeats);
        for epoch in owed.drain(..) {
            self.send_heartbeat(epoch, now);
        }
        if self.owed_heartbeats.is_empty() {
            self.owed_heartbeats = owed;
        }
    }

    /// Sends a heartbeat, unless one is under way or the last one is too young; it stays
    /// owed then.
    fn send_heartbeat(&mut self, epoch: Epoch, now: Instant) {
        let groups = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let pause = (HEARTBEAT_PAUSE_PER_GROUP * groups).min(HEARTBEAT_PAUSE_MAX);
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return;
        };
        if !self.groups.iter().any(|(_, group)| group.is_announced()) {
            peer.owed = false;
            return;
        }
        if peer.heartbeat.is_some() {
            return;
        }
        let earliest = peer
            .sent_at
            .map(|at| at + pause)
            .max(peer.access.retry_at());
        if let Some(at) = earliest.filter(|&at| at > now) {
            self.timers.set_earliest(Timer::Heartbeat(epoch), at);
            return;
        }
        self.timers.set(Timer::Heartbeat(epoch), now + HEARTBEAT);
        let part = self.begin_parts(epoch, now);
        let version = self.announcement.version;
        self.send_part(epoch, &part, version);
        if let Some(peer) = self.routes.peers.get_mut(epoch) {
            peer.announced = version;
            peer.owed = false;
            peer.sent_at = Some(now);
        }
    }

    fn send_part(&mut self, epoch: Epoch, part: &Part, version: u64) {
        let body = match part {
            Part::All => self.heartbeat_body(),
            Part::Some(groups) => {
                let groups = groups.iter().filter_map(|&group| self.groups.get(group));
                self.heartbeat_of(groups)
            }
        };
        let Some(address) = self
            .routes
            .peers
            .get(epoch)
            .map(|peer| peer.address.clone())
        else {
            return;
        };
        let id = self.request(
            Purpose::Heartbeat(epoch),
            Destination::Broker(address),
            Some(epoch),
            Request::HeartBeat { body },
            timeout::HEARTBEAT,
        );
        if let Some(peer) = self.routes.peers.get_mut(epoch) {
            peer.heartbeat = Some((id, version));
        }
    }

    pub(crate) fn heartbeat_due(&mut self, epoch: Epoch) {
        self.owe_heartbeat(epoch);
        // It may have been owed all along, only too early.
        if !self.owed_heartbeats.contains(&epoch) {
            self.owed_heartbeats.push(epoch);
        }
    }

    pub(crate) fn handle_heartbeat(
        &mut self,
        epoch: Epoch,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return;
        };
        let Some((_, version)) = peer.heartbeat.take() else {
            return;
        };
        let address = peer.address.clone();
        let after = match result {
            Ok(()) => Ok(self.part_taken(epoch)),
            Err(error) if error.is_access_refused() => Ok(self.part_refused(epoch, error)),
            Err(error) => Err(error),
        };
        let next = match after {
            Ok(After::Next) => {
                let peer = self.routes.peers.get_mut(epoch);
                peer.and_then(|peer| peer.parts.next())
            }
            _ => None,
        };
        if let Some(part) = next {
            self.send_part(epoch, &part, version);
            return;
        }
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return;
        };
        match after {
            Ok(After::Next | After::Taken) => {
                let before = std::mem::replace(&mut peer.confirmed, version);
                if before == 0 && peer.was_lost {
                    peer.regained_at = Some(now);
                }
                peer.failing = false;
                let refused_before = peer.access.accept();
                if peer.owed {
                    self.owed_heartbeats.push(epoch);
                }
                if before == 0 {
                    let address = address.clone();
                    self.events.push_back(Event::HeartbeatAccepted { address });
                }
                if refused_before {
                    self.access_granted(address, now);
                }
                if before != version {
                    self.peer_knows_more(before, now);
                    self.pull_what_is_announced(now);
                }
                self.end_parts(epoch, now);
            }
            Ok(After::Refused(error)) => {
                peer.owed = true;
                self.access_refused(epoch, error, now);
                if let Some((at, _)) = self.refused_until(epoch) {
                    self.timers.set(Timer::Heartbeat(epoch), at);
                }
            }
            Err(error) => {
                if matches!(
                    error,
                    RequestError::Unreachable { .. } | RequestError::Disconnected { .. }
                ) {
                    peer.forget_confirmed();
                }
                peer.owed = true;
                if !std::mem::replace(&mut peer.failing, true) {
                    self.events
                        .push_back(Event::HeartbeatFailed { address, error });
                }
                self.timers
                    .set(Timer::Heartbeat(epoch), now + HEARTBEAT_RETRY);
            }
        }
    }

    /// A broker has taken a heartbeat that says more than the one before: groups that
    /// are new to it may be rebalanced now, and their retry topics exist.
    fn peer_knows_more(&mut self, before: u64, now: Instant) {
        if before == 0 {
            self.pull_failed_again(now);
        }
        let groups: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.since_version > before)
            .map(|(epoch, group)| (epoch, group.retry_topic()))
            .collect();
        for (group, retry_topic) in groups {
            if let Some(topic) = retry_topic {
                self.ask_retry_route(topic);
            }
            self.rebalance_when_known(group, now);
        }
    }

    /// A connection was made: the broker may have forgotten us.
    pub(crate) fn peer_connected(&mut self, address: &Address) {
        let Some(epoch) = self.routes.peer_at(address) else {
            return;
        };
        let under_way = self
            .routes
            .peers
            .get(epoch)
            .is_some_and(|peer| peer.heartbeat.is_some());
        // The one under way goes over the new connection.
        if !under_way {
            self.owe_heartbeat(epoch);
        }
    }

    pub(crate) fn peer_disconnected(&mut self, address: &Address) {
        let Some(epoch) = self.routes.peer_at(address) else {
            return;
        };
        if let Some(peer) = self.routes.peers.get_mut(epoch) {
            peer.forget_confirmed();
        }
        self.owe_heartbeat(epoch);
    }

    fn heartbeat_body(&mut self) -> Bytes {
        if let Some(body) = &self.announcement.body {
            return body.clone();
        }
        let announced = self.groups.iter().map(|(_, group)| group);
        let announced = announced.filter(|group| group.is_announced());
        let body = self.heartbeat_of(announced);
        self.announcement.body = Some(body.clone());
        body
    }

    fn heartbeat_of<'a>(&self, groups: impl Iterator<Item = &'a ConsumerGroup>) -> Bytes {
        let consumers = groups.map(|group| ConsumerData {
            consume_from_where: Some(match group.config.consume_from_where() {
                config::ConsumeFromWhere::LastOffset => ConsumeFromWhere::LastOffset,
                config::ConsumeFromWhere::FirstOffset => ConsumeFromWhere::FirstOffset,
                config::ConsumeFromWhere::Timestamp(_) => ConsumeFromWhere::Timestamp,
            }),
            consume_type: Some(match group.config.pull_task_interval() {
                Some(_) => ConsumeType::Actively,
                None => ConsumeType::Passively,
            }),
            group_name: group.name.to_string(),
            message_model: Some(match group.config.message_model() {
                MessageModel::Clustering => body::MessageModel::Clustering,
                MessageModel::Broadcasting => body::MessageModel::Broadcasting,
            }),
            subscription_data_set: group
                .topics
                .iter()
                .map(|topic| topic.subscription.clone())
                .collect(),
            unit_mode: false,
        });
        let data = HeartbeatData {
            client_id: self.client_id.to_string(),
            consumer_data_set: consumers.collect(),
            heartbeat_fingerprint: 0,
            producer_data_set: vec![ProducerData {
                group_name: CLIENT_INNER_PRODUCER_GROUP.to_owned(),
            }],
            without_sub: false,
        };
        Bytes::from(data.encode())
    }
}
