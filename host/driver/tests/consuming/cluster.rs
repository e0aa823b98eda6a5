//! A broker for these tests: the embedded broker's rules behind a real socket that can
//! go away and come back without the broker forgetting anything.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver::{Driver, DriverConfig, Event, HostPermits, Observer};
use embedded_broker::delay::DelayLevels;
use embedded_broker::{Broker, BrokerConfig};
use protocol::code::request_code;
use protocol::header::{SendMessageRequestHeader, SendMessageRequestHeaderV2};
use protocol::{Address, ExtFields, RemotingCommand};
use remoting::{Clock, ConnectionId, Server, ServerConfig, ServerHandle, ServerHandler};
use tokio::sync::Notify;

/// Generous: nothing waits for it to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a retry waits here, whatever its level.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(20);

/// No test lives so long: a queue is free when it is unlocked, or never.
const LOCK_LIVE_TIME: Duration = Duration::from_secs(3_600);

/// Queues of a topic that was created by sending.
pub(crate) const QUEUES: u32 = 4;

/// The connection on which the tests themselves send.
const OURS: ConnectionId = ConnectionId(u64::MAX);

/// A broker and name server, alive or not.
pub(crate) struct Cluster {
    broker: Arc<Shared>,
    address: SocketAddr,
    server: Option<ServerHandle>,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    broker: Broker,
    server: Option<ServerHandle>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        // The broker has to know its port before it starts.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let clock = Clock::start();
        let config = BrokerConfig {
            default_topic_queue_nums: QUEUES,
            delay_levels: DelayLevels::uniform(18, RETRY_DELAY),
            lock_live_time: LOCK_LIVE_TIME,
            ..BrokerConfig::listening_on(address)
        };
        let unix_now = Duration::from_secs(1_790_000_000);
        let broker = Arc::new(Shared {
            clock,
            state: Mutex::new(State {
                broker: Broker::new(config, clock.now(), unix_now),
                server: None,
            }),
            changed: Notify::new(),
        });
        tokio::spawn(Arc::clone(&broker).keep_time());
        let mut cluster = Self {
            broker,
            address,
            server: None,
        };
        cluster.come_back().await;
        cluster
    }

    /// Its socket and connections end; it remembers everything.
    pub(crate) async fn go_away(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
        self.broker.lock().server = None;
    }

    pub(crate) async fn come_back(&mut self) {
        let handler: Arc<dyn ServerHandler> = Arc::clone(&self.broker) as _;
        let server = Server::bind(self.address, ServerConfig::default(), handler)
            .await
            .unwrap();
        self.broker.lock().server = Some(server.clone());
        self.server = Some(server);
    }

    pub(crate) fn address(&self) -> Address {
        Address::new(&self.address.ip().to_string(), self.address.port())
    }

    /// Sends messages with these numbers as bodies, over all queues of the topic.
    pub(crate) fn send(&self, topic: &str, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let header = SendMessageRequestHeader {
                producer_group: "tests".to_owned(),
                topic: topic.to_owned(),
                default_topic: "TBW102".to_owned(),
                default_topic_queue_nums: QUEUES as i32,
                queue_id: (number % QUEUES) as i32,
                ..SendMessageRequestHeader::default()
            };
            let command =
                RemotingCommand::request(request_code::SEND_MESSAGE_V2, ExtFields::default())
                    .with_header(&SendMessageRequestHeaderV2(header))
                    .with_body(number.to_string());
            self.broker.handle(OURS, command);
        }
    }

    pub(crate) fn committed(&self, group: &str, topic: &str) -> i64 {
        let state = self.broker.lock();
        (0..QUEUES)
            .filter_map(|queue| state.broker.committed_offset(group, topic, queue))
            .sum()
    }

    pub(crate) fn stored(&self, topic: &str) -> u64 {
        let state = self.broker.lock();
        (0..QUEUES)
            .map(|queue| state.broker.max_offset(topic, queue))
            .sum()
    }

    /// A client of this cluster and what it says.
    pub(crate) fn driver(&self, permits: &HostPermits, calls_max: usize) -> (Driver, Arc<Log>) {
        self.driver_in("", permits, calls_max)
    }

    /// The same within a namespace.
    pub(crate) fn driver_in(
        &self,
        namespace: &str,
        permits: &HostPermits,
        calls_max: usize,
    ) -> (Driver, Arc<Log>) {
        self.driver_with(|config| {
            config.client.namespace = namespace.to_owned();
            config.permits = permits.clone();
            config.calls_max = calls_max;
        })
    }

    /// With anything else, too.
    pub(crate) fn driver_with(&self, change: impl FnOnce(&mut DriverConfig)) -> (Driver, Arc<Log>) {
        let log = Arc::new(Log::default());
        let client_id = format!("127.0.0.1@1#{}", fastrand::u32(..));
        let client = consumer::ClientConfig::new(client_id, vec![self.address()]);
        let mut config = DriverConfig::new(client);
        change(&mut config);
        let observer: Observer = {
            let log = Arc::clone(&log);
            Arc::new(move |event: &Event| log.events.lock().unwrap().push(format!("{event:?}")))
        };
        (Driver::start(config, observer), log)
    }
}

/// What a driver said.
#[derive(Default)]
pub(crate) struct Log {
    events: Mutex<Vec<String>>,
}

impl Log {
    pub(crate) fn count(&self, part: &str) -> usize {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| event.contains(part)).count()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn handle(&self, connection: ConnectionId, command: RemotingCommand) {
        let mut state = self.lock();
        let id = embedded_broker::ConnectionId(connection.0);
        state.broker.handle_request(id, command, self.clock.now());
        state.drain();
        drop(state);
        self.changed.notify_one();
    }

    async fn keep_time(self: Arc<Self>) {
        loop {
            let timeout = {
                let mut state = self.lock();
                state.broker.handle_timeout(self.clock.now());
                state.drain();
                state.broker.poll_timeout()
            };
            let wait = async {
                match timeout {
                    Some(timeout) => tokio::time::sleep_until(self.clock.to_tokio(timeout)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

impl State {
    fn drain(&mut self) {
        while let Some((connection, command)) = self.broker.poll_response() {
            if let Some(server) = &self.server {
                // A connection that is gone needs no answer.
                server.send(ConnectionId(connection.0), command).ok();
            }
        }
        while self.broker.poll_event().is_some() {}
        while self.broker.poll_connection_action().is_some() {}
    }
}

impl ServerHandler for Shared {
    fn connected(&self, connection: ConnectionId, peer: SocketAddr) {
        let mut state = self.lock();
        state.broker.handle_connected(
            embedded_broker::ConnectionId(connection.0),
            peer,
            self.clock.now(),
        );
    }

    fn disconnected(&self, connection: ConnectionId) {
        let mut state = self.lock();
        state.broker.handle_disconnected(
            embedded_broker::ConnectionId(connection.0),
            self.clock.now(),
        );
        state.drain();
    }

    fn request(&self, connection: ConnectionId, command: RemotingCommand) {
        self.handle(connection, command);
    }
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
