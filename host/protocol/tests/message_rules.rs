//! What decoding messages promises for every input: no panic, no endless loop, and one bad
//! record is one bad message.

#![expect(clippy::unwrap_used, reason = "messages made here fit")]

use std::net::SocketAddr;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::message::codec::{self, BatchMessage, MessageVersion};
use protocol::message::compression::{Compression, compress_zlib};
use protocol::message::properties::{self, Properties};
use protocol::message::{
    DecodeLimits, MessageBatch, MessageFault, QueueOffset, StoredMessage, UnreadableReason,
};
use protocol::sys_flag::MessageSysFlag;

fn message(queue_offset: i64, body: &[u8]) -> StoredMessage {
    StoredMessage {
        version: MessageVersion::V1,
        body_crc: codec::body_crc(body),
        queue_id: 3,
        flag: 7,
        queue_offset,
        commit_log_offset: queue_offset * 1000,
        sys_flag: MessageSysFlag::EMPTY,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: "10.0.0.5:51000".parse().unwrap(),
        store_timestamp_ms: 1_700_000_000_123,
        store_host: "192.168.1.9:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::copy_from_slice(body),
        topic: "TopicTest".to_owned(),
        properties: properties::encode([("KEYS", "k"), ("TAGS", "TagA")]).into(),
    }
}

fn compressed(queue_offset: i64, body: &[u8]) -> StoredMessage {
    let packed = compress_zlib(body);
    StoredMessage {
        sys_flag: MessageSysFlag::EMPTY.with_compression(Compression::Zlib),
        ..message(queue_offset, &packed)
    }
}

fn inner_batch(queue_offset: i64, children: &[BatchMessage]) -> StoredMessage {
    StoredMessage {
        sys_flag: MessageSysFlag::INNER_BATCH.with(MessageSysFlag::NEED_UNWRAP),
        ..message(queue_offset, &codec::encode_batch(children).unwrap())
    }
}

fn child(body: &'static [u8]) -> BatchMessage {
    BatchMessage {
        flag: 9,
        body: Bytes::from_static(body),
        properties: Bytes::from_static(b"TAGS\x01Child\x02"),
    }
}

fn encode(messages: &[StoredMessage]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        message.encode(&mut bytes).unwrap();
    }
    bytes
}

fn decode(bytes: &[u8]) -> MessageBatch {
    decode_within(bytes, &DecodeLimits::default())
}

fn decode_within(bytes: &[u8], limits: &DecodeLimits) -> MessageBatch {
    MessageBatch::decode(Bytes::copy_from_slice(bytes), limits)
}

fn offsets(batch: &MessageBatch) -> Vec<u64> {
    batch
        .iter()
        .map(|message| message.queue_offset().0)
        .collect()
}

/// Asks everything a message can be asked.
fn touch(batch: &MessageBatch) {
    let mut text = String::new();
    for message in batch.iter() {
        text.push_str(&format!("{message:?} {}", message.message_id()));
        assert!(message.stored_body().len() <= batch.bytes());
        assert!(message.body().len() <= batch.bytes());
        let _ = (
            message.born_host(),
            message.store_timestamp_ms(),
            message.flag(),
        );
        let _ = (
            message.queue_id(),
            message.prepared_transaction_offset(),
            message.body_crc(),
        );
        assert_eq!(message.tags(), message.property("TAGS"));
        assert!(message.properties().count() <= message.raw_properties().len());
    }
    for (index, message) in (0..).zip(batch.iter()) {
        if let Some(stored) = batch.stored_bytes(index..index + 1) {
            assert!(lies_in(stored, message.body()) && lies_in(stored, message.raw_properties()));
        }
    }
    let missing: u64 = batch
        .unreadable_all()
        .iter()
        .map(|u| u64::from(u.bytes))
        .sum();
    assert!(missing <= batch.bytes() as u64);
}

