//! `RemotingClient`: requests to name servers and brokers by address.
//!
//! One connection an address, made when the first request needs it and shared by
//! all. While an address is failing, requests to it fail at once and say when it is
//! tried again: waiting and trying again is the caller's decision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::code::response_code;
use protocol::{Address, Credentials, Instant, RemotingCommand, SerializeType, frame};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::{Backoff, BackoffConfig};
use crate::clock::Clock;
use crate::connection::{
    Caller, Connection, ConnectionLimits, ConnectionOwner, End, Invocation, InvokeCallback,
    Submitted,
};
use crate::error::{ConnectError, ConnectionError, InvokeError};
use crate::in_flight::InFlightBound;
use crate::tls::TlsConfig;

/// Addresses a client remembers. A hostile name server may invent them; those
/// without a connection are forgotten first.
const ADDRESSES_MAX: usize = 4_096;

/// Codes above this do not fit the binary header, whose code has 16 bits.
const BINARY_CODE_MAX: i32 = i16::MAX as i32;

/// Bounds and choices of a client.
#[derive(Clone, Debug)]
pub struct RemotingConfig {
    /// For resolving the name and trying all its addresses together.
    pub connect_timeout: Duration,
    /// A connection on which no whole frame came for this long is closed.
    pub idle_timeout: Duration,
    /// Largest frame that is read, without its length field.
    pub frame_bytes_max: usize,
    /// Requests that wait for an answer, over all connections.
    pub in_flight_max: usize,
    /// Bytes that may wait to be written on one connection; a request beyond it fails.
    pub write_queue_bytes_max: usize,
    /// Wait between two attempts to connect to one address.
    pub backoff: BackoffConfig,
    /// Header encoding of what is sent. Codes that do not fit the binary one go out as JSON.
    pub serialize_type: SerializeType,
    /// Seed of the jitter; another one for every process unless set.
    pub seed: u64,
    /// Signs every request.
    pub credentials: Option<Credentials>,
    /// Speaks TLS with every address; plain text unless set.
    pub tls: Option<TlsConfig>,
}

impl Default for RemotingConfig {
    /// RocketMQ's `NettyClientConfig`.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(120),
            frame_bytes_max: frame::FRAME_BYTES_MAX_DEFAULT,
            in_flight_max: 65_535,
            write_queue_bytes_max: 64 * 1024 * 1024,
            backoff: BackoffConfig::default(),
            serialize_type: SerializeType::Json,
            seed: fastrand::u64(..),
            credentials: None,
            tls: None,
        }
    }
}

/// Hears what happens on the connections of a client. Called on their tasks: must not
/// block. A connection whose handler panics is closed.
pub trait ClientHandler: Send + Sync + 'static {
    /// A connection stands; no answer came yet.
    fn connected(&self, address: &Address);

    /// The connection ended and no other has taken its place. `has_answered`: a request
    /// of ours was answered on it.
    fn disconnected(&self, address: &Address, error: &ConnectionError, has_answered: bool);

    /// An attempt to connect failed. Requests that waited for it fail too.
    fn connect_failed(&self, _address: &Address, _error: &ConnectError) {}

    /// The peer asks something.
    fn request(&self, address: &Address, command: RemotingCommand, responder: Responder);
}

/// The way back for the answer to a peer's request. Dropping it answers nothing.
#[derive(Debug)]
pub struct Responder {
    connection: Arc<Connection>,
    opaque: i32,
    is_oneway: bool,
    serialize_type: SerializeType,
}

impl Responder {
    /// Sends the answer, unless the request was one-way or the connection is gone: the
    /// peer then learns of it by itself.
    pub fn answer(self, mut command: RemotingCommand) {
        if self.is_oneway {
            return;
        }
        command.opaque = self.opaque;
        debug_assert!(command.is_response());
        command.serialize_type = serialize_type_for(self.serialize_type, command.code);
        self.connection.push_answer(&command);
    }
}

/// Numbers for people who look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemotingStats {
    /// Requests that wait for an answer.
    pub in_flight: usize,
    /// Answers that nobody waited for: late, repeated or made up.
    pub unknown_opaques: u64,
    /// Connections that stand or are being made.
    pub connections: usize,
}

