//! The rules of a RocketMQ consumer: what to pull, keep, dispatch, retry, commit and when.
//! Pure: no I/O, no clock, no task; time is an argument.
//!
//! [`Client`] is the only entry. What happens outside goes in (`handle_*`, and verbs such
//! as `subscribe` and `stop`), what is to be done comes out (`poll_*`); after every input
//! the outputs are drained. Nothing inside blocks, and whatever comes back carries an
//! [`Epoch`](epoch::Epoch): late and repeated answers find nothing to change.
//!
//! ```text
//!  answers of servers  -> handle_response        poll_request         -> name servers, brokers
//!  results of calls    -> handle_consume_result  poll_consume_request -> MessageListener
//!  requests of brokers -> handle_server_request  poll_answer          -> brokers
//!  time                -> handle_timeout         poll_timeout         -> a clock
//!  sends               -> send                   poll_send_result     -> whoever sent
//!  seeks               -> seek                   poll_seek_result     -> whoever asked
//!  offsets on disk     -> handle_local_offsets_* poll_local_offsets   -> files
//!                                                poll_event           -> logs, numbers
//! ```
//!
//! A queue's life:
//!
//! ```text
//!            wanted                    offset known and committed
//!  (nobody's) ----> Starting (offset::start) ----> Pulling (pull) <----+
//!      ^               | not wanted                 |  |  | answer     | finished
//!      +---------------+   <------------------------+  |  +-> kept in ProcessQueue,
//!        last commit awaited (offset)                  |      called (consume),
//!                                       illegal offset |      sent back (retry)
//!                                                      +-> Starting, at the corrected one
//! ```
//!
//! Reading order: `client`, `config`, `listener` and `request` (what crosses the border);
//! `timers` (what can happen by itself); `route`, `heartbeat`, `access`, `subscriptions`,
//! `rebalance`, `queue_lock` (how queues become ours); `offset`, `local_offsets`, `pull`,
//! `process_queue`, `consume`, `retry` (the way of a message); `publish` (sending);
//! `pause`, `stop`.

pub mod client;
pub mod config;
mod failure_reason;
mod group;
pub mod listener;
pub mod pull_task;
pub mod request;
mod timers;
mod unix_clock;

mod access;
mod heartbeat;
mod route;
pub mod subscriptions;

pub mod assignment;
pub mod epoch;
mod queue_lock;
mod rebalance;

mod flow_control;
pub mod local_offsets;
mod memory;
mod offset;
mod process_queue;
mod pull;

mod consume;
pub mod publish;
mod retry;

mod hold;
pub mod pause;
mod server_request;
mod statistics;
mod stop;

pub mod event;
pub mod planted_bugs;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod random_histories;
#[cfg(test)]
mod recorded_scenarios;
#[cfg(test)]
mod transcripts;

pub use client::{Client, GroupId, SendId, SubscribeError};
pub use config::{BroadcastRetry, ClientConfig, ConsumeFromWhere, GroupConfig, OffsetBeyondEnd};
pub use event::Event;
pub use failure_reason::FailureReason;
pub use offset::{SeekError, SeekFailure, SeekForward, SeekId, SeekTo, Sought};
pub use pause::{PauseError, PauseKind, PauseScope};
pub use request::{
    Destination, Expect, PendingRequest, Request, RequestError, RequestId, Response, ServerRequest,
    ServerRequestId,
};
pub use server_request::RunningInfo;
pub use status::ClientStatus;