fn lies_in(whole: &[u8], part: &[u8]) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    part.is_empty() || (whole.start <= part.start && part.end <= whole.end)
}

/// A read message that is known to have `len` bytes and where its parts lie.
fn walk(message: &StoredMessage) -> (usize, usize, usize) {
    let body_length_at = 84;
    let topic_length_at = 88 + message.body.len();
    let properties_length_at = topic_length_at + 1 + message.topic.len();
    (body_length_at, topic_length_at, properties_length_at)
}

#[test]
fn neighbours_are_one_piece_of_the_answer_unless_something_lies_elsewhere() {
    let [first, second] = [message(10, b"first"), message(11, b"second")];
    let bytes = encode(&[first.clone(), second.clone()]);
    let batch = decode(&bytes);
    assert_eq!(batch.stored_bytes(0..2), Some(&bytes[..]));
    assert_eq!(
        batch.stored_bytes(1..2),
        Some(&bytes[first.encoded_len()..])
    );
    for nothing in [0..0, 2..2, 1..3, 7..9] {
        assert_eq!(batch.stored_bytes(nothing), None);
    }

    let opened = decode(&encode(&[first.clone(), compressed(11, b"packed")]));
    assert!(opened.stored_bytes(0..1).is_some());
    assert_eq!(opened.stored_bytes(0..2), None, "opened elsewhere");

    let unwrapped = decode(&encode(&[inner_batch(10, &[child(b"a"), child(b"b")])]));
    assert_eq!(unwrapped.stored_bytes(0..1), None, "a part of a message");

    let mut apart = encode(&[first.clone(), message(11, b"no message"), second]);
    apart[first.encoded_len() + 4..][..4].fill(0);
    let apart = decode(&apart);
    assert_eq!(apart.len(), 2, "one has no magic number");
    assert_eq!(apart.stored_bytes(0..2), None, "something lies between");
}

#[test]
fn every_kind_of_damage_spoils_one_message() {
    let three = [
        message(10, b"first"),
        message(11, b"second"),
        message(12, b"third"),
    ];
    let good = encode(&three);
    let start = three[0].encoded_len();
    let (body_length_at, topic_length_at, properties_length_at) = walk(&three[1]);
    let damages: [(usize, &[u8], MessageFault); 8] = [
        (88, b"X", MessageFault::CrcMismatch),
        (8, &[1, 2, 3, 4], MessageFault::CrcMismatch),
        (body_length_at, &[0x7F; 4], MessageFault::Layout),
        (body_length_at, &[0xFF; 4], MessageFault::Layout),
        (topic_length_at, &[0x7F], MessageFault::Topic),
        (topic_length_at + 1, &[0xFF], MessageFault::Topic),
        (
            properties_length_at,
            &[0x7F, 0xFF],
            MessageFault::Properties,
        ),
        (properties_length_at + 2, &[0xC0], MessageFault::Properties),
    ];
    for (position, bytes, fault) in damages {
        let mut damaged = good.clone();
        damaged[start + position..start + position + bytes.len()].copy_from_slice(bytes);
        let batch = decode(&damaged);
        let case = format!("{bytes:?} at {position}");
        assert_eq!(offsets(&batch), [10, 11, 12], "{case}");
        assert_eq!(batch.message(0).fault(), None, "{case}");
        assert_eq!(batch.message(1).fault(), Some(fault), "{case}");
        assert_eq!(batch.message(1).commit_log_offset(), 11_000, "{case}");
        assert_eq!(batch.message(2).fault(), None, "{case}");
        assert_eq!(batch.message(2).body(), b"third", "{case}");
        assert_eq!(batch.unreadable(), None, "{case}");
        touch(&batch);
    }
}

