//! Names, tags, properties, flags and addresses against tables of what RocketMQ 5.5.0 does.
//!
//! Where we differ on purpose, the row is named with the reason.

#![expect(
    clippy::unwrap_used,
    reason = "a table that does not parse is a failure"
)]

#[expect(dead_code, reason = "shared with the other vector tests")]
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use protocol::Address;
use protocol::delay_level::{DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels};
use protocol::message::compression::Compression;
use protocol::message::properties;
use protocol::subscription::{ExpressionType, SubscriptionData, tag_hash, tags_code};
use protocol::sys_flag::{MessageSysFlag, PullSysFlag};
use protocol::topic;
use serde_json::Value;
use vectors::table;

fn int(value: &Value) -> i32 {
    i32::try_from(value.as_i64().unwrap()).unwrap()
}

#[test]
fn tags_hash_as_java_strings() {
    for row in table("tag-hash", 101) {
        let tag = row["tag"].as_str();
        assert_eq!(tags_code(tag), row["tagsCode"].as_i64().unwrap(), "{row}");
        if let Some(tag) = tag {
            assert_eq!(tag_hash(tag), int(&row["hashCode"]), "{row}");
        }
    }
    assert_eq!(tags_code(None), 0);
}

#[test]
fn expressions_become_the_same_subscription() {
    // They name no tag, so that nothing would ever match: an error here.
    let never_matches = [" ", "|| ||", " || ", "\u{1}"];
    let mut refused = Vec::new();
    for row in table("subscription", 50) {
        let expression = row["expression"].as_str().unwrap_or_default();
        let expression_type = row.get("type").and_then(Value::as_str);
        let expression_type = expression_type.map_or(ExpressionType::Tag, ExpressionType::from);
        let built = SubscriptionData::build("T", expression, expression_type);
        if row.get("error").is_some() {
            built.expect_err(expression);
            continue;
        }
        let expected = &row["result"];
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                assert!(never_matches.contains(&expression), "{error}");
                refused.push(expression.to_owned());
                continue;
            }
        };
        let tags: BTreeSet<String> = serde_json::from_value(expected["tagsSet"].clone()).unwrap();
        let codes: BTreeSet<i32> = serde_json::from_value(expected["codeSet"].clone()).unwrap();
        assert_eq!(built.topic, expected["topic"], "{row}");
        assert_eq!(built.sub_string, expected["subString"], "{row}");
        assert_eq!(built.tags_set, tags, "{row}");
        assert_eq!(built.code_set, codes, "{row}");
        assert_eq!(
            built.expression_type.as_str(),
            expected["expressionType"],
            "{row}"
        );
        assert_eq!(built.sub_version, expected["subVersion"], "{row}");
        assert_eq!(
            built.class_filter_mode, expected["classFilterMode"],
            "{row}"
        );
    }
    assert_eq!(refused.len(), never_matches.len(), "{refused:?}");
}

#[test]
fn tags_pass_by_their_code_alone() {
    for row in table("tag-match", 54) {
        let expression = row["expression"].as_str().unwrap();
        let passes = row["brokerPasses"].as_bool().unwrap();
        match SubscriptionData::build("T", expression, ExpressionType::Tag) {
            Ok(subscription) => {
                let code = row["tagsCode"].as_i64().unwrap();
                assert_eq!(subscription.matches_code(code), passes, "{row}");
            }
            // No subscription at all, and nothing would pass.
            Err(_) => assert!(expression == " || " && !passes, "{row}"),
        }
    }
    let subscription = SubscriptionData::build("T", "Aa", ExpressionType::Tag).unwrap();
    assert!(
        subscription.matches_code(tags_code(Some("BB"))),
        "a collision"
    );
    assert!(
        !subscription.matches_tag(Some("BB")),
        "the client looks closer"
    );
    assert!(!subscription.matches_tag(None));
    assert!(SubscriptionData::all("T").matches_tag(None));
}

