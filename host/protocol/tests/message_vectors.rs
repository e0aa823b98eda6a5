//! Stored messages and their ids against what RocketMQ 5.5.0 wrote and read.
//!
//! Where we differ on purpose, the case is named with the reason.

#![expect(
    clippy::unwrap_used,
    reason = "a vector that does not parse is a failure"
)]

mod vectors;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use protocol::message::codec::{self, BatchMessage, MessageVersion};
use protocol::message::message_id::{UniqueIdParts, offset_message_id, parse_offset_message_id};
use protocol::message::{
    DecodeLimits, Message, MessageBatch, MessageFault, QueueOffset, StoredMessage, UnreadableReason,
};
use protocol::sys_flag::MessageSysFlag;
use serde_json::Value;
use sha2::{Digest, Sha256};
use vectors::{table, testdata, unhex};

fn decode(bytes: &[u8]) -> MessageBatch {
    MessageBatch::decode(Bytes::copy_from_slice(bytes), &DecodeLimits::default())
}

/// Java writes IPv6 without brackets and without `::`.
fn host(value: &Value) -> SocketAddr {
    let (ip, port) = value.as_str().unwrap().rsplit_once(':').unwrap();
    SocketAddr::new(ip.parse().unwrap(), port.parse().unwrap())
}

fn assert_body(body: &[u8], expected: &Value, case: &str) {
    if expected.is_null() {
        assert!(body.is_empty(), "{case}: Java's null is an empty body");
        return;
    }
    assert_eq!(
        body.len() as u64,
        expected["length"].as_u64().unwrap(),
        "{case}"
    );
    let hash: String = Sha256::digest(body)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(hash, expected["sha256"], "{case}");
}

fn assert_message(message: Message<'_>, expected: &Value, case: &str) {
    let int = |member: &str| expected[member].as_i64().unwrap();
    assert_eq!(message.fault(), None, "{case}");
    assert_eq!(i64::from(message.body_crc()), int("bodyCRC"), "{case}");
    assert_eq!(i64::from(message.queue_id()), int("queueId"), "{case}");
    assert_eq!(i64::from(message.flag()), int("flag"), "{case}");
    assert_eq!(
        message.queue_offset().to_wire(),
        int("queueOffset"),
        "{case}"
    );
    assert_eq!(
        message.commit_log_offset() as i64,
        int("commitLogOffset"),
        "{case}"
    );
    assert_eq!(i64::from(message.sys_flag()), int("sysFlag"), "{case}");
    assert_eq!(
        message.born_timestamp_ms() as i64,
        int("bornTimestamp"),
        "{case}"
    );
    assert_eq!(message.born_host(), host(&expected["bornHost"]), "{case}");
    assert_eq!(
        message.store_timestamp_ms() as i64,
        int("storeTimestamp"),
        "{case}"
    );
    assert_eq!(message.store_host(), host(&expected["storeHost"]), "{case}");
    assert_eq!(
        i64::from(message.reconsume_times()),
        int("reconsumeTimes"),
        "{case}"
    );
    let prepared = message.prepared_transaction_offset();
    assert_eq!(prepared, int("preparedTransactionOffset"), "{case}");
    assert_body(message.body(), &expected["body"], case);
    if expected["storedBody"].is_object() {
        assert_body(&message.stored_body(), &expected["storedBody"], case);
    }
    assert_eq!(message.topic(), expected["topic"], "{case}");
    assert_eq!(message.tags(), expected["tags"].as_str(), "{case}");
    assert_eq!(message.keys(), expected["keys"].as_str(), "{case}");
    if let Some(id) = expected["msgId"].as_str() {
        assert_eq!(message.message_id(), id, "{case}");
    }
    // Java gives the messages of an inner batch none; ours is that of the batch.
    if let Some(id) = expected["offsetMsgId"].as_str() {
        assert_eq!(message.offset_message_id(), id, "{case}");
    }
    let properties: BTreeMap<String, String> =
        serde_json::from_value(expected["properties"].clone()).unwrap();
    let read: BTreeMap<String, String> = message
        .properties()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(read, properties, "{case}");
}

