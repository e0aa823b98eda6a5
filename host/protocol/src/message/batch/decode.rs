//! Fills the table of a `MessageBatch`: walks the records, checks them, opens bodies,
//! unwraps inner batches.
//!
//! RocketMQ's clients ignore the announced size of a message and give up the rest of an
//! answer at the first error. Here the size is the way past a bad message, and only
//! where both ways end is the rest given up. Every step forward takes at least the size
//! of the smallest message, and no memory is taken because of an announced size.
//! RocketMQ: `MessageDecoder#decodesBatch`, `PullAPIWrapper#processPullResult`.

use std::ops::Range;

use bytes::Bytes;

use super::{MessageBatch, MessageFault, Record, Span, Unreadable, UnreadableReason, bytes_at};
use crate::message::QueueOffset;
use crate::message::codec::{self, BATCH_HEADER_BYTES, MESSAGE_BYTES_MIN, MessageVersion, at};
use crate::message::compression::{self, DecompressError};
use crate::message::properties;
use crate::sys_flag::MessageSysFlag;

/// What decoding checks and how far it goes.
#[derive(Clone, Debug)]
pub struct DecodeLimits {
    /// Compare bodies with their stored CRC. RocketMQ's clients do not by default.
    pub check_crc: bool,
    /// Largest body once decompressed.
    pub body_bytes_max: usize,
    /// What the decompressed bodies of one answer may take together; what lies behind
    /// is left unread, to be asked for again. Never less than one body.
    pub decompressed_bytes_max: usize,
    /// Most messages of one answer, those of inner batches counted singly.
    pub messages_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            check_crc: true,
            body_bytes_max: 32 << 20,
            decompressed_bytes_max: 256 << 20,
            messages_max: 1 << 18,
        }
    }
}

/// Rows reserved before anything is known about the answer.
const RECORDS_RESERVED_MAX: usize = 1024;

pub(super) fn decode(frame: Bytes, limits: &DecodeLimits) -> MessageBatch {
    // Positions are 32 bits wide; frames of 4 GiB do not pass any frame limit.
    let (readable, excess) = match u32::try_from(frame.len()) {
        Ok(_) => (frame, 0),
        Err(_) => {
            let excess = frame.len() - u32::MAX as usize;
            (frame.slice(..u32::MAX as usize), excess)
        }
    };
    let mut decoder = Decoder {
        limits,
        records: Vec::new(),
        bodies: Vec::new(),
        unreadable: Vec::new(),
        decompressed_bytes: 0,
    };
    decoder.reserve(&readable);
    let mut position = 0;
    while position < readable.len() {
        position += match decoder.step(&readable, position) {
            Step::Read(size) => size,
            Step::Skip(size, reason) => {
                decoder.missed(size, reason);
                size
            }
            Step::Stop(reason) => {
                decoder.missed(readable.len() - position + excess, reason);
                break;
            }
        };
    }
    MessageBatch {
        frame: readable,
        bodies: decoder.bodies,
        records: decoder.records,
        unreadable: decoder.unreadable,
    }
}

struct Decoder<'a> {
    limits: &'a DecodeLimits,
    records: Vec<Record>,
    bodies: Vec<Bytes>,
    unreadable: Vec<Unreadable>,
    decompressed_bytes: usize,
}

enum Step {
    /// One message of this size, and its children.
    Read(usize),
    /// No message, but it has a size.
    Skip(usize, UnreadableReason),
    /// No way past this place.
    Stop(UnreadableReason),
}

