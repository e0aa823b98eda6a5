//! A name server in front of a real one: everything is passed on, but routes name another
//! address in place of the broker's.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::remoting_frame::Frame;

/// Runs until the program ends.
#[derive(Debug)]
pub struct FrontNameServer {
    namesrv_addr: String,
    broker_addr: Arc<Mutex<Option<String>>>,
}

impl FrontNameServer {
    /// In front of `namesrv_addr`, naming `shown_broker_addr`.
    ///
    /// # Panics
    /// When the system has no free port.
    pub fn start(namesrv_addr: &str, shown_broker_addr: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let front = Self {
            namesrv_addr: listener.local_addr().expect("bound").to_string(),
            broker_addr: Arc::default(),
        };
        let (real, shown) = (namesrv_addr.to_owned(), shown_broker_addr.to_owned());
        let broker_addr = Arc::clone(&front.broker_addr);
        accept(listener, move |client| {
            pass_routes(client, &real, &shown, &broker_addr)
        });
        front
    }

    /// Where it listens.
    pub fn namesrv_addr(&self) -> &str {
        &self.namesrv_addr
    }

    /// Where the real broker is, once a route was asked for.
    ///
    /// # Panics
    /// When a thread of it did.
    pub fn broker_addr(&self) -> Arc<Mutex<Option<String>>> {
        Arc::clone(&self.broker_addr)
    }
}

/// Serves connections until the program ends.
pub(crate) fn accept(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            // It ends when either side hangs up.
            thread::spawn(move || serve(stream).ok());
        }
    });
}

fn pass_routes(
    mut client: TcpStream,
    real: &str,
    shown: &str,
    broker_addr: &Mutex<Option<String>>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(real)?;
    while let Some(request) = Frame::read(&mut client)? {
        server.write_all(request.bytes())?;
        let Some(answer) = Frame::read(&mut server)? else {
            break;
        };
        let body = String::from_utf8_lossy(answer.body()).into_owned();
        let answer = match broker_addr_in(&body) {
            Some(real) => {
                *broker_addr.lock().expect("no panic") = Some(real.to_owned());
                answer.with_body(body.replace(real, shown).as_bytes())
            }
            None => answer,
        };
        client.write_all(answer.bytes())?;
    }
    client.shutdown(Shutdown::Both)
}

/// The master's address in a route.
pub fn broker_addr_in(route: &str) -> Option<&str> {
    let (_, rest) = route.split_once("\"brokerAddrs\":{")?;
    rest.split('"').find(|part| part.contains("127.0.0.1:"))
}
