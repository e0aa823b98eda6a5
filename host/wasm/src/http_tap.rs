//! The port to who watches the requests of a guest, and may answer them himself.

use std::fmt;

/// Hears of each request before it is sent, in the task of the call that makes it.
pub trait HttpTap: fmt::Debug + Send + Sync + 'static {
    /// What becomes of a request that the grants allow.
    fn asks(&self, method: &str, uri: &str) -> HttpTapped;
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpTapped {
    /// It is sent.
    Send,
    /// It is not; once its body has been read, the answer has this status and an empty body.
    Answer(u16),
}
