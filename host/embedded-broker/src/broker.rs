//! `Broker`: the one entry point. It takes requests, finds who serves them, and keeps
//! the answers until they are fetched.
//!
//! After every input drain `poll_response`, `poll_connection_action` and `poll_event`,
//! then wait until `poll_timeout` or the next input. One-way requests are never
//! answered. What each request means stands in the files below, one for each processor
//! of RocketMQ.

mod admin;
mod client_manage;
mod consumer_manage;
mod pull_message;
mod put_message;
mod query_message;
mod send_message;
mod send_message_back;

pub use admin::AddTopicError;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::code::{request_code, response_code};
use protocol::header::{Header, HeaderError};
use protocol::message::message_id::UniqueIdGenerator;
use protocol::{ExtFields, Instant, RemotingCommand};

use crate::config::BrokerConfig;
use crate::connection_id::ConnectionId;
use crate::delay::DelayProgress;
use crate::event::Event;
use crate::groups::Groups;
use crate::locks::QueueLocks;
use crate::long_poll::LongPoll;
use crate::message_store::MessageStore;
use crate::name_server;
use crate::offsets::Offsets;
use crate::timer::Timers;
use crate::topics::Topics;
use crate::unix_clock::UnixClock;

/// RocketMQ 5.5.0: whose answers these are.
const VERSION: i32 = 513;

/// What RocketMQ appends to refusals that have a page of advice.
pub(crate) const FAQ: &str =
    "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.";

/// Events that nobody fetched; beyond it new ones are lost.
const EVENTS_MAX: usize = 1024;

/// A name server and a broker.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    clock: UnixClock,
    pub(crate) connections: BTreeMap<ConnectionId, SocketAddr>,
    topics: Topics,
    pub(crate) groups: Groups,
    pub(crate) store: MessageStore,
    offsets: Offsets,
    pub(crate) locks: QueueLocks,
    long_poll: LongPoll,
    delay: DelayProgress,
    timers: Timers,
    unique_ids: UniqueIdGenerator,
    /// When silent members are looked for next; `None` while nobody is a member.
    next_member_scan: Option<Instant>,
    /// Counts choices of a queue, so that they spread evenly and can be repeated.
    queue_choices: u32,
    /// Opaque of the next request that we send.
    next_opaque: i32,
    /// Messages that were stored during this input: held pulls may want them.
    arrivals: Vec<Arrival>,
    responses: VecDeque<(ConnectionId, RemotingCommand)>,
    pub(crate) actions: VecDeque<ConnectionAction>,
    events: VecDeque<Event>,
    #[cfg(feature = "testing")]
    pub(crate) script: crate::script::Script,
}

/// What shall be done to a connection, other than sending a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionAction {
    /// Close it, after the responses so far.
    Close(ConnectionId),
    /// Send bytes that may be no frame: only scripts do this.
    SendBytes(ConnectionId, Bytes),
}

#[derive(Debug)]
struct Arrival {
    topic: Arc<str>,
    queue_id: u32,
    queue_offset: u64,
    tags_code: i64,
}

/// An answer, or why there is none to give.
pub(crate) type Answer = Result<RemotingCommand, Refusal>;

/// A response with another code than success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    code: i32,
    remark: String,
}

impl Refusal {
    pub(crate) fn new(code: i32, remark: impl Into<String>) -> Self {
        Self {
            code,
            remark: remark.into(),
        }
    }

    pub(crate) fn response(self, request: &RemotingCommand) -> RemotingCommand {
        RemotingCommand::response_to(request, self.code).with_remark(self.remark)
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::new(response_code::SYSTEM_ERROR, error.to_string())
    }
}

