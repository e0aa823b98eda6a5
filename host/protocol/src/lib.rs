//! Bytes to RocketMQ commands, headers and messages, and back. No I/O.

pub mod address;
pub mod body;
pub mod code;
pub mod command;
pub mod delay_level;
pub mod ext_fields;
pub mod frame;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod header;
pub mod instant;
pub mod json_dialect;
pub mod message;
pub mod serialize;
pub mod subscription;
pub mod sys_flag;
pub mod topic;

#[cfg(test)]
mod golden;

pub use address::Address;
pub use command::RemotingCommand;
pub use ext_fields::ExtFields;
pub use instant::Instant;
pub use message::{MessageQueue, QueueOffset};
pub use serialize::SerializeType;