/// Connections to name servers and brokers. Clones share everything; when the last
/// one is dropped the connections end.
#[derive(Clone, Debug)]
pub struct RemotingClient {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

#[derive(Debug)]
struct Alive(CancellationToken);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

struct Shared {
    config: RemotingConfig,
    handler: Arc<dyn ClientHandler>,
    clock: Clock,
    in_flight: Arc<InFlightBound>,
    opaque: AtomicI32,
    unknown_opaques: AtomicU64,
    /// Who is connected; held for look-ups only. A lock and not a task, because every
    /// request needs it and it never waits.
    slots: Mutex<Slots>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Slots {
    by_address: BTreeMap<Address, Slot>,
    seeds: fastrand::Rng,
}

/// What is known of one address.
#[derive(Debug)]
struct Slot {
    backoff: Backoff,
    connection: Option<Arc<Connection>>,
    has_answered: bool,
    last_error: Option<InvokeError>,
}

impl RemotingClient {
    /// A client without connections. Needs a tokio runtime around it.
    pub fn new(config: RemotingConfig, handler: Arc<dyn ClientHandler>) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            clock: Clock::start(),
            in_flight: InFlightBound::new(config.in_flight_max),
            opaque: AtomicI32::new(0),
            unknown_opaques: AtomicU64::new(0),
            slots: Mutex::new(Slots {
                by_address: BTreeMap::new(),
                seeds: fastrand::Rng::with_seed(config.seed),
            }),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
            config,
            handler,
        });
        Self {
            shared,
            _alive: Arc::new(Alive(stop)),
        }
    }

    /// Sends a request and waits for the answer. A caller that goes away leaves nothing behind.
    pub async fn invoke(
        &self,
        address: &Address,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, InvokeError> {
        let (sender, receiver) = oneshot::channel();
        let caller = Caller::Waiting(sender);
        let place = Arc::clone(&self.shared).invoke(address, command, timeout, caller);
        let _forget = place.map(ForgetOnDrop);
        receiver.await.unwrap_or(Err(InvokeError::Closed))
    }

    /// Sends a request; `callback` is told the outcome, exactly once. Never blocks.
    ///
    /// The callback runs on the connection's reader task, so decoding the body there
    /// keeps it off the caller's; a request that cannot be sent is told before this returns.
    pub fn invoke_with(
        &self,
        address: &Address,
        command: RemotingCommand,
        timeout: Duration,
        callback: InvokeCallback,
    ) {
        let caller = Caller::Callback(callback);
        Arc::clone(&self.shared).invoke(address, command, timeout, caller);
    }

    /// Queues a request that is not answered. `Ok` means that it will be written if the
    /// connection stands or comes about.
    pub fn invoke_oneway(
        &self,
        address: &Address,
        command: RemotingCommand,
    ) -> Result<(), InvokeError> {
        let shared = &self.shared;
        let mut command = command.oneway();
        command.opaque = shared.next_opaque();
        shared.prepare(&mut command);
        shared.connection_to(address)?.push(&command)
    }

    /// Ends all connections after what is queued was written, and waits for them.
    /// Requests in flight fail; later ones too.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// A snapshot.
    pub fn stats(&self) -> RemotingStats {
        RemotingStats {
            in_flight: self.shared.in_flight.count(),
            unknown_opaques: self.shared.unknown_opaques.load(Ordering::Relaxed),
            connections: self.shared.tasks.len(),
        }
    }
}

/// Where a request waits, so that it can be forgotten.
type Place = (Arc<Connection>, i32);

struct ForgetOnDrop(Place);

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        let (connection, opaque) = &self.0;
        drop(connection.remove(*opaque));
    }
}

impl Shared {
    fn invoke(
        self: Arc<Self>,
        address: &Address,
        mut command: RemotingCommand,
        timeout: Duration,
        caller: Caller,
    ) -> Option<Place> {
        debug_assert!(!command.is_oneway() && !command.is_response());
        self.prepare(&mut command);
        let Some(permit) = self.in_flight.try_acquire() else {
            caller.tell(Err(InvokeError::TooManyInFlight {
                in_flight_max: self.in_flight.max(),
            }));
            return None;
        };
        let deadline = self.clock.now() + timeout;
        self.submit(
            address,
            Box::new(Invocation {
                command,
                caller,
                timeout,
                deadline,
                is_resent: false,
                permit,
            }),
        )
    }

    /// The last that happens to a request, wherever it goes: nothing may be added to
    /// what is signed.
    fn prepare(&self, command: &mut RemotingCommand) {
        command.serialize_type = serialize_type_for(self.config.serialize_type, command.code);
        if let Some(credentials) = &self.config.credentials {
            credentials.sign(command);
        }
    }

    fn submit(
        self: &Arc<Self>,
        address: &Address,
        mut invocation: Box<Invocation>,
    ) -> Option<Place> {
        let connection = match self.connection_to(address) {
            Ok(connection) => connection,
            Err(error) => {
                invocation.tell(Err(error));
                return None;
            }
        };
        // Ends: there are fewer requests in flight than numbers.
        loop {
            let opaque = self.next_opaque();
            invocation.command.opaque = opaque;
            match connection.submit(invocation) {
                Ok(Submitted::InFlight) => return Some((connection, opaque)),
                Ok(Submitted::OpaqueTaken(back)) => invocation = back,
                Err((invocation, error)) => {
                    invocation.tell(Err(error));
                    return None;
                }
            }
        }
    }