impl Broker {
    /// An empty broker at this time of both clocks.
    pub fn new(config: BrokerConfig, now: Instant, unix_now: Duration) -> Self {
        let template_queue_nums = config
            .auto_create_topic
            .then_some(config.default_topic_queue_nums);
        Self {
            clock: UnixClock::new(now, unix_now),
            connections: BTreeMap::new(),
            topics: Topics::new(
                config.topics_max,
                template_queue_nums,
                config.delay_levels.max_level(),
            ),
            groups: Groups::new(
                config.auto_create_subscription_group,
                config.retry_max_times,
                config.groups_max,
            ),
            store: MessageStore::new(config.store_bytes_max, config.segment_bytes),
            offsets: Offsets::new(config.offsets_max),
            locks: QueueLocks::new(config.lock_live_time, config.locks_max),
            long_poll: LongPoll::new(config.held_pulls_max, config.held_pull_check_interval),
            delay: DelayProgress::new(&config.delay_levels),
            timers: Timers::default(),
            unique_ids: UniqueIdGenerator::new(
                config.store_host.ip(),
                0,
                u32::from(config.store_host.port()),
            ),
            next_member_scan: None,
            queue_choices: 0,
            next_opaque: 0,
            arrivals: Vec::new(),
            responses: VecDeque::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            #[cfg(feature = "testing")]
            script: crate::script::Script::default(),
            config,
        }
    }

    /// A client connected.
    pub fn handle_connected(&mut self, connection: ConnectionId, peer: SocketAddr, _now: Instant) {
        self.connections.insert(connection, peer);
        self.event(Event::Connected { connection, peer });
    }

    /// A connection ended: its member leaves all its groups, its held pulls go.
    pub fn handle_disconnected(&mut self, connection: ConnectionId, _now: Instant) {
        if self.connections.remove(&connection).is_some() {
            self.event(Event::Disconnected { connection });
        }
        self.leave_all_groups(connection);
        self.long_poll.drop_connection(connection);
    }

    /// A command came in. Responses are ignored: nothing here asks clients and waits.
    pub fn handle_request(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        now: Instant,
    ) {
        if request.is_response() {
            return;
        }
        #[cfg(feature = "testing")]
        let Some(request) = self.apply_script(connection, request, now) else {
            return;
        };
        self.serve(connection, request, now);
    }

    /// Time has come for something: held pulls, delayed messages, silent members.
    pub fn handle_timeout(&mut self, now: Instant) {
        #[cfg(feature = "testing")]
        self.resume_script(now);
        self.deliver_due_messages(now);
        self.deliver_due_timers(now);
        self.expire_members(now);
        self.wake_due_pulls(now);
        self.wake_arrived_pulls(now);
    }

    /// A command for a client: an answer, or a request of our own.
    pub fn poll_response(&mut self) -> Option<(ConnectionId, RemotingCommand)> {
        self.responses.pop_front()
    }

    /// Something else to do to a connection, after the responses.
    pub fn poll_connection_action(&mut self) -> Option<ConnectionAction> {
        self.actions.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When `handle_timeout` wants to be called; earlier is harmless.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let delayed = [self.delay.next_due_ms(), self.timers.next_due_ms()];
        let delayed = delayed.into_iter().flatten().min();
        let delayed = delayed.map(|due_ms| self.clock.instant_of(due_ms));
        let times = [
            delayed,
            self.next_member_scan,
            self.long_poll.next_timeout(),
        ];
        let next = times.into_iter().flatten().min();
        #[cfg(feature = "testing")]
        let next = [next, self.script.next_timeout()]
            .into_iter()
            .flatten()
            .min();
        next
    }

    /// What this broker was told when it was made.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// The server learns its port after the broker is made.
    #[cfg(feature = "server")]
    pub(crate) fn config_mut(&mut self) -> &mut BrokerConfig {
        &mut self.config
    }

    /// The offset that the next message of a queue will get.
    pub fn max_offset(&self, topic: &str, queue_id: u32) -> u64 {
        self.store.max_offset(topic, queue_id)
    }

    /// The offset that a group committed for a queue.
    pub fn committed_offset(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.offsets.query(group, topic, queue_id)
    }

    /// Serves a request and wakes the pulls that waited for what it stored.
    pub(crate) fn serve(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        now: Instant,
    ) {
        match request.code {
            request_code::PULL_MESSAGE | request_code::LITE_PULL_MESSAGE => {
                self.pull_message(connection, request, now);
            }
            _ => {
                let answer = self.dispatch(connection, &request, now);
                let response = answer.unwrap_or_else(|refusal| refusal.response(&request));
                self.respond(connection, &request, response);
            }
        }
        self.wake_arrived_pulls(now);
    }

