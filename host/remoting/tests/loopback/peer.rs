//! Peers for the tests of both sides: a recording handler, and a raw socket that
//! breaks whatever rule a test wants broken.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::{Address, ExtFields, RemotingCommand};
use remoting::{
    ClientHandler, ConnectError, ConnectionError, ConnectionId, Responder, ServerHandle,
    ServerHandler,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Generous: nothing waits for it to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn address_of(socket: SocketAddr) -> Address {
    Address::new(&socket.ip().to_string(), socket.port())
}

pub(crate) fn request(body: &'static [u8]) -> RemotingCommand {
    RemotingCommand::request(11, ExtFields::default()).with_body(body)
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

/// Writes down what a client is told.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) events: Mutex<Vec<String>>,
    pub(crate) requests: Mutex<Vec<RemotingCommand>>,
}

impl Recorder {
    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.events()
            .iter()
            .filter(|event| event.starts_with(prefix))
            .count()
    }

    fn note(&self, event: String) {
        self.events.lock().unwrap().push(event);
    }
}

impl ClientHandler for Recorder {
    fn connected(&self, _address: &Address) {
        self.note("connected".into());
    }

    fn disconnected(&self, _address: &Address, error: &ConnectionError, _has_answered: bool) {
        self.note(format!("disconnected: {error}"));
    }

    fn connect_failed(&self, _address: &Address, error: &ConnectError) {
        self.note(format!("connect failed: {error}"));
    }

    fn request(&self, _address: &Address, command: RemotingCommand, responder: Responder) {
        let answer = RemotingCommand::response_to(&command, 0).with_body(command.body.clone());
        self.requests.lock().unwrap().push(command);
        responder.answer(answer);
    }
}

/// A peer made of a bare socket.
pub(crate) struct RawPeer {
    listener: TcpListener,
}

impl RawPeer {
    pub(crate) async fn listen() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    pub(crate) fn address(&self) -> Address {
        address_of(self.listener.local_addr().unwrap())
    }

    pub(crate) async fn accept(&self) -> TcpStream {
        tokio::time::timeout(PATIENCE, self.listener.accept())
            .await
            .expect("nobody connected")
            .unwrap()
            .0
    }
}

pub(crate) async fn read_command(stream: &mut TcpStream) -> RemotingCommand {
    let reading = async {
        let length = stream.read_u32().await.unwrap();
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.unwrap();
        RemotingCommand::decode(Bytes::from(frame)).unwrap()
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("no command came")
}

pub(crate) async fn write_command(stream: &mut TcpStream, command: &RemotingCommand) {
    let mut bytes = BytesMut::new();
    command.encode(&mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
}

/// True once the peer has closed its side.
pub(crate) async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut scrap = [0; 1_024];
    let reading = async {
        loop {
            match stream.read(&mut scrap).await {
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.is_ok()
}

/// A server that answers every request with its body, and keeps those that say "hold".
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) server: Mutex<Option<ServerHandle>>,
    pub(crate) held: Mutex<Vec<(ConnectionId, RemotingCommand)>>,
    pub(crate) answers: Mutex<Vec<RemotingCommand>>,
    pub(crate) oneways: Mutex<Vec<RemotingCommand>>,
    pub(crate) connections: Mutex<Vec<ConnectionId>>,
    pub(crate) ends: Mutex<Vec<ConnectionError>>,
    pub(crate) disconnections: Mutex<Vec<ConnectionId>>,
}

impl Echo {
    pub(crate) async fn start(config: remoting::ServerConfig) -> (Arc<Self>, ServerHandle) {
        let echo = Arc::new(Self::default());
        let handler: Arc<dyn ServerHandler> = Arc::clone(&echo) as _;
        let server = remoting::Server::bind("127.0.0.1:0".parse().unwrap(), config, handler)
            .await
            .unwrap();
        *echo.server.lock().unwrap() = Some(server.clone());
        (echo, server)
    }
}

impl ServerHandler for Echo {
    fn connected(&self, connection: ConnectionId, _peer: SocketAddr) {
        self.connections.lock().unwrap().push(connection);
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.disconnections.lock().unwrap().push(connection);
    }

    fn connection_ended(&self, _connection: ConnectionId, error: &ConnectionError) {
        self.ends.lock().unwrap().push(error.clone());
    }

    fn request(&self, connection: ConnectionId, command: RemotingCommand) {
        assert!(&command.body[..] != b"panic", "as the test asked");
        if command.is_response() {
            self.answers.lock().unwrap().push(command);
        } else if command.is_oneway() {
            self.oneways.lock().unwrap().push(command);
        } else if &command.body[..] == b"hold" {
            self.held.lock().unwrap().push((connection, command));
        } else {
            let answer = RemotingCommand::response_to(&command, 0).with_body(command.body);
            let server = self.server.lock().unwrap().clone().unwrap();
            server.send(connection, answer).ok();
        }
    }
}
