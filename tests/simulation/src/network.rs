//! Connections between members and servers: in order, late, lossy, cut, half open; and
//! the servers' ends, where the ledger is kept.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use consumer::{PendingRequest, Request, RequestError, Response, ServerRequest, ServerRequestId};
use embedded_broker::{ConnectionAction, ConnectionId};
use protocol::body::{ConsumerList, TopicRouteData};
use protocol::code::response_code;
use protocol::{Address, Instant, RemotingCommand};

use crate::cluster::{Cluster, Due, NAME_SERVERS};
use crate::faults::Weather;
use crate::ledger::id_of;
use crate::member::Open;

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
        self.note_sent(member, &pending.request);
        self.next_opaque += 1;
        let opaque = self.next_opaque;
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
        if lost || connection.silent_until > self.now {
            return;
        }
        let last = if up {
            &mut connection.last_up
        } else {
            &mut connection.last_down
        };
        let at = (self.now + delay).max(*last);
        *last = at;
        self.agenda.at(at, what);
    }

    /// A request reaches its server.
    pub(crate) fn at_server(
        &mut self,
        id: ConnectionId,
        command: RemotingCommand,
        request: &Request,
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if !connection.open_at_server || connection.silent_until > self.now {
            return;
        }
        let (member, server) = (connection.member, connection.server);
        if let Some(refusal) = self.refusal(&command, request) {
            self.answer(id, refusal);
            return;
        }
        match server {
            Server::NameServer(_) => {
                let answer = self.route(&command, request);
                self.answer(id, answer);
            }
            Server::Broker(broker) => self.at_broker(member, broker, id, command, request),
        }
    }

    /// A server that will not do what it is asked.
    fn refusal(&mut self, command: &RemotingCommand, request: &Request) -> Option<RemotingCommand> {
        let is_back = match request {
            Request::SendMessageBack(_) => true,
            Request::SendMessage(send) => send.header.topic.starts_with("%RETRY%"),
            _ => false,
        };
        let refused = self.is(Weather::Refusals) && self.random.u32(0..8) == 0
            || is_back && self.is(Weather::NoSendBacks) && self.random.u32(0..10) > 0;
        refused.then(|| {
            let code = [
                response_code::SYSTEM_ERROR,
                response_code::SYSTEM_BUSY,
                response_code::FLOW_CONTROL,
            ][self.random.usize(..3)];
            RemotingCommand::response_to(command, code).with_remark("not now")
        })
    }

    fn at_broker(
        &mut self,
        member: usize,
        broker: usize,
        id: ConnectionId,
        command: RemotingCommand,
        request: &Request,
    ) {
        let opaque = command.opaque;
        let commit = commit_of(request);
        let committed = |this: &Self| {
            commit.and_then(|(group, queue, _)| {
                let broker = &this.brokers[broker].broker;
                broker.committed_offset(group, &queue.topic, queue.queue_id)
            })
        };
        let before = committed(self);
        self.brokers[broker]
            .broker
            .handle_request(id, command, self.now);
        let after = committed(self);
        if let Some((group, queue, _)) = commit
            && let Some(offset) = after
            && after != before
        {
            self.check_committed(group, queue, offset);
        }
        // The broker did it, and says it did not.
        let lies = self.is(Weather::Refusals) && self.random.u32(0..12) == 0;
        let mut answers = Vec::new();
        while let Some((to, mut answer)) = self.brokers[broker].broker.poll_response() {
            if to == id && answer.is_response() && answer.opaque == opaque {
                self.note_answered(member, broker, request, &answer);
                if lies && !matches!(request, Request::PullMessage(_)) {
                    answer.code = response_code::SYSTEM_ERROR;
                }
                if let Request::GetConsumerListByGroup { .. } = request {
                    answer = self.members_answer(member, answer);
                }
            }
            answers.push((to, answer));
        }
        for (to, answer) in answers {
            self.answer(to, answer);
        }
        self.drain_broker(broker);
    }

    /// What a broker has done, whatever becomes of its answer.
    fn note_answered(
        &mut self,
        member: usize,
        broker: usize,
        request: &Request,
        answer: &RemotingCommand,
    ) {
        let success = answer.code == response_code::SUCCESS;
        match request {
            Request::QueryConsumerOffset {
                consumer_group,
                queue,
            } => {
                let offset = self.brokers[broker].broker.committed_offset(
                    consumer_group,
                    &queue.topic,
                    queue.queue_id,
                );
                let key = (consumer_group.to_string(), queue.clone());
                let offset = offset.and_then(|offset| u64::try_from(offset).ok());
                let answered = &mut self.members[member].answered;
                answered.entry(key).or_default().push(offset);
            }
            Request::SendMessageBack(back) if success => {
                if let Some(ledger) = self.ledger.group(&back.consumer_group) {
                    let key = (back.broker_name.to_string(), back.commit_log_offset);
                    if let Some(place) = ledger.logged.get(&key).cloned() {
                        ledger.finish(&place);
                    }
                }
            }
            Request::SendMessage(send) if success => {
                let group = send.header.topic.strip_prefix("%RETRY%");
                if let Some(ledger) = group.and_then(|group| self.ledger.group(group))
                    && let Some(id) = id_of(&send.body)
                {
                    ledger.copied(id);
                }
            }
            _ => {}
        }
    }

    /// A list of members, perhaps a wrong one.
    fn members_answer(&mut self, member: usize, answer: RemotingCommand) -> RemotingCommand {
        if !self.is(Weather::WrongMembers) || self.random.bool() {
            return answer;
        }
        let us = self.members[member].name.clone();
        let list = |ids: Vec<String>| {
            let mut answer = answer.clone();
            answer.code = response_code::SUCCESS;
            answer.with_body(ConsumerList { consumer_ids: ids }.encode())
        };
        match self.random.u32(0..5) {
            0 => {
                let mut answer = answer.clone();
                answer.code = response_code::SYSTEM_ERROR;
                answer
                    .with_body(Vec::new())
                    .with_remark("no consumer for this group")
            }
            1 => list(Vec::new()),
            2 => list(vec!["10.3.0.1@1#stranger".to_owned()]),
            3 => list(vec![us, "10.3.0.1@1#stranger".to_owned()]),
            _ => list(vec![us]),
        }
    }

    /// What the name servers say: all brokers together know the routes.
    fn route(&mut self, command: &RemotingCommand, request: &Request) -> RemotingCommand {
        const INSIDE: ConnectionId = ConnectionId(u64::MAX);
        let mut whole: Option<TopicRouteData> = None;
        for broker in 0..self.brokers.len() {
            let node = &mut self.brokers[broker].broker;
            node.handle_request(INSIDE, request.to_command(), self.now);
            while let Some((to, answer)) = self.brokers[broker].broker.poll_response() {
                if to != INSIDE {
                    self.answer(to, answer);
                    continue;
                }
                let Ok(route) = TopicRouteData::decode(&answer.body) else {
                    continue;
                };
                if answer.code != response_code::SUCCESS {
                    continue;
                }
                match &mut whole {
                    None => whole = Some(route),
                    Some(whole) => {
                        whole.queue_datas.extend(route.queue_datas);
                        whole.broker_datas.extend(route.broker_datas);
                    }
                }
            }
        }
        if self.is(Weather::WrongRoutes) && self.random.bool() {
            match self.random.u32(0..4) {
                0 => whole = None,
                1 => {
                    if let Some(route) = &mut whole {
                        route.queue_datas.clear();
                    }
                }
                2 => {
                    if let Some(route) = &mut whole {
                        route.queue_datas.truncate(1);
                        for queues in &mut route.queue_datas {
                            queues.read_queue_nums = queues.read_queue_nums.div_ceil(2);
                        }
                    }
                }
                _ => {
                    if let Some(route) = &mut whole {
                        route.broker_datas.truncate(1);
                    }
                }
            }
        }
        match whole {
            Some(route) => RemotingCommand::response_to(command, response_code::SUCCESS)
                .with_body(route.encode()),
            None => RemotingCommand::response_to(command, response_code::TOPIC_NOT_EXIST)
                .with_remark("No topic route info in name server"),
        }
    }

    fn answer(&mut self, connection: ConnectionId, command: RemotingCommand) {
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
        self.note_list(member, &open.request, &result);
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
    fn note_sent(&mut self, member: usize, request: &Request) {
        if let Some((group, queue, offset)) = commit_of(request) {
            self.check_commit_sent(member, group, queue, offset);
        }
    }
}

/// Group, queue and offset of a request that commits.
fn commit_of(request: &Request) -> Option<(&str, &protocol::MessageQueue, u64)> {
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
