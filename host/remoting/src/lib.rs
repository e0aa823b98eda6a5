//! Connections to RocketMQ name servers and brokers, and the server side that the
//! embedded broker stands behind.
//!
//! This crate moves frames. It knows opaques, deadlines, bounds and how to reconnect;
//! what a request means is the business of its users. It owns its sockets, and one
//! broken or hostile peer costs one connection.
//!
//! Reading order: [`client`] (address → connection, invoking), `connection` (one
//! socket: reader, writer, deadlines), [`tls`] (the greeting before it), `in_flight` and
//! [`backoff`] (the pure parts), [`server`] (accepting), [`error`] (all that can go
//! wrong).
//!
//! ```text
//!  invoke ─► slot of the address ─► connection ─► write queue ─► writer task ─► socket
//!                                      │ in-flight table
//!  callback ◄──────────────────────────┴◄──────── decode ◄───── reader task ◄── socket
//! ```

pub mod backoff;
pub mod client;
pub mod clock;
mod connection;
pub mod error;
mod in_flight;
pub mod server;
pub mod tls;

pub use backoff::BackoffConfig;
pub use client::{ClientHandler, RemotingClient, RemotingConfig, RemotingStats, Responder};
pub use clock::Clock;
pub use connection::InvokeCallback;
pub use error::{ConnectError, ConnectionError, InvokeError};
pub use server::{
    ConnectionId, Server, ServerConfig, ServerHandle, ServerHandler, ServerSendError,
};
pub use tls::TlsConfig;
