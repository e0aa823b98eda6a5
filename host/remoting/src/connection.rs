//! One connection of a client: from dialling to its end, with everything that waits
//! on it.
//!
//! Requests may be submitted from the first moment on; they wait in the write queue
//! while the connection is being made, so that concurrent callers share one dial.
//! Three tasks serve a connection: one that dials, sweeps deadlines and watches, and
//! below it the reader and the writer. However it ends, every waiting request is
//! answered with the reason, at once.

mod frame_reader;
mod stream;
mod write_queue;

pub(crate) use frame_reader::FrameReader;
pub(crate) use write_queue::{PushError, WriteQueue};

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{Address, Instant, RemotingCommand};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{ConnectError, ConnectionError, InvokeError};
use crate::in_flight::{InFlight, InFlightPermit};
use crate::tls::TlsConfig;
use stream::Stream;

/// Deadlines are kept this coarsely, so that many of them cost few wake-ups.
const SWEEP_GRANULARITY: Duration = Duration::from_millis(10);

/// Requests that wait for less say nothing about the connection when they expire: not
/// every caller is patient, and a connection is shared.
const SILENCE_MIN: Duration = Duration::from_secs(2);

/// How long a connection that is closed from this side may take to write what is queued.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Told the outcome of a request, on the connection's reader task or whoever finds
/// out first. Must not block.
pub type InvokeCallback = Box<dyn FnOnce(Result<RemotingCommand, InvokeError>) + Send>;

/// Who waits for an answer.
pub(crate) enum Caller {
    Callback(InvokeCallback),
    Waiting(oneshot::Sender<Result<RemotingCommand, InvokeError>>),
}

impl Caller {
    pub(crate) fn tell(self, result: Result<RemotingCommand, InvokeError>) {
        match self {
            Self::Callback(callback) => callback(result),
            // A caller that went away needs no answer.
            Self::Waiting(sender) => drop(sender.send(result)),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Callback(_) => false,
            Self::Waiting(sender) => sender.is_closed(),
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Callback(_) => "Callback",
            Self::Waiting(_) => "Waiting",
        })
    }
}

/// A request with all that is needed to send it again.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) command: RemotingCommand,
    pub(crate) caller: Caller,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    /// Sent a second time because the first peer goes away; there is no third.
    pub(crate) is_resent: bool,
    pub(crate) permit: InFlightPermit,
}

impl Invocation {
    /// Gives its place back and tells the caller.
    pub(crate) fn tell(self, result: Result<RemotingCommand, InvokeError>) {
        let Self { caller, permit, .. } = self;
        drop(permit);
        caller.tell(result);
    }
}

/// What a connection tells its client.
pub(crate) trait ConnectionOwner: Send + Sync + 'static {
    fn clock(&self) -> Clock;
    fn handle_connected(&self, connection: &Arc<Connection>);
    fn handle_response(self: &Arc<Self>, connection: &Arc<Connection>, command: RemotingCommand);
    fn handle_request(&self, connection: &Arc<Connection>, command: RemotingCommand);
    /// Called once, before the waiting requests are told.
    fn handle_end(&self, connection: &Arc<Connection>, end: &End);
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    NotConnected(ConnectError),
    Lost(ConnectionError),
}

impl End {
    pub(crate) fn to_invoke_error(&self, address: &Address) -> InvokeError {
        match self {
            Self::NotConnected(error) => InvokeError::Connect(error.clone()),
            Self::Lost(ConnectionError::Closed) => InvokeError::Closed,
            Self::Lost(error) => InvokeError::Disconnected {
                address: address.clone(),
                source: error.clone(),
            },
        }
    }
}

/// Bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) frame_bytes_max: usize,
    pub(crate) write_queue_bytes_max: usize,
}

/// A connection that is being made, stands or has ended.
#[derive(Debug)]
pub(crate) struct Connection {
    address: Address,
    limits: ConnectionLimits,
    tls: Option<TlsConfig>,
    /// Protects the table only; nothing is called while it is held.
    state: Mutex<State>,
    write_queue: WriteQueue,
    sweep: Notify,
    drained: Notify,
    stop: CancellationToken,
    last_frame_ns: AtomicU64,
    has_answered: AtomicBool,
}

