//! Headers as JSON: one object, members in alphabetical order, nulls left out.
//!
//! Written byte for byte as Java's library writes it; read as forgivingly as it
//! reads. Both directions go over the text once: every request and answer passes here.

use std::borrow::Cow;
use std::fmt::Write;

use bytes::{BufMut, Bytes, BytesMut};

use crate::command::{Language, RemotingCommand};
use crate::ext_fields::ExtFields;
use crate::frame::{DecodeError, EXT_FIELDS_MAX};
use crate::json_dialect::JsonError;
use crate::json_dialect::integer;
use crate::json_dialect::scanner::{Scanner, utf8};
use crate::serialize::SerializeType;

/// What a missing `opaque` becomes. Java takes its own next number, which nobody
/// waits for either.
const OPAQUE_MISSING: i32 = 0;

/// A guess of the bytes around the fields, so that a header is written in one piece.
const BYTES_AROUND_FIELDS: usize = 160;

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, DecodeError> {
    let text = utf8(header).map_err(DecodeError::Json)?;
    let mut scanner = Scanner::new(text);
    let mut command = RemotingCommand {
        code: 0,
        language: Language::JAVA,
        version: 0,
        opaque: OPAQUE_MISSING,
        flag: 0,
        remark: None,
        ext_fields: None,
        body: Bytes::new(),
        serialize_type: SerializeType::Json,
    };
    read_members(&mut scanner, &mut command, text.len())?;
    scanner.end().map_err(DecodeError::Json)?;
    Ok(command)
}

fn read_members(
    scanner: &mut Scanner<'_>,
    command: &mut RemotingCommand,
    text_bytes: usize,
) -> Result<(), DecodeError> {
    scanner
        .expect(b'{', "an object")
        .map_err(DecodeError::Json)?;
    if scanner.eat(b'}') {
        return Ok(());
    }
    loop {
        let name = read_name(scanner).map_err(DecodeError::Json)?;
        match &*name {
            "extFields" => command.ext_fields = read_fields(scanner, text_bytes)?,
            _ => read_member(scanner, &name, command).map_err(DecodeError::Json)?,
        }
        if !scanner
            .comma_or(b'}', "a comma or }")
            .map_err(DecodeError::Json)?
        {
            return Ok(());
        }
    }
}

fn read_name<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, str>, JsonError> {
    let name = scanner.string()?;
    scanner.expect(b':', "a colon")?;
    Ok(name)
}

fn read_member(
    scanner: &mut Scanner<'_>,
    name: &str,
    command: &mut RemotingCommand,
) -> Result<(), JsonError> {
    match name {
        "code" => command.code = read_i32(scanner)?,
        "flag" => command.flag = read_i32(scanner)?,
        "opaque" => command.opaque = read_i32(scanner)?,
        "version" => command.version = read_i32(scanner)?,
        "language" => command.language = read_language(scanner)?,
        "remark" => command.remark = read_text(scanner)?.map(Cow::into_owned),
        _ => {
            scanner.raw_value()?;
        }
    }
    Ok(())
}

fn read_fields(
    scanner: &mut Scanner<'_>,
    text_bytes: usize,
) -> Result<Option<ExtFields>, DecodeError> {
    if scanner.eat_word("null") {
        return Ok(None);
    }
    scanner
        .expect(b'{', "header fields")
        .map_err(DecodeError::Json)?;
    // Names and values together are shorter than the header they stand in.
    let mut fields = ExtFields::with_capacity(16, text_bytes);
    if scanner.eat(b'}') {
        return Ok(Some(ExtFields::default()));
    }
    loop {
        let name = read_name(scanner).map_err(DecodeError::Json)?;
        let value = read_text(scanner).map_err(DecodeError::Json)?;
        fields.set(name, value);
        if fields.len() > EXT_FIELDS_MAX {
            return Err(DecodeError::TooManyFields);
        }
        if !scanner
            .comma_or(b'}', "a comma or }")
            .map_err(DecodeError::Json)?
        {
            return Ok(Some(fields));
        }
    }
}

/// Text as it is; anything else as its JSON; null as none.
fn read_text<'a>(scanner: &mut Scanner<'a>) -> Result<Option<Cow<'a, str>>, JsonError> {
    if let Some(b'"' | b'\'') = scanner.peek() {
        return scanner.string().map(Some);
    }
    match scanner.raw_value()? {
        "null" => Ok(None),
        raw => Ok(Some(Cow::Borrowed(raw))),
    }
}

fn read_i32(scanner: &mut Scanner<'_>) -> Result<i32, JsonError> {
    let error = scanner.error("a 32-bit number");
    let Some(text) = read_text(scanner)? else {
        return Ok(0);
    };
    match &*text {
        "true" => Ok(1),
        "false" => Ok(0),
        text => integer(text)
            .and_then(|value| i32::try_from(value).ok())
            .ok_or(error),
    }
}

/// By name in any case, or by number. Java reads any other as null.
fn read_language(scanner: &mut Scanner<'_>) -> Result<Language, JsonError> {
    let Some(text) = read_text(scanner)? else {
        return Ok(Language::UNKNOWN);
    };
    Ok(Language::from_name(&text)
        .or_else(|| text.parse().ok().map(Language))
        .unwrap_or(Language::UNKNOWN))
}

pub(crate) fn encode(command: &RemotingCommand, out: &mut BytesMut) {
    let fields_bytes = command
        .ext_fields
        .as_ref()
        .map_or(0, ExtFields::json_bytes_estimate);
    let remark_bytes = command.remark.as_ref().map_or(0, String::len);
    out.reserve(BYTES_AROUND_FIELDS + fields_bytes + remark_bytes + command.body.len());
    out.put_slice(b"{\"code\":");
    write_i32(out, command.code);
    if let Some(fields) = &command.ext_fields {
        out.put_slice(b",\"extFields\":");
        write_fields(out, fields);
    }
    out.put_slice(b",\"flag\":");
    write_i32(out, command.flag);
    out.put_slice(b",\"language\":");
    match command.language.name() {
        Some(name) => write_string(out, name),
        // Missing would mean Java.
        None => out.put_slice(b"null"),
    }
    out.put_slice(b",\"opaque\":");
    write_i32(out, command.opaque);
    if let Some(remark) = &command.remark {
        out.put_slice(b",\"remark\":");
        write_string(out, remark);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    write_i32(out, command.version);
    out.put_u8(b'}');
}

fn write_fields(out: &mut BytesMut, fields: &ExtFields) {
    out.put_u8(b'{');
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        write_string(out, name);
        out.put_u8(b':');
        match value {
            Some(value) => write_string(out, value),
            None => out.put_slice(b"null"),
        }
    }
    out.put_u8(b'}');
}

fn write_i32(out: &mut BytesMut, value: i32) {
    // A buffer that grows takes everything.
    let _ = write!(out, "{value}");
}

/// Control characters, quotes and backslashes are escaped, all else is UTF-8.
fn write_string(out: &mut BytesMut, text: &str) {
    out.put_u8(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            0x00..0x20 => 0,
            _ => continue,
        };
        out.put_slice(&bytes[plain..at]);
        if short == 0 {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.put_slice(&[b'\\', short]);
        }
        plain = at + 1;
    }
    out.put_slice(&bytes[plain..]);
    out.put_u8(b'"');
}
