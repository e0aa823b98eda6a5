//! Feature `testing`: the broker misbehaves as a test tells it to.
//!
//! A [`Rule`] says which requests (by code, and by a header field), how many to let pass
//! first, how many to spoil, and how. Commands that need no request — rolling offsets
//! back, revoking locks — are methods of `Broker`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol::body::ConsumerList;
use protocol::code::response_code;
use protocol::message::codec::StoredMessage;
use protocol::{ExtFields, Instant, RemotingCommand};

use crate::broker::{Broker, ConnectionAction, Refusal, success};
use crate::connection_id::ConnectionId;

/// What happens to a request in place of being served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is answered with this code and not served.
    Refuse {
        /// Response code.
        code: i32,
        /// Text for people.
        remark: String,
    },
    /// It is served later.
    Delay(Duration),
    /// It is served and never answered.
    DropAnswer,
    /// It is neither served nor answered.
    Ignore,
    /// The client gets these bytes, which may be no frame. It is not served.
    Garbage(Bytes),
    /// The connection is closed. It is not served.
    Cut,
    /// It is served, then the connection is closed before the answer.
    CutBeforeAnswer,
    /// It is answered as a question for members, with these; none is the error that an
    /// empty group has.
    Members(Vec<String>),
}

/// Which requests a fault hits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    code: Option<i32>,
    field: Option<(String, String)>,
    pass: u32,
    times: u32,
    fault: Fault,
}

impl Rule {
    /// Hits every request with this code.
    pub fn on(code: i32, fault: Fault) -> Self {
        Self {
            code: Some(code),
            field: None,
            pass: 0,
            times: u32::MAX,
            fault,
        }
    }

    /// Hits every request.
    pub fn on_all(fault: Fault) -> Self {
        Self {
            code: None,
            ..Self::on(0, fault)
        }
    }

    /// Only requests with this header field.
    #[must_use]
    pub fn with_field(mut self, name: &str, value: &str) -> Self {
        self.field = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets this many of them pass first.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.pass = requests;
        self
    }

    /// Hits this many of them, then lets all pass.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.times = requests;
        self
    }

    fn matches(&self, request: &RemotingCommand) -> bool {
        self.code.is_none_or(|code| code == request.code)
            && self
                .field
                .as_ref()
                .is_none_or(|(name, value)| request.ext_field(name) == Some(value))
    }

    /// Whether it hits this request; counts it.
    fn hit(&mut self, request: &RemotingCommand) -> bool {
        if self.times == 0 || !self.matches(request) {
            return false;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        self.times = self.times.saturating_sub(1);
        true
    }
}

/// Rules in the order they were given, and requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
    /// By the time they are due and the order they came.
    delayed: BTreeMap<(Instant, u64), (ConnectionId, RemotingCommand)>,
    delayed_count: u64,
}

/// Requests that wait for their delay; beyond it they are served at once.
const DELAYED_MAX: usize = 65_536;

impl Script {
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    fn fault(&mut self, request: &RemotingCommand) -> Option<Fault> {
        let index = self.rules.iter_mut().position(|rule| rule.hit(request))?;
        let fault = self.rules[index].fault.clone();
        self.rules.retain(|rule| rule.times > 0);
        Some(fault)
    }
}

impl Broker {
    /// Adds a rule; of several that match, the first one hits.
    pub fn add_rule(&mut self, rule: Rule) {
        self.script.rules.push(rule);
    }

    /// From now on everything is served; delayed requests keep their delay.
    pub fn clear_rules(&mut self) {
        self.script.rules.clear();
    }

    /// Stores an offset as if the broker had lost later commits.
    pub fn roll_back_offset(&mut self, group: &str, topic: &str, queue_id: u32, offset: i64) {
        self.commit_offset(group, topic, queue_id, offset);
    }

    /// A message as it is stored, for whoever compares with what was consumed.
    pub fn message_in_queue(
        &self,
        topic: &str,
        queue_id: u32,
        offset: u64,
    ) -> Option<StoredMessage> {
        let entry = self.store.entry(topic, queue_id, offset)?;
        self.stored_message(entry.physical_offset)
    }

    /// Takes all queue locks of a group away; returns how many.
    pub fn revoke_locks(&mut self, group: &str) -> usize {
        self.locks.revoke(group)
    }

    /// Closes every connection.
    pub fn cut_all_connections(&mut self) {
        let connections: Vec<_> = self.connections.keys().copied().collect();
        self.actions
            .extend(connections.into_iter().map(ConnectionAction::Close));
    }

    /// Applies the first rule that matches; returns a request that is to be served now.
    pub(crate) fn apply_script(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        now: Instant,
    ) -> Option<RemotingCommand> {
        let Some(fault) = self.script.fault(&request) else {
            return Some(request);
        };
        match fault {
            Fault::Refuse { code, remark } => {
                let response = Refusal::new(code, remark).response(&request);
                self.respond(connection, &request, response);
                None
            }
            Fault::Members(consumer_ids) => {
                let response = members(&request, consumer_ids);
                self.respond(connection, &request, response);
                None
            }
            Fault::Delay(delay) if self.script.delayed.len() < DELAYED_MAX => {
                self.script.delayed_count += 1;
                let key = (now + delay, self.script.delayed_count);
                self.script.delayed.insert(key, (connection, request));
                None
            }
            Fault::Delay(_) => Some(request),
            // What is one-way is served and never answered.
            Fault::DropAnswer => Some(request.oneway()),
            Fault::Ignore => None,
            Fault::Garbage(bytes) => {
                self.actions
                    .push_back(ConnectionAction::SendBytes(connection, bytes));
                None
            }
            Fault::Cut => {
                self.actions.push_back(ConnectionAction::Close(connection));
                None
            }
            Fault::CutBeforeAnswer => {
                self.actions.push_back(ConnectionAction::Close(connection));
                Some(request.oneway())
            }
        }
    }

