//! Feature `server`: the broker behind two real ports, one as name server and one as
//! broker.
//!
//! The machine would serve both on one port, but Java's client sends its first heartbeat
//! when its connection to a *broker* becomes active; where that address is also the name
//! server's, it has long been connected when it learns of the broker, and stays out of
//! its group for 30 s. RocketMQ: `MQClientInstance`'s `ChannelEventListener`.
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
    /// Where the name server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the broker listens; port 0 takes a free one.
    pub broker_listen: SocketAddr,
    /// Where clients are sent, if that is not where the broker listens: behind a proxy,
    /// or when it listens on all addresses, which is said to be the loopback one
    /// otherwise.
    pub advertised: Option<Address>,
    /// Everything else. Its `store_host` and `advertised` are set from the two above.
    pub broker: BrokerConfig,
    /// Bounds of the connections.
    pub remoting: remoting::ServerConfig,
    /// Hears every event.
    pub observer: Observer,
}

impl ServerConfig {
    /// The defaults with the name server at this address and the broker at the next
    /// port, or at a free one if this is 0; nobody listens to events.
    pub fn listening_on(listen: SocketAddr) -> Self {
        let broker_port = match listen.port() {
            0 => 0,
            u16::MAX => u16::MAX - 1,
            port => port + 1,
        };
        let broker_listen = SocketAddr::new(listen.ip(), broker_port);
        Self {
            listen,
            broker_listen,
            advertised: None,
            broker: BrokerConfig::listening_on(broker_listen),
            remoting: remoting::ServerConfig::default(),
            observer: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("listen", &self.listen)
            .field("broker_listen", &self.broker_listen)
            .field("advertised", &self.advertised)
            .field("broker", &self.broker)
            .finish_non_exhaustive()
    }
}

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {listen} for the {port}; stop what uses the port, or choose another (0 takes a free one)"
)]
pub struct StartError {
    /// Where it should have listened.
    pub listen: SocketAddr,
    /// `name server` or `broker`.
    pub port: &'static str,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

/// A running name server and broker. Dropping it stops it without waiting.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    servers: Servers,
    timer: JoinHandle<()>,
    namesrv_addr: Address,
    broker_addr: Address,
}

/// Both ports.
#[derive(Clone)]
struct Servers {
    namesrv: ServerHandle,
    broker: ServerHandle,
}

/// Which port a connection came to: the lowest bit of its number in the machine, since
/// each server counts its own connections.
#[derive(Clone, Copy)]
enum Port {
    Namesrv = 0,
    Broker = 1,
}

struct Shared {
    machine: Mutex<Machine>,
    /// Set before anybody can know the ports; taken out on drop, because a server holds
    /// its handler, which holds this.
    servers: RwLock<Option<Servers>>,
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
            broker_listen,
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
        set_address(&mut broker, broker_listen, advertised.as_ref());
        let shared = Arc::new(Shared {
            machine: Mutex::new(Machine {
                broker: Broker::new(broker, Instant::ORIGIN, unix_now),
                scheduled: None,
            }),
            servers: RwLock::new(None),
            timer_changed: Notify::new(),
            observer,
            origin,
        });
        // The name server's first: it is the address that was asked for.
        let namesrv = bind(&shared, Port::Namesrv, listen, remoting.clone()).await?;
        let broker = bind(&shared, Port::Broker, broker_listen, remoting).await?;
        let servers = Servers { namesrv, broker };
        let broker_addr = {
            let mut machine = shared.lock();
            let config = machine.broker.config_mut();
            set_address(config, servers.broker.local_addr(), advertised.as_ref());
            config.advertised.clone()
        };
        let namesrv = reachable(servers.namesrv.local_addr());
        shared.set_servers(Some(servers.clone()));
        let timer = tokio::spawn(Arc::clone(&shared).run_timer());
        Ok(Self {
            shared,
            servers,
            timer,
            namesrv_addr: Address::new(&namesrv.ip().to_string(), namesrv.port()),
            broker_addr,
        })
    }

    /// What clients are given as name server.
    pub fn namesrv_addr(&self) -> &Address {
        &self.namesrv_addr
    }

    /// Where routes send them.
    pub fn broker_addr(&self) -> &Address {
        &self.broker_addr
    }

    /// Looks at the machine, or commands it; what that gives is sent out. The broker
    /// serves nobody meanwhile.
    pub fn with_broker<T>(&self, command: impl FnOnce(&mut Broker, Instant) -> T) -> T {
        self.shared.input(command)
    }

    /// Stops listening, sends what is still queued, closes all connections, ends the
    /// timer. The ports are free afterwards; the messages are gone.
    pub async fn stop(mut self) {
        self.servers.namesrv.shutdown().await;
        self.servers.broker.shutdown().await;
        self.timer.abort();
        // It was cut on purpose.
        let _ = (&mut self.timer).await;
    }
}

