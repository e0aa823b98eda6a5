//! Both sides over real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod hostile_peer;
mod peer;
mod requests;
mod tls;
