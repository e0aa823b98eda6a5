//! `StoredMessage`: one message as a broker stores it, owned, to and from bytes; and the
//! producer's batch body.
//!
//! Consumers read whole answers with `batch`; this is for those who make messages (the
//! embedded broker, tests) and for callbacks that carry one. Here everything must be
//! right, or it is an error.
//! Layout: RocketMQ: `MessageDecoder#decode`, `MessageExtEncoder`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut, Bytes};

use super::properties::PROPERTIES_BYTES_MAX;
use crate::sys_flag::MessageSysFlag;

/// Magic of a version 1 message.
pub const MESSAGE_MAGIC_CODE: i32 = 0xDAA3_20A7_u32 as i32;
/// Magic of a version 2 message, whose topic length has two bytes.
pub const MESSAGE_MAGIC_CODE_V2: i32 = 0xDAA3_20AB_u32 as i32;

/// Fixed part of the smallest message: version 1, both hosts IPv4.
pub(super) const MESSAGE_BYTES_MIN: usize = 91;

/// Positions that the addresses do not move.
pub(super) mod at {
    pub(in super::super) const MAGIC: usize = 4;
    pub(in super::super) const BODY_CRC: usize = 8;
    pub(in super::super) const QUEUE_ID: usize = 12;
    pub(in super::super) const FLAG: usize = 16;
    pub(in super::super) const QUEUE_OFFSET: usize = 20;
    pub(in super::super) const PHYSICAL_OFFSET: usize = 28;
    pub(in super::super) const SYS_FLAG: usize = 36;
    pub(in super::super) const BORN_TIMESTAMP: usize = 40;
    pub(in super::super) const BORN_HOST: usize = 48;

    use crate::sys_flag::MessageSysFlag;

    const HOST_V4: usize = 8;
    const HOST_V6: usize = 20;

    fn host_bytes(sys_flag: i32, v6: MessageSysFlag) -> usize {
        if sys_flag & v6.0 == 0 {
            HOST_V4
        } else {
            HOST_V6
        }
    }

    pub(in super::super) fn store_timestamp(sys_flag: i32) -> usize {
        BORN_HOST + host_bytes(sys_flag, MessageSysFlag::BORN_HOST_V6)
    }

    pub(in super::super) fn store_host(sys_flag: i32) -> usize {
        store_timestamp(sys_flag) + 8
    }

    pub(in super::super) fn reconsume_times(sys_flag: i32) -> usize {
        store_host(sys_flag) + host_bytes(sys_flag, MessageSysFlag::STORE_HOST_V6)
    }

    pub(in super::super) fn prepared_transaction_offset(sys_flag: i32) -> usize {
        reconsume_times(sys_flag) + 4
    }

    pub(in super::super) fn body_length(sys_flag: i32) -> usize {
        reconsume_times(sys_flag) + 12
    }

    pub(in super::super) fn body(sys_flag: i32) -> usize {
        reconsume_times(sys_flag) + 16
    }
}

/// CRC of a body as RocketMQ stores it: without the sign bit, 0 for an empty body.
/// RocketMQ: `UtilAll#crc32`.
pub fn body_crc(stored_body: &[u8]) -> i32 {
    (crc32fast::hash(stored_body) & 0x7FFF_FFFF) as i32
}

/// How the length of the topic is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageVersion {
    /// One byte: topics of up to 127 bytes.
    #[default]
    V1,
    /// Two bytes.
    V2,
}

impl MessageVersion {
    /// By the number that every message carries.
    pub fn from_magic(magic: i32) -> Option<Self> {
        match magic {
            MESSAGE_MAGIC_CODE => Some(Self::V1),
            MESSAGE_MAGIC_CODE_V2 => Some(Self::V2),
            _ => None,
        }
    }

    /// The number that marks it.
    pub fn magic(self) -> i32 {
        match self {
            Self::V1 => MESSAGE_MAGIC_CODE,
            Self::V2 => MESSAGE_MAGIC_CODE_V2,
        }
    }

