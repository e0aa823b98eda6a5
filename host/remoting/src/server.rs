//! The accepting side: connections by number, commands in and out.
//!
//! The embedded broker stands behind it. Whoever is called with a command answers
//! through [`ServerHandle::send`], at once or much later; nothing ties an answer to a
//! task. A peer that breaks the protocol, talks no more or does not read costs its own
//! connection.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::frame::{self, EncodeError};
use protocol::{Instant, RemotingCommand, SerializeType};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::serialize_type_for;
use crate::clock::Clock;
use crate::connection::{FLUSH_TIMEOUT, FrameReader, PushError, WriteQueue};
use crate::error::ConnectionError;

/// Wait after a failed accept: usually the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reading from a peer pauses while more than this share of its write queue is full,
/// so that one that asks faster than it reads is slowed before it is cut off.
const WRITE_QUEUE_SHARE_OF_PAUSE: usize = 4;

/// Bounds and choices of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// A connection on which no whole frame came for this long is closed.
    pub idle_timeout: Duration,
    /// Largest frame that is read, without its length field.
    pub frame_bytes_max: usize,
    /// Connections at once; further ones are closed as soon as they are accepted.
    pub connections_max: usize,
    /// Bytes that may wait to be written on one connection; beyond it the connection is closed.
    pub write_queue_bytes_max: usize,
    /// Header encoding of what is sent, whatever came in. Codes that do not fit the
    /// binary one go out as JSON.
    pub serialize_type: SerializeType,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(120),
            frame_bytes_max: frame::FRAME_BYTES_MAX_DEFAULT,
            connections_max: 1_024,
            write_queue_bytes_max: 64 * 1024 * 1024,
            serialize_type: SerializeType::Json,
        }
    }
}

/// One accepted connection. Never used twice by a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Hears what happens on a server. Called on the connections' tasks, in order for each
/// connection: must not block. A connection whose handler panics is closed.
pub trait ServerHandler: Send + Sync + 'static {
    /// A peer connected.
    fn connected(&self, connection: ConnectionId, peer: SocketAddr);

    /// The connection is gone; nothing can be sent to it any more.
    fn disconnected(&self, connection: ConnectionId);

    /// Why, told just before [`ServerHandler::disconnected`].
    fn connection_ended(&self, _connection: ConnectionId, _error: &ConnectionError) {}

    /// A command came: a request, or the answer to one of ours.
    fn request(&self, connection: ConnectionId, command: RemotingCommand);
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ServerSendError {
    /// The connection is gone.
    #[error("connection {} is gone", .0.0)]
    Gone(ConnectionId),
    /// The peer does not read; its connection is being closed.
    #[error("connection {} is closed because its peer reads too slowly", .0.0)]
    SlowReader(ConnectionId),
    /// The command does not fit a frame.
    #[error("the command cannot be encoded")]
    Encode(#[source] EncodeError),
}

/// Makes servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Listens at `address` (port 0: a free one, see [`ServerHandle::local_addr`]) and
    /// serves until the last handle is dropped or [`ServerHandle::shutdown`].
    pub async fn bind(
        address: SocketAddr,
        config: ServerConfig,
        handler: Arc<dyn ServerHandler>,
    ) -> io::Result<ServerHandle> {
        let listener = TcpListener::bind(address).await?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            local_addr: listener.local_addr()?,
            config,
            handler,
            clock: Clock::start(),
            next_id: AtomicU64::new(1),
            peers: Mutex::default(),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(Arc::clone(&shared).accept(listener));
        Ok(ServerHandle {
            shared,
            _alive: Arc::new(Alive(stop)),
        })
    }
}

/// A running server. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerHandle {
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
    local_addr: SocketAddr,
    config: ServerConfig,
    handler: Arc<dyn ServerHandler>,
    clock: Clock,
    next_id: AtomicU64,
    /// Who is connected; held for look-ups only.
    peers: Mutex<BTreeMap<ConnectionId, Arc<Peer>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Peer {
    write_queue: WriteQueue,
    last_frame_ns: AtomicU64,
    is_slow: AtomicBool,
    stop: CancellationToken,
}

impl ServerHandle {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Queues a command. Opaque and flags are the caller's; the header encoding is the server's.
    pub fn send(
        &self,
        connection: ConnectionId,
        mut command: RemotingCommand,
    ) -> Result<(), ServerSendError> {
        let peer = self.shared.peer(connection)?;
        command.serialize_type =
            serialize_type_for(self.shared.config.serialize_type, command.code);
        peer.queued(connection, peer.write_queue.push(&command))
    }

