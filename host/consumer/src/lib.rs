//! The rules of a RocketMQ consumer: pure, no I/O, no clock.

pub mod client;
pub mod config;
mod group;
pub mod listener;
pub mod request;
mod timers;
mod unix_clock;

mod heartbeat;
mod route;

pub mod epoch;
mod rebalance;

mod offset;
mod process_queue;
mod pull;

mod consume;
pub mod publish;
mod retry;

mod server_request;
mod stop;

pub mod event;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod transcripts;

pub use client::{Client, GroupId, SendId, SubscribeError};
pub use config::{ClientConfig, ConsumeFromWhere, GroupConfig};
pub use event::Event;
pub use request::{
    Destination, Expect, PendingRequest, Request, RequestError, RequestId, Response, ServerRequest,
    ServerRequestId,
};
pub use status::ClientStatus;
