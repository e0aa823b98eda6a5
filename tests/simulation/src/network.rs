//! Connections between members and servers: in order, late, lossy, cut, half open. What
//! servers do with what reaches them is in `servers`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use consumer::{PendingRequest, Request, RequestError, Response, ServerRequest, ServerRequestId};
use embedded_broker::{ConnectionAction, ConnectionId};
use protocol::{Address, Instant, RemotingCommand};

use crate::cluster::{Cluster, Due, NAME_SERVERS};
use crate::faults::Weather;
use crate::member::Open;
use crate::recovery::MEMBERS_BELIEVED;

/// Whom a member talks to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Server {
    NameServer(usize),
    Broker(usize),
}

impl Server {
    pub(crate) fn address(self) -> Address {
        match self {
            Self::NameServer(index) => Address::new(&format!("10.9.0.{}", index + 1), 9876),
            Self::Broker(index) => Address::new(&format!("10.1.0.{}", index + 1), 10911),
        }
    }
}

/// A connection of a member to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) member: usize,
    pub(crate) server: Server,
    pub(crate) open_at_member: bool,
    pub(crate) open_at_server: bool,
    /// Until then it swallows everything.
    pub(crate) silent_until: Instant,
    /// When the last command each way arrives: none overtakes another.
    last_up: Instant,
    last_down: Instant,
}

impl Cluster {
    pub(crate) fn server_at(&self, address: &Address) -> Option<Server> {
        let brokers = (0..self.brokers.len()).map(Server::Broker);
        let name_servers = (0..NAME_SERVERS).map(Server::NameServer);
        brokers
            .chain(name_servers)
            .find(|server| server.address() == *address)
    }

    fn is_reachable(&self, member: usize, server: Server) -> bool {
        let away = match server {
            Server::NameServer(index) => self.name_servers_away[index],
            Server::Broker(index) => self.brokers[index].away_until,
        };
        let partition = self.partitions.get(&(member, server));
        away <= self.now && partition.is_none_or(|&until| until <= self.now)
    }

    /// A client sends a request.
    pub(crate) fn send_request(&mut self, member: usize, pending: &PendingRequest) {
        self.next_opaque += 1;
        let opaque = self.next_opaque;
        self.note_sent(member, opaque, &pending.request);
        let mut command = pending.request.to_command();
        command.opaque = opaque;
        let address = pending.destination.address().clone();
        let request = Arc::new(pending.request.clone());
        let fails = |error| Due::Fails {
            member,
            opaque,
            error,
        };
        let timeout = fails(RequestError::Timeout);
        let mut open = Open {
            id: pending.id,
            expect: pending.request.expect(),
            request: Arc::clone(&request),
            connection: None,
            sent_at: self.now,
            until: self.now + pending.timeout,
            tells_whole_route: false,
        };
        let server = self.server_at(&address);
        let reachable = server.filter(|&server| self.is_reachable(member, server));
        self.history.add(self.now, || {
            let name = &self.members[member].name;
            let lost = if reachable.is_none() {
                " (unreachable)"
            } else {
                ""
            };
            format!("{name} asks {address}{lost} #{opaque} {}", short(&request))
        });
        let existing = self.members[member].connections.get(&address).copied();
        let connection = match (existing, reachable) {
            (Some(connection), _) => connection,
            (None, Some(server)) => self.connect(member, server, &address),
            (None, None) => {
                self.members[member].open.insert(opaque, open);
                let error = RequestError::Unreachable {
                    reason: "connection refused".to_owned(),
                };
                let after = Duration::from_millis(self.random.u64(1..100));
                self.agenda.at(self.now + after, fails(error));
                return;
            }
        };
        open.connection = Some(connection);
        self.members[member].open.insert(opaque, open);
        self.agenda.at(self.now + pending.timeout, timeout);
        let to_server = Due::ToServer {
            connection,
            command,
            request,
        };
        self.carry(connection, true, to_server);
    }

    fn connect(&mut self, member: usize, server: Server, address: &Address) -> ConnectionId {
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        self.connections.insert(
            id,
            Connection {
                member,
                server,
                open_at_member: true,
                open_at_server: true,
                silent_until: Instant::ORIGIN,
                last_up: self.now,
                last_down: self.now,
            },
        );
        if let Server::Broker(broker) = server {
            let port = u16::try_from(1024 + self.next_connection % 60_000).unwrap_or(1024);
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            self.brokers[broker]
                .broker
                .handle_connected(id, peer, self.now);
        }
        let this = &mut self.members[member];
        this.connections.insert(address.clone(), id);
        if let Some(client) = &mut this.client {
            client.handle_connected(address, self.now);
        }
        id
    }

