//! Requests by HTTP: `wasi:http/outgoing-handler`.
//!
//! Needs `http = { hosts = [...] }` in the manifest's `[grants]`. A request ends when nine
//! tenths of the call's time are gone. A redirect is an answer like any other: whoever
//! follows it asks again.
//!
//! ```no_run
//! # use mqlet_guest::{Error, http::Request};
//! # fn main() -> Result<(), Error> {
//! let answer = Request::post("https://api.example.org/orders")
//!     .header("content-type", "application/json")
//!     .body(r#"{"order":4711}"#)
//!     .send()?;
//! if answer.status != 201 {
//!     return Err(format!("the shop answered {}", answer.status).into());
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(target_family = "wasm")]
mod wasi;

use std::fmt;
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use crate::testing::host::http as host;
#[cfg(target_family = "wasm")]
use wasi as host;

/// A request to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a request is sent by `send`"]
pub struct Request {
    /// In capitals.
    pub method: String,
    /// With scheme, `http` or `https`.
    pub url: String,
    /// Names and values, in this order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What is sent.
    pub body: Vec<u8>,
    /// The longest wait for a connection and for the first byte, if there is less than the
    /// call has.
    pub timeout: Option<Duration>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
        }
    }

    /// Asks for something.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Gives something away.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What is sent.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Waits at most so long for a connection, and for the first byte of the answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends it and waits for the whole answer.
    ///
    /// # Errors
    /// There is no answer, or not all of it. Whatever the status is, it is an answer.
    pub fn send(self) -> Result<Response, HttpError> {
        host::send(self)
    }
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Response {
    /// 200 is fine.
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// At most as long as the grant says.
    pub body: Vec<u8>,
}

impl Response {
    /// A status, without headers and body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// The same with this content.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }

    /// The content as text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn body_text(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.body)
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HttpError {
    /// The grant names no such host, port, method, or the address is not allowed.
    Denied,
    /// It took longer than the call, or the request, allows.
    Timeout,
    /// The request is none: its URL, a header, its method.
    Invalid(String),
    /// In the words of `wasi:http`.
    Failed(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("this request is not granted; see http of [grants]"),
            Self::Timeout => f.write_str("there was no answer in time"),
            Self::Invalid(what) => write!(f, "this is no request: {what}"),
            Self::Failed(reason) => write!(f, "the request failed: {reason}"),
        }
    }
}

impl std::error::Error for HttpError {}
