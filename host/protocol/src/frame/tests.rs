//! Every recorded frame both ways, Java's odd headers, and frames nobody sent.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::code::{request_code, response_code};
use crate::command::Language;
use crate::ext_fields::ExtFields;
use crate::golden::{self, hex, number, text};

/// Cuts a frame from the front and decodes it, the way a connection does.
fn decode(frame: &[u8]) -> Result<RemotingCommand, DecodeError> {
    let field = frame.first_chunk().expect("a length field");
    let length = announced_length(*field, FRAME_BYTES_MAX_DEFAULT).expect("a length");
    RemotingCommand::decode(Bytes::copy_from_slice(&frame[4..4 + length]))
}

fn encode(command: &RemotingCommand) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode(&mut out).expect("a command that fits");
    out.to_vec()
}

fn fields(command: &RemotingCommand) -> Option<BTreeMap<String, Option<String>>> {
    let fields = command.ext_fields.as_ref()?;
    Some(
        fields
            .iter()
            .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
            .collect(),
    )
}

fn recorded_fields(recorded: &Value) -> Option<BTreeMap<String, Option<String>>> {
    let fields = recorded.as_object()?;
    Some(
        fields
            .iter()
            .map(|(name, value)| {
                // The binary form cannot tell an empty name from none.
                let name = if name == "(null)" { "" } else { name };
                (name.to_owned(), value.as_str().map(str::to_owned))
            })
            .collect(),
    )
}

#[test]
fn every_recorded_frame_decodes_to_what_java_decoded() {
    for frame in golden::frames() {
        let (place, recorded) = (&frame.place, &frame.recorded);
        let command = decode(&frame.bytes).unwrap_or_else(|error| panic!("{place}: {error:?}"));
        assert_eq!(command.code, number(&recorded["code"]), "{place}");
        assert_eq!(command.opaque, number(&recorded["opaque"]), "{place}");
        assert_eq!(command.flag, number(&recorded["flag"]), "{place}");
        assert_eq!(command.version, number(&recorded["version"]), "{place}");
        assert_eq!(
            command.language.name(),
            recorded["language"].as_str(),
            "{place}"
        );
        assert_eq!(
            command.remark.as_deref(),
            recorded["remark"].as_str(),
            "{place}"
        );
        assert_eq!(
            fields(&command),
            recorded_fields(&recorded["header"]),
            "{place}"
        );
        let body_bytes = i32::try_from(command.body.len());
        assert_eq!(body_bytes, Ok(number(&recorded["bodyLength"])), "{place}");
        let binary = command.serialize_type == SerializeType::Rocketmq;
        assert_eq!(binary, recorded["serialize"] == "ROCKETMQ", "{place}");
        assert_eq!(
            command.is_response(),
            recorded["type"] == "response",
            "{place}"
        );
        assert_eq!(command.is_oneway(), recorded["type"] == "oneway", "{place}");
        let names = if command.is_response() {
            response_code::name(command.code)
        } else {
            request_code::name(command.code)
        };
        let name = names.map_or(command.code.to_string(), str::to_lowercase);
        assert_eq!(name, text(&recorded["codeName"]), "{place}");
    }
}

#[test]
fn every_recorded_frame_is_encoded_again_to_the_same_bytes() {
    for frame in golden::frames() {
        let command = decode(&frame.bytes).expect("a recorded frame");
        let place = &frame.place;
        assert_eq!(encode(&command), frame.bytes, "{place}: {command:?}");
    }
}

#[test]
fn commands_that_java_encoded_decode_and_encode_again() {
    let mut tried = 0;
    for line in golden::table("command-codec") {
        if line["decoded"].is_null() {
            continue;
        }
        let frame = hex(text(&line["hex"]));
        let command = decode(&frame).expect("what Java encoded");
        assert_decoded(&command, &line["decoded"], &line);
        // Java's own encoding of an empty text is lost on decoding.
        let lossy = line["decoded"]["extFields"]["empty"].is_null()
            && line["decoded"]["extFields"]["num"] == "42";
        assert_eq!(encode(&command) == frame, !lossy, "{line}");
        tried += 1;
    }
    assert_eq!(tried, 16);
}