#[derive(Debug)]
struct State {
    in_flight: InFlight<Box<Invocation>>,
    /// When the sweeper wakes by itself.
    sweeps_at: Option<Instant>,
    /// The last answer to a request of ours, or the connection's beginning. Anything
    /// else the peer may send is no sign that it serves us.
    answered_at: Option<Instant>,
    /// A replacement takes the new requests; this one ends with its last answer.
    is_replaced: bool,
    end: Option<End>,
}

impl Connection {
    /// A connection that `stop` ends; [`Connection::run`] makes it.
    pub(crate) fn new(
        address: Address,
        limits: ConnectionLimits,
        tls: Option<TlsConfig>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            address,
            limits,
            tls,
            state: Mutex::new(State {
                in_flight: InFlight::new(),
                sweeps_at: None,
                answered_at: None,
                is_replaced: false,
                end: None,
            }),
            write_queue: WriteQueue::new(limits.write_queue_bytes_max),
            sweep: Notify::new(),
            drained: Notify::new(),
            stop,
            last_frame_ns: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Queues a request that waits for its answer under the command's opaque. The
    /// invocation comes back when nothing was queued.
    pub(crate) fn submit(
        &self,
        invocation: Box<Invocation>,
    ) -> Result<Submitted, (Box<Invocation>, InvokeError)> {
        let opaque = invocation.command.opaque;
        let deadline = invocation.deadline;
        let mut state = self.lock();
        if let Some(end) = &state.end {
            let error = end.to_invoke_error(&self.address);
            return Err((invocation, error));
        }
        if state.in_flight.contains(opaque) {
            return Ok(Submitted::OpaqueTaken(invocation));
        }
        // The answer cannot overtake: the reader needs this lock to find the request.
        if let Err(error) = self.push(&invocation.command) {
            return Err((invocation, error));
        }
        let inserted = state.in_flight.insert(opaque, deadline, invocation);
        debug_assert!(inserted.is_ok());
        let wakes_sweeper = state
            .sweeps_at
            .is_none_or(|sweeps_at| deadline + SWEEP_GRANULARITY < sweeps_at);
        drop(state);
        if wakes_sweeper {
            self.sweep.notify_one();
        }
        Ok(Submitted::InFlight)
    }

    /// Queues a command that nobody waits for.
    pub(crate) fn push(&self, command: &RemotingCommand) -> Result<(), InvokeError> {
        self.write_queue.push(command).map_err(|error| match error {
            PushError::Full => InvokeError::WriteQueueFull {
                address: self.address.clone(),
                bytes_max: self.write_queue.bytes_max(),
            },
            PushError::Closed => InvokeError::Disconnected {
                address: self.address.clone(),
                source: ConnectionError::Closed,
            },
            PushError::Encode(error) => InvokeError::Encode(error),
        })
    }

    /// Queues the answer to a question of the peer, unless it asks without reading.
    pub(crate) fn push_answer(&self, command: &RemotingCommand) {
        // Who asks learns of it by itself.
        self.write_queue.push_answer(command).ok();
    }

    /// Takes a request out that was answered.
    pub(crate) fn answer(&self, opaque: i32, now: Instant) -> Option<Box<Invocation>> {
        let mut state = self.lock();
        if state.in_flight.contains(opaque) {
            state.answered_at = Some(now);
        }
        self.take(state, opaque)
    }

    /// Whether this is asked for the first time.
    pub(crate) fn is_first_answer(&self) -> bool {
        !self.has_answered.swap(true, Ordering::Relaxed)
    }

    /// Takes a request out whose caller went away.
    pub(crate) fn remove(&self, opaque: i32) -> Option<Box<Invocation>> {
        self.take(self.lock(), opaque)
    }

    fn take(&self, mut state: MutexGuard<'_, State>, opaque: i32) -> Option<Box<Invocation>> {
        let invocation = state.in_flight.remove(opaque);
        if state.is_replaced && state.in_flight.is_empty() {
            self.drained.notify_one();
        }
        invocation
    }

    /// Takes no new request any more and ends with the last answer.
    pub(crate) fn replace(&self) {
        let mut state = self.lock();
        state.is_replaced = true;
        if state.in_flight.is_empty() {
            self.drained.notify_one();
        }
    }

    /// Dials, serves, and tells everyone about the end. Runs as a task of its own.
    pub(crate) async fn run(self: Arc<Self>, owner: Arc<impl ConnectionOwner>) {
        // Tells the waiting even if a callback panics below.
        let mut ending = Ending {
            connection: &self,
            owner: &owner,
            end: End::Lost(ConnectionError::Panicked),
        };
        let dialled = tokio::select! {
            dialled = self.dial() => dialled.map_err(End::NotConnected),
            silence = self.sweep(owner.clock()) => Err(End::Lost(ConnectionError::Unresponsive(silence))),
            () = self.stop.cancelled() => Err(End::Lost(ConnectionError::Closed)),
        };
        ending.end = match dialled {
            Ok(stream) => End::Lost(self.serve(stream, &owner).await),
            Err(end) => end,
        };
    }

    /// One connection to whichever address of the host accepts first, in the resolver's order.
    async fn dial(&self) -> Result<Stream, ConnectError> {
        let timed_out = || ConnectError::Timeout {
            address: self.address.clone(),
            timeout: self.limits.connect_timeout,
        };
        let deadline = tokio::time::Instant::now() + self.limits.connect_timeout;
        let host = (self.address.host(), self.address.port());
        let resolved: Vec<_> = timeout_at(deadline, tokio::net::lookup_host(host))
            .await
            .map_err(|_| timed_out())?
            .map_err(|error| ConnectError::Resolve {
                address: self.address.clone(),
                source: Arc::new(error),
            })?
            .collect();
        let mut last = ConnectError::NoAddress {
            address: self.address.clone(),
        };
        let addresses_max = u32::try_from(resolved.len()).unwrap_or(u32::MAX);
        for (remaining, address) in (1..=addresses_max).rev().zip(resolved) {
            // Every address gets its share of what is left, so that a silent first one
            // does not use up the time of a working second.
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let until = tokio::time::Instant::now() + left / remaining;
            let stream = match timeout_at(until, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    last = ConnectError::Io {
                        address: self.address.clone(),
                        source: Arc::new(error),
                    };
                    continue;
                }
                Err(_) => {
                    last = timed_out();
                    continue;
                }
            };
            // Only costs latency if it fails.
            stream.set_nodelay(true).ok();
            let Some(tls) = &self.tls else {
                return Ok(Stream::Plain(stream));
            };
            last = match timeout_at(until, tls.connect(&self.address, stream)).await {
                Ok(Ok(stream)) => return Ok(Stream::Tls(Box::new(stream))),
                Ok(Err(error)) => error,
                Err(_) => ConnectError::TlsTimeout {
                    address: self.address.clone(),
                },
            };
        }
        Err(last)
    }