    /// The connection to this address, made if need be and allowed now.
    fn connection_to(self: &Arc<Self>, address: &Address) -> Result<Arc<Connection>, InvokeError> {
        if self.stop.is_cancelled() {
            return Err(InvokeError::Closed);
        }
        let now = self.clock.now();
        let mut slots = self.lock();
        if let Some(connection) = slots.connection(address) {
            return Ok(Arc::clone(connection));
        }
        let slot = slots.slot(address, self.config.backoff, now)?;
        let next_attempt_in = slot.backoff.next_attempt() - now;
        if !next_attempt_in.is_zero() {
            return Err(InvokeError::BackingOff {
                address: address.clone(),
                next_attempt_in,
                last: slot.last_error.clone().map(Box::new),
            });
        }
        slot.backoff.handle_attempt(now);
        slot.has_answered = false;
        let limits = ConnectionLimits {
            connect_timeout: self.config.connect_timeout,
            idle_timeout: self.config.idle_timeout,
            frame_bytes_max: self.config.frame_bytes_max,
            write_queue_bytes_max: self.config.write_queue_bytes_max,
        };
        let connection = Arc::new(Connection::new(
            address.clone(),
            limits,
            self.config.tls.clone(),
            self.stop.child_token(),
        ));
        slot.connection = Some(Arc::clone(&connection));
        self.tasks
            .spawn(Arc::clone(&connection).run(Arc::clone(self)));
        Ok(connection)
    }

    /// Replaces the connection and sends the request once more.
    /// RocketMQ: `NettyRemotingClient#invokeImpl`.
    fn handle_go_away(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut invocation: Box<Invocation>,
    ) {
        let address = connection.address();
        {
            let mut slots = self.lock();
            if let Some(slot) = slots.slot_of(connection) {
                slot.connection = None;
            }
        }
        connection.replace();
        if invocation.caller.is_gone() {
            return;
        }
        if invocation.is_resent {
            let error = InvokeError::GoAway {
                address: address.clone(),
            };
            invocation.tell(Err(error));
            return;
        }
        invocation.is_resent = true;
        self.submit(address, invocation);
    }

    /// Who answers may be dialled again at once; who only talks may not.
    fn handle_first_answer(&self, connection: &Arc<Connection>) {
        if let Some(slot) = self.lock().slot_of(connection) {
            slot.backoff.handle_success();
            slot.has_answered = true;
            slot.last_error = None;
        }
    }

    fn next_opaque(&self) -> i32 {
        self.opaque.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionOwner for Shared {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn handle_connected(&self, connection: &Arc<Connection>) {
        self.handler.connected(connection.address());
    }

    fn handle_response(self: &Arc<Self>, connection: &Arc<Connection>, command: RemotingCommand) {
        let answered = connection.answer(command.opaque, self.clock.now());
        if answered.is_some() && connection.is_first_answer() {
            self.handle_first_answer(connection);
        }
        match answered {
            Some(invocation) if command.code == response_code::GO_AWAY => {
                self.handle_go_away(connection, invocation);
            }
            Some(invocation) => invocation.tell(Ok(command)),
            None => {
                self.unknown_opaques.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn handle_request(&self, connection: &Arc<Connection>, command: RemotingCommand) {
        let responder = Responder {
            connection: Arc::clone(connection),
            opaque: command.opaque,
            is_oneway: command.is_oneway(),
            serialize_type: self.config.serialize_type,
        };
        self.handler
            .request(connection.address(), command, responder);
    }

    fn handle_end(&self, connection: &Arc<Connection>, end: &End) {
        let address = connection.address();
        let has_answered;
        {
            let now = self.clock.now();
            let mut slots = self.lock();
            let Some(slot) = slots.slot_of(connection) else {
                // Another has taken its place.
                return;
            };
            slot.connection = None;
            has_answered = slot.has_answered;
            if !has_answered {
                slot.backoff.handle_failure(now);
            }
            slot.last_error = Some(end.to_invoke_error(address));
        }
        match end {
            End::NotConnected(error) => self.handler.connect_failed(address, error),
            End::Lost(error) => self.handler.disconnected(address, error, has_answered),
        }
    }
}

impl Slots {
    fn connection(&self, address: &Address) -> Option<&Arc<Connection>> {
        self.by_address.get(address)?.connection.as_ref()
    }

    /// The slot in which this very connection is.
    fn slot_of(&mut self, connection: &Arc<Connection>) -> Option<&mut Slot> {
        self.by_address
            .get_mut(connection.address())
            .filter(|slot| {
                slot.connection
                    .as_ref()
                    .is_some_and(|current| Arc::ptr_eq(current, connection))
            })
    }

    fn slot(
        &mut self,
        address: &Address,
        backoff: BackoffConfig,
        now: Instant,
    ) -> Result<&mut Slot, InvokeError> {
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(address) {
            self.by_address
                .retain(|_, slot| slot.connection.is_some() || slot.backoff.next_attempt() > now);
            if self.by_address.len() >= ADDRESSES_MAX {
                return Err(InvokeError::TooManyAddresses {
                    addresses_max: ADDRESSES_MAX,
                });
            }
        }
        let seed = self.seeds.u64(..);
        Ok(self
            .by_address
            .entry(address.clone())
            .or_insert_with(|| Slot {
                backoff: Backoff::new(backoff, seed),
                connection: None,
                has_answered: false,
                last_error: None,
            }))
    }
}

/// The encoding for a command of this code.
pub(crate) fn serialize_type_for(configured: SerializeType, code: i32) -> SerializeType {
    match code > BINARY_CODE_MAX {
        true => SerializeType::Json,
        false => configured,
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}