impl Decoder<'_> {
    /// One allocation for an answer of equal messages.
    fn reserve(&mut self, frame: &[u8]) {
        let first = u32::from_be_bytes(bytes_at(frame, 0)) as usize;
        let guess = frame.len() / first.max(MESSAGE_BYTES_MIN);
        self.records
            .reserve_exact(guess.clamp(1, RECORDS_RESERVED_MAX));
    }

    #[inline]
    fn step(&mut self, frame: &Bytes, position: usize) -> Step {
        let rest = &frame[position..];
        let Some(header) = rest.first_chunk::<MESSAGE_BYTES_MIN>() else {
            return Step::Stop(UnreadableReason::Cut);
        };
        let announced = i32::from_be_bytes(bytes_at(header, 0));
        // A size that may be right.
        let size = usize::try_from(announced)
            .ok()
            .filter(|size| (MESSAGE_BYTES_MIN..=rest.len()).contains(size));
        let skip = |reason| match size {
            Some(size) => Step::Skip(size, reason),
            None => Step::Stop(reason),
        };
        let magic = i32::from_be_bytes(bytes_at(header, at::MAGIC));
        let Some(version) = MessageVersion::from_magic(magic) else {
            return skip(UnreadableReason::Magic(magic));
        };
        if self.records.len() >= self.limits.messages_max {
            return Step::Stop(UnreadableReason::TooMany);
        }
        if self.decompressed_bytes > 0
            && self.decompressed_bytes >= self.limits.decompressed_bytes_max
        {
            return Step::Stop(UnreadableReason::DecompressedTooMuch);
        }
        let queue_offset = i64::from_be_bytes(bytes_at(header, at::QUEUE_OFFSET));
        let commit_log_offset = i64::from_be_bytes(bytes_at(header, at::PHYSICAL_OFFSET));
        let Some(queue_offset) =
            QueueOffset::from_wire(queue_offset).filter(|_| commit_log_offset >= 0)
        else {
            return skip(UnreadableReason::Offset);
        };
        let sys_flag = i32::from_be_bytes(bytes_at(header, at::SYS_FLAG));

        let mut parts = Parts::walk(rest, version, sys_flag);
        if Some(parts.size) != size || parts.fault.is_some() {
            // Two ways to the next message that disagree: believe the one that leads to a
            // message or to the end of the answer, the shorter one if both do. RocketMQ
            // knows the way through the parts alone.
            let leads = |size: usize| begins_message(&rest[size..]);
            let walked = parts.fault.is_none() && leads(parts.size);
            match size {
                None if walked => {}
                Some(size) if walked && (parts.size < size || !leads(size)) => {}
                Some(size) => {
                    parts = Parts::walk(&rest[..size], version, sys_flag);
                    parts.fault = parts.fault.or(Some(MessageFault::Layout));
                    parts.size = size;
                }
                None if parts.fault.is_some() => return Step::Stop(UnreadableReason::Cut),
                None => return Step::Stop(UnreadableReason::Size(announced)),
            }
        }
        match self.add(frame, position, queue_offset, sys_flag, &parts) {
            Ok(()) => Step::Read(parts.size),
            Err(TooMany) => Step::Stop(UnreadableReason::TooMany),
        }
    }

    fn add(
        &mut self,
        frame: &Bytes,
        position: usize,
        queue_offset: QueueOffset,
        sys_flag: i32,
        parts: &Parts,
    ) -> Result<(), TooMany> {
        let rest = &frame[position..];
        let shift = |span: Span| Span {
            start: span.start + position as u32,
            len: span.len,
        };
        let mut record = Record {
            queue_offset,
            start: position as u32,
            store_size: parts.size as u32,
            sys_flag,
            source: 0,
            body: shift(parts.body),
            properties: shift(parts.properties),
            tag: Span::default(),
            topic: shift(parts.topic),
            fault: parts.fault,
            is_child: false,
        };
        let raw_properties = parts.properties.of(rest);
        let (tag, properties_fault) = read_properties(raw_properties);
        if let Some(tag) = tag {
            record.tag = Span {
                start: record.properties.start + tag.start as u32,
                len: tag.len() as u32,
            };
        }
        record.fault = record
            .fault
            .or_else(|| {
                let stored_crc = i32::from_be_bytes(bytes_at(rest, at::BODY_CRC));
                self.check_body(parts.body.of(rest), stored_crc)
            })
            .or_else(|| check_text(parts.topic.of(rest), MessageFault::Topic))
            .or(properties_fault);
        let bits = MessageSysFlag(sys_flag);
        if record.fault.is_none() && bits.contains(MessageSysFlag::COMPRESSED) {
            match self.open_body(bits, parts.body.of(rest)) {
                Ok(source) => {
                    record.source = source;
                    record.body = Span {
                        start: 0,
                        len: self.source(frame, source).len() as u32,
                    };
                    record.sys_flag = bits.without(MessageSysFlag::COMPRESSED).0;
                }
                Err(fault) => record.fault = Some(fault),
            }
        }
        if record.fault.is_none() && bits.is_inner_batch() {
            let room = self.limits.messages_max.saturating_sub(self.records.len());
            match children(&record, self.source(frame, record.source), room) {
                Ok(children) => {
                    self.link(queue_offset);
                    self.records.extend(children);
                    return Ok(());
                }
                Err(NoBatch::TooMany) if !self.records.is_empty() => {
                    if record.source > 0 {
                        self.bodies.pop();
                    }
                    return Err(TooMany);
                }
                Err(_) => record.fault = Some(MessageFault::InnerBatch),
            }
        }
        self.link(queue_offset);
        self.records.push(record);
        Ok(())
    }

    fn check_body(&self, stored_body: &[u8], stored_crc: i32) -> Option<MessageFault> {
        // 0 with a body: whoever built the message did not set it.
        if !self.limits.check_crc || (stored_crc == 0 && !stored_body.is_empty()) {
            return None;
        }
        // Brokers clear the sign bit; other tools may not.
        (codec::body_crc(stored_body) != stored_crc & i32::MAX).then_some(MessageFault::CrcMismatch)
    }

    fn open_body(&mut self, flag: MessageSysFlag, packed: &[u8]) -> Result<u32, MessageFault> {
        let compression = flag.compression().ok_or(MessageFault::UnknownCompression)?;
        let body = compression::decompress(compression, packed, self.limits.body_bytes_max)
            .map_err(|error| match error {
                DecompressError::Malformed { .. } => MessageFault::Decompression,
                DecompressError::TooLarge { .. } => MessageFault::BodyTooLarge,
            })?;
        self.decompressed_bytes = self.decompressed_bytes.saturating_add(body.len());
        self.bodies.push(body.into());
        Ok(self.bodies.len() as u32)
    }

    fn source<'f>(&'f self, frame: &'f Bytes, source: u32) -> &'f Bytes {
        match source.checked_sub(1) {
            None => frame,
            Some(index) => &self.bodies[index as usize],
        }
    }

    /// Notes bytes that were not read; neighbouring ones are one stretch.
    fn missed(&mut self, bytes: usize, reason: UnreadableReason) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let previous = self.records.last().map(|record| record.queue_offset);
        if let Some(last) = self.unreadable.last_mut()
            && last.next.is_none()
        {
            last.bytes = last.bytes.saturating_add(bytes);
            return;
        }
        self.unreadable.push(Unreadable {
            bytes,
            previous,
            next: None,
            reason,
        });
    }

    /// A message follows what was not read.
    fn link(&mut self, queue_offset: QueueOffset) {
        if let Some(last) = self.unreadable.last_mut()
            && last.next.is_none()
        {
            last.next = Some(queue_offset);
        }
    }
}