#[test]
fn a_record_that_is_no_message_is_reported_between_its_neighbours() {
    let three = [
        message(10, b"first"),
        message(11, b"second"),
        message(12, b"third"),
    ];
    let size = three[0].encoded_len();
    let lost = three[1].encoded_len();
    for (position, bytes, reason) in [
        (4, [0_u8; 4], UnreadableReason::Magic(0)),
        (20, [0xFF; 4], UnreadableReason::Offset),
        (28, [0xFF; 4], UnreadableReason::Offset),
    ] {
        let mut damaged = encode(&three);
        damaged[size + position..size + position + 4].copy_from_slice(&bytes);
        let batch = decode(&damaged);
        assert_eq!(offsets(&batch), [10, 12]);
        let unreadable = batch.unreadable().unwrap();
        assert_eq!(unreadable.bytes as usize, lost);
        assert_eq!(unreadable.previous, Some(QueueOffset(10)));
        assert_eq!(unreadable.next, Some(QueueOffset(12)));
        assert_eq!(unreadable.reason, reason);
    }
}

#[test]
fn a_wrong_size_alone_loses_nothing() {
    let three = [
        message(10, b"first"),
        message(11, b"second"),
        message(12, b"third"),
    ];
    let size = three[0].encoded_len();
    for announced in [0, -1, 5, 91, 170, i32::MAX] {
        let mut damaged = encode(&three);
        damaged[size..size + 4].copy_from_slice(&i32::to_be_bytes(announced));
        let batch = decode(&damaged);
        assert_eq!(offsets(&batch), [10, 11, 12], "{announced}");
        assert!(
            batch.iter().all(|message| message.fault().is_none()),
            "{announced}"
        );
        assert_eq!(
            batch.message(1).store_size() as usize,
            three[1].encoded_len()
        );
    }
}

#[test]
fn lengths_that_reach_to_a_later_message_swallow_none() {
    let three = [
        message(10, b"first"),
        message(11, b"second"),
        message(12, b"third"),
    ];
    let size = three[0].encoded_len();
    let (body_length_at, ..) = walk(&three[0]);
    let mut damaged = encode(&three);
    // The body takes the second message with it, and the parts still end where one begins.
    let body_length = (5 + three[1].encoded_len()) as i32;
    damaged[body_length_at..body_length_at + 4].copy_from_slice(&body_length.to_be_bytes());
    let tail = damaged[88 + 5..size].to_vec();
    let to = 2 * size + 1;
    damaged[to - tail.len()..to].copy_from_slice(&tail);
    let batch = decode(&damaged);
    assert_eq!(offsets(&batch), [10, 11, 12]);
    assert_eq!(batch.message(0).fault(), Some(MessageFault::Layout));
    assert_eq!(batch.message(2).fault(), None);
}

#[test]
fn without_any_way_on_the_rest_is_reported() {
    let two = [message(10, b"first"), message(11, b"second")];
    let size = two[0].encoded_len();
    let mut damaged = encode(&two);
    damaged[size..size + 8].copy_from_slice(&[0xFF; 8]);
    let batch = decode(&damaged);
    assert_eq!(offsets(&batch), [10]);
    let unreadable = batch.unreadable().unwrap();
    assert_eq!(unreadable.bytes as usize, two[1].encoded_len());
    assert_eq!(
        (unreadable.previous, unreadable.next),
        (Some(QueueOffset(10)), None)
    );
}

#[test]
fn a_missing_crc_is_accepted_with_a_body_alone() {
    let mut unset = message(1, b"body");
    unset.body_crc = 0;
    let mut signed = message(2, b"123456789");
    signed.body_crc = 0xCBF4_3926_u32 as i32;
    let mut wrong = message(3, b"");
    wrong.body_crc = 5;
    let bytes = encode(&[unset, signed, wrong]);
    let faults = |batch: &MessageBatch| batch.iter().map(|m| m.fault()).collect::<Vec<_>>();
    assert_eq!(
        faults(&decode(&bytes)),
        [None, None, Some(MessageFault::CrcMismatch)]
    );
    let unchecked = DecodeLimits {
        check_crc: false,
        ..DecodeLimits::default()
    };
    assert_eq!(
        faults(&decode_within(&bytes, &unchecked)),
        [None, None, None]
    );
}

