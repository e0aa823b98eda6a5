//! [`Client`]: what the groups of one process share, and the single entry point of the
//! crate. RocketMQ: `MQClientInstance`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, Instant, RemotingCommand};

use crate::config::{ClientConfig, GroupConfig};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::listener::{ConsumeRequest, ConsumeRequestId, ConsumeResult};
use crate::publish::{OutgoingMessage, SendError, SendMode, SendResult};
use crate::request::{
    PendingRequest, RequestError, RequestId, Response, ServerRequest, ServerRequestId,
};
use crate::status::ClientStatus;

/// Names one group of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub(crate) Epoch);

/// Names one send of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SendId(pub(crate) Epoch);

/// Why a group was not taken in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// RocketMQ registers a group once per client.
    #[error("consumer group \"{consumer_group}\" is already registered in this client")]
    Duplicate {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// The client stops.
    #[error("the client is stopping")]
    Stopping,
    /// Comes later.
    #[error("{what} is not supported yet")]
    Unsupported {
        /// What.
        what: &'static str,
    },
}

/// The rules of one client. After every input, drain the outputs (`poll_*`), then wait
/// until `poll_timeout` or the next input. Time never goes back. Same inputs and seed,
/// same outputs.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    requests: VecDeque<PendingRequest>,
    events: VecDeque<Event>,
    stopping: bool,
}

impl Client {
    /// A client without groups. `unix_now` is the wall clock at `now`.
    pub fn new(config: ClientConfig, seed: u64, now: Instant, unix_now: Duration) -> Self {
        let _ = (seed, now, unix_now);
        Self {
            config,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            stopping: false,
        }
    }

    /// The answer to a request, or why there is none. Late and repeated ones are ignored.
    pub fn handle_response(
        &mut self,
        id: RequestId,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let _ = (id, result, now);
    }

    /// A request that a broker makes of us; answered through `poll_answer`, unless it is
    /// one-way.
    pub fn handle_server_request(&mut self, request: ServerRequest, now: Instant) {
        let _ = (request, now);
    }

    /// A connection to this address was made.
    pub fn handle_connected(&mut self, address: &Address, now: Instant) {
        let _ = (address, now);
    }

    /// The connection to this address is gone. Its requests fail on their own.
    pub fn handle_disconnected(&mut self, address: &Address, now: Instant) {
        let _ = (address, now);
    }

    /// What came of a consume request. Late ones change nothing but the group's number
    /// of calls.
    pub fn handle_consume_result(
        &mut self,
        id: ConsumeRequestId,
        result: ConsumeResult,
        now: Instant,
    ) {
        let _ = (id, result, now);
    }

    /// Time has come to `poll_timeout`, or passed it.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// Takes a group in; it starts by itself as topics and brokers turn up.
    ///
    /// # Errors
    /// The group is there already, or the client stops.
    pub fn subscribe(
        &mut self,
        group: GroupConfig,
        now: Instant,
    ) -> Result<GroupId, SubscribeError> {
        let _ = now;
        Err(SubscribeError::Unsupported {
            what: if group.consumer_group().is_empty() {
                "a nameless group"
            } else {
                "consuming"
            },
        })
    }

    /// The group leaves in order: no pulls, no new calls, wait for its calls, commit,
    /// unregister; then `Event::GroupLeft`.
    pub fn unsubscribe(&mut self, group: GroupId, now: Instant) {
        let _ = (group, now);
    }

    /// Stops the pulls of a group; what was fetched is still consumed.
    pub fn pause(&mut self, group: GroupId, now: Instant) {
        let _ = (group, now);
    }

    /// Ends a pause.
    pub fn resume(&mut self, group: GroupId, now: Instant) {
        let _ = (group, now);
    }

    /// All groups leave in order. Whoever cannot wait for a call answers
    /// [`ConsumeResult::NotFinished`] for it.
    pub fn stop(&mut self, now: Instant) {
        let _ = now;
        self.stopping = true;
    }

    /// Sends messages of one topic; several go as one batch.
    pub fn send(
        &mut self,
        messages: Vec<OutgoingMessage>,
        mode: SendMode,
        timeout: Duration,
        now: Instant,
    ) -> SendId {
        let _ = (messages, mode, timeout, now);
        SendId(Epoch::from_u64(0))
    }

    /// The next request to be sent.
    pub fn poll_request(&mut self) -> Option<PendingRequest> {
        self.requests.pop_front()
    }

    /// The next call of a listener. Ask only when it can be made at once: what is taken
    /// here is under way.
    pub fn poll_consume_request(&mut self) -> Option<Arc<ConsumeRequest>> {
        None
    }

    /// The outcome of a send.
    pub fn poll_send_result(&mut self) -> Option<(SendId, Result<Vec<SendResult>, SendError>)> {
        None
    }

    /// The next answer to a broker's request.
    pub fn poll_answer(&mut self) -> Option<(ServerRequestId, RemotingCommand)> {
        None
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call `handle_timeout` at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// A snapshot for people.
    pub fn status(&self, now: Instant) -> ClientStatus {
        let _ = now;
        ClientStatus {
            client_id: self.config.client_id.as_str().into(),
            name_servers: Vec::new(),
            brokers: Vec::new(),
            groups: Vec::new(),
            held_bytes: 0,
            requests_in_flight: 0,
            send_backs: 0,
            stopping: self.stopping,
        }
    }

    /// Every group has left and every send has ended, after `stop`.
    pub fn is_stopped(&self) -> bool {
        self.stopping
    }
}
