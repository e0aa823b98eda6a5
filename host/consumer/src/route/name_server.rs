//! Name servers: whom to ask, when, and what their answers set off.
//!
//! Known topics are asked for every 30 s, missing ones and those that lost queues every
//! 5 s. A server that fails is left for the next one at once; when all have failed, what
//! is known stays known, and they are asked again after 5 s.
//! RocketMQ: `MQClientInstance#updateTopicRouteInfoFromNameServer`.

use std::sync::Arc;

use protocol::code::response_code;
use protocol::{Address, Instant, topic};

use super::{RouteChange, RouteState};
use crate::access;
use crate::client::{Client, Purpose};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::request::{Destination, Request, RequestError, Response};
use crate::timers::{
    KNOWN_ROUTE_RETRY, MISSING_TOPIC_REFRESH, NO_NAME_SERVER_RETRY, REBALANCE_MIN, Timer, timeout,
};

/// A broker makes a group's retry topic with the first heartbeat and tells the name
/// servers when it likes: so many times it is asked for every second.
const RETRY_TOPIC_ASKED_FAST: u32 = 5;

/// The name servers, one of which is asked until it fails.
#[derive(Debug)]
pub(crate) struct NameServers {
    servers: Vec<NameServer>,
    current: usize,
}

#[derive(Debug)]
pub(crate) struct NameServer {
    pub(crate) address: Address,
    pub(crate) last_error: Option<String>,
}