#[test]
fn a_body_that_unpacks_to_too_much_is_that_messages_fault() {
    let limits = DecodeLimits {
        body_bytes_max: 1000,
        ..DecodeLimits::default()
    };
    let bytes = encode(&[compressed(1, &[0; 1001]), compressed(2, &[0; 1000])]);
    let batch = decode_within(&bytes, &limits);
    assert_eq!(batch.message(0).fault(), Some(MessageFault::BodyTooLarge));
    assert_eq!(batch.message(0).body(), &batch.message(0).stored_body()[..]);
    assert_ne!(
        batch.message(0).sys_flag() & MessageSysFlag::COMPRESSED.0,
        0
    );
    assert_eq!(batch.message(1).fault(), None);
    assert_eq!(batch.message(1).body(), [0; 1000]);
}

#[test]
fn an_answer_stops_where_its_bodies_would_take_too_much() {
    let limits = DecodeLimits {
        decompressed_bytes_max: 2500,
        ..DecodeLimits::default()
    };
    let messages: Vec<_> = (0..6)
        .map(|offset| compressed(offset, &[0; 1000]))
        .collect();
    let batch = decode_within(&encode(&messages), &limits);
    assert_eq!(offsets(&batch), [0, 1, 2]);
    let unreadable = batch.unreadable().unwrap();
    assert_eq!(unreadable.reason, UnreadableReason::DecompressedTooMuch);
    assert_eq!(unreadable.previous, Some(QueueOffset(2)));
    // Alone, a body above the limit still comes: there is always a way forward.
    let alone = decode_within(&encode(&[compressed(3, &[0; 5000])]), &limits);
    assert_eq!(alone.message(0).body().len(), 5000);
}

#[test]
fn an_answer_stops_at_its_number_of_messages() {
    let limits = DecodeLimits {
        messages_max: 3,
        ..DecodeLimits::default()
    };
    let two = [child(b"a"), child(b"b")];
    let batch = decode_within(
        &encode(&[
            message(1, b"x"),
            message(2, b"y"),
            inner_batch(3, &two),
            message(5, b"z"),
        ]),
        &limits,
    );
    assert_eq!(offsets(&batch), [1, 2]);
    let unreadable = batch.unreadable().unwrap();
    assert_eq!(unreadable.reason, UnreadableReason::TooMany);
    assert_eq!(unreadable.previous, Some(QueueOffset(2)));
    let alone = decode_within(&encode(&[inner_batch(3, &two)]), &limits);
    assert_eq!(offsets(&alone), [3, 4]);
    let four = [child(b"a"), child(b"b"), child(b"c"), child(b"d")];
    let never = decode_within(&encode(&[inner_batch(3, &four), message(7, b"z")]), &limits);
    assert_eq!(offsets(&never), [3, 7]);
    assert_eq!(never.message(0).fault(), Some(MessageFault::InnerBatch));
}

#[test]
fn an_inner_batch_is_unwrapped_or_stays_whole() {
    let children = [child(b"one"), child(b"two")];
    let whole = inner_batch(20, &children);
    let batch = decode(&encode(&[whole.clone(), message(22, b"after")]));
    assert_eq!(offsets(&batch), [20, 21, 22]);
    for (message, body) in batch.iter().zip([b"one", b"two"]) {
        assert_eq!(message.body(), body);
        assert_eq!(message.flag(), 9);
        assert_eq!(message.tags(), Some("Child"));
        assert_eq!(
            message.property("KEYS"),
            None,
            "a child has its own properties"
        );
        assert_eq!(message.commit_log_offset(), 20_000);
    }
    for broken in [
        b"".as_slice(),
        b"\0\0\0\x10",
        &whole.body[..whole.body.len() - 1],
    ] {
        let bad = StoredMessage {
            body: Bytes::copy_from_slice(broken),
            body_crc: codec::body_crc(broken),
            ..whole.clone()
        };
        let batch = decode(&encode(&[bad, message(22, b"after")]));
        assert_eq!(offsets(&batch), [20, 22]);
        assert_eq!(batch.message(0).fault(), Some(MessageFault::InnerBatch));
        assert_eq!(batch.message(0).body(), broken);
        assert_eq!(batch.message(1).fault(), None);
    }
}

