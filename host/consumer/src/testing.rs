//! For tests of this and other crates: messages out of nothing, and a client with a
//! scripted other side.
//!
//! [`Harness`] owns a client and a clock, writes down every input and every output, and
//! can play a [`Cluster`] that answers what a healthy one would. What it wrote is a
//! transcript: input line, then what the rules answered.

mod cluster;
mod describe;
mod harness;
mod messages;

pub use crate::planted_bugs::PlantedBug;
pub use cluster::{Cluster, refused};
pub use harness::{CLIENT_ID, Harness, found};
pub use messages::{TestMessage, batch, garbage_after, stored};
