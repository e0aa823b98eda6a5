//! The rules of a RocketMQ consumer: pure, no I/O, no clock.

pub mod client;
pub mod config;
pub mod epoch;
pub mod event;
pub mod listener;
mod process_queue;
pub mod publish;
pub mod request;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use client::{Client, GroupId, SendId, SubscribeError};
pub use config::{ClientConfig, ConsumeFromWhere, GroupConfig};
pub use event::Event;
pub use request::{
    Destination, Expect, PendingRequest, Request, RequestError, RequestId, Response, ServerRequest,
    ServerRequestId,
};
pub use status::ClientStatus;
