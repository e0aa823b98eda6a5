//! Requests of guests, for a whole tenant: who may be asked is the plugin's grant, how
//! many connections there are at once is the tenant's.
//!
//! Each request has a connection of its own: its address is resolved once, checked, and
//! connected to exactly. Redirects are the guest's business: it asks again, and is checked
//! again. All of it happens within the time that its call has left.

mod body;
mod connect;
mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use wasmtime_wasi_http::{Error, WasiBody};

use crate::grants::HttpGrant;
use body::Bounded;
use connect::Target;
use line::Line;

/// Connections of a tenant at once, unless it is told otherwise.
pub const CONNECTIONS_MAX_DEFAULT: usize = 64;
/// Names of a tenant that are looked up at once: each holds a thread of the process, which
/// no timeout takes back.
const LOOK_UPS_MAX: usize = 4;
/// The head of an answer, all headers together.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 200;

/// Finds the addresses of a name.
pub type Resolver = Arc<dyn Fn(String, u16) -> ResolveFuture + Send + Sync>;

/// What a [`Resolver`] gives.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// How a tenant reaches servers.
#[derive(Clone)]
pub struct HttpConfig {
    /// Connections at once; up to eight times as many requests wait for one, those beyond
    /// are refused. One plugin has at most half of them, so that no other one is shut out.
    pub connections_max: usize,
    /// Certificates (DER) that are trusted beside the machine's own.
    pub extra_roots: Vec<Bytes>,
    /// `None`: the machine's.
    pub resolver: Option<Resolver>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX_DEFAULT,
            extra_roots: Vec::new(),
            resolver: None,
        }
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// What the requests of a tenant share.
pub struct HttpClient {
    config: HttpConfig,
    connections: Line,
    /// By plugin, whatever its revision; those that are gone stay, as their usage does.
    /// Held for a look.
    of_plugins: Mutex<BTreeMap<Arc<str>, Arc<Line>>>,
    look_ups: Arc<Semaphore>,
    /// Made for the first request that needs it: reading the machine's certificates takes
    /// milliseconds.
    tls: OnceLock<Result<tokio_rustls::TlsConnector, String>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("connections_max", &self.config.connections_max)
            .finish_non_exhaustive()
    }
}

/// The driver of a connection: runs until the answer was read.
type Connection = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// What a connection holds while it is open.
type Permits = [OwnedSemaphorePermit; 2];

/// One request, checked when it is sent.
pub(crate) struct Outgoing {
    pub(crate) plugin: Arc<str>,
    pub(crate) grant: HttpGrant,
    pub(crate) request: http::Request<WasiBody>,
    /// When everything has to be over.
    pub(crate) deadline: Instant,
    pub(crate) options: wasmtime_wasi_http::RequestOptions,
    /// Hears of its bytes, head and body.
    pub(crate) count_sent: Box<dyn Fn(usize) + Send + Sync>,
}

impl Outgoing {
    /// Whether it may be tried.
    pub(crate) fn is_granted(&self) -> bool {
        let target = Target::of(self.request.uri());
        target.is_ok_and(|target| target.is_granted(&self.grant, self.request.method().as_str()))
    }

    /// Reads its body, and answers in the place of whom it asks.
    pub(crate) async fn answered(
        self,
        status: u16,
    ) -> Result<(http::Response<WasiBody>, Connection), Error> {
        let body = self.request.into_body();
        let bytes_max = self.grant.request_bytes;
        let body = Bounded::request(body, bytes_max, self.deadline, Box::new(|_| {}));
        body.collect().await?;
        let empty = http_body_util::Empty::new().map_err(|never| match never {});
        let mut answer = http::Response::new(empty.boxed_unsync());
        *answer.status_mut() =
            http::StatusCode::from_u16(status).map_err(|_| Error::HttpProtocolError)?;
        Ok((answer, Box::new(std::future::ready(Ok(())))))
    }
}

impl HttpClient {
    /// A client without connections.
    pub fn new(config: HttpConfig) -> Arc<Self> {
        Arc::new(Self {
            connections: Line::new(config.connections_max),
            of_plugins: Mutex::default(),
            look_ups: Arc::new(Semaphore::new(LOOK_UPS_MAX)),
            config,
            tls: OnceLock::new(),
        })
    }