/// Where the parts of one message lie, counted from its first byte.
struct Parts {
    body: Span,
    topic: Span,
    properties: Span,
    /// Sum of all parts, as far as they could be read.
    size: usize,
    fault: Option<MessageFault>,
}

impl Parts {
    #[inline]
    fn walk(message: &[u8], version: MessageVersion, sys_flag: i32) -> Self {
        let mut parts = Self {
            body: Span::default(),
            topic: Span::default(),
            properties: Span::default(),
            size: at::body_length(sys_flag),
            fault: None,
        };
        parts.fault = parts.walk_parts(message, version).err();
        parts
    }

    #[inline]
    fn walk_parts(&mut self, message: &[u8], version: MessageVersion) -> Result<(), MessageFault> {
        let length = i32::from_be_bytes(self.take(message).ok_or(MessageFault::Layout)?);
        self.body = self.span(message, length).ok_or(MessageFault::Layout)?;
        let length = match version {
            MessageVersion::V1 => i32::from(i8::from_be_bytes(
                self.take(message).ok_or(MessageFault::Topic)?,
            )),
            MessageVersion::V2 => i32::from(i16::from_be_bytes(
                self.take(message).ok_or(MessageFault::Topic)?,
            )),
        };
        self.topic = self.span(message, length).ok_or(MessageFault::Topic)?;
        let length = i16::from_be_bytes(self.take(message).ok_or(MessageFault::Properties)?);
        self.properties = self
            .span(message, i32::from(length))
            .ok_or(MessageFault::Properties)?;
        Ok(())
    }