#[test]
fn properties_are_read_as_java_reads_them() {
    for row in table("properties-decode", 27) {
        let raw = row["string"].as_str().unwrap_or_default().as_bytes();
        let expected: BTreeMap<String, String> =
            serde_json::from_value(row["result"].clone()).unwrap();
        let read: BTreeMap<String, String> = properties::Iter::new(raw)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(read, expected, "{row}");
        for (name, value) in &expected {
            assert_eq!(properties::get(raw, name), Some(value.as_str()), "{row}");
        }
        assert_eq!(
            properties::Properties::decode(raw).len(),
            expected.len(),
            "{row}"
        );
    }
}

#[test]
fn properties_are_written_as_java_writes_them() {
    for row in table("properties-encode", 8) {
        let map: BTreeMap<String, Option<String>> =
            serde_json::from_value(row["map"].clone()).unwrap_or_default();
        // Null values are left out; here they cannot be written down.
        let entries = map
            .iter()
            .filter_map(|(n, v)| Some((n.as_str(), v.as_deref()?)));
        let raw = properties::encode(entries);
        assert_eq!(
            String::from_utf8(raw).unwrap(),
            row["result"].as_str().unwrap(),
            "{row}"
        );
    }
}

#[test]
fn message_flags_mean_the_same() {
    for row in table("message-sys-flag", 28) {
        let flag = MessageSysFlag(int(&row["sysFlag"]));
        let expected = &row["result"];
        assert_eq!(
            flag.transaction_value().0,
            int(&expected["transactionValue"]),
            "{row}"
        );
        let commit = flag.with_transaction_value(MessageSysFlag::TRANSACTION_COMMIT);
        assert_eq!(commit.0, int(&expected["resetToCommit"]), "{row}");
        let clear = flag.without(MessageSysFlag::COMPRESSED);
        assert_eq!(clear.0, int(&expected["clearCompressed"]), "{row}");
        let compression = match expected["compressionType"].as_str() {
            Some("ZLIB") => Some(Compression::Zlib),
            Some("LZ4") => Some(Compression::Lz4),
            Some("ZSTD") => Some(Compression::Zstd),
            _ => None,
        };
        assert_eq!(flag.compression(), compression, "{row}");
        assert_eq!(
            expected.get("compressionTypeError").is_some(),
            compression.is_none()
        );
    }
    for compression in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
        let flag = MessageSysFlag(0x7F1).with_compression(compression);
        assert_eq!(flag.compression(), Some(compression));
        assert_eq!(flag.0 & !0x700, 0xF1);
    }
}

#[test]
fn pull_flags_mean_the_same() {
    for row in table("pull-sys-flag", 32) {
        let bits = [
            ("commit", PullSysFlag::COMMIT_OFFSET),
            ("suspend", PullSysFlag::SUSPEND),
            ("subscription", PullSysFlag::SUBSCRIPTION),
            ("classFilter", PullSysFlag::CLASS_FILTER),
            ("lite", PullSysFlag::LITE_PULL_MESSAGE),
        ];
        let flag = bits.iter().fold(PullSysFlag::EMPTY, |flag, &(name, bit)| {
            if row[name].as_bool().unwrap() {
                flag.with(bit)
            } else {
                flag
            }
        });
        assert_eq!(flag.0, int(&row["flag"]), "{row}");
        let without_commit = flag.without(PullSysFlag::COMMIT_OFFSET);
        assert_eq!(without_commit.0, int(&row["clearCommit"]), "{row}");
        let without_suspend = flag.without(PullSysFlag::SUSPEND);
        assert_eq!(without_suspend.0, int(&row["clearSuspend"]), "{row}");
        let with_subscription = flag.with(PullSysFlag::SUBSCRIPTION);
        assert_eq!(with_subscription.0, int(&row["withSubscription"]), "{row}");
    }
}

#[test]
fn names_are_allowed_or_not_as_brokers_decide() {
    for row in table("names", 31) {
        let name = row["name"].as_str().unwrap_or_default();
        let topic_ok = topic::check_topic_name(name).is_ok();
        assert_eq!(
            topic_ok,
            row["brokerTopic"]["valid"].as_bool().unwrap(),
            "{row}"
        );
        let group_ok = topic::check_group_name(name).is_ok();
        assert_eq!(
            group_ok,
            row["brokerGroup"]["valid"].as_bool().unwrap(),
            "{row}"
        );
        assert_eq!(group_ok, row["clientGroup"] == "ok", "{row}");
        // RocketMQ's client allows 127 characters for retry topics, its broker 255.
        let client_ok = topic_ok && name.len() <= topic::TOPIC_NAME_LENGTH_MAX;
        assert_eq!(client_ok, row["clientTopic"] == "ok", "{row}");
        if let Some(system) = row["system"].as_bool() {
            assert_eq!(topic::is_system_topic(name), system, "{row}");
            let not_allowed = row["notAllowedToSend"].as_bool().unwrap();
            assert_eq!(topic::is_not_allowed_send_topic(name), not_allowed, "{row}");
        }
    }
}