    /// Queues bytes as they are, framed or not: for tests of clients that must survive them.
    pub fn send_bytes(
        &self,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Result<(), ServerSendError> {
        let peer = self.shared.peer(connection)?;
        peer.queued(connection, peer.write_queue.push_bytes(bytes))
    }

    /// Ends a connection after what is queued was written.
    pub fn close_connection(&self, connection: ConnectionId) {
        if let Ok(peer) = self.shared.peer(connection) {
            peer.stop.cancel();
        }
    }

    /// Stops listening, ends all connections after what is queued was written, and
    /// waits for them. The port is free afterwards.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) if self.lock().len() < self.config.connections_max => {
                    self.tasks.spawn(Arc::clone(&self).serve(stream, peer));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let peer = Arc::new(Peer {
            write_queue: WriteQueue::new(self.config.write_queue_bytes_max),
            last_frame_ns: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            stop: self.stop.child_token(),
        });
        peer.note_frame(self.clock.now());
        self.lock().insert(id, Arc::clone(&peer));
        let mut ending = Ending {
            shared: &self,
            id,
            peer: &peer,
            error: ConnectionError::Panicked,
        };
        self.handler.connected(id, address);
        ending.error = self.serve_peer(stream, id, &peer).await;
    }

    async fn serve_peer(
        self: &Arc<Self>,
        stream: TcpStream,
        id: ConnectionId,
        peer: &Arc<Peer>,
    ) -> ConnectionError {
        // Only costs latency if it fails.
        stream.set_nodelay(true).ok();
        let (read, write) = stream.into_split();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(self).read(read, id, Arc::clone(peer)));
        let writer = Arc::clone(peer);
        tasks.spawn(async move {
            match writer.write_queue.write_to(write).await {
                Ok(()) => ConnectionError::Closed,
                Err(error) => error,
            }
        });
        let ended = tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(Ok(error)) => error,
                Some(Err(_)) | None => ConnectionError::Panicked,
            },
            () = self.idle(peer) => return ConnectionError::Idle(self.config.idle_timeout),
            () = peer.stop.cancelled() => match peer.is_slow.load(Ordering::Relaxed) {
                false => ConnectionError::Closed,
                true => return peer.slow_reader(),
            },
        };
        // A peer that only closed its sending half still gets its answers.
        peer.write_queue.close();
        timeout(FLUSH_TIMEOUT, tasks.join_next()).await.ok();
        ended
    }

    async fn read(
        self: Arc<Self>,
        read: impl tokio::io::AsyncRead + Unpin,
        id: ConnectionId,
        peer: Arc<Peer>,
    ) -> ConnectionError {
        let mut reader = FrameReader::new(read, self.config.frame_bytes_max);
        let pause_bytes = self.config.write_queue_bytes_max / WRITE_QUEUE_SHARE_OF_PAUSE;
        loop {
            peer.write_queue.wait_below(pause_bytes).await;
            let command = match reader.next().await {
                Ok(Some(frame)) => RemotingCommand::decode(frame),
                Ok(None) => return ConnectionError::ClosedByPeer,
                Err(error) => return error,
            };
            match command {
                Ok(command) => {
                    peer.note_frame(self.clock.now());
                    self.handler.request(id, command);
                }
                Err(error) => return ConnectionError::Decode(error),
            }
        }
    }

    /// Returns when no whole frame came for too long.
    async fn idle(&self, peer: &Peer) {
        loop {
            let last_frame = Duration::from_nanos(peer.last_frame_ns.load(Ordering::Relaxed));
            let deadline = Instant::after_origin(last_frame) + self.config.idle_timeout;
            if deadline <= self.clock.now() {
                return;
            }
            tokio::time::sleep_until(self.clock.to_tokio(deadline)).await;
        }
    }

    fn peer(&self, id: ConnectionId) -> Result<Arc<Peer>, ServerSendError> {
        self.lock()
            .get(&id)
            .cloned()
            .ok_or(ServerSendError::Gone(id))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn queued(
        &self,
        id: ConnectionId,
        pushed: Result<(), PushError>,
    ) -> Result<(), ServerSendError> {
        pushed.map_err(|error| match error {
            PushError::Full => {
                self.is_slow.store(true, Ordering::Relaxed);
                self.stop.cancel();
                ServerSendError::SlowReader(id)
            }
            PushError::Closed => ServerSendError::Gone(id),
            PushError::Encode(error) => ServerSendError::Encode(error),
        })
    }

    fn slow_reader(&self) -> ConnectionError {
        ConnectionError::SlowReader {
            bytes_max: self.write_queue.bytes_max(),
        }
    }

    fn note_frame(&self, now: Instant) {
        let ns = u64::try_from(now.since_origin().as_nanos()).unwrap_or(u64::MAX);
        self.last_frame_ns.store(ns, Ordering::Relaxed);
    }
}

/// Runs when a connection's task ends, in whatever way.
struct Ending<'a> {
    shared: &'a Arc<Shared>,
    id: ConnectionId,
    peer: &'a Arc<Peer>,
    error: ConnectionError,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.peer.write_queue.close();
        self.shared.lock().remove(&self.id);
        self.shared.handler.connection_ended(self.id, &self.error);
        self.shared.handler.disconnected(self.id);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("local_addr", &self.local_addr)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
