//! For tests of this and other crates: messages out of nothing, and a client with a
//! scripted other side.

mod messages;

pub use messages::{TestMessage, batch};