    /// Puts something on its way, unless it gets lost.
    fn carry(&mut self, id: ConnectionId, up: bool, what: Due) {
        let mut delay = Duration::from_micros(self.random.u64(80..3_000));
        if self.is(Weather::SlowNetwork) && self.random.u32(0..10) == 0 {
            delay = Duration::from_millis(self.random.u64(10..8_000));
        }
        let lost = self.is(Weather::LossyNetwork) && self.random.u32(0..10) == 0;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.silent_until > self.now {
            self.history.add(self.now, || "swallowed".to_owned());
            return;
        }
        if lost {
            self.is_lost(&what);
            return;
        }
        let last = if up {
            &mut connection.last_up
        } else {
            &mut connection.last_down
        };
        let at = (self.now + delay).max(*last);
        *last = at;
        self.disturbs_until(at);
        self.agenda.at(at, what);
    }

    /// Its connection lives on, so that nobody knows until somebody has waited in vain.
    fn is_lost(&mut self, what: &Due) {
        let (Due::ToServer {
            connection,
            command,
            ..
        }
        | Due::ToMember {
            connection,
            command,
        }) = what
        else {
            return;
        };
        let member = self.connections.get(connection).map(|c| c.member);
        let open = member.and_then(|member| self.members[member].open.get(&command.opaque));
        let until = match open {
            Some(open) => open.until,
            // A word of the broker that the members have changed.
            None => self.now + MEMBERS_BELIEVED,
        };
        self.disturbs_until(until);
        self.history
            .add(self.now, || format!("#{} gets lost", command.opaque));
    }

    pub(crate) fn answer(&mut self, connection: ConnectionId, command: RemotingCommand) {
        let open = self.connections.get(&connection);
        if open.is_some_and(|connection| connection.open_at_server) {
            let what = Due::ToMember {
                connection,
                command,
            };
            self.carry(connection, false, what);
        }
    }

    /// Sends what a broker has to say.
    pub(crate) fn drain_broker(&mut self, broker: usize) {
        while let Some((to, command)) = self.brokers[broker].broker.poll_response() {
            self.answer(to, command);
        }
        while let Some(action) = self.brokers[broker].broker.poll_connection_action() {
            if let ConnectionAction::Close(connection) = action {
                self.agenda.at(self.now, Due::Closes { connection });
            }
        }
        while self.brokers[broker].broker.poll_event().is_some() {}
    }

