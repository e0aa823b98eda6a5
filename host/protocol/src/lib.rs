//! Bytes to RocketMQ commands, headers and messages, and back. No I/O.

pub mod address;
pub mod command;
pub mod instant;
pub mod message;
pub mod serialize;

pub use address::Address;
pub use command::{ExtFields, RemotingCommand};
pub use instant::Instant;
pub use message::{MessageQueue, QueueOffset};
pub use serialize::SerializeType;
