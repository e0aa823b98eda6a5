//! Headers in RocketMQ's own binary form. RocketMQ: `RocketMQSerializable`.
//!
//! A length of zero stands for null, so empty texts come back as none. Bytes of the
//! header beyond its fields are ignored; Java would take them for the body.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::command::{Language, RemotingCommand};
use crate::ext_fields::ExtFields;
use crate::frame::{DecodeError, EXT_FIELDS_MAX, EncodeError};
use crate::serialize::SerializeType;

/// Code, language, version, opaque, flag, and the two lengths.
const FIXED_BYTES: usize = 2 + 1 + 2 + 4 + 4 + 4 + 4;

pub(crate) fn decode(mut header: &[u8]) -> Result<RemotingCommand, DecodeError> {
    let within = "its fixed part";
    let truncated = |_| DecodeError::Truncated { within };
    let code = header.try_get_i16().map_err(truncated)?;
    let language = header.try_get_u8().map_err(truncated)?;
    let version = header.try_get_i16().map_err(truncated)?;
    let opaque = header.try_get_i32().map_err(truncated)?;
    let flag = header.try_get_i32().map_err(truncated)?;
    let remark_bytes = header.try_get_i32().map_err(truncated)?;
    let remark = take(&mut header, i64::from(remark_bytes), "the remark")?;
    let fields_bytes = header.try_get_i32().map_err(truncated)?;
    let fields = take(&mut header, i64::from(fields_bytes.max(0)), "its fields")?;
    Ok(RemotingCommand {
        code: code.into(),
        language: Language(language),
        version: version.into(),
        opaque,
        flag,
        remark: text(remark).map(String::from),
        ext_fields: if fields.is_empty() {
            None
        } else {
            Some(read_fields(fields)?)
        },
        body: Bytes::new(),
        serialize_type: SerializeType::Rocketmq,
    })
}

fn read_fields(mut entries: &[u8]) -> Result<ExtFields, DecodeError> {
    let mut fields = ExtFields::with_capacity(16, entries.len());
    while !entries.is_empty() {
        let within = "a field";
        let truncated = |_| DecodeError::Truncated { within };
        let name_bytes = entries.try_get_i16().map_err(truncated)?;
        let name = take(&mut entries, i64::from(name_bytes), within)?;
        let value_bytes = entries.try_get_i32().map_err(truncated)?;
        let value = take(&mut entries, i64::from(value_bytes), within)?;
        fields.set(text(name).unwrap_or_default(), text(value));
        if fields.len() > EXT_FIELDS_MAX {
            return Err(DecodeError::TooManyFields);
        }
    }
    Ok(fields)
}

/// The next bytes, if there are that many.
fn take<'a>(
    rest: &mut &'a [u8],
    length: i64,
    within: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let (taken, left) = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .ok_or(DecodeError::Truncated { within })?;
    *rest = left;
    Ok(taken)
}

/// Java too replaces what is not UTF-8.
fn text(bytes: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes))
}

pub(crate) fn encode(command: &RemotingCommand, out: &mut BytesMut) -> Result<(), EncodeError> {
    let remark = command.remark.as_deref().unwrap_or_default();
    let fields_bytes = command.ext_fields.as_ref().map_or(0, bytes_of);
    out.reserve(FIXED_BYTES + remark.len() + fields_bytes + command.body.len());
    out.put_i16(short("code", command.code)?);
    out.put_u8(command.language.0);
    out.put_i16(short("version", command.version)?);
    out.put_i32(command.opaque);
    out.put_i32(command.flag);
    put_length(out, remark.len())?;
    out.put_slice(remark.as_bytes());
    put_length(out, fields_bytes)?;
    for (name, value) in command.ext_fields.iter().flat_map(ExtFields::iter) {
        if let Some(value) = value {
            let bytes = name.len();
            out.put_i16(i16::try_from(bytes).map_err(|_| EncodeError::NameTooLong { bytes })?);
            out.put_slice(name.as_bytes());
            put_length(out, value.len())?;
            out.put_slice(value.as_bytes());
        }
    }
    Ok(())
}

fn bytes_of(fields: &ExtFields) -> usize {
    fields
        .iter()
        .filter_map(|(name, value)| Some(2 + name.len() + 4 + value?.len()))
        .sum()
}

fn short(field: &'static str, value: i32) -> Result<i16, EncodeError> {
    i16::try_from(value).map_err(|_| EncodeError::NotInBinary { field, value })
}

fn put_length(out: &mut BytesMut, bytes: usize) -> Result<(), EncodeError> {
    out.put_i32(i32::try_from(bytes).map_err(|_| EncodeError::HeaderTooLong { bytes })?);
    Ok(())
}
