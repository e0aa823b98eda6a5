//! Frames: `length | type and header length | header | body`, all big-endian.
//!
//! Cutting and assembling only; the two forms of a header are in [`crate::serialize`].
//! Nothing is allocated on the word of a peer: a length counts only once that many
//! bytes are there or within the limit. Every error means: close the connection,
//! the next frame cannot be found.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::command::RemotingCommand;
use crate::json_dialect::JsonError;
use crate::serialize::{self, SerializeType};

/// Longest frame we accept unless configured otherwise, without its length field.
/// RocketMQ: `com.rocketmq.remoting.frameMaxLength`.
pub const FRAME_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;

/// A header's length has 24 bits.
const HEADER_BYTES_MAX: usize = (1 << 24) - 1;

/// Header fields of one command beyond this are refused: no header has more than 20,
/// and finding repeated names takes time that grows with the square.
pub(crate) const EXT_FIELDS_MAX: usize = 1024;

/// Why a length field announces no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than we accept. A TLS greeting or any other protocol looks like this.
    #[error(
        "the peer announces a frame of {announced} bytes, more than the {max} allowed; it may not speak RocketMQ's protocol"
    )]
    TooLong {
        /// What the length field says.
        announced: u32,
        /// The limit.
        max: usize,
    },
    /// Shorter than the field that must follow.
    #[error("the peer announces a frame of {announced} bytes, less than the 4 of a header length")]
    TooShort {
        /// What the length field says.
        announced: u32,
    },
}

/// Why a frame holds no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Less than the four bytes of type and header length.
    #[error("a frame of {bytes} bytes has no room for its header length")]
    FrameTooShort {
        /// Its bytes after the length field.
        bytes: usize,
    },
    /// Neither JSON nor RocketMQ's own form.
    #[error("unknown serialize type {0}")]
    UnknownSerializeType(u8),
    /// The header ends outside its frame.
    #[error("a header of {header} bytes does not fit in a frame with room for {available}")]
    HeaderTooLong {
        /// Announced length of the header.
        header: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The header is no JSON, or not of the right shape.
    #[error("the JSON header is unreadable")]
    Json(#[source] JsonError),
    /// The binary header ends too early.
    #[error("the binary header ends within {within}")]
    Truncated {
        /// What was being read.
        within: &'static str,
    },
    /// More header fields than any command has.
    #[error("the header has more than {EXT_FIELDS_MAX} fields")]
    TooManyFields,
}

/// Why a command cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A number that the binary header has no room for. Use JSON for such commands.
    #[error("{field} {value} does not fit in the 16 bits of the binary header")]
    NotInBinary {
        /// Which number.
        field: &'static str,
        /// Its value.
        value: i32,
    },
    /// A name of a header field longer than the binary header can say.
    #[error("the name of a header field has {bytes} bytes, more than 32767")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The header has more bytes than its length field can say.
    #[error("a header of {bytes} bytes is longer than {HEADER_BYTES_MAX}")]
    HeaderTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The frame has more bytes than its length field can say.
    #[error("a frame of {bytes} bytes is longer than 2147483647")]
    FrameTooLong {
        /// Its length.
        bytes: usize,
    },
}

/// How many bytes follow a length field; read no more than these.
///
/// # Errors
/// The length is beyond `max` or below 4.
pub fn announced_length(field: [u8; 4], max: usize) -> Result<usize, FrameError> {
    // Negative lengths of Java's are beyond every limit here.
    let announced = u32::from_be_bytes(field);
    match usize::try_from(announced) {
        Ok(length) if length < 4 => Err(FrameError::TooShort { announced }),
        Ok(length) if length <= max && i32::try_from(announced).is_ok() => Ok(length),
        _ => Err(FrameError::TooLong { announced, max }),
    }
}

impl RemotingCommand {
    /// Reads a frame, given without its length field. The body is a part of `frame`,
    /// not a copy.
    ///
    /// # Errors
    /// The frame is malformed.
    pub fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let Some(word) = frame.first_chunk::<4>() else {
            return Err(DecodeError::FrameTooShort { bytes: frame.len() });
        };
        let [serialize_type, length @ ..] = *word;
        let serialize_type = match serialize_type {
            0 => SerializeType::Json,
            1 => SerializeType::Rocketmq,
            other => return Err(DecodeError::UnknownSerializeType(other)),
        };
        let header = length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let available = frame.len() - 4;
        if header > available {
            return Err(DecodeError::HeaderTooLong { header, available });
        }
        let end = 4 + header;
        let mut command = match serialize_type {
            SerializeType::Json => serialize::json::decode(&frame[4..end])?,
            SerializeType::Rocketmq => serialize::rocketmq::decode(&frame[4..end])?,
        };
        // An empty rest would keep the frame alive for nothing.
        if end < frame.len() {
            let mut body = frame;
            body.advance(end);
            command.body = body;
        }
        Ok(command)
    }

    /// Appends the whole frame, length field included, in the form that
    /// `serialize_type` says. On an error nothing is appended.
    ///
    /// # Errors
    /// Something does not fit in its field.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let start = out.len();
        let written = self.write(out, start);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn write(&self, out: &mut BytesMut, start: usize) -> Result<(), EncodeError> {
        out.put_bytes(0, 8);
        let serialize_type = match self.serialize_type {
            SerializeType::Json => {
                serialize::json::encode(self, out);
                0
            }
            SerializeType::Rocketmq => {
                serialize::rocketmq::encode(self, out)?;
                1
            }
        };
        let header = out.len() - start - 8;
        let word = u32::try_from(header)
            .ok()
            .filter(|_| header <= HEADER_BYTES_MAX)
            .ok_or(EncodeError::HeaderTooLong { bytes: header })?;
        let bytes = 4 + header + self.body.len();
        let length = i32::try_from(bytes).map_err(|_| EncodeError::FrameTooLong { bytes })?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out[start + 4..start + 8].copy_from_slice(&(serialize_type << 24 | word).to_be_bytes());
        out.extend_from_slice(&self.body);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