    /// Sends a request; with the answer comes the future that reads the rest of it.
    pub(crate) async fn send(
        self: Arc<Self>,
        outgoing: Outgoing,
    ) -> Result<(http::Response<WasiBody>, Connection), Error> {
        let Outgoing {
            plugin,
            grant,
            mut request,
            deadline,
            options,
            count_sent,
        } = outgoing;
        let target = Target::of(request.uri())?;
        if !target.is_granted(&grant, request.method().as_str()) {
            return Err(Error::HttpRequestDenied);
        }
        let until = |wanted: Option<Duration>| {
            wanted.map_or(deadline, |wanted| deadline.min(Instant::now() + wanted))
        };
        let connect_until = until(options.connect_timeout);
        let permits = self.permits(&plugin, connect_until).await?;
        let addresses = self.addresses(&target, &grant, connect_until).await?;
        let stream = timeout_at(connect_until, self.connect(&target, &addresses))
            .await
            .map_err(|_| Error::ConnectionTimeout)??;

        // The server is named by the Host header, which the host has set.
        let path = request.uri().path_and_query();
        let path = path.map_or("/", http::uri::PathAndQuery::as_str);
        *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        count_sent(head_bytes(&request));
        let request = request.map(|body| {
            Bounded::request(body, grant.request_bytes, deadline, count_sent).boxed_unsync()
        });
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake::<_, WasiBody>(TokioIo::new(stream))
            .await
            .map_err(|error| in_words(&error))?;
        let mut connection = Box::pin(connection);
        let first_byte_until = until(options.first_byte_timeout);
        let answer = timeout_at(first_byte_until, async {
            let mut sending = std::pin::pin!(sender.send_request(request));
            tokio::select! {
                biased;
                answer = &mut sending => answer,
                _ended = &mut connection => sending.await,
            }
        });
        let answer = answer.await.map_err(|_| Error::HttpResponseTimeout)?;
        let answer = answer.map_err(|error| in_words(&error))?;
        // What was read in one piece may be longer than hyper's bound.
        let headers = answer.headers();
        if header_bytes(headers) > HEAD_BYTES_MAX {
            return Err(head_too_large());
        }
        let between = options.between_bytes_timeout;
        let answer = answer.map(|body| {
            let body = body.map_err(|error| in_words(&error));
            Bounded::response(body, grant.response_bytes, deadline, between).boxed_unsync()
        });
        let rest = read_rest(connection, permits, deadline);
        Ok((answer, Box::new(rest)))
    }

    /// Leave to open one connection: the plugin's first, so that its requests wait for each
    /// other and not before those of its neighbours.
    async fn permits(&self, plugin: &Arc<str>, until: Instant) -> Result<Permits, Error> {
        let of_plugin = {
            // Nothing panics under it.
            let mut all = (self.of_plugins.lock()).unwrap_or_else(PoisonError::into_inner);
            let share = (self.config.connections_max / 2).max(1);
            let line = all.entry(Arc::clone(plugin));
            Arc::clone(line.or_insert_with(|| Arc::new(Line::new(share))))
        };
        Ok([
            of_plugin.permit(until).await?,
            self.connections.permit(until).await?,
        ])
    }
}

/// About what the head of a request has on the wire.
fn head_bytes(request: &http::Request<WasiBody>) -> usize {
    let path = request.uri().path_and_query();
    let path = path.map_or(1, |path| path.as_str().len());
    request.method().as_str().len() + path + header_bytes(request.headers())
}

fn header_bytes(headers: &http::HeaderMap) -> usize {
    let headers = headers.iter();
    headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// Reads on for as long as the guest may want the answer; the connection counts until
/// then.
async fn read_rest(
    connection: impl Future<Output = hyper::Result<()>>,
    permits: Permits,
    deadline: Instant,
) -> Result<(), Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    // What is wrong with it the answer's body says.
    let _ended = timeout(left, connection).await;
    drop(permits);
    Ok(())
}

/// What went wrong on a connection, as the guest is told.
fn in_words(error: &hyper::Error) -> Error {
    if error.is_parse_too_large() {
        head_too_large()
    } else if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_closed() || error.is_canceled() {
        Error::ConnectionTerminated
    } else if let Some(told) = of_the_body(error) {
        told
    } else {
        Error::HttpProtocolError
    }
}

fn head_too_large() -> Error {
    Error::HttpResponseHeaderSectionSize(u32::try_from(HEAD_BYTES_MAX).ok())
}

/// The request's body was refused by us.
fn of_the_body(error: &hyper::Error) -> Option<Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<Error>()?;
    match source {
        Error::HttpRequestBodySize(bytes) => Some(Error::HttpRequestBodySize(*bytes)),
        Error::ConnectionWriteTimeout => Some(Error::ConnectionWriteTimeout),
        _ => None,
    }
}
