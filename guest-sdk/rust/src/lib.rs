//! Write a RocketMQ listener that runs in mqlet.
//!
//! ```
//! use mqlet_guest::{ConcurrentListener, Error, Message, Outcome, info};
//!
//! #[derive(Default)]
//! struct Hello;
//!
//! impl ConcurrentListener for Hello {
//!     fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
//!         info!("hello, {}", message.body_text()?);
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! mqlet_guest::export!(Hello);
//! ```
//!
//! That is a whole plugin; its crate is a `cdylib`. Reading order: [`listener`] has the
//! traits of listeners that consume concurrently, [`orderly`] of those that consume in
//! order, [`pull_task`] of tasks that pull for themselves; [`Message`] what they are given,
//! [`Outcome`] what they answer,
//! [`Lifecycle`] start and end, [`call`] facts about the running call, [`producer`]
//! sending, [`key_value`] buckets, [`http`] requests, [`config`] settings and secrets, [`log`] and the macros [`info!`], [`warn!`] and their siblings log lines, and
//! [`testing`] unit tests on your own machine, without a host.
//!
//! The crate adds ease, no semantics: those are the contract's, `wit/` in mqlet's
//! repository.

#[doc(hidden)]
pub mod bindings;
pub mod call;
pub mod config;
#[doc(hidden)]
pub mod export;
pub mod http;
pub mod key_value;
mod lifecycle;
pub mod listener;
pub mod log;
mod message;
pub mod orderly;
mod outcome;
pub mod producer;
pub mod pull_task;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use lifecycle::{Lifecycle, Settings};
pub use listener::{ConcurrentBatchListener, ConcurrentListener};
pub use message::{Batch, Message, Properties};
pub use orderly::{OrderlyBatchListener, OrderlyListener, OrderlyStatus};
pub use outcome::{ConsumeStatus, Outcome};
pub use pull_task::{NextRun, PullQueue, PullStatus, PullTask, Pulled};

/// Any error: `?` works on every error type, and texts become one with `.into()`.
pub type Error = Box<dyn std::error::Error>;
