//! A RocketMQ name server and broker in memory, for development and tests.
//!
//! Real RocketMQ clients work against it unchanged. It is one state machine and does no
//! I/O: requests go in, answers come out, time is an argument. With the feature
//! `server` it stands behind real sockets; with `testing` it can be told to misbehave.
//!
//! ```text
//!  handle_connected ─┐                                       ┌─► poll_response
//!  handle_request ───┤          broker.rs (dispatch)         ├─► poll_connection_action
//!  handle_timeout ───┤  send · pull · send back · heartbeat  ├─► poll_event
//!  handle_disconnected               │                       └─► poll_timeout
//!                    ┌───────────────┼──────────────────┐
//!             message_store      long_poll          groups, offsets,
//!             (commit log)     (held pulls)     locks, topics, delay
//! ```
//!
//! Reading order: [`broker`] with its parts (one file for each processor of RocketMQ),
//! then the tables: `topics`, `groups`, `message_store`, `offsets`, `locks`,
//! `long_poll`, `delay`; `name_server` reads routes out of them.

pub mod broker;
mod config;
mod connection_id;
pub mod delay;
mod event;
mod groups;
mod locks;
mod long_poll;
mod message_store;
mod name_server;
mod offsets;
#[cfg(feature = "testing")]
pub mod script;
#[cfg(feature = "server")]
pub mod server;
mod timer;
mod topics;
mod unix_clock;

pub use broker::{Broker, ConnectionAction};
pub use config::BrokerConfig;
pub use connection_id::ConnectionId;
pub use event::Event;
#[cfg(feature = "server")]
pub use server::{EmbeddedBroker, ServerConfig};