    #[inline]
    fn take<const N: usize>(&mut self, message: &[u8]) -> Option<[u8; N]> {
        let chunk = message.get(self.size..)?.first_chunk()?;
        self.size += N;
        Some(*chunk)
    }

    #[inline]
    fn span(&mut self, message: &[u8], length: i32) -> Option<Span> {
        let length = usize::try_from(length).ok()?;
        let start = self.size;
        if message.len() - start < length {
            return None;
        }
        self.size += length;
        Some(Span {
            start: start as u32,
            len: length as u32,
        })
    }
}

/// There is no room for the messages of an inner batch.
struct TooMany;

enum NoBatch {
    Malformed,
    TooMany,
}

/// The messages of an inner batch.
/// RocketMQ: `MessageDecoder#decodeMessage`, `PullAPIWrapper#processPullResult`.
fn children(parent: &Record, source: &[u8], room: usize) -> Result<Vec<Record>, NoBatch> {
    let mut records = Vec::new();
    let mut position = parent.body.start as usize;
    let end = position + parent.body.len as usize;
    let source = source.get(..end).ok_or(NoBatch::Malformed)?;
    while position < end {
        if records.len() >= room {
            return Err(NoBatch::TooMany);
        }
        let (child, size) = child(parent, source, position).ok_or(NoBatch::Malformed)?;
        records.push(Record {
            queue_offset: QueueOffset(parent.queue_offset.0.saturating_add(records.len() as u64)),
            ..child
        });
        position += size;
    }
    // An empty batch stays what it is: something must stand for its offset.
    if records.is_empty() {
        return Err(NoBatch::Malformed);
    }
    Ok(records)
}

/// One message of an inner batch and its size.
fn child(parent: &Record, source: &[u8], position: usize) -> Option<(Record, usize)> {
    let message = &source[position..];
    let header = message.first_chunk::<BATCH_HEADER_BYTES>()?;
    let size = usize::try_from(i32::from_be_bytes(bytes_at(header, 0))).ok()?;
    let body_length = usize::try_from(i32::from_be_bytes(bytes_at(header, 16))).ok()?;
    let properties_at = BATCH_HEADER_BYTES + body_length + 2;
    let length = message.get(properties_at - 2..)?.first_chunk()?;
    let properties_length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
    if size != properties_at + properties_length {
        return None;
    }
    let raw_properties = message.get(properties_at..size)?;
    let span = |start: usize, len: usize| Span {
        start: (position + start) as u32,
        len: len as u32,
    };
    let (tag, fault) = read_properties(raw_properties);
    let tag = tag.map(|tag| span(properties_at + tag.start, tag.len()));
    let record = Record {
        store_size: 0,
        body: span(BATCH_HEADER_BYTES, body_length),
        properties: span(properties_at, properties_length),
        tag: tag.unwrap_or_default(),
        fault,
        is_child: true,
        ..*parent
    };
    Some((record, size))
}

/// The tag, and what is wrong with the properties.
fn read_properties(raw: &[u8]) -> (Option<Range<usize>>, Option<MessageFault>) {
    match check_text(raw, MessageFault::Properties) {
        None => (properties::find_tag(raw), None),
        fault => (
            properties::find_tag(properties::whole_entries(raw).as_bytes()),
            fault,
        ),
    }
}

fn check_text(bytes: &[u8], fault: MessageFault) -> Option<MessageFault> {
    std::str::from_utf8(bytes).err().map(|_| fault)
}

/// The end of the answer, or what looks like a message.
fn begins_message(rest: &[u8]) -> bool {
    rest.is_empty()
        || (rest.len() >= MESSAGE_BYTES_MIN
            && MessageVersion::from_magic(i32::from_be_bytes(bytes_at(rest, at::MAGIC))).is_some())
}