impl NameServers {
    pub(super) fn new(addresses: Vec<Address>) -> Self {
        let server = |address| NameServer {
            address,
            last_error: None,
        };
        Self {
            servers: addresses.into_iter().map(server).collect(),
            current: 0,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NameServer> {
        self.servers.iter()
    }

    fn current(&self) -> Option<&Address> {
        Some(&self.servers.get(self.current)?.address)
    }

    /// True when it had failed before.
    fn succeeded(&mut self, address: &Address) -> bool {
        let server = self.servers.iter_mut().find(|s| s.address == *address);
        server.is_some_and(|server| server.last_error.take().is_some())
    }

    /// True when it had not failed before. The next one is asked from now on.
    fn failed(&mut self, address: &Address, error: &RequestError) -> bool {
        let count = self.servers.len();
        if self.current() == Some(address) {
            self.current = (self.current + 1) % count.max(1);
        }
        let server = self.servers.iter_mut().find(|s| s.address == *address);
        server.is_some_and(|server| server.last_error.replace(error.to_string()).is_none())
    }
}

impl Client {
    /// Asks for a topic's route, unless that is under way.
    pub(crate) fn ask_route(&mut self, epoch: Epoch) {
        let Some(address) = self.routes.name_servers.current().cloned() else {
            return;
        };
        let Some(topic) = self.routes.topics.get(epoch) else {
            return;
        };
        if topic.query.is_some() {
            return;
        }
        let request = Request::GetRouteInfo {
            topic: Arc::clone(&topic.name),
        };
        self.timers.cancel(Timer::Route(epoch));
        let id = self.request(
            Purpose::Route(epoch, address.clone()),
            Destination::NameServer(address),
            None,
            request,
            timeout::ROUTE,
        );
        if let Some(topic) = self.routes.topics.get_mut(epoch) {
            topic.query = Some(id);
        }
    }

    /// Asks for a topic's route if the last answer is older than a moment: it may be the
    /// reason why nothing works.
    pub(crate) fn ask_route_if_old(&mut self, epoch: Epoch, now: Instant) {
        let topic = self.routes.topics.get(epoch);
        let answered_at = topic.and_then(|topic| topic.answered_at);
        if answered_at.is_none_or(|at| at + MISSING_TOPIC_REFRESH <= now) {
            self.ask_route(epoch);
        }
    }

    /// A group's retry topic may exist since a broker took its heartbeat.
    pub(crate) fn ask_retry_route(&mut self, epoch: Epoch) {
        let Some(topic) = self.routes.topics.get_mut(epoch) else {
            return;
        };
        if topic.state != RouteState::Known {
            topic.missing_answers = 0;
            self.ask_route(epoch);
        }
    }

    pub(crate) fn handle_route(
        &mut self,
        epoch: Epoch,
        server: &Address,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let Some(topic) = self.routes.topics.get_mut(epoch) else {
            return;
        };
        topic.query = None;
        match result {
            Ok(Response::Route(data)) => {
                topic.answered_at = Some(now);
                topic.servers_tried = 0;
                topic.refusals = 0;
                self.name_server_succeeded(server);
                if let Some(change) = self.routes.apply(epoch, &data, now) {
                    self.route_changed(epoch, change, now);
                }
                self.forget_unused_brokers();
            }
            Err(RequestError::Refused { code, remark })
                if code == response_code::TOPIC_NOT_EXIST =>
            {
                topic.answered_at = Some(now);
                topic.servers_tried = 0;
                self.name_server_succeeded(server);
                self.topic_missing(epoch, remark, now);
            }
            Ok(_) => {
                let error = RequestError::Malformed {
                    reason: "not a route".to_owned(),
                };
                self.name_server_failed(epoch, server, error, now);
            }
            Err(error) => self.name_server_failed(epoch, server, error, now),
        }
    }

    /// Names that no topic and no queue of ours needs any more, when there are many.
    fn forget_unused_brokers(&mut self) {
        if self.routes.has_many_brokers() {
            let held = self.queues.iter().map(|(_, queue)| queue.broker).collect();
            self.routes.forget_unused_brokers(&held);
        }
    }

    /// How many names are remembered.
    #[cfg(test)]
    pub(crate) fn known_broker_names(&self) -> usize {
        self.routes.broker_names.len()
    }

    fn name_server_succeeded(&mut self, server: &Address) {
        if self.routes.name_servers.succeeded(server) {
            self.events.push_back(Event::NameServerRecovered {
                address: server.clone(),
            });
        }
    }

    /// The next name server is asked at once, until all have failed.
    fn name_server_failed(
        &mut self,
        epoch: Epoch,
        server: &Address,
        error: RequestError,
        now: Instant,
    ) {
        let servers = self.routes.name_servers.servers.len();
        let topics = self.routes.topics.len();
        let Some(topic) = self.routes.topics.get_mut(epoch) else {
            return;
        };
        topic.last_error = Some(format!("name server {server}: {error}"));
        topic.servers_tried += 1;
        topic.missing_answers = 0;
        let more = topic.servers_tried < servers;
        let pause = match topic.state {
            RouteState::Known if error.is_access_refused() => topic.refresh(topics),
            RouteState::Known => KNOWN_ROUTE_RETRY,
            RouteState::Unknown | RouteState::Missing if error.is_access_refused() => {
                topic.refusals += 1;
                access::pause(topic.refusals)
            }
            RouteState::Unknown | RouteState::Missing => NO_NAME_SERVER_RETRY,
        };
        if !more {
            topic.servers_tried = 0;
        }
        if self.routes.name_servers.failed(server, &error) {
            self.events.push_back(Event::NameServerFailed {
                address: server.clone(),
                error,
            });
        }
        if more {
            self.ask_route(epoch);
        } else {
            self.timers.set(Timer::Route(epoch), now + pause);
        }
    }

    /// A topic that is known stays known: its brokers may be restarting.
    fn topic_missing(&mut self, epoch: Epoch, remark: String, now: Instant) {
        let Some(topic) = self.routes.topics.get_mut(epoch) else {
            return;
        };
        topic.missing_answers = topic.missing_answers.saturating_add(1);
        let missing = if topic::is_retry_topic(&topic.name)
            && topic.missing_answers <= RETRY_TOPIC_ASKED_FAST
        {
            REBALANCE_MIN
        } else {
            MISSING_TOPIC_REFRESH
        };
        let pause = match topic.state {
            RouteState::Known => {
                topic.last_error = Some(remark);
                MISSING_TOPIC_REFRESH
            }
            RouteState::Unknown => {
                topic.state = RouteState::Missing;
                topic.last_error = None;
                // A group's retry topic is missing until its first heartbeat.
                if !topic::is_retry_topic(&topic.name) && !topic.subscribers.is_empty() {
                    self.events.push_back(Event::TopicMissing {
                        topic: Arc::clone(&topic.name),
                    });
                }
                missing
            }
            RouteState::Missing => missing,
        };
        let subscribers = topic.subscribers.clone();
        if !subscribers.is_empty() {
            self.timers.set(Timer::Route(epoch), now + pause);
        }
        for group in subscribers {
            self.note_first_route(group, epoch);
        }
        self.resume_waiting_sends(epoch, now);
    }

    fn route_changed(&mut self, epoch: Epoch, change: RouteChange, now: Instant) {
        let Some(topic) = self.routes.topics.get(epoch) else {
            return;
        };
        let subscribers = topic.subscribers.clone();
        if subscribers.is_empty() {
            // Asked for again when somebody sends.
            self.timers.cancel(Timer::Route(epoch));
        } else {
            let at = now + topic.refresh(self.routes.topics.len());
            self.timers.set(Timer::Route(epoch), at);
        }
        if change.appeared || change.read_queues {
            self.events.push_back(Event::RouteChanged {
                topic: Arc::clone(&topic.name),
                read_queues: u32::try_from(topic.read_queues.len()).unwrap_or(u32::MAX),
            });
        }
        for group in subscribers {
            self.note_first_route(group, epoch);
            self.check_subscriptions(group, Some(epoch));
            if change.appeared {
                self.rebalance_at_once(group, now);
            } else if change.read_queues {
                self.rebalance_soon(group, now);
            }
        }
        self.owe_heartbeats_to_new_peers();
        self.resume_waiting_sends(epoch, now);
    }

    /// What a group sees of a topic first decides which queues "appear later".
    pub(crate) fn note_first_route(&mut self, group: Epoch, topic: Epoch) {
        let (Some(group), Some(topic)) =
            (self.groups.get_mut(group), self.routes.topics.get(topic))
        else {
            return;
        };
        let subscribed = group.topics.iter_mut().find(|t| t.name == topic.name);
        if let Some(subscribed) = subscribed
            && topic.state != RouteState::Unknown
            && subscribed.first_queues.is_none()
        {
            subscribed.first_queues = Some(topic.read_queues.clone());
        }
    }
}
