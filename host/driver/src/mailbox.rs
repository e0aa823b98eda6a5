//! What the world reports to the client task: answers, results of calls, connections.
//!
//! Whoever reports never waits, and the task takes everything at once: a thousand
//! answers cost it one wake-up. What can be in here is bounded by what the task handed
//! out (requests in flight, calls under way and what they ask); only what peers send unasked has a bound
//! of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consumer::local_offsets::{LoadedOffsets, LocalOffsetsError, LocalOffsetsId};
use consumer::pull_task::{PullTaskId, PullerRequest};
use consumer::{RequestError, RequestId, Response};
use protocol::code::response_code;
use protocol::{Address, RemotingCommand};
use remoting::{ClientHandler, ConnectError, ConnectionError, Responder};
use tokio::sync::Notify;

use crate::consume_pool::{CallId, CallResult};
use crate::puller::PullerReply;
use crate::requests::with_causes;

/// Requests of peers that wait for the client task; more are turned away as busy.
const SERVER_REQUESTS_MAX: usize = 1_024;
/// The same for their bodies.
const SERVER_REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// One report.
#[derive(Debug)]
pub(crate) enum Input {
    Response(RequestId, Result<Response, RequestError>),
    CallEnded(CallId, CallEnd),
    /// A run of a pull task asks something of its queue.
    QueueAsked(PullTaskId, PullerRequest, PullerReply),
    LocalOffsetsLoaded(LocalOffsetsId, Result<LoadedOffsets, LocalOffsetsError>),
    LocalOffsetsStored(LocalOffsetsId, Result<(), LocalOffsetsError>),
    /// The file that was loaded still has the name servers of before.
    LocalOffsetsNotRewritten(Arc<str>, LocalOffsetsError),
    Connected(Address),
    Disconnected {
        address: Address,
        reason: String,
        has_answered: bool,
    },
    ConnectFailed {
        address: Address,
        reason: String,
    },
    ServerRequest(Address, RemotingCommand, Responder),
    ServerRequestsOverloaded(Address),
}

/// How a listener call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    Returned {
        result: CallResult,
        elapsed: Duration,
    },
    Panicked {
        message: String,
    },
    /// Its task was dropped before it returned.
    Dropped,
}

/// Shared by everyone who reports. The mutex protects appending and taking.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    inputs: Vec<Input>,
    server_requests: usize,
    server_request_bytes: usize,
    /// A request was turned away since the task last looked.
    is_overloaded: bool,
}

impl Mailbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn push(&self, input: Input) {
        let mut state = self.lock();
        let was_empty = state.inputs.is_empty();
        state.inputs.push(input);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Swaps everything reported into the empty `inputs`.
    pub(crate) fn take(&self, inputs: &mut Vec<Input>) {
        debug_assert!(inputs.is_empty());
        let mut state = self.lock();
        state.server_requests = 0;
        state.server_request_bytes = 0;
        state.is_overloaded = false;
        std::mem::swap(&mut state.inputs, inputs);
    }

    /// Returns when something was reported since the last return. Cancel-safe.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for Mailbox {
    fn connected(&self, address: &Address) {
        self.push(Input::Connected(address.clone()));
    }

    fn disconnected(&self, address: &Address, error: &ConnectionError, has_answered: bool) {
        self.push(Input::Disconnected {
            address: address.clone(),
            reason: with_causes(error),
            has_answered,
        });
    }

    fn connect_failed(&self, address: &Address, error: &ConnectError) {
        self.push(Input::ConnectFailed {
            address: address.clone(),
            reason: with_causes(error),
        });
    }

    fn request(&self, address: &Address, command: RemotingCommand, responder: Responder) {
        let (is_taken, is_told) = {
            let mut state = self.lock();
            let bytes = state.server_request_bytes + command.body.len();
            let is_taken =
                state.server_requests < SERVER_REQUESTS_MAX && bytes <= SERVER_REQUEST_BYTES_MAX;
            if is_taken {
                state.server_requests += 1;
                state.server_request_bytes = bytes;
            }
            let is_told = state.is_overloaded;
            state.is_overloaded |= !is_taken;
            (is_taken, is_told)
        };
        if is_taken {
            self.push(Input::ServerRequest(address.clone(), command, responder));
            return;
        }
        if !is_told {
            self.push(Input::ServerRequestsOverloaded(address.clone()));
        }
        responder.answer(
            RemotingCommand::response_to(&command, response_code::SYSTEM_BUSY)
                .with_remark("[OVERLOAD]system busy, start flow control for a while"),
        );
    }
}