    /// What brokers write for this topic: the second version only when they must.
    pub fn for_topic(topic: &str) -> Self {
        if topic.len() <= TOPIC_BYTES_MAX_V1 {
            Self::V1
        } else {
            Self::V2
        }
    }

    fn topic_length_bytes(self) -> usize {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    fn topic_bytes_max(self) -> usize {
        match self {
            Self::V1 => TOPIC_BYTES_MAX_V1,
            Self::V2 => i16::MAX as usize,
        }
    }
}

const TOPIC_BYTES_MAX_V1: usize = i8::MAX as usize;

/// A message as stored: field by field what is on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// How it is written.
    pub version: MessageVersion,
    /// CRC of `body`, see [`body_crc`]; 0 means not set.
    pub body_crc: i32,
    /// Queue within topic and broker.
    pub queue_id: i32,
    /// The user's own 32 bits.
    pub flag: i32,
    /// Position in the queue.
    pub queue_offset: i64,
    /// Position in the commit log.
    pub commit_log_offset: i64,
    /// Encoding sets or clears its two address bits itself.
    pub sys_flag: MessageSysFlag,
    /// Producer's clock, Unix milliseconds.
    pub born_timestamp_ms: i64,
    /// The producer.
    pub born_host: SocketAddr,
    /// Broker's clock, Unix milliseconds.
    pub store_timestamp_ms: i64,
    /// The broker.
    pub store_host: SocketAddr,
    /// Attempts so far.
    pub reconsume_times: i32,
    /// 0 unless transactional.
    pub prepared_transaction_offset: i64,
    /// As stored: compressed if `sys_flag` says so.
    pub body: Bytes,
    /// The topic.
    pub topic: String,
    /// The properties, encoded.
    pub properties: Bytes,
}

/// Never prints body or properties: they are somebody's order.
impl fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredMessage")
            .field("topic", &self.topic)
            .field("queue_id", &self.queue_id)
            .field("queue_offset", &self.queue_offset)
            .field("commit_log_offset", &self.commit_log_offset)
            .field("sys_flag", &self.sys_flag)
            .field("reconsume_times", &self.reconsume_times)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} of {bytes} bytes does not fit into a stored message (at most {bytes_max})")]
pub struct EncodeError {
    /// `topic`, `properties` or `body`.
    pub field: &'static str,
    /// Its size.
    pub bytes: usize,
    /// What fits.
    pub bytes_max: usize,
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("the message is cut: {field} needs {needed} bytes and {left} are left")]
    Cut {
        /// What was read.
        field: &'static str,
        /// What it needs.
        needed: usize,
        /// What there is.
        left: usize,
    },
    /// Neither version.
    #[error("{magic:#010x} is not the magic number of a message")]
    Magic {
        /// The number found.
        magic: i32,
    },
    /// A length below zero or a port above 65535.
    #[error("{field} has the impossible value {value}")]
    Value {
        /// Which.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// It says another size than its parts have.
    #[error("the message says it has {announced} bytes, its parts have {found}")]
    Size {
        /// The first field.
        announced: i32,
        /// Sum of the parts.
        found: usize,
    },
    /// The topic is not UTF-8.
    #[error("the topic is not UTF-8")]
    Topic,
}