#[test]
fn the_last_of_two_tags_counts() {
    for (raw, tag) in [
        ("TAGS\u{1}a\u{2}TAGS\u{1}b\u{2}", Some("b")),
        ("TAGS\u{1}a\u{2}TAGS\u{1}\u{2}", Some("a")),
        ("XTAGS\u{1}a\u{2}", None),
        ("X\u{1}TAGS\u{1}a\u{2}", None),
        ("TAGS\u{1}a", Some("a")),
        ("TAGS\u{1}", None),
        ("TAGS", None),
        (
            "TAGSX\u{1}a\u{2}K\u{1}v\u{2}TAGS\u{1}\u{1}\u{2}K\u{1}v",
            Some("\u{1}"),
        ),
    ] {
        let raw_properties = Bytes::from_static(raw.as_bytes());
        let batch = decode(&encode(&[StoredMessage {
            properties: raw_properties,
            ..message(1, b"body")
        }]));
        assert_eq!(batch.message(0).tags(), tag, "{raw:?}");
        assert_eq!(batch.message(0).property("TAGS"), tag, "{raw:?}");
    }
}

fn any_host() -> impl Strategy<Value = SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

prop_compose! {
    fn any_message()(
        numbers in (any::<i32>(), any::<i32>(), 0..i64::MAX, 0..i64::MAX),
        times in (0..i64::MAX, 0..i64::MAX, 0..i32::MAX, any::<i64>()),
        born_host in any_host(),
        store_host in any_host(),
        body in vec(any::<u8>(), 0..300),
        topic in "[%|a-zA-Z0-9_-]{1,200}",
        entries in vec(("[^\u{1}\u{2}]{1,10}", "[^\u{2}]{1,20}"), 0..8),
        compress in any::<bool>(),
    ) -> StoredMessage {
        let mut list = Properties::default();
        for (name, value) in entries {
            list.set(name, value);
        }
        let body = if compress { compress_zlib(&body) } else { body };
        StoredMessage {
            version: MessageVersion::for_topic(&topic),
            body_crc: codec::body_crc(&body),
            queue_id: numbers.0,
            flag: numbers.1,
            queue_offset: numbers.2,
            commit_log_offset: numbers.3,
            sys_flag: if compress {
                MessageSysFlag::EMPTY.with_compression(Compression::Zlib)
            } else {
                MessageSysFlag::EMPTY
            },
            born_timestamp_ms: times.0,
            born_host,
            store_timestamp_ms: times.1,
            store_host,
            reconsume_times: times.2,
            prepared_transaction_offset: times.3,
            body: body.into(),
            topic,
            properties: list.encode().into(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(messages in vec(any_message(), 0..6)) {
        let bytes = encode(&messages);
        let batch = decode(&bytes);
        prop_assert_eq!(batch.len(), messages.len());
        prop_assert_eq!(batch.unreadable(), None);
        touch(&batch);
        let mut rest = Bytes::from(bytes);
        for (read, stored) in batch.iter().zip(&messages) {
            prop_assert_eq!(read.fault(), None);
            prop_assert_eq!(read.queue_offset().to_wire(), stored.queue_offset);
            prop_assert_eq!(read.commit_log_offset() as i64, stored.commit_log_offset);
            prop_assert_eq!(read.flag(), stored.flag);
            prop_assert_eq!(read.born_host(), stored.born_host);
            prop_assert_eq!(read.store_host(), stored.store_host);
            prop_assert_eq!(read.born_timestamp_ms() as i64, stored.born_timestamp_ms);
            prop_assert_eq!(read.store_timestamp_ms() as i64, stored.store_timestamp_ms);
            prop_assert_eq!(read.reconsume_times() as i32, stored.reconsume_times);
            prop_assert_eq!(
                read.prepared_transaction_offset(),
                stored.prepared_transaction_offset
            );
            prop_assert_eq!(&read.stored_body(), &stored.body);
            prop_assert_eq!(read.topic(), &stored.topic);
            prop_assert_eq!(read.raw_properties(), &stored.properties);
            prop_assert_eq!(read.tags(), read.property("TAGS"));
            let decoded = StoredMessage::decode(&mut rest).unwrap();
            let mut again = Vec::new();
            decoded.encode(&mut again).unwrap();
            prop_assert_eq!(again, encode(std::slice::from_ref(stored)));
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn one_flipped_bit_spoils_one_message_at_most(
        messages in vec(any_message(), 3..6),
        index in any::<prop::sample::Index>(),
        position in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        // The size is apart: without it there may be no way on.
        let mut bytes = encode(&messages);
        let index = index.index(messages.len());
        let start: usize = messages[..index].iter().map(StoredMessage::encoded_len).sum();
        bytes[start + 4 + position.index(messages[index].encoded_len() - 4)] ^= 1 << bit;
        let batch = decode(&bytes);
        touch(&batch);
        let read: Vec<_> = batch.iter().map(|m| (m.topic(), m.commit_log_offset())).collect();
        for (other, stored) in messages.iter().enumerate() {
            let found = (stored.topic.as_str(), stored.commit_log_offset as u64);
            prop_assert!(other == index || read.contains(&found));
        }
    }

    #[test]
    fn any_bytes_come_to_an_end(bytes in vec(any::<u8>(), 0..2000)) {
        touch(&decode(&bytes));
        let _ = StoredMessage::decode(&mut Bytes::from(bytes.clone()));
        let _ = codec::decode_batch(Bytes::from(bytes));
    }

    #[test]
    fn messages_with_random_damage_come_to_an_end(
        messages in vec(any_message(), 1..5),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        inner in any::<bool>(),
    ) {
        let mut bytes = encode(&messages);
        if inner {
            bytes.extend(encode(&[inner_batch(1, &[child(b"a"), child(b"b")])]));
        }
        for (position, value) in damage {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        let unchecked = DecodeLimits { check_crc: false, ..DecodeLimits::default() };
        touch(&decode_within(&bytes, &unchecked));
        touch(&decode(&bytes));
        let _ = StoredMessage::decode(&mut Bytes::from(bytes));
    }

    #[test]
    fn properties_that_are_not_utf8_end_the_list(good in "[a-z]{1,5}", raw in vec(0x80..=0xFF_u8, 1..9)) {
        let mut list = properties::encode([("A", good.as_str()), ("B", "b")]);
        let whole = Properties::decode(&list);
        list.extend(b"C\x01c");
        list.extend(raw);
        list.extend(b"\x02A\x01late\x02");
        if std::str::from_utf8(&list).is_err() {
            prop_assert_eq!(Properties::decode(&list), whole);
            prop_assert_eq!(properties::get(&list, "A"), Some(good.as_str()));
        }
    }

    #[test]
    fn any_property_bytes_are_read(raw in vec(prop_oneof![
        Just(1_u8), Just(2_u8), 0..0x80_u8, Just(b'T'), Just(b'A'), Just(b'G'), Just(b'S')
    ], 0..200)) {
        let properties = Properties::decode(&raw);
        let again = Properties::decode(&properties.encode());
        prop_assert_eq!(&again, &properties);
        for (name, value) in properties.iter() {
            prop_assert_eq!(properties::get(&raw, name), Some(value));
        }
    }
}
