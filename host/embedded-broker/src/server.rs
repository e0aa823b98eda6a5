//! Feature `server`: the broker behind a real port, which serves as name server and
//! broker alike.
//!
//! Connections' tasks feed the machine themselves, under one lock that is held for one
//! input and never across a wait. A task and a channel in its place would have to lose
//! requests when the channel is full, since a connection's handler may not wait; here a
//! connection that asks too fast waits for the lock, and its peer for the socket.
//! Commands go out after the lock is given back, so that encoding runs beside it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use protocol::{Address, Instant, RemotingCommand};
use remoting::{Server, ServerHandle, ServerHandler};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::broker::{Broker, ConnectionAction};
use crate::config::BrokerConfig;
use crate::connection_id::ConnectionId;
use crate::event::Event;

/// Hears every event of a running broker, in order. Must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a server is told when it starts.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where clients are sent, if that is not where it listens: behind a proxy, or when
    /// it listens on all addresses, which is said to be the loopback one otherwise.
    pub advertised: Option<Address>,
    /// Everything else. Its `store_host` and `advertised` are set from the two above.
    pub broker: BrokerConfig,
    /// Bounds of the connections.
    pub remoting: remoting::ServerConfig,
    /// Hears every event.
    pub observer: Observer,
}

impl ServerConfig {
    /// The defaults at this address, with nobody listening to events.
    pub fn listening_on(listen: SocketAddr) -> Self {
        Self {
            listen,
            advertised: None,
            broker: BrokerConfig::listening_on(listen),
            remoting: remoting::ServerConfig::default(),
            observer: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("listen", &self.listen)
            .field("advertised", &self.advertised)
            .field("broker", &self.broker)
            .finish_non_exhaustive()
    }
}

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {listen}; stop what uses the port, or choose another (0 takes a free one)"
)]
pub struct StartError {
    /// Where it should have listened.
    pub listen: SocketAddr,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

/// A running name server and broker. Dropping it stops it without waiting.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    server: ServerHandle,
    timer: JoinHandle<()>,
    address: Address,
}

struct Shared {
    machine: Mutex<Machine>,
    /// Set before anybody can know the port; taken out on drop, because the server holds
    /// its handler, which is this.
    server: RwLock<Option<ServerHandle>>,
    /// The timer has to look at its next time again.
    timer_changed: Notify,
    observer: Observer,
    /// Origin of the machine's clock.
    origin: tokio::time::Instant,
}

/// What the lock protects.
struct Machine {
    broker: Broker,
    /// What the timer waits for.
    scheduled: Option<Instant>,
}

/// What an input gave, to be carried out without the lock.
#[derive(Default)]
struct Outputs {
    responses: Vec<(ConnectionId, RemotingCommand)>,
    actions: Vec<ConnectionAction>,
    events: Vec<Event>,
}

impl EmbeddedBroker {
    /// Listens and serves until [`EmbeddedBroker::stop`].
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        let ServerConfig {
            listen,
            advertised,
            mut broker,
            remoting,
            observer,
        } = config;
        let origin = tokio::time::Instant::now();
        // A clock before 1970 only makes timestamps small.
        let unix_now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        set_address(&mut broker, listen, advertised.as_ref());
        let shared = Arc::new(Shared {
            machine: Mutex::new(Machine {
                broker: Broker::new(broker, Instant::ORIGIN, unix_now),
                scheduled: None,
            }),
            server: RwLock::new(None),
            timer_changed: Notify::new(),
            observer,
            origin,
        });
        let server = Server::bind(listen, remoting, Arc::new(Handler(Arc::clone(&shared))))
            .await
            .map_err(|source| StartError { listen, source })?;
        let address = {
            let mut machine = shared.lock();
            let config = machine.broker.config_mut();
            set_address(config, server.local_addr(), advertised.as_ref());
            config.advertised.clone()
        };
        shared.set_server(Some(server.clone()));
        let timer = tokio::spawn(Arc::clone(&shared).run_timer());
        Ok(Self {
            shared,
            server,
            timer,
            address,
        })
    }

    /// What clients are given as name server.
    pub fn namesrv_addr(&self) -> &Address {
        &self.address
    }

    /// Where the broker is: the same port.
    pub fn broker_addr(&self) -> &Address {
        &self.address
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Looks at the machine, or commands it; what that gives is sent out. The broker
    /// serves nobody meanwhile.
    pub fn with_broker<T>(&self, command: impl FnOnce(&mut Broker, Instant) -> T) -> T {
        self.shared.input(command)
    }

    /// Stops listening, sends what is still queued, closes all connections, ends the
    /// timer. The port is free afterwards; the messages are gone.
    pub async fn stop(self) {
        self.server.shutdown().await;
    }
}