#[test]
fn every_recorded_message_is_read_and_written_again() {
    let mut names: Vec<String> = fs::read_dir(testdata().join("messages"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".hex").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert_eq!(names.len(), 40);
    for name in names {
        let path = testdata().join("messages").join(&name);
        let bytes = unhex(&fs::read_to_string(path.with_extension("hex")).unwrap());
        let json = fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: Value = serde_json::from_str(&json).unwrap();
        let expected = &expected[0];

        let batch = decode(&bytes);
        assert_eq!(batch.unreadable(), None, "{name}");
        match expected["children"].as_array() {
            None => {
                assert_eq!(batch.len(), 1, "{name}");
                let message = batch.message(0);
                assert_message(message, expected, &name);
                assert_eq!(
                    u64::from(message.store_size()),
                    expected["storeSize"].as_u64().unwrap()
                );
                let stored_flag = i64::from(message.stored_sys_flag());
                assert_eq!(
                    stored_flag,
                    expected["storedSysFlag"].as_i64().unwrap(),
                    "{name}"
                );
                assert!(!message.is_from_inner_batch());
            }
            Some(children) => {
                assert_eq!(batch.len(), children.len(), "{name}");
                for (message, child) in batch.iter().zip(children) {
                    assert_message(message, child, &name);
                    assert!(message.is_from_inner_batch());
                }
            }
        }

        let mut rest = Bytes::from(bytes.clone());
        let stored = StoredMessage::decode(&mut rest).unwrap();
        assert!(rest.is_empty(), "{name}");
        let mut again = Vec::new();
        stored.encode(&mut again).unwrap();
        assert_eq!(again, bytes, "{name}");
        assert_eq!(stored.encoded_len(), bytes.len(), "{name}");
        assert_eq!(codec::body_crc(&stored.body), stored.body_crc, "{name}");
        let live = name.starts_with("live");
        assert!(
            !live || stored.version == MessageVersion::for_topic(&stored.topic),
            "{name}"
        );
    }
}

/// What we make of a stream that Java reads otherwise.
enum Ours {
    /// The same messages, their size being what they really take: Java repeats the announced one.
    SizeCorrected,
    /// Java drops the rest, or takes what is broken: every message, with its fault.
    Messages(&'static [Option<MessageFault>]),
}

#[test]
fn streams_are_read_as_java_reads_them_or_better() {
    use MessageFault::*;
    let differences: &[(&str, Ours)] = &[
        ("unknown magic, then a good one", Ours::Messages(&[None])),
        ("totalSize 0", Ours::SizeCorrected),
        ("totalSize too large", Ours::SizeCorrected),
        ("totalSize too small, then a good one", Ours::SizeCorrected),
        ("wrong body CRC", Ours::Messages(&[Some(CrcMismatch)])),
        (
            "body length beyond the end",
            Ours::Messages(&[Some(Layout)]),
        ),
        ("negative body length", Ours::Messages(&[Some(Layout)])),
        (
            "compressed flag on plain body, then a good one",
            Ours::Messages(&[Some(Decompression), None]),
        ),
        (
            "invalid compression type, then a good one",
            Ours::Messages(&[Some(UnknownCompression), None]),
        ),
        (
            "inner batch flags on plain body",
            Ours::Messages(&[Some(InnerBatch)]),
        ),
        // Java unwraps one step later.
        ("inner batch of two", Ours::Messages(&[None, None])),
        ("inner batch of two, zlib", Ours::Messages(&[None, None])),
    ];
    let unreadable: &[(&str, u32, UnreadableReason)] = &[
        ("last byte missing", 169, UnreadableReason::Cut),
        ("second message truncated", 50, UnreadableReason::Cut),
        ("three zero bytes after a message", 3, UnreadableReason::Cut),
        (
            "hundred zero bytes after a message",
            100,
            UnreadableReason::Magic(0),
        ),
        ("unknown magic", 170, UnreadableReason::Magic(0x1234_5678)),
        (
            "blank magic",
            170,
            UnreadableReason::Magic(0xCBD4_3194_u32 as i32),
        ),
        (
            "unknown magic, then a good one",
            170,
            UnreadableReason::Magic(0x1234_5678),
        ),
    ];
    let mut met = (0, 0);
    for row in table("message-streams", 21) {
        let case = row["case"].as_str().unwrap();
        let bytes = unhex(row["hex"].as_str().unwrap());
        let batch = decode(&bytes);
        let expected = row["result"].as_array().unwrap();

        match differences.iter().find(|(name, _)| *name == case) {
            Some((_, Ours::Messages(faults))) => {
                let read: Vec<_> = batch.iter().map(|message| message.fault()).collect();
                assert_eq!(read, *faults, "{case}");
                for message in batch.iter() {
                    assert!((57..=58).contains(&message.queue_offset().0), "{case}");
                    assert_eq!(message.message_id().len(), 32, "{case}");
                }
                met.0 += 1;
            }
            difference => {
                assert_eq!(batch.len(), expected.len(), "{case}");
                for (message, expected) in batch.iter().zip(expected) {
                    assert_message(message, expected, case);
                    if difference.is_none() {
                        let size = u64::from(message.store_size());
                        assert_eq!(size, expected["storeSize"].as_u64().unwrap(), "{case}");
                    }
                }
                met.0 += usize::from(difference.is_some());
            }
        }
        match unreadable.iter().find(|(name, ..)| *name == case) {
            Some((_, missing, reason)) => {
                let found = batch.unreadable().unwrap_or_else(|| panic!("{case}"));
                assert_eq!((found.bytes, found.reason), (*missing, *reason), "{case}");
                met.1 += 1;
            }
            None => assert_eq!(batch.unreadable(), None, "{case}"),
        }
    }
    assert_eq!(met, (differences.len(), unreadable.len()));
}

#[test]
fn messages_of_an_inner_batch_count_their_own_offsets() {
    for case in ["inner batch of two", "inner batch of two, zlib"] {
        let row = table("message-streams", 21)
            .into_iter()
            .find(|row| row["case"] == case)
            .unwrap();
        let bytes = unhex(row["hex"].as_str().unwrap());
        let batch = decode(&bytes);
        let offsets: Vec<_> = batch.iter().map(|m| m.queue_offset()).collect();
        assert_eq!(offsets, [QueueOffset(57), QueueOffset(58)], "{case}");
        for message in batch.iter() {
            assert_eq!(message.topic(), "TopicTest", "{case}");
            assert_eq!(message.reconsume_times(), 0, "{case}");
            assert_eq!(message.stored_body(), message.body(), "{case}");
        }
    }
}

#[test]
fn a_retried_message_with_ipv6_hosts_opens() {
    let bytes = unhex(
        "000000dfdaa320a71203c39300000000 00000000000000000000000300000000
         00004e20000003310000018bcfe56800 20010db8000000000000000000000005
         0000c7380000018bcfe58f8b20010db8 00000000000000000000000900002a9f
         00000001000000000000000000000011 785ecb48cdc9c957c8c0470200eb550d
         19082552455452592567005352455452 595f544f50494301546f706963546573
         74024f524947494e5f4d455353414745 5f494401433041383031303930303030
         32413946303030303030303030303030 33303339025441475301546167410 2",
    );
    let batch = decode(&bytes);
    let message = batch.message(0);
    assert_eq!(message.fault(), None);
    assert_eq!(message.body(), b"hello hello hello hello hello hello");
    assert_eq!(message.stored_body().len(), 17);
    assert_eq!(message.topic(), "%RETRY%g");
    assert_eq!(message.retry_topic(), Some("TopicTest"));
    assert_eq!(message.tags(), Some("TagA"));
    assert_eq!(message.reconsume_times(), 1);
    assert_eq!(message.sys_flag(), 0x330);
    assert_eq!(
        message.message_id(),
        "20010DB800000000000000000000000900002A9F0000000000004E20"
    );
}

#[test]
fn a_producer_batch_is_written_and_read() {
    let bytes = unhex(
        "0000001f0000000000000000 00000000 00000002 6d31 0007 54414753014102
         000000190000000000000000 00000007 00000003 6d3278 0000",
    );
    let messages = [
        BatchMessage {
            flag: 0,
            body: Bytes::from_static(b"m1"),
            properties: Bytes::from_static(b"TAGS\x01A\x02"),
        },
        BatchMessage {
            flag: 7,
            body: Bytes::from_static(b"m2x"),
            properties: Bytes::new(),
        },
    ];
    assert_eq!(codec::encode_batch(&messages).unwrap(), bytes);
    assert_eq!(
        codec::decode_batch(Bytes::from(bytes.clone())).unwrap(),
        messages
    );
    for end in (1..31).chain(32..56) {
        let cut = Bytes::copy_from_slice(&bytes[..end]);
        codec::decode_batch(cut).expect_err("cut");
    }
}

#[test]
fn offset_ids_are_written_as_java_writes_them() {
    for row in table("message-id-encode", 54) {
        let ip: IpAddr = row["ip"].as_str().unwrap().parse().unwrap();
        let host = SocketAddr::new(ip, row["port"].as_u64().unwrap() as u16);
        let offset = row["offset"].as_u64().unwrap();
        let id = offset_message_id(host, offset);
        assert_eq!(id, row["result"].as_str().unwrap(), "{row}");
        let host = SocketAddr::new(ip.to_canonical(), host.port());
        assert_eq!(parse_offset_message_id(&id), Ok((host, offset)), "{row}");
    }
}

#[test]
fn offset_ids_are_read_as_java_reads_them() {
    let java_accepts = [
        // An offset below zero.
        "7F00000100002A9FFFFFFFFFFFFFFFFF",
        // `G` is no hex digit.
        "G0A8010900002A9F0000000000003039",
    ];
    let mut refused = 0;
    for row in table("message-id-decode", 12) {
        let id = row["id"].as_str().unwrap();
        let parsed = parse_offset_message_id(id);
        if java_accepts.contains(&id) {
            assert!(row.get("result").is_some());
            parsed.expect_err(id);
            refused += 1;
            continue;
        }
        match row.get("result") {
            None => assert!(parsed.is_err(), "{row}"),
            Some(expected) => {
                let (address, offset) = parsed.unwrap();
                assert_eq!(address, host(&expected["address"]), "{row}");
                assert_eq!(offset, expected["offset"].as_u64().unwrap(), "{row}");
            }
        }
    }
    assert_eq!(refused, java_accepts.len());
}

#[test]
fn unique_ids_say_who_made_them() {
    for row in table("unique-id", 3) {
        let id = row["id"].as_str().unwrap();
        let parts = UniqueIdParts::parse(id).unwrap();
        let ip: IpAddr = row["result"]["ip"].as_str().unwrap().parse().unwrap();
        assert_eq!(parts.ip, ip, "{row}");
        assert_eq!(
            u64::from(parts.pid),
            row["result"]["pid"].as_u64().unwrap(),
            "{row}"
        );
        assert_eq!(parts.to_id(), id);
    }
}

#[test]
fn flags_of_hosts_follow_the_hosts() {
    let bytes = unhex(&fs::read_to_string(testdata().join("messages/live-plain.hex")).unwrap());
    let mut stored = StoredMessage::decode(&mut Bytes::from(bytes)).unwrap();
    stored.store_host = "[2001:db8::9]:10911".parse().unwrap();
    let mut again = Vec::new();
    stored.encode(&mut again).unwrap();
    let batch = decode(&again);
    assert_eq!(batch.message(0).store_host(), stored.store_host);
    assert_eq!(batch.message(0).sys_flag(), MessageSysFlag::STORE_HOST_V6.0);
}
