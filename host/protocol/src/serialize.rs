//! The two header encodings. The type is a property of each frame: a server
//! answers with its own, so decode by the type byte of what arrived.

pub(crate) mod json;
pub(crate) mod rocketmq;

/// How the header of a frame is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SerializeType {
    /// Type 0, what everyone sends unless told otherwise.
    #[default]
    Json,
    /// Type 1, RocketMQ's own binary form. It cannot carry codes above 32767.
    Rocketmq,
}