    /// Serves the requests whose delay is over.
    pub(crate) fn resume_script(&mut self, now: Instant) {
        while let Some(entry) = self.script.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let (connection, request) = entry.remove();
            if self.connections.contains_key(&connection) {
                self.serve(connection, request, now);
            }
        }
    }
}

fn members(request: &RemotingCommand, consumer_ids: Vec<String>) -> RemotingCommand {
    if consumer_ids.is_empty() {
        return Refusal::new(response_code::SYSTEM_ERROR, "no consumer for this group")
            .response(request);
    }
    success(request)
        .with_ext_fields(ExtFields::default())
        .with_body(ConsumerList { consumer_ids }.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerConfig;
    use protocol::code::request_code;

    const CLIENT: ConnectionId = ConnectionId(1);
    const ROUTE: i32 = request_code::GET_ROUTEINFO_BY_TOPIC;

    fn at(ms: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(ms))
    }

    fn broker(rules: &[Rule]) -> Broker {
        let mut broker = Broker::new(BrokerConfig::default(), at(0), Duration::ZERO);
        broker.handle_connected(CLIENT, ([127, 0, 0, 1], 1).into(), at(0));
        for rule in rules {
            broker.add_rule(rule.clone());
        }
        broker
    }

    /// Asks for a route and returns the codes of all answers so far.
    fn ask(broker: &mut Broker, topic: &str) -> Vec<i32> {
        let fields = [("topic", topic)].into_iter().collect();
        broker.handle_request(CLIENT, RemotingCommand::request(ROUTE, fields), at(0));
        codes(broker)
    }

    fn codes(broker: &mut Broker) -> Vec<i32> {
        std::iter::from_fn(|| broker.poll_response())
            .map(|(_, response)| response.code)
            .collect()
    }

    #[test]
    fn rule_hits_its_requests_as_often_as_it_says() {
        let refuse = Fault::Refuse {
            code: 2,
            remark: "busy".to_owned(),
        };
        let mut broker = broker(&[
            Rule::on(request_code::HEART_BEAT, Fault::Ignore),
            Rule::on(ROUTE, refuse)
                .with_field("topic", "TBW102")
                .after(1)
                .times(2),
        ]);
        assert_eq!(ask(&mut broker, "TBW102"), [0]);
        assert_eq!(ask(&mut broker, "TBW102"), [2]);
        assert_eq!(ask(&mut broker, "none"), [17]);
        assert_eq!(ask(&mut broker, "TBW102"), [2]);
        assert_eq!(ask(&mut broker, "TBW102"), [0]);
    }

    #[test]
    fn delayed_request_is_served_when_its_time_comes() {
        let mut broker = broker(&[Rule::on_all(Fault::Delay(Duration::from_millis(300)))]);
        assert!(ask(&mut broker, "TBW102").is_empty());
        assert_eq!(broker.poll_timeout(), Some(at(300)));
        broker.handle_timeout(at(299));
        assert!(codes(&mut broker).is_empty());
        broker.handle_timeout(at(300));
        assert_eq!(codes(&mut broker), [0]);
    }

    #[test]
    fn connection_is_cut_or_fed_garbage_in_place_of_an_answer() {
        let garbage = Bytes::from_static(b"\x7f\xff\xff\xff");
        let mut broker = broker(&[
            Rule::on(ROUTE, Fault::Garbage(garbage.clone())).times(1),
            Rule::on(ROUTE, Fault::Cut),
        ]);
        assert!(ask(&mut broker, "TBW102").is_empty());
        assert!(ask(&mut broker, "TBW102").is_empty());
        let actions: Vec<_> = std::iter::from_fn(|| broker.poll_connection_action()).collect();
        assert_eq!(
            actions,
            [
                ConnectionAction::SendBytes(CLIENT, garbage),
                ConnectionAction::Close(CLIENT)
            ]
        );
    }

    #[test]
    fn request_whose_answer_is_dropped_was_served_all_the_same() {
        let create = [
            ("topic", "T"),
            ("defaultTopic", "TBW102"),
            ("readQueueNums", "1"),
            ("writeQueueNums", "1"),
            ("perm", "6"),
            ("topicFilterType", "SINGLE_TAG"),
            ("order", "false"),
        ];
        let code = request_code::UPDATE_AND_CREATE_TOPIC;
        let mut broker = broker(&[Rule::on(code, Fault::DropAnswer)]);
        let request = RemotingCommand::request(code, create.into_iter().collect());
        broker.handle_request(CLIENT, request, at(0));
        assert!(codes(&mut broker).is_empty());
        assert_eq!(ask(&mut broker, "T"), [0]);
    }

    #[test]
    fn member_lists_are_what_the_script_says() {
        let code = request_code::GET_CONSUMER_LIST_BY_GROUP;
        let mut broker = broker(&[
            Rule::on(code, Fault::Members(vec!["x".to_owned()])).times(1),
            Rule::on(code, Fault::Members(Vec::new())),
        ]);
        let mut members = || {
            let fields = [("consumerGroup", "G")].into_iter().collect();
            broker.handle_request(CLIENT, RemotingCommand::request(code, fields), at(0));
            broker
                .poll_response()
                .map(|(_, answer)| (answer.code, answer.body))
        };
        let first = members().unwrap();
        assert_eq!(
            (first.0, &first.1[..]),
            (0, &br#"{"consumerIdList":["x"]}"#[..])
        );
        assert_eq!(members().map(|(code, _)| code), Some(1));
    }
}
