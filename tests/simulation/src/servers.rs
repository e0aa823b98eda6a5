//! The servers' ends: name servers that know what all brokers know, brokers that may
//! refuse or lie, and the ledger of what brokers did, whatever becomes of their answers.

use std::sync::Arc;
use std::time::Duration;

use consumer::Request;
use embedded_broker::ConnectionId;
use protocol::RemotingCommand;
use protocol::body::{ConsumerList, TopicRouteData};
use protocol::code::response_code;

use crate::cluster::{Cluster, Due};
use crate::faults::Weather;
use crate::ledger::id_of;
use crate::network::{Server, commit_of};
use crate::recovery::{MEMBERS_BELIEVED, ROUTE_BELIEVED, SHRUNK_ROUTE_BELIEVED};

/// How late a busy broker does what it has read.
const BUSY_MAX_MS: u64 = 300;

impl Cluster {
    /// A request reaches its server.
    pub(crate) fn at_server(
        &mut self,
        id: ConnectionId,
        command: RemotingCommand,
        request: Arc<Request>,
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if !connection.open_at_server || connection.silent_until > self.now {
            return;
        }
        let tells = commit_of(&request).is_some();
        if tells && self.is(Weather::BusyBrokers) {
            let after = Duration::from_millis(self.random.u64(0..BUSY_MAX_MS));
            let what = Due::Done {
                connection: id,
                command,
                request,
            };
            self.agenda.at(self.now + after, what);
        } else {
            self.done_at_server(id, command, &request);
        }
    }

    /// A server does what it was asked.
    pub(crate) fn done_at_server(
        &mut self,
        id: ConnectionId,
        command: RemotingCommand,
        request: &Request,
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if !connection.open_at_server {
            return;
        }
        let (member, server) = (connection.member, connection.server);
        if let Some(refusal) = self.refusal(&command, request) {
            self.answer(id, refusal);
            return;
        }
        match server {
            Server::NameServer(index) => {
                let answer = self.route(member, index, &command, request);
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
        if let Some((group, queue, offset)) = commit
            && after == i64::try_from(offset).ok()
        {
            self.check_stored(member, id, opaque, (group, queue, offset));
        }
        if let Some((group, queue, _)) = commit
            && let Some(offset) = after
            && after != before
        {
            self.check_committed(group, queue, offset);
            self.check_task_commit(group, queue, offset);
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
            if to == id && answer.is_response() && answer.opaque == opaque {
                answers.extend(self.spoil(id, request, answer).map(|answer| (to, answer)));
            } else {
                answers.push((to, answer));
            }
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
            Request::UnlockBatch { .. } if success => self.note_unlocked(request),
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
        self.disturbs_until(self.now + MEMBERS_BELIEVED);
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

    /// How long a member believes a wrong route: one that lacks nothing of what it knows,
    /// since it knows nothing yet, for longer.
    fn believes_wrong_route(&self, member: usize, request: &Request) -> Duration {
        match request {
            Request::GetRouteInfo { topic } if self.members[member].routed.contains(&**topic) => {
                SHRUNK_ROUTE_BELIEVED
            }
            _ => ROUTE_BELIEVED,
        }
    }

    /// What the name servers say: all brokers together know the routes.
    fn route(
        &mut self,
        member: usize,
        name_server: usize,
        command: &RemotingCommand,
        request: &Request,
    ) -> RemotingCommand {
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
        // One of them knows less than the others, as long as it lasts.
        let disagrees = self.is(Weather::DisagreeingNameServers) && name_server > 0;
        let wrong = disagrees || self.is(Weather::WrongRoutes) && self.random.bool();
        if !wrong
            && whole.is_some()
            && let Some(open) = self.members[member].open.get_mut(&command.opaque)
        {
            open.tells_whole_route = true;
        }
        if wrong {
            self.disturbs_until(self.now + self.believes_wrong_route(member, request));
            let kind = if disagrees { 2 } else { self.random.u32(0..4) };
            match kind {
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
}
