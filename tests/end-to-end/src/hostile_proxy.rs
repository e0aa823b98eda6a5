//! A way to a real broker on which answers are spoilt: for a while, or those that hold a
//! certain text.
//!
//! Its name server passes everything on and names the proxy in place of the broker.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

pub use crate::front_name_server::broker_addr_in;
use crate::front_name_server::{FrontNameServer, accept};
use crate::hostile_peer::Manner;
use crate::remoting_frame::Frame;

/// What becomes of an answer of the broker.
#[derive(Debug)]
pub enum Treatment {
    /// Passed on.
    Right(Frame),
    /// Spoilt.
    Wrong(Manner, Frame),
}

/// Decides about each answer; knows the code of the request.
pub type Treat = Box<dyn FnMut(i32, Frame) -> Treatment + Send>;

/// A name server and a broker in front of real ones.
#[derive(Debug)]
pub struct HostileProxy {
    front: FrontNameServer,
    shared: Arc<Shared>,
}

struct Shared {
    broker_addr: Arc<Mutex<Option<String>>>,
    treat: Mutex<Treat>,
    behaves_since: Mutex<Option<Instant>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in front of {:?}", self.broker_addr)
    }
}

impl HostileProxy {
    /// The first answers of the broker are spoilt: to requests of this code, or to any.
    pub fn spoiling_first(
        namesrv_addr: &str,
        manner: Manner,
        count: usize,
        of_code: Option<i32>,
    ) -> Self {
        let mut answers = 0;
        Self::start(
            namesrv_addr,
            Box::new(move |code, answer| {
                let is_meant = of_code.is_none_or(|of_code| of_code == code);
                answers += usize::from(is_meant);
                if is_meant && answers <= count {
                    Treatment::Wrong(manner, answer)
                } else {
                    Treatment::Right(answer)
                }
            }),
        )
    }

    /// In front of the real name server at this address.
    ///
    /// # Panics
    /// When the system has no free port.
    pub fn start(namesrv_addr: &str, treat: Treat) -> Self {
        let broker = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let shown = broker.local_addr().expect("bound").to_string();
        let front = FrontNameServer::start(namesrv_addr, &shown);
        let shared = Arc::new(Shared {
            broker_addr: front.broker_addr(),
            treat: Mutex::new(treat),
            behaves_since: Mutex::default(),
        });
        let of_broker = Arc::clone(&shared);
        accept(broker, move |client| pass_answers(client, &of_broker));
        Self { front, shared }
    }

    /// Where its name server is.
    pub fn namesrv_addr(&self) -> &str {
        self.front.namesrv_addr()
    }

    /// When the first answer was passed on after the last that was spoilt.
    ///
    /// # Panics
    /// When a thread of it did.
    pub fn behaves_since(&self) -> Option<Instant> {
        *self.shared.behaves_since.lock().expect("no panic")
    }
}

fn pass_answers(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let address = shared.broker_addr.lock().expect("no panic").clone();
    let server = TcpStream::connect(address.expect("the route was asked for"))?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let codes: Arc<Mutex<BTreeMap<i32, i32>>> = Arc::default();
    let asked = Arc::clone(&codes);
    thread::spawn(move || {
        while let Ok(Some(request)) = Frame::read(&mut from_client) {
            let mut asked = asked.lock().expect("no panic");
            asked.insert(request.opaque(), request.code());
            drop(asked);
            if to_server.write_all(request.bytes()).is_err() {
                break;
            }
        }
        // The other direction ends with it.
        to_server.shutdown(Shutdown::Both).ok();
    });
    let (mut client, mut server) = (client, server);
    let mut is_dead = false;
    while let Some(answer) = Frame::read(&mut server)? {
        if is_dead {
            continue;
        }
        if !answer.is_response() {
            client.write_all(answer.bytes())?;
            continue;
        }
        let code = codes.lock().expect("no panic").remove(&answer.opaque());
        let treatment = shared.treat.lock().expect("no panic")(code.unwrap_or(0), answer);
        match treatment {
            Treatment::Right(answer) => {
                client.write_all(answer.bytes())?;
                let mut since = shared.behaves_since.lock().expect("no panic");
                since.get_or_insert_with(Instant::now);
            }
            Treatment::Wrong(manner, answer) => {
                *shared.behaves_since.lock().expect("no panic") = None;
                is_dead = !manner.spoil(&answer, &mut client)?;
            }
        }
    }
    client.shutdown(Shutdown::Both)
}
