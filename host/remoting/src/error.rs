//! What can go wrong with a connection, and with one request on it.
//!
//! All of it can be cloned: one lost connection is the answer to every request that
//! waited on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use protocol::Address;
use protocol::frame::{DecodeError, EncodeError, FrameError};

/// Why no connection came about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name server of the machine does not know the host.
    #[error("cannot resolve the host name of {address}; check the name and the DNS")]
    Resolve {
        /// What was to be resolved.
        address: Address,
        /// The resolver's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// The name has no address at all.
    #[error("the host name of {address} resolves to no address")]
    NoAddress {
        /// What was to be resolved.
        address: Address,
    },
    /// No address of the host accepted.
    #[error(
        "cannot connect to {address}; check that it listens there and that no firewall refuses"
    )]
    Io {
        /// Who was dialled.
        address: Address,
        /// The last address's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// Nobody answered.
    #[error("no connection to {address} within {timeout:?}; check that it is reachable from here")]
    Timeout {
        /// Who was dialled.
        address: Address,
        /// How long was waited, for all addresses of the host together.
        timeout: Duration,
    },
    /// It accepted, and the TLS handshake failed.
    #[error("no TLS connection to {address}; {remedy}")]
    Tls {
        /// Who was dialled.
        address: Address,
        /// What the failure asks for.
        remedy: &'static str,
        /// What rustls said.
        #[source]
        source: Arc<io::Error>,
    },
    /// It accepted, and did not answer the TLS greeting in time.
    #[error(
        "{address} accepts connections and does not answer to TLS; check that it speaks TLS there"
    )]
    TlsTimeout {
        /// Who was dialled.
        address: Address,
    },
}

/// Why an established connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer hung up between two frames.
    #[error("the peer closed the connection")]
    ClosedByPeer,
    /// The peer hung up within a frame.
    #[error("the peer closed the connection within a frame")]
    CutFrame,
    /// The peer began a frame and did not go on with it.
    #[error("the peer began a frame and sent next to nothing of it for {0:?}")]
    StalledFrame(Duration),
    /// A request had its time, and nothing else was answered meanwhile.
    #[error("the peer answered nothing for {0:?}; it may not be what this address is for")]
    Unresponsive(Duration),
    /// The peer took nothing of what is written to it.
    #[error("the peer reads nothing of what it was sent for {0:?}")]
    NotReading(Duration),
    /// The peer announced a length that no frame may have.
    #[error("the peer broke the framing; it may not speak RocketMQ's remoting protocol")]
    Frame(#[source] FrameError),
    /// The frame's header could not be read.
    #[error("the peer sent a frame that cannot be decoded")]
    Decode(#[source] DecodeError),
    /// The socket failed.
    #[error("the connection failed")]
    Io(#[source] Arc<io::Error>),
    /// No whole frame came for this long.
    #[error("no frame came for {0:?}")]
    Idle(Duration),
    /// The peer does not read what it is sent (servers only; a client refuses the request).
    #[error("the peer reads too slowly: more than {bytes_max} bytes wait to be written")]
    SlowReader {
        /// The bound of the write queue.
        bytes_max: usize,
    },
    /// The peer asked us to go away and has answered all that was left.
    #[error("the connection was replaced because the peer goes away")]
    Replaced,
    /// Closed from this side.
    #[error("the connection was closed from this side")]
    Closed,
    /// A handler or callback on this connection panicked.
    #[error("a handler of the connection panicked; this is a bug of mqlet")]
    Panicked,
}

impl ConnectionError {
    /// Whether the peer broke the protocol, as opposed to going away.
    pub fn is_protocol_violation(&self) -> bool {
        matches!(
            self,
            Self::CutFrame | Self::StalledFrame(_) | Self::Frame(_) | Self::Decode(_)
        )
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InvokeError {
    /// No connection came about: nothing was sent.
    #[error("no connection to send the request on")]
    Connect(#[source] ConnectError),
    /// The address failed a moment ago and is not dialled yet: nothing was sent.
    #[error("{address} failed and is tried again in {next_attempt_in:?}")]
    BackingOff {
        /// Who is not dialled.
        address: Address,
        /// From when a request dials again.
        next_attempt_in: Duration,
        /// The last failure, if the wait is not only the least time between two attempts.
        #[source]
        last: Option<Box<InvokeError>>,
    },
    /// No answer in time; the peer may have acted on the request.
    #[error("no answer from {address} within {timeout:?}")]
    Timeout {
        /// Who did not answer.
        address: Address,
        /// How long was waited.
        timeout: Duration,
    },
    /// The connection ended; the peer may have acted on the request.
    #[error("the connection to {address} ended before the answer came")]
    Disconnected {
        /// Who was connected.
        address: Address,
        /// Why it ended.
        #[source]
        source: ConnectionError,
    },
    /// The bound of requests in flight is reached: nothing was sent.
    #[error("too many requests are in flight (at most {in_flight_max})")]
    TooManyInFlight {
        /// The bound.
        in_flight_max: usize,
    },
    /// The bound of addresses is reached: nothing was sent.
    #[error("too many addresses are in use (at most {addresses_max})")]
    TooManyAddresses {
        /// The bound.
        addresses_max: usize,
    },
    /// The peer does not read, and what waits to be written has reached its bound: nothing was sent.
    #[error("{address} reads too slowly: more than {bytes_max} bytes wait to be written")]
    WriteQueueFull {
        /// Who reads too slowly.
        address: Address,
        /// The bound.
        bytes_max: usize,
    },
    /// The request cannot be put into a frame: nothing was sent.
    #[error("the request cannot be encoded")]
    Encode(#[source] EncodeError),
    /// The peer is shutting down, and so was its replacement.
    #[error("{address} is shutting down (GO_AWAY)")]
    GoAway {
        /// Who goes away.
        address: Address,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl InvokeError {
    /// Whether it is certain that the peer never saw the request.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::BackingOff { .. }
            | Self::TooManyInFlight { .. }
            | Self::TooManyAddresses { .. }
            | Self::WriteQueueFull { .. }
            | Self::Encode(_) => true,
            Self::Timeout { .. }
            | Self::Disconnected { .. }
            | Self::GoAway { .. }
            | Self::Closed => false,
        }
    }
}