    fn dispatch(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
        now: Instant,
    ) -> Answer {
        match request.code {
            request_code::SEND_MESSAGE
            | request_code::SEND_MESSAGE_V2
            | request_code::SEND_BATCH_MESSAGE => Ok(self.send_message(connection, request, now)),
            request_code::CONSUMER_SEND_MSG_BACK => self.consumer_send_msg_back(request, now),
            request_code::HEART_BEAT => self.heart_beat(connection, request, now),
            request_code::UNREGISTER_CLIENT => self.unregister_client(connection, request),
            request_code::CHECK_CLIENT_CONFIG => self.check_client_config(request),
            request_code::GET_CONSUMER_LIST_BY_GROUP => self.consumer_list_by_group(request),
            request_code::QUERY_CONSUMER_OFFSET => self.query_consumer_offset(request),
            request_code::UPDATE_CONSUMER_OFFSET => self.update_consumer_offset(request),
            request_code::LOCK_BATCH_MQ => self.lock_batch_mq(request, now),
            request_code::UNLOCK_BATCH_MQ => self.unlock_batch_mq(request),
            request_code::SEARCH_OFFSET_BY_TIMESTAMP => self.search_offset(request),
            request_code::GET_MAX_OFFSET => self.get_max_offset(request),
            request_code::GET_MIN_OFFSET => self.get_min_offset(request),
            request_code::GET_EARLIEST_MSG_STORETIME => self.earliest_store_time(request),
            request_code::VIEW_MESSAGE_BY_ID => self.view_message_by_id(request),
            request_code::QUERY_MESSAGE => self.query_message(request),
            request_code::UPDATE_AND_CREATE_TOPIC => self.create_topic(request),
            request_code::DELETE_TOPIC_IN_BROKER | request_code::DELETE_TOPIC_IN_NAMESRV => {
                self.delete_topic(request)
            }
            request_code::INVOKE_BROKER_TO_RESET_OFFSET => self.reset_offset(request),
            request_code::GET_ROUTEINFO_BY_TOPIC => {
                name_server::route_info(request, &self.topics, &self.config)
            }
            request_code::GET_BROKER_CLUSTER_INFO => {
                Ok(name_server::cluster_info(request, &self.config))
            }
            request_code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
                Ok(name_server::topic_list(request, &self.topics))
            }
            code => {
                self.event(Event::RequestNotSupported { code });
                Err(Refusal::new(
                    response_code::REQUEST_CODE_NOT_SUPPORTED,
                    format!(" request type {code} not supported"),
                ))
            }
        }
    }

    /// Queues the answer, unless the request must not be answered.
    pub(crate) fn respond(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
        mut response: RemotingCommand,
    ) {
        if !request.is_oneway() {
            response.version = VERSION;
            self.responses.push_back((connection, response));
        }
    }

    /// Queues a one-way request of our own.
    fn tell(&mut self, connection: ConnectionId, code: i32, ext_fields: ExtFields) {
        let mut request = RemotingCommand::request(code, ext_fields).oneway();
        request.version = VERSION;
        request.opaque = self.next_opaque;
        self.next_opaque = self.next_opaque.wrapping_add(1);
        self.responses.push_back((connection, request));
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// The client's side of a connection. One that was never announced comes from here.
    fn peer(&self, connection: ConnectionId) -> SocketAddr {
        const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        self.connections
            .get(&connection)
            .copied()
            .unwrap_or(NOWHERE)
    }

    /// One of so many queues, each in its turn.
    fn choose_queue(&mut self, queue_nums: u32) -> u32 {
        self.queue_choices = self.queue_choices.wrapping_add(1);
        self.queue_choices % queue_nums.max(1)
    }
}

/// The typed header of a request; one without any fields counts as one with none set.
pub(crate) fn header<H: Header>(request: &RemotingCommand) -> Result<H, HeaderError> {
    match &request.ext_fields {
        Some(fields) => H::decode(fields),
        None => H::decode(&ExtFields::default()),
    }
}

/// A queue id as a number of ours; nothing has a negative one.
fn queue_id(wire: i32) -> Option<u32> {
    u32::try_from(wire).ok()
}

/// A success without anything in it.
pub(crate) fn success(request: &RemotingCommand) -> RemotingCommand {
    RemotingCommand::response_to(request, response_code::SUCCESS)
}

/// A success with a typed header.
pub(crate) fn success_with(request: &RemotingCommand, header: &impl Header) -> RemotingCommand {
    success(request).with_ext_fields(header.encode())
}

#[cfg(test)]
mod tests;