impl fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBroker")
            .field("namesrv_addr", &self.namesrv_addr)
            .field("broker_addr", &self.broker_addr)
            .finish_non_exhaustive()
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.timer.abort();
        self.shared.set_servers(None);
    }
}

async fn bind(
    shared: &Arc<Shared>,
    port: Port,
    listen: SocketAddr,
    config: remoting::ServerConfig,
) -> Result<ServerHandle, StartError> {
    let handler = Handler {
        shared: Arc::clone(shared),
        port,
    };
    Server::bind(listen, config, Arc::new(handler))
        .await
        .map_err(|source| StartError {
            listen,
            port: match port {
                Port::Namesrv => "name server",
                Port::Broker => "broker",
            },
            source,
        })
}

fn set_address(config: &mut BrokerConfig, listening: SocketAddr, advertised: Option<&Address>) {
    let address = reachable(listening);
    config.store_host = address;
    config.advertised = advertised
        .cloned()
        .unwrap_or_else(|| Address::new(&address.ip().to_string(), address.port()));
}

/// All addresses are no address: then it is this machine's own.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

struct Handler {
    shared: Arc<Shared>,
    port: Port,
}

impl ServerHandler for Handler {
    fn connected(&self, connection: remoting::ConnectionId, peer: SocketAddr) {
        let id = self.port.to_machine(connection);
        self.shared
            .input(|broker, now| broker.handle_connected(id, peer, now));
    }

    fn disconnected(&self, connection: remoting::ConnectionId) {
        let id = self.port.to_machine(connection);
        self.shared
            .input(|broker, now| broker.handle_disconnected(id, now));
    }

    fn request(&self, connection: remoting::ConnectionId, command: RemotingCommand) {
        let id = self.port.to_machine(connection);
        self.shared
            .input(|broker, now| broker.handle_request(id, command, now));
    }
}

impl Port {
    fn to_machine(self, connection: remoting::ConnectionId) -> ConnectionId {
        ConnectionId(connection.0 << 1 | self as u64)
    }
}

impl Servers {
    /// The server of a connection, and the number the connection has there.
    fn of(&self, connection: ConnectionId) -> (&ServerHandle, remoting::ConnectionId) {
        let server = match connection.0 & 1 {
            0 => &self.namesrv,
            _ => &self.broker,
        };
        (server, remoting::ConnectionId(connection.0 >> 1))
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
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(servers) = servers.as_ref() else {
            return;
        };
        // A connection that is gone, or too slow and therefore closed, needs no answer.
        for (to, command) in outputs.responses {
            let (server, to) = servers.of(to);
            let _ = server.send(to, command);
        }
        for action in outputs.actions {
            match action {
                ConnectionAction::Close(connection) => {
                    let (server, connection) = servers.of(connection);
                    server.close_connection(connection);
                }
                ConnectionAction::SendBytes(to, bytes) => {
                    let (server, to) = servers.of(to);
                    let _ = server.send_bytes(to, &bytes);
                }
            }
        }
    }

    fn set_servers(&self, servers: Option<Servers>) {
        *self.servers.write().unwrap_or_else(PoisonError::into_inner) = servers;
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