    /// A command reaches a member.
    pub(crate) fn at_member(&mut self, id: ConnectionId, command: RemotingCommand) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if !connection.open_at_member || connection.silent_until > self.now {
            return;
        }
        let (member, server) = (connection.member, connection.server);
        let stalled_until = self.members[member].stalled_until;
        if stalled_until > self.now {
            let what = Due::ToMember {
                connection: id,
                command,
            };
            self.agenda.at(stalled_until, what);
            return;
        }
        if !command.is_response() {
            let request = ServerRequest {
                id: ServerRequestId(0),
                from: server.address(),
                command,
            };
            self.give(member, |client, now| {
                client.handle_server_request(request, now);
            });
            return;
        }
        let Some(open) = self.members[member].open.remove(&command.opaque) else {
            return;
        };
        let opaque = command.opaque;
        let result = open.expect.decode(command);
        if open.tells_whole_route
            && result.is_ok()
            && let Request::GetRouteInfo { topic } = &*open.request
        {
            self.members[member].routed.insert(topic.to_string());
        }
        self.note_list(member, &open.request, &result);
        self.note_known_commit(member, &open.request, &result);
        self.note_locks(member, &open, &result);
        self.history.add(self.now, || {
            format!(
                "{} is answered #{opaque} {}",
                self.members[member].name,
                outcome(&result)
            )
        });
        if self.is(Weather::RepeatedAnswers) && self.random.u32(0..4) == 0 {
            let after = Duration::from_millis(self.random.u64(0..5_000));
            let again = Due::AnsweredAgain {
                member,
                id: open.id,
                result: result.clone(),
            };
            self.agenda.at(self.now + after, again);
        }
        self.give(member, |client, now| {
            client.handle_response(open.id, result, now);
        });
    }

    fn note_list(
        &mut self,
        member: usize,
        request: &Request,
        result: &Result<Response, RequestError>,
    ) {
        if let Request::GetConsumerListByGroup { consumer_group } = request {
            let this = &mut self.members[member];
            let good = match result {
                Ok(Response::ConsumerList(members)) => members.contains(&this.name),
                _ => false,
            };
            this.listed.insert(consumer_group.to_string(), good);
        }
    }

    /// A request will not be answered.
    pub(crate) fn request_fails(&mut self, member: usize, opaque: i32, error: RequestError) {
        let stalled_until = self.members[member].stalled_until;
        if stalled_until > self.now {
            let what = Due::Fails {
                member,
                opaque,
                error,
            };
            self.agenda.at(stalled_until, what);
            return;
        }
        if let Some(open) = self.members[member].open.remove(&opaque) {
            let result = Err(error);
            self.note_list(member, &open.request, &result);
            self.note_locks(member, &open, &result);
            self.history.add(self.now, || {
                format!(
                    "{} #{opaque} {}",
                    self.members[member].name,
                    outcome(&result)
                )
            });
            self.give(member, |client, now| {
                client.handle_response(open.id, result, now);
            });
        }
    }

    /// The server's end of a connection is gone.
    pub(crate) fn close_at_server(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if std::mem::take(&mut connection.open_at_server)
            && let Server::Broker(broker) = connection.server
        {
            self.brokers[broker]
                .broker
                .handle_disconnected(id, self.now);
            self.drain_broker(broker);
        }
    }

    /// The member's end of a connection is gone.
    pub(crate) fn close_at_member(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let (member, address) = (connection.member, connection.server.address());
        let stalled_until = self.members[member].stalled_until;
        if stalled_until > self.now {
            self.agenda
                .at(stalled_until, Due::Closes { connection: id });
            return;
        }
        if !std::mem::take(&mut connection.open_at_member) {
            return;
        }
        let this = &mut self.members[member];
        if this.connections.get(&address) == Some(&id) {
            this.connections.remove(&address);
        }
        let of_it = this
            .open
            .iter()
            .filter(|(_, open)| open.connection == Some(id));
        let opaques: Vec<i32> = of_it.map(|(&opaque, _)| opaque).collect();
        self.history.add(self.now, || {
            format!(
                "{} lost its connection to {address}",
                self.members[member].name
            )
        });
        self.give(member, |client, now| {
            client.handle_disconnected(&address, now);
        });
        for opaque in opaques {
            let error = RequestError::Disconnected {
                reason: "cut".to_owned(),
            };
            self.request_fails(member, opaque, error);
        }
    }

    /// What a client commits, whether or not a broker hears of it.
    fn note_sent(&mut self, member: usize, opaque: i32, request: &Request) {
        self.check_broadcast_request(request);
        if let Some((group, queue, offset)) = commit_of(request) {
            self.note_telling(member, opaque, group, queue);
            self.check_commit_sent(member, group, queue, offset);
        }
        if let Request::UnlockBatch {
            consumer_group,
            queues,
            ..
        } = request
        {
            for queue in queues {
                self.check_unlock(member, consumer_group, queue);
            }
        }
    }
}

/// Group, queue and offset of a request that commits.
pub(crate) fn commit_of(request: &Request) -> Option<(&str, &protocol::MessageQueue, u64)> {
    match request {
        Request::UpdateConsumerOffset {
            consumer_group,
            queue,
            commit_offset,
        } => Some((consumer_group, queue, commit_offset.0)),
        Request::PullMessage(pull) if pull.commit => {
            Some((&pull.consumer_group, &pull.queue, pull.commit_offset?.0))
        }
        _ => None,
    }
}

fn short(request: &Request) -> String {
    match request {
        Request::GetRouteInfo { topic } => format!("route of {topic}"),
        Request::HeartBeat { .. } => "heartbeat".to_owned(),
        Request::PullMessage(pull) => format!(
            "pull {} {} from {} commits {:?}",
            pull.consumer_group,
            pull.queue,
            pull.queue_offset,
            pull.commit.then_some(pull.commit_offset).flatten()
        ),
        Request::SendMessage(send) => format!(
            "send {} to {} attempt {:?}",
            String::from_utf8_lossy(&send.body),
            send.header.topic,
            send.header.reconsume_times
        ),
        other => format!("{other:?}"),
    }
}

fn outcome(result: &Result<Response, RequestError>) -> String {
    match result {
        Ok(Response::Pull(pull)) => format!(
            "{:?} next {} with {} messages",
            pull.status,
            pull.next_begin_offset,
            pull.batch.as_ref().map_or(0, |batch| batch.len())
        ),
        Ok(Response::Route(route)) => {
            let queues = route.queue_datas.iter();
            let queues: Vec<_> = queues
                .map(|q| (&q.broker_name, q.read_queue_nums))
                .collect();
            format!("route {queues:?}")
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("error: {error}"),
    }
}