#[test]
fn odd_headers_read_as_java_reads_them() {
    let mut tried = 0;
    for line in golden::table("command-codec") {
        if !line["decoded"].is_null() {
            continue;
        }
        let frame = hex(text(&line["hex"]));
        tried += 1;
        match decode(&frame) {
            Ok(command) => assert_decoded(&command, &line["result"], &line),
            Err(error) => assert!(line["error"].is_string(), "{line}: {error:?}"),
        }
    }
    assert_eq!(tried, 48);
}

fn assert_decoded(command: &RemotingCommand, java: &Value, line: &Value) {
    assert!(java.is_object(), "Java refused {line}");
    assert_eq!(command.code, number(&java["code"]), "{line}");
    assert_eq!(command.version, number(&java["version"]), "{line}");
    assert_eq!(command.flag, number(&java["flag"]), "{line}");
    assert_eq!(command.is_response(), java["response"] == true, "{line}");
    assert_eq!(command.is_oneway(), java["oneway"] == true, "{line}");
    assert_eq!(command.remark.as_deref(), java["remark"].as_str(), "{line}");
    assert_eq!(command.language.name(), java["language"].as_str(), "{line}");
    assert_eq!(
        fields(command),
        recorded_fields(&java["extFields"]),
        "{line}"
    );
    let header = line["header"].as_str().unwrap_or("opaque");
    if header.contains("\"opaque\"") || header.contains("'opaque'") || header == "opaque" {
        assert_eq!(command.opaque, number(&java["opaque"]), "{line}");
    } else {
        // Java counts on; we say 0.
        assert_eq!(command.opaque, 0, "{line}");
    }
    let body = java["body"].as_str().map(hex).unwrap_or_default();
    // Java takes surplus bytes of a header for the body.
    let surplus = *command.body == [0x09] && body == [0x58];
    assert!(command.body == body || surplus, "{line}");
}

#[test]
fn codes_and_languages_are_java_s() {
    for line in golden::table("codes") {
        let (name, value) = (text(&line["name"]), number(&line["value"]));
        let ours = match text(&line["kind"]) {
            "RequestCode" => request_code::name(value),
            "ResponseCode" | "RemotingSysResponseCode" => response_code::name(value),
            "LanguageCode" => u8::try_from(value)
                .ok()
                .and_then(|code| Language(code).name()),
            kind => panic!("a kind of code nobody knows: {kind}"),
        };
        assert_eq!(ours, Some(name));
    }
    assert_eq!(request_code::ALL.len(), 164);
    assert_eq!(response_code::ALL.len(), 68);
    assert_eq!(request_code::name(9999), None);
}

#[test]
fn our_version_is_the_release_it_says() {
    let versions = golden::table("versions");
    let ours = versions
        .iter()
        .find(|line| line["ordinal"] == crate::command::VERSION)
        .map(|line| text(&line["name"]));
    assert_eq!(ours, Some("V5_3_3"));
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    let length = |field: u32| announced_length(field.to_be_bytes(), FRAME_BYTES_MAX_DEFAULT);
    assert_eq!(length(4), Ok(4));
    assert_eq!(length(16_777_216), Ok(16_777_216));
    assert!(matches!(
        length(16_777_217),
        Err(FrameError::TooLong { .. })
    ));
    assert!(matches!(
        length(0x1603_0100),
        Err(FrameError::TooLong { .. })
    ));
    assert!(matches!(length(u32::MAX), Err(FrameError::TooLong { .. })));
    assert!(matches!(
        length(3),
        Err(FrameError::TooShort { announced: 3 })
    ));
    let everything = announced_length(u32::MAX.to_be_bytes(), usize::MAX);
    assert!(matches!(everything, Err(FrameError::TooLong { .. })));
}

#[test]
fn a_body_is_a_part_of_its_frame() {
    let command = RemotingCommand::request(11, ExtFields::default()).with_body("body");
    let frame = Bytes::from(encode(&command)).slice(4..);
    let decoded = RemotingCommand::decode(frame.clone()).expect("our own frame");
    assert_eq!(decoded, command);
    assert_eq!(decoded.body.as_ptr(), frame[frame.len() - 4..].as_ptr());
}

