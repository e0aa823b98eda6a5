//! A link to a real broker that is cut, held up and slowed down while clients use it.
//!
//! Its name server names the link in place of the broker. Bytes are passed on unread, so
//! what arrives is right, if it arrives.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::front_name_server::{FrontNameServer, accept};

/// Bytes that are passed on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How often a connection that is held up looks whether it was cut meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What the link does to bytes and connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Passes everything on.
    None,
    /// All connections end now; the next ones work.
    Cut,
    /// All connections end now, the next ones as soon as they stand.
    Down,
    /// Connections stand, nothing passes; what was held up passes afterwards.
    Stall,
    /// Every chunk of bytes takes so long.
    Delay(Duration),
}

/// A link in front of one broker. Ends with the program.
#[derive(Debug)]
pub struct FaultyLink {
    front: FrontNameServer,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    /// Counts cuts: a connection of an earlier one ends.
    cuts: u64,
    open: Vec<TcpStream>,
    connects: Vec<Instant>,
}

impl FaultyLink {
    /// To the broker of the cluster with this name server.
    ///
    /// # Panics
    /// When the system has no free port.
    pub fn start(namesrv_addr: &str) -> Self {
        let broker = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let shown = broker.local_addr().expect("bound").to_string();
        let front = FrontNameServer::start(namesrv_addr, &shown);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                fault: Fault::None,
                cuts: 0,
                open: Vec::new(),
                connects: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let (link, broker_addr) = (Arc::clone(&shared), front.broker_addr());
        accept(broker, move |client| {
            let address = broker_addr.lock().expect("no panic").clone();
            link.pass(client, &address.expect("the route was asked for"))
        });
        Self { front, shared }
    }

    /// Where its name server is.
    pub fn namesrv_addr(&self) -> &str {
        self.front.namesrv_addr()
    }

    /// Ends the present fault and begins this one.
    pub fn set(&self, fault: Fault) {
        let mut state = self.shared.lock();
        state.fault = fault;
        if matches!(fault, Fault::Cut | Fault::Down) {
            state.cuts += 1;
            for stream in state.open.drain(..) {
                // It may have ended already.
                stream.shutdown(Shutdown::Both).ok();
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// When connections to the broker were made.
    pub fn connects(&self) -> Vec<Instant> {
        self.shared.lock().connects.clone()
    }

    /// The most connections within a second.
    pub fn connects_in_a_second_max(&self) -> usize {
        let connects = self.connects();
        let within = |from: &Instant| {
            connects
                .iter()
                .filter(|at| (*from..*from + Duration::from_secs(1)).contains(at))
                .count()
        };
        connects.iter().map(within).max().unwrap_or(0)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn pass(self: &Arc<Self>, client: TcpStream, broker_addr: &str) -> io::Result<()> {
        let cuts = {
            let mut state = self.lock();
            state.connects.push(Instant::now());
            if state.fault == Fault::Down {
                return client.shutdown(Shutdown::Both);
            }
            state.cuts
        };
        let server = TcpStream::connect(broker_addr)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        {
            let mut state = self.lock();
            if state.cuts != cuts {
                return client.shutdown(Shutdown::Both);
            }
            state.open.push(client.try_clone()?);
            state.open.push(server.try_clone()?);
        }
        let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
        let link = Arc::clone(self);
        thread::spawn(move || link.pump(from_client, to_server, cuts).ok());
        self.pump(server, client, cuts)
    }

    fn pump(&self, mut source: TcpStream, mut sink: TcpStream, cuts: u64) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = source.read(&mut chunk).unwrap_or(0);
            if length == 0 || !self.may_pass(cuts) || sink.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        // The other direction ends with it.
        source.shutdown(Shutdown::Both).ok();
        sink.shutdown(Shutdown::Both)
    }

    /// Waits as the fault says; false when the connection was cut.
    fn may_pass(&self, cuts: u64) -> bool {
        let mut state = self.lock();
        loop {
            if state.cuts != cuts {
                return false;
            }
            match state.fault {
                Fault::Stall => {
                    let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
                    state = waited.expect("no panic").0;
                }
                Fault::Delay(time) => {
                    drop(state);
                    thread::sleep(time);
                    return self.lock().cuts == cuts;
                }
                Fault::None | Fault::Cut | Fault::Down => return true,
            }
        }
    }
}
