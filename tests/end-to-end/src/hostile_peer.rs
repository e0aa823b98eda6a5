//! Name servers and brokers that speak badly.
//!
//! [`Manner`] is one way to answer wrongly. [`HostilePeer`] answers every request so;
//! [`crate::hostile_proxy`] does it for a while on the way to a real broker.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::remoting_frame::{Frame, GET_ROUTEINFO_BY_TOPIC};

/// Between two bytes of a peer that drips.
const DRIP_INTERVAL: Duration = Duration::from_millis(100);
/// Body of each answer of a flood.
const FLOOD_BODY_BYTES: usize = 1024 * 1024;

/// One way to answer wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Not at all.
    Silent,
    /// By hanging up.
    HangsUp,
    /// With half a frame, then it hangs up.
    CutFrame,
    /// With half a frame, then nothing any more on this connection.
    StalledFrame,
    /// With a negative length.
    NegativeLength,
    /// With a length over every limit.
    LengthOverLimit,
    /// With what nobody asked for.
    WrongOpaque,
    /// With a header that is no JSON.
    GarbageHeader,
    /// With a header that is longer than its frame.
    HeaderOverFrame,
    /// With a frame of 15 MiB, a few bytes at a time.
    Drips,
    /// With answers without end, each of them large and asked for by nobody.
    Floods,
    /// With requests of its own without end.
    AsksWithoutEnd,
    /// With a success that has nothing of what was asked for.
    AnotherKind,
    /// In another protocol.
    SpeaksHttp,
    /// With noise.
    Noise,
}

impl Manner {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Silent,
        Self::HangsUp,
        Self::CutFrame,
        Self::StalledFrame,
        Self::NegativeLength,
        Self::LengthOverLimit,
        Self::WrongOpaque,
        Self::GarbageHeader,
        Self::HeaderOverFrame,
        Self::Drips,
        Self::Floods,
        Self::AsksWithoutEnd,
        Self::AnotherKind,
        Self::SpeaksHttp,
        Self::Noise,
    ];

    /// A name for topics, groups and messages.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Writes something instead of this answer. False when the connection is of no use
    /// any more, for as long as it is left open.
    ///
    /// # Errors
    /// When the other side has hung up.
    pub fn spoil(self, answer: &Frame, to: &mut TcpStream) -> io::Result<bool> {
        let bytes = answer.bytes();
        let half = &bytes[..bytes.len() / 2];
        match self {
            Self::Silent => {}
            Self::HangsUp => to.shutdown(Shutdown::Both)?,
            Self::CutFrame => {
                to.write_all(half)?;
                to.shutdown(Shutdown::Both)?;
            }
            Self::StalledFrame => {
                to.write_all(half)?;
                return Ok(false);
            }
            Self::NegativeLength => to.write_all(&[&[0xff; 4], &bytes[4..]].concat())?,
            Self::LengthOverLimit => {
                to.write_all(&[&[0x7f, 0, 0, 0], &bytes[4..]].concat())?;
            }
            Self::WrongOpaque => {
                let opaque = answer.opaque().wrapping_add(1_000_000);
                to.write_all(answer.with_opaque(opaque).bytes())?;
            }
            Self::GarbageHeader => {
                to.write_all(Frame::new("{\"code\":no,[", b"").bytes())?;
            }
            Self::HeaderOverFrame => {
                let mut frame = answer.clone();
                frame.bytes_mut()[5] = 0xff;
                to.write_all(frame.bytes())?;
            }
            Self::Drips => {
                to.write_all(&(15_u32 << 20).to_be_bytes())?;
                loop {
                    to.write_all(b"\0")?;
                    thread::sleep(DRIP_INTERVAL);
                }
            }
            Self::Floods => {
                let body = vec![b'x'; FLOOD_BODY_BYTES];
                for number in 0.. {
                    let opaque = 1_000_000 + number;
                    to.write_all(Frame::answer(opaque, &body).bytes())?;
                }
            }
            Self::AsksWithoutEnd => {
                for number in 0.. {
                    let code = [40, 220, 221, 307, 9999][number as usize % 5];
                    to.write_all(Frame::request(code, number, "{}", b"{}").bytes())?;
                }
            }
            Self::AnotherKind => {
                let body = br#"{"consumerIdList":["nobody"]}"#;
                to.write_all(Frame::answer(answer.opaque(), body).bytes())?;
            }
            Self::SpeaksHttp => to.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
            Self::Noise => {
                let noise: Vec<u8> = (0..4096_u32).map(|n| (n * n % 251) as u8).collect();
                to.write_all(&noise)?;
            }
        }
        Ok(true)
    }
}

/// A peer at a port of its own that answers every request in one [`Manner`].
#[derive(Debug)]
pub struct HostilePeer {
    address: String,
    requests: Arc<AtomicUsize>,
}

impl HostilePeer {
    /// Serves until the program ends.
    ///
    /// # Panics
    /// When the system has no free port.
    pub fn start(manner: Manner) -> Self {
        let requests: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&requests);
        let address = serve(move |request, stream| {
            counter.fetch_add(1, Ordering::Relaxed);
            manner.spoil(&Frame::answer(request.opaque(), b"{}"), stream)
        });
        Self { address, requests }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Requests so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A name server that answers every question for a route with this one, until the program
/// ends; where it is.
///
/// # Panics
/// When the system has no free port.
pub fn name_server_routing_to(route: String) -> String {
    serve(move |request, stream| {
        if request.code() == GET_ROUTEINFO_BY_TOPIC {
            let answer = Frame::answer(request.opaque(), route.as_bytes());
            stream.write_all(answer.bytes())?;
        }
        Ok(true)
    })
}

/// The route of a topic with these queues on each of so many brokers, all at one address.
pub fn route(address: &str, queues: u32, brokers: u32) -> String {
    let names = || (0..brokers).map(|number| format!("broker-{number}"));
    let broker_datas: Vec<String> = names()
        .map(|name| {
            format!(
                r#"{{"brokerAddrs":{{0:"{address}"}},"brokerName":"{name}","cluster":"DefaultCluster"}}"#
            )
        })
        .collect();
    let queue_datas: Vec<String> = names()
        .map(|name| {
            format!(
                r#"{{"brokerName":"{name}","perm":6,"readQueueNums":{queues},"topicSysFlag":0,"writeQueueNums":{queues}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"brokerDatas":[{}],"filterServerTable":{{}},"queueDatas":[{}]}}"#,
        broker_datas.join(","),
        queue_datas.join(",")
    )
}

/// Calls `answer` for each request on each connection, while that says that the
/// connection is of use; where it listens.
fn serve(
    answer: impl Fn(&Frame, &mut TcpStream) -> io::Result<bool> + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let serve_one = move |mut stream: TcpStream| {
        let mut is_of_use = true;
        while let Some(request) = Frame::read(&mut stream)? {
            if is_of_use && !request.is_response() {
                is_of_use = answer(&request, &mut stream)?;
            }
        }
        io::Result::Ok(())
    };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve_one = serve_one.clone();
            // It ends when the host hangs up.
            thread::spawn(move || serve_one(stream).ok());
        }
    });
    address
}
