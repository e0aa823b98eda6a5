//! Bytes to RocketMQ commands, headers and messages, and back. No I/O.
//!
//! ```text
//! length | type, header length | header           | body
//!        frame                 | serialize::{json,rocketmq}
//!                              | = RemotingCommand: code, opaque, flag, remark, ExtFields
//!                              | header::* types  | body::* reads JSON bodies,
//!                              |   the ExtFields  | message::* stored messages
//! ```
//!
//! Read in this order: [`frame`], [`command`], [`header`], [`body`] with
//! [`json_dialect`], [`message`]. Everything read here comes from a peer: nothing
//! panics, and no size is believed before the bytes are there.

pub mod acl;
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

pub use acl::Credentials;
pub use address::Address;
pub use command::RemotingCommand;
pub use ext_fields::ExtFields;
pub use instant::Instant;
pub use message::{MessageQueue, QueueOffset};
pub use serialize::SerializeType;