impl StoredMessage {
    /// Bytes that [`StoredMessage::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        at::body(self.wire_sys_flag())
            + self.body.len()
            + self.version.topic_length_bytes()
            + self.topic.len()
            + 2
            + self.properties.len()
    }

    /// Writes the message; the size comes from the parts.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        fits("topic", self.topic.len(), self.version.topic_bytes_max())?;
        fits("properties", self.properties.len(), PROPERTIES_BYTES_MAX)?;
        let total = self.encoded_len();
        fits("body", self.body.len(), i32::MAX as usize)?;
        fits("message", total, i32::MAX as usize)?;
        out.put_i32(total as i32);
        out.put_i32(self.version.magic());
        out.put_i32(self.body_crc);
        out.put_i32(self.queue_id);
        out.put_i32(self.flag);
        out.put_i64(self.queue_offset);
        out.put_i64(self.commit_log_offset);
        out.put_i32(self.wire_sys_flag());
        out.put_i64(self.born_timestamp_ms);
        put_host(out, self.born_host);
        out.put_i64(self.store_timestamp_ms);
        put_host(out, self.store_host);
        out.put_i32(self.reconsume_times);
        out.put_i64(self.prepared_transaction_offset);
        out.put_i32(self.body.len() as i32);
        out.put_slice(&self.body);
        match self.version {
            MessageVersion::V1 => out.put_u8(self.topic.len() as u8),
            MessageVersion::V2 => out.put_u16(self.topic.len() as u16),
        }
        out.put_slice(self.topic.as_bytes());
        out.put_u16(self.properties.len() as u16);
        out.put_slice(&self.properties);
        Ok(())
    }

    /// Reads one message from the front of `input` and takes it off. Body and properties
    /// are slices of it. On an error `input` is left somewhere within.
    pub fn decode(input: &mut Bytes) -> Result<Self, DecodeError> {
        let before = input.len();
        let total = get(input, "total size", Buf::get_i32)?;
        let magic = get(input, "magic", Buf::get_i32)?;
        let version = MessageVersion::from_magic(magic).ok_or(DecodeError::Magic { magic })?;
        let body_crc = get(input, "body CRC", Buf::get_i32)?;
        let queue_id = get(input, "queue id", Buf::get_i32)?;
        let flag = get(input, "flag", Buf::get_i32)?;
        let queue_offset = get(input, "queue offset", Buf::get_i64)?;
        let commit_log_offset = get(input, "commit log offset", Buf::get_i64)?;
        let sys_flag = MessageSysFlag(get(input, "sys flag", Buf::get_i32)?);
        let born_timestamp_ms = get(input, "born timestamp", Buf::get_i64)?;
        let born_v6 = sys_flag.contains(MessageSysFlag::BORN_HOST_V6);
        let born_host = get_host(input, "born host", born_v6)?;
        let store_timestamp_ms = get(input, "store timestamp", Buf::get_i64)?;
        let store_v6 = sys_flag.contains(MessageSysFlag::STORE_HOST_V6);
        let store_host = get_host(input, "store host", store_v6)?;
        let reconsume_times = get(input, "reconsume times", Buf::get_i32)?;
        let prepared_transaction_offset = get(input, "prepared transaction offset", Buf::get_i64)?;
        let body_length = get(input, "body length", Buf::get_i32)?;
        let body = take(input, "body", i64::from(body_length))?;
        let topic_length = match version {
            MessageVersion::V1 => i64::from(get(input, "topic length", Buf::get_i8)?),
            MessageVersion::V2 => i64::from(get(input, "topic length", Buf::get_i16)?),
        };
        let topic = take(input, "topic", topic_length)?;
        let topic = std::str::from_utf8(&topic)
            .map_err(|_| DecodeError::Topic)?
            .to_owned();
        let properties_length = get(input, "properties length", Buf::get_i16)?;
        let properties = take(input, "properties", i64::from(properties_length))?;
        let found = before - input.len();
        if usize::try_from(total) != Ok(found) {
            return Err(DecodeError::Size {
                announced: total,
                found,
            });
        }
        Ok(Self {
            version,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic,
            properties,
        })
    }

    fn wire_sys_flag(&self) -> i32 {
        let hosts = MessageSysFlag::BORN_HOST_V6.with(MessageSysFlag::STORE_HOST_V6);
        let mut flag = self.sys_flag.without(hosts);
        if self.born_host.is_ipv6() {
            flag = flag.with(MessageSysFlag::BORN_HOST_V6);
        }
        if self.store_host.is_ipv6() {
            flag = flag.with(MessageSysFlag::STORE_HOST_V6);
        }
        flag.0
    }
}

/// One message of a producer's batch (SEND_BATCH_MESSAGE).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BatchMessage {
    /// The user's own 32 bits.
    pub flag: i32,
    /// Never compressed.
    pub body: Bytes,
    /// The properties, encoded.
    pub properties: Bytes,
}