    async fn serve(
        self: &Arc<Self>,
        stream: Stream,
        owner: &Arc<impl ConnectionOwner>,
    ) -> ConnectionError {
        let clock = owner.clock();
        let now = clock.now();
        self.note_frame(now);
        self.lock().answered_at = Some(now);
        owner.handle_connected(self);
        let (read, write) = stream.into_split();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(self).read(Arc::clone(owner), read));
        let connection = Arc::clone(self);
        tasks.spawn(async move {
            match connection.write_queue.write_to(write).await {
                Ok(()) => ConnectionError::Closed,
                Err(error) => error,
            }
        });
        let reason = tokio::select! {
            ended = tasks.join_next() => return joined(ended),
            silence = self.sweep(clock) => return ConnectionError::Unresponsive(silence),
            () = self.idle(clock) => return ConnectionError::Idle(self.limits.idle_timeout),
            () = self.drained.notified() => ConnectionError::Replaced,
            () = self.stop.cancelled() => ConnectionError::Closed,
        };
        // From here on only what is queued already goes out.
        self.write_queue.close();
        timeout(FLUSH_TIMEOUT, tasks.join_next()).await.ok();
        reason
    }

    async fn read(
        self: Arc<Self>,
        owner: Arc<impl ConnectionOwner>,
        read: stream::ReadHalf,
    ) -> ConnectionError {
        let clock = owner.clock();
        let mut reader = FrameReader::new(read, self.limits.frame_bytes_max);
        loop {
            let command = match reader.next().await {
                Ok(Some(frame)) => RemotingCommand::decode(frame),
                Ok(None) => return ConnectionError::ClosedByPeer,
                Err(error) => return error,
            };
            let command = match command {
                Ok(command) => command,
                Err(error) => return ConnectionError::Decode(error),
            };
            self.note_frame(clock.now());
            if command.is_response() {
                owner.handle_response(&self, command);
            } else {
                owner.handle_request(&self, command);
            }
        }
    }

    /// Answers what has expired. Returns when a request had its time, and nothing was
    /// answered meanwhile: then the connection is of no use, whatever else comes on it.
    /// RocketMQ: `NettyClientConfig#clientCloseSocketIfTimeout`.
    async fn sweep(&self, clock: Clock) -> Duration {
        loop {
            let now = clock.now();
            let mut expired = Vec::new();
            let answered_at;
            let sweeps_at = {
                let mut state = self.lock();
                while let Some(invocation) = state.in_flight.poll_expired(now) {
                    expired.push(invocation);
                }
                answered_at = state.answered_at;
                state.sweeps_at = state
                    .in_flight
                    .poll_timeout()
                    .map(|deadline| deadline.max(now + SWEEP_GRANULARITY));
                if state.is_replaced && state.in_flight.is_empty() {
                    self.drained.notify_one();
                }
                state.sweeps_at
            };
            // A connection that never answered anything need not have had all the time of
            // a request that waited for it to stand.
            let has_answered = self.has_answered.load(Ordering::Relaxed);
            let patience = |invocation: &Invocation| match has_answered {
                true => invocation.timeout,
                false => SILENCE_MIN,
            };
            let mut silence = None;
            for invocation in expired {
                if invocation.timeout >= SILENCE_MIN
                    && answered_at
                        .is_some_and(|at| at + patience(&invocation) <= invocation.deadline)
                {
                    silence = Some(invocation.timeout);
                }
                let error = InvokeError::Timeout {
                    address: self.address.clone(),
                    timeout: invocation.timeout,
                };
                invocation.tell(Err(error));
            }
            if let Some(silence) = silence {
                return silence;
            }
            match sweeps_at {
                Some(sweeps_at) => tokio::select! {
                    () = tokio::time::sleep_until(clock.to_tokio(sweeps_at)) => {}
                    () = self.sweep.notified() => {}
                },
                None => self.sweep.notified().await,
            }
        }
    }

    /// Returns when no whole frame came for too long.
    async fn idle(&self, clock: Clock) {
        loop {
            let last_frame = Instant::after_origin(Duration::from_nanos(
                self.last_frame_ns.load(Ordering::Relaxed),
            ));
            let deadline = last_frame + self.limits.idle_timeout;
            if deadline <= clock.now() {
                return;
            }
            tokio::time::sleep_until(clock.to_tokio(deadline)).await;
        }
    }

    fn note_frame(&self, now: Instant) {
        let ns = u64::try_from(now.since_origin().as_nanos()).unwrap_or(u64::MAX);
        self.last_frame_ns.store(ns, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a submitted request.
#[derive(Debug)]
pub(crate) enum Submitted {
    InFlight,
    /// Another request waits under this opaque: take the next.
    OpaqueTaken(Box<Invocation>),
}

fn joined(ended: Option<Result<ConnectionError, tokio::task::JoinError>>) -> ConnectionError {
    match ended {
        Some(Ok(error)) => error,
        // Neither task is aborted while it is waited for.
        Some(Err(_)) | None => ConnectionError::Panicked,
    }
}

/// Runs when the connection's task ends, in whatever way.
struct Ending<'a, O: ConnectionOwner> {
    connection: &'a Arc<Connection>,
    owner: &'a Arc<O>,
    end: End,
}

impl<O: ConnectionOwner> Drop for Ending<'_, O> {
    fn drop(&mut self) {
        let connection = self.connection;
        connection.write_queue.close();
        let waiting = {
            let mut state = connection.lock();
            state.end = Some(self.end.clone());
            state.in_flight.drain()
        };
        self.owner.handle_end(connection, &self.end);
        for invocation in waiting {
            let error = self.end.to_invoke_error(&connection.address);
            // This may run while a callback's panic unwinds: a second one must not
            // end the process, nor keep the answer from the others.
            drop(catch_unwind(AssertUnwindSafe(|| {
                invocation.tell(Err(error));
            })));
        }
    }
}