impl fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBroker")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.timer.abort();
        self.shared.set_server(None);
    }
}

/// Where the broker says it is. All addresses are no address: then it is this machine.
fn set_address(config: &mut BrokerConfig, listening: SocketAddr, advertised: Option<&Address>) {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    config.store_host = SocketAddr::new(ip, listening.port());
    config.advertised = advertised
        .cloned()
        .unwrap_or_else(|| Address::new(&ip.to_string(), listening.port()));
}

struct Handler(Arc<Shared>);

impl ServerHandler for Handler {
    fn connected(&self, connection: remoting::ConnectionId, peer: SocketAddr) {
        self.0.input(|broker, now| {
            broker.handle_connected(ConnectionId(connection.0), peer, now);
        });
    }

    fn disconnected(&self, connection: remoting::ConnectionId) {
        self.0.input(|broker, now| {
            broker.handle_disconnected(ConnectionId(connection.0), now);
        });
    }

    fn request(&self, connection: remoting::ConnectionId, command: RemotingCommand) {
        self.0.input(|broker, now| {
            broker.handle_request(ConnectionId(connection.0), command, now);
        });
    }
}

impl Shared {
    /// One input, and everything that follows from it.
    fn input<T>(&self, feed: impl FnOnce(&mut Broker, Instant) -> T) -> T {
        let mut outputs = Outputs::default();
        let (result, is_earlier) = {
            let mut machine = self.lock();
            let now = self.now();
            let result = feed(&mut machine.broker, now);
            outputs.take_from(&mut machine.broker);
            (result, machine.reschedule())
        };
        if is_earlier {
            self.timer_changed.notify_one();
        }
        self.carry_out(outputs);
        result
    }

    /// Wakes the machine whenever it wants to be woken.
    async fn run_timer(self: Arc<Self>) {
        loop {
            let scheduled = self.lock().scheduled;
            let wait = async {
                match scheduled {
                    Some(at) => {
                        tokio::time::sleep_until(self.origin + at.since_origin()).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {
                    self.lock().scheduled = None;
                    self.input(Broker::handle_timeout);
                }
                () = self.timer_changed.notified() => {}
            }
        }
    }

    fn carry_out(&self, outputs: Outputs) {
        for event in &outputs.events {
            (self.observer)(event);
        }
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        let Some(server) = server.as_ref() else {
            return;
        };
        // A connection that is gone, or too slow and therefore closed, needs no answer.
        for (to, command) in outputs.responses {
            let _ = server.send(remoting::ConnectionId(to.0), command);
        }
        for action in outputs.actions {
            match action {
                ConnectionAction::Close(connection) => {
                    server.close_connection(remoting::ConnectionId(connection.0));
                }
                ConnectionAction::SendBytes(to, bytes) => {
                    let _ = server.send_bytes(remoting::ConnectionId(to.0), &bytes);
                }
            }
        }
    }

    fn set_server(&self, server: Option<ServerHandle>) {
        *self.server.write().unwrap_or_else(PoisonError::into_inner) = server;
    }

    fn now(&self) -> Instant {
        Instant::after_origin(self.origin.elapsed())
    }

    /// After a panic the machine is as it was between two statements: it goes on.
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    /// Takes over the machine's next time; true when the timer sleeps too long for it.
    fn reschedule(&mut self) -> bool {
        let next = self.broker.poll_timeout();
        let is_earlier = match (next, self.scheduled) {
            (Some(next), Some(scheduled)) => next < scheduled,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_earlier {
            self.scheduled = next;
        }
        is_earlier
    }
}

impl Outputs {
    fn take_from(&mut self, broker: &mut Broker) {
        self.responses
            .extend(std::iter::from_fn(|| broker.poll_response()));
        self.actions
            .extend(std::iter::from_fn(|| broker.poll_connection_action()));
        self.events
            .extend(std::iter::from_fn(|| broker.poll_event()));
    }
}