impl fmt::Debug for BatchMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchMessage")
            .field("flag", &self.flag)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Bytes of a batch message before its body.
pub(super) const BATCH_HEADER_BYTES: usize = 20;

/// The body of a batch. RocketMQ: `MessageDecoder#encodeMessages`.
pub fn encode_batch(messages: &[BatchMessage]) -> Result<Vec<u8>, EncodeError> {
    let size = |m: &BatchMessage| BATCH_HEADER_BYTES + m.body.len() + 2 + m.properties.len();
    let mut out = Vec::with_capacity(messages.iter().map(size).sum());
    for message in messages {
        fits("properties", message.properties.len(), PROPERTIES_BYTES_MAX)?;
        fits("message", size(message), i32::MAX as usize)?;
        out.put_i32(size(message) as i32);
        out.put_i32(0);
        out.put_i32(0);
        out.put_i32(message.flag);
        out.put_i32(message.body.len() as i32);
        out.put_slice(&message.body);
        out.put_u16(message.properties.len() as u16);
        out.put_slice(&message.properties);
    }
    Ok(out)
}

/// The messages of a batch, as slices of it. RocketMQ: `MessageDecoder#decodeMessages`.
pub fn decode_batch(mut body: Bytes) -> Result<Vec<BatchMessage>, DecodeError> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let before = body.len();
        let total = get(&mut body, "total size", Buf::get_i32)?;
        // Magic and CRC, which producers leave 0.
        get(&mut body, "magic and body CRC", Buf::get_i64)?;
        let flag = get(&mut body, "flag", Buf::get_i32)?;
        let body_length = get(&mut body, "body length", Buf::get_i32)?;
        let message_body = take(&mut body, "body", i64::from(body_length))?;
        let properties_length = get(&mut body, "properties length", Buf::get_i16)?;
        let properties = take(&mut body, "properties", i64::from(properties_length))?;
        let found = before - body.len();
        if usize::try_from(total) != Ok(found) {
            return Err(DecodeError::Size {
                announced: total,
                found,
            });
        }
        messages.push(BatchMessage {
            flag,
            body: message_body,
            properties,
        });
    }
    Ok(messages)
}

fn fits(field: &'static str, bytes: usize, bytes_max: usize) -> Result<(), EncodeError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(EncodeError {
        field,
        bytes,
        bytes_max,
    })
}

fn put_host(out: &mut impl BufMut, host: SocketAddr) {
    match host.ip() {
        IpAddr::V4(ip) => out.put_slice(&ip.octets()),
        IpAddr::V6(ip) => out.put_slice(&ip.octets()),
    }
    out.put_i32(i32::from(host.port()));
}

fn get<T>(
    input: &mut Bytes,
    field: &'static str,
    read: impl FnOnce(&mut Bytes) -> T,
) -> Result<T, DecodeError> {
    need(input, field, size_of::<T>())?;
    Ok(read(input))
}

fn take(input: &mut Bytes, field: &'static str, length: i64) -> Result<Bytes, DecodeError> {
    let needed = usize::try_from(length).map_err(|_| DecodeError::Value {
        field,
        value: length,
    })?;
    need(input, field, needed)?;
    Ok(input.split_to(needed))
}

fn get_host(input: &mut Bytes, field: &'static str, v6: bool) -> Result<SocketAddr, DecodeError> {
    let ip = if v6 {
        IpAddr::from(get(input, field, Buf::get_u128)?.to_be_bytes())
    } else {
        IpAddr::from(get(input, field, Buf::get_u32)?.to_be_bytes())
    };
    let port = get(input, field, Buf::get_i32)?;
    let port = u16::try_from(port).map_err(|_| DecodeError::Value {
        field,
        value: i64::from(port),
    })?;
    Ok(SocketAddr::new(ip, port))
}

fn need(input: &Bytes, field: &'static str, needed: usize) -> Result<(), DecodeError> {
    if input.len() >= needed {
        return Ok(());
    }
    Err(DecodeError::Cut {
        field,
        needed,
        left: input.len(),
    })
}