#[test]
fn namespaces_wrap_as_java_wraps_them() {
    for row in table("namespace", 60) {
        let namespace = row["namespace"].as_str().unwrap_or_default();
        let name = row["resource"].as_str().unwrap_or_default();
        let expected = |member: &str| {
            row["result"][member]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            topic::wrap_namespace(namespace, name),
            expected("wrap"),
            "{row}"
        );
        assert_eq!(
            topic::without_namespace(namespace, name),
            expected("without"),
            "{row}"
        );
    }
}

#[test]
fn delay_levels_are_read_as_brokers_read_them() {
    // Accidents of Java's parser; here they are errors.
    let java_accepts = ["1s ", "-1s"];
    let mut refused = 0;
    for row in table("delay-levels", 13) {
        let text = row["messageDelayLevel"].as_str().unwrap();
        let expected = &row["result"];
        let levels = DelayLevels::parse(text);
        if java_accepts.contains(&text) {
            assert!(expected["ok"].as_bool().unwrap());
            levels.expect_err(text);
            refused += 1;
            continue;
        }
        assert_eq!(levels.is_ok(), expected["ok"].as_bool().unwrap(), "{row}");
        let Ok(levels) = levels else { continue };
        let millis: Vec<u64> = serde_json::from_value(expected["millis"].clone()).unwrap();
        assert_eq!(
            u64::from(levels.level_max()),
            expected["max"].as_u64().unwrap()
        );
        for (level, millis) in (1..).zip(millis) {
            assert_eq!(
                levels.delay(level),
                Some(Duration::from_millis(millis)),
                "{row}"
            );
        }
    }
    assert_eq!(refused, java_accepts.len());
    let default = DelayLevels::default();
    assert_eq!(
        DelayLevels::parse(DEFAULT_MESSAGE_DELAY_LEVEL).as_ref(),
        Ok(&default)
    );
    assert_eq!(default.delay(0), None);
    assert_eq!(default.delay(99), default.delay(18));
}

#[test]
fn addresses_are_read_as_java_reads_them() {
    let accidents = [
        // Java takes the local host.
        (":9876", false),
        // Java makes a name of it that never resolves.
        ("1.2.3.4:5:6", false),
        // Java stops at the blank; people paste them.
        (" 127.0.0.1:9876 ", true),
    ];
    let mut met = 0;
    for row in table("address", 16) {
        let text = row["address"].as_str().unwrap();
        let parsed = text.parse::<Address>();
        if let Some((_, ok)) = accidents.iter().find(|(accident, _)| *accident == text) {
            assert_eq!(parsed.is_ok(), *ok, "{row}");
            assert_ne!(parsed.is_ok(), row.get("result").is_some(), "{row}");
            met += 1;
            continue;
        }
        assert_eq!(parsed.is_ok(), row.get("result").is_some(), "{row}");
        let Ok(address) = parsed else { continue };
        let host = row["result"]["host"].as_str().unwrap();
        match host.parse::<IpAddr>() {
            Ok(ip) => assert_eq!(address.host().parse(), Ok(ip), "{row}"),
            Err(_) => assert_eq!(address.host(), host, "{row}"),
        }
        assert_eq!(
            u64::from(address.port()),
            row["result"]["port"].as_u64().unwrap(),
            "{row}"
        );
        assert_eq!(address.to_string().parse(), Ok(address), "{row}");
    }
    assert_eq!(met, accidents.len());
    for text in [
        "[::1]",
        "[::1",
        "::1]:1",
        "[]:1",
        "[name]:1",
        "a b:1",
        "a/b:1",
        "a:+1",
        "fe80::1%:1",
    ] {
        text.parse::<Address>().expect_err(text);
    }
}