#[test]
fn hostile_headers_are_errors() {
    let decode = |parts: &[&[u8]]| {
        let header = parts.concat();
        let word = u32::try_from(header.len()).expect("a short header");
        let frame = [&word.to_be_bytes()[..], &header].concat();
        RemotingCommand::decode(frame.into())
    };
    let nested = "[".repeat(100_000);
    assert!(matches!(
        decode(&[b"{\"x\":", nested.as_bytes()]),
        Err(DecodeError::Json(JsonError::TooDeep))
    ));
    let fields: String = (0..=EXT_FIELDS_MAX)
        .map(|n| format!("\"{n}\":\"\","))
        .collect();
    assert_eq!(
        decode(&[b"{\"extFields\":{", fields.as_bytes(), b"}}"]),
        Err(DecodeError::TooManyFields)
    );
    let repeated = "\"same\":\"\",".repeat(100_000);
    let command = decode(&[b"{\"extFields\":{", repeated.as_bytes(), b"}}"]);
    assert_eq!(
        command.map(|command| command.ext_fields.map(|fields| fields.len())),
        Ok(Some(1))
    );
    for broken in [
        "{\"code\":1,\"remark\":\"\\",
        "{\"remark\":\"\\u12",
        "{\"remark\":\"\\u12\u{e4}4\"}",
    ] {
        assert!(decode(&[broken.as_bytes()]).is_err(), "{broken}");
    }
}

#[test]
fn half_a_surrogate_pair_is_replaced() {
    for (escaped, plain) in [
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d", "\u{fffd}"),
        (r"\ude00", "\u{fffd}"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ud83d\u0041", "\u{fffd}A"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
    ] {
        let header = format!("{{\"remark\":\"{escaped}\"}}");
        let command = serialize::json::decode(header.as_bytes()).expect("JSON");
        assert_eq!(command.remark.as_deref(), Some(plain), "{escaped}");
    }
}

#[test]
fn what_does_not_fit_the_binary_header_is_not_sent() {
    let mut command = RemotingCommand::request(request_code::POP_MESSAGE, ExtFields::default());
    command.serialize_type = SerializeType::Rocketmq;
    let mut out = BytesMut::from("before");
    assert!(matches!(
        command.encode(&mut out),
        Err(EncodeError::NotInBinary {
            field: "code",
            value: 200_050
        })
    ));
    assert_eq!(out, "before");
    command.code = 11;
    let name = "n".repeat(40_000);
    command.ext_fields = Some([(name, "v")].into_iter().collect());
    assert!(matches!(
        command.encode(&mut out),
        Err(EncodeError::NameTooLong { bytes: 40_000 })
    ));
    assert_eq!(out, "before");
    command.ext_fields = Some([("n", "v".repeat(1 << 24))].into_iter().collect());
    assert!(matches!(
        command.encode(&mut out),
        Err(EncodeError::HeaderTooLong { .. })
    ));
    assert_eq!(out, "before");
}

fn any_command() -> impl Strategy<Value = RemotingCommand> {
    let field = ("[a-zA-Z_]{1,12}", ".{1,12}");
    let fields = proptest::option::of(proptest::collection::vec(field, 1..6));
    let numbers = (
        any::<i16>(),
        any::<i16>(),
        any::<i32>(),
        any::<i32>(),
        0..14_u8,
    );
    let remark = proptest::option::of(".{1,12}");
    let body = proptest::collection::vec(any::<u8>(), 0..20);
    (numbers, remark, fields, body, any::<bool>()).prop_map(
        |((code, version, opaque, flag, language), remark, fields, body, binary)| RemotingCommand {
            code: code.into(),
            language: Language(language),
            version: version.into(),
            opaque,
            flag,
            remark,
            ext_fields: fields.map(|fields| fields.into_iter().collect()),
            body: body.into(),
            serialize_type: if binary {
                SerializeType::Rocketmq
            } else {
                SerializeType::Json
            },
        },
    )
}

proptest! {
    #[test]
    fn a_command_survives_encoding_and_decoding(command in any_command()) {
        prop_assert_eq!(decode(&encode(&command)), Ok(command));
    }

    #[test]
    fn arbitrary_bytes_are_a_command_or_an_error(
        binary in any::<bool>(),
        header in proptest::collection::vec(any::<u8>(), 0..64),
        length in 0..80_u8,
    ) {
        let frame = [&[u8::from(binary), 0, 0, length][..], &header].concat();
        let _ = RemotingCommand::decode(frame.into());
    }

    #[test]
    fn text_like_json_is_a_command_or_an_error(header in r#"[{}\[\]"',:a-eu\\0-9+.\- ]{0,64}"#) {
        let _ = serialize::json::decode(header.as_bytes());
    }
}
