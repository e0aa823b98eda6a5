//! Whole manifests: what is read of them, and what is said of one that is wrong.

use std::time::Duration;

use consumer::config::{BroadcastRetry, OffsetBeyondEnd};
use consumer::listener::{ConsumeMode, MessageModel};
use expect_test::{Expect, expect};

use super::*;

const SMALLEST: &str = r#"
name = "hello"
component = "target/mqlet/hello.wasm"
consumer_group = "hello-group"
[[subscription]]
topic = "hello"
"#;

fn problems(text: &str, expected: &Expect) {
    let problems = Manifest::parse(Path::new("plugin.toml"), text).expect_err("problems");
    expected.assert_eq(&format!("{problems}\n"));
}

#[test]
fn required_keys_alone_give_the_defaults() {
    let manifest =
        Manifest::parse(Path::new("plugins/a/plugin.toml"), SMALLEST).expect("a smallest manifest");

    assert_eq!(manifest.name().as_str(), "hello");
    assert_eq!(
        manifest.component().file(),
        Some(Path::new("plugins/a/target/mqlet/hello.wasm"))
    );
    let group = manifest.group_config();
    assert_eq!(&**group.consumer_group(), "hello-group");
    assert_eq!(group.consume_from_where(), ConsumeFromWhere::LastOffset);
    assert_eq!(group.allocate_message_queue_strategy().name(), "AVG");
    assert_eq!(group.consume_message_batch_max_size(), 32);
    assert_eq!(group.consume_timeout(), Duration::from_secs(60));
    assert_eq!(group.subscriptions()[0].sub_string, "*");
    assert_eq!(manifest.limits(), &Limits::default());
    assert_eq!(manifest.grants(), &Grants::default());
    assert!(manifest.settings().is_empty());
    assert!(manifest.build().is_none());
}

#[test]
fn every_key_is_read() {
    let text = r#"
name = "hello"
component = "hello.wasm"
sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
listener = "concurrent"
consumer_group = "hello-group"
message_model = "clustering"
allocate_message_queue_strategy = "CONSISTENT_HASH"
consume_from_where = "timestamp"
consume_timestamp = "1970-01-01T00:00:01Z"
[[subscription]]
topic = "hello"
expression = "TagA || TagB"
expression_type = "tag"
[consume]
consume_message_batch_max_size = 1
consume_thread_max = 2
consume_timeout = "3s"
max_reconsume_times = 4
pull_batch_size = 6
pull_batch_size_in_bytes = "7KiB"
pull_threshold_for_queue = 8
pull_threshold_size_for_queue = "9MiB"
pull_threshold_for_topic = 80
pull_threshold_size_for_topic = "90MiB"
consume_concurrently_max_span = 10
buffer_bytes = "100MiB"
[limits]
isolation = "batch"
memory = "11MiB"
compute_time = "12s"
init_time = "13s"
host_memory = "14MiB"
table_elements = 15
log_lines_per_second = 16
log_bytes_per_call = "17KiB"
recycle_after_calls = 18
recycle_after_age = "19m"
[grants]
producer = { topics = ["hello-out"], messages_per_second = 20 }
[settings]
z = "first"
a = "second"
[build]
command = ["make", "hello.wasm"]
watch = ["hello.c"]
[dev]
messages = "messages.jsonl"
"#;
    let manifest = Manifest::parse(Path::new("plugin.toml"), text).expect("valid");

    let group = manifest.group_config();
    assert_eq!(
        group.consume_from_where(),
        ConsumeFromWhere::Timestamp(1000)
    );
    let strategy = group.allocate_message_queue_strategy();
    assert_eq!(strategy.name(), "CONSISTENT_HASH");
    assert_eq!(group.subscriptions()[0].tags_set.len(), 2);
    assert_eq!(group.consume_message_batch_max_size(), 1);
    assert_eq!(group.consume_thread_max(), 2);
    assert_eq!(group.consume_timeout(), Duration::from_secs(3));
    assert_eq!(group.max_reconsume_times(), Some(4));
    assert_eq!(group.pull_batch_size(), 6);
    assert_eq!(group.pull_batch_size_in_bytes(), 7 << 10);
    assert_eq!(group.pull_threshold_for_queue(), 8);
    assert_eq!(group.pull_threshold_size_for_queue(), 9 << 20);
    assert_eq!(group.pull_threshold_for_topic(), Some(80));
    assert_eq!(group.pull_threshold_size_for_topic(), Some(90 << 20));
    assert_eq!(group.consume_concurrently_max_span(), 10);
    assert_eq!(group.buffer_bytes(), Some(100 << 20));
    let limits = manifest.limits();
    assert_eq!(limits.memory, 11 << 20);
    assert_eq!(limits.recycle_after_age, Duration::from_secs(19 * 60));
    let producer = manifest.grants().producer.as_ref().expect("granted");
    assert_eq!(producer.messages_per_second, Some(20));
    assert_eq!(
        manifest.settings(),
        [
            ("z".to_owned(), "first".to_owned()),
            ("a".to_owned(), "second".to_owned())
        ]
    );
    assert_eq!(
        manifest.dev().messages.as_deref(),
        Some(Path::new("messages.jsonl"))
    );
}

fn of_kind(kind: &str, consume: &str) -> String {
    SMALLEST.replace(
        "[[subscription]]",
        &format!("listener = {kind:?}\n[consume]\n{consume}\n[[subscription]]"),
    )
}

fn group_of_kind(kind: &str, consume: &str) -> GroupConfig {
    Manifest::parse(Path::new("plugin.toml"), &of_kind(kind, consume))
        .expect("valid")
        .group_config()
}

#[test]
fn orderly_listener_has_its_own_defaults_and_keys() {
    let group = group_of_kind("orderly", "");
    assert_eq!(group.mode(), ConsumeMode::Orderly { auto_commit: true });
    assert_eq!(group.max_reconsume_times(), None, "for ever");
    assert_eq!(group.consume_message_batch_max_size(), 1);
    assert_eq!(group.suspend_current_queue_time(), Duration::from_secs(1));

    let group = group_of_kind(
        "orderly",
        "auto_commit = false\nsuspend_current_queue_time = \"5s\"\nmax_reconsume_times = 3\n\
         consume_message_batch_max_size = 8",
    );
    assert_eq!(group.mode(), ConsumeMode::Orderly { auto_commit: false });
    assert_eq!(group.max_reconsume_times(), Some(3));
    assert_eq!(group.consume_message_batch_max_size(), 8);
    assert_eq!(group.suspend_current_queue_time(), Duration::from_secs(5));

    let group = group_of_kind("orderly", "max_reconsume_times = \"forever\"");
    assert_eq!(group.max_reconsume_times(), None);
}

#[test]
fn pull_task_has_an_interval() {
    let group = group_of_kind("scheduled-pull", "");
    assert_eq!(group.pull_task_interval(), Some(Duration::from_millis(200)));
    let group = group_of_kind(
        "scheduled-pull",
        "pull_task_interval = \"3s\"\nconsume_thread_max = 2\nconsume_timeout = \"5s\"",
    );
    assert_eq!(group.pull_task_interval(), Some(Duration::from_secs(3)));
    assert_eq!(group.consume_thread_max(), 2);
    assert_eq!(group.consume_timeout(), Duration::from_secs(5));
    let concurrent = group_of_kind("concurrent", "");
    assert_eq!(concurrent.pull_task_interval(), None);
}

#[test]
fn keys_of_another_kind_are_refused_with_the_kind_they_belong_to() {
    problems(
        &of_kind(
            "concurrent",
            "auto_commit = false\nsuspend_current_queue_time = 7\npull_task_interval = \"1s\"\n\
             max_reconsume_times = \"forever\"",
        ),
        &expect![[r#"
            plugin.toml:7: consume.auto_commit = false: has no meaning while listener is "concurrent"; remove it, or set listener = "orderly"
            plugin.toml:8: consume.suspend_current_queue_time = 7: has no meaning while listener is "concurrent"; remove it, or set listener = "orderly"
            plugin.toml:9: consume.pull_task_interval = "1s": has no meaning while listener is "concurrent"; remove it, or set listener = "scheduled-pull"
            plugin.toml:10: consume.max_reconsume_times = "forever": is for orderly listeners, where skipping a message would break the order; write a number, for example 16; messages that fail more often become dead letters
        "#]],
    );
    problems(
        &of_kind("orderly", "consume_concurrently_max_span = 5"),
        &expect![[r#"
            plugin.toml:7: consume.consume_concurrently_max_span = 5: has no meaning while listener is "orderly"; remove it, or set listener = "concurrent"
        "#]],
    );
    problems(
        &of_kind(
            "scheduled-pull",
            "pull_batch_size = 5\nmax_reconsume_times = 3\nauto_commit = true\npull_task_interval = \"0ms\"",
        ),
        &expect![[r#"
            plugin.toml:7: consume.pull_batch_size = 5: has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:8: consume.max_reconsume_times = 3: has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:9: consume.auto_commit = true: has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:10: consume.pull_task_interval = "0ms": is out of range; write a time from "1ms" to "1day"
        "#]],
    );
}

#[test]
fn what_only_listeners_have_is_refused_for_a_pull_task() {
    problems(
        &format!(
            "listener = \"scheduled-pull\"\nmessage_model = \"broadcasting\"\n\
             consume_from_where = \"timestamp\"\nconsume_timestamp = \"2026-11-30T08:00:00Z\"\
             {SMALLEST}expression_type = \"sql92\"\nexpression = \"a = 1\"\n\
             [consume]\nbroadcast_retry = \"local\"\noffset_beyond_end = \"max_offset\"\n\
             max_reconsume_times = 3\n"
        ),
        &expect![[r#"
            plugin.toml:3: consume_from_where = "timestamp": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:4: consume_timestamp = "2026-11-30T08:00:00Z": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:10: subscription.expression_type = "sql92": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:11: subscription.expression = "a = 1": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:13: consume.broadcast_retry = "local": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:14: consume.offset_beyond_end = "max_offset": has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
            plugin.toml:15: consume.max_reconsume_times = 3: has no meaning while listener is "scheduled-pull"; remove it: a pull task pulls, retries and commits for itself
        "#]],
    );
}

#[test]
fn a_broadcasting_group_in_order_has_attempts_and_no_other_retry() {
    let text = |consume: &str| {
        format!(
            "message_model = \"broadcasting\"\nlistener = \"orderly\"{SMALLEST}\
             [consume]\n{consume}\n"
        )
    };
    let manifest = Manifest::parse(Path::new("plugin.toml"), &text("max_reconsume_times = 3"));
    let group = manifest.expect("valid").group_config();
    assert_eq!(group.max_reconsume_times(), Some(3));
    problems(
        &text("broadcast_retry = \"local\""),
        &expect![[r#"
        plugin.toml:9: consume.broadcast_retry = "local": has no meaning while listener is "orderly"; remove it, or set listener = "concurrent"
    "#]],
    );
}

#[test]
fn empty_list_of_subscriptions_is_a_problem() {
    problems(
        &SMALLEST.replace("[[subscription]]\ntopic = \"hello\"", "subscription = []"),
        &expect![[r#"
            plugin.toml:5: subscription = []: is an empty list; write each one as a table of its own: [[subscription]], or remove the key
        "#]],
    );
}

#[test]
fn all_problems_are_found_in_one_pass() {
    problems(
        r#"
name = "Hello World"
component = "oci://registry"
consumer_grup = "hello-group"
[[subscription]]
topic = "%RETRY%hello"
expresion = "TagA"
[consume]
consume_timeout = 60
pull_batch_size = 5000
[limits]
memori = "128MiB"
memory = "128"
isolation = "process"
[grants]
http = true
"#,
        &expect![[r#"
            plugin.toml: consumer_group: is missing; add consumer_group = "hello-group"
            plugin.toml:2: name = "Hello World": contains 'H'; write a-z, 0-9 and -, at most 63 characters, for example "order-audit"
            plugin.toml:3: component = "oci://registry": names no repository; write oci://REGISTRY/REPOSITORY:TAG, or …@sha256:DIGEST, for example "oci://ghcr.io/shop/orders:1.2"
            plugin.toml:4: consumer_grup = "hello-group": is an unknown key; did you mean "consumer_group"?
            plugin.toml:6: subscription.topic = "%RETRY%hello": is a retry topic; name the topic that messages are first sent to; the retry topic of the group comes with it
            plugin.toml:7: subscription.expresion = "TagA": is an unknown key; did you mean "expression"?
            plugin.toml:9: consume.consume_timeout = 60: has no unit; write it with its unit, in quotes, for example "500ms", "30s" or "15m"
            plugin.toml:10: consume.pull_batch_size = 5000: is out of range; must be 1 to 1024
            plugin.toml:12: limits.memori = "128MiB": is an unknown key; did you mean "memory"?
            plugin.toml:13: limits.memory = "128": has no unit; write it with its unit, in quotes, for example "64KiB", "128MiB" or "1GiB"
            plugin.toml:16: grants.http = true: is a value, not a table; write it as a table: [grants.http]
        "#]],
    );
}

#[test]
fn a_broadcasting_group_has_keys_of_its_own() {
    let text = format!(
        "message_model = \"broadcasting\"{SMALLEST}[consume]\nbroadcast_retry = \"local\"\n\
         max_reconsume_times = 3\noffset_beyond_end = \"min_offset\"\n"
    );
    let manifest = Manifest::parse(Path::new("plugin.toml"), &text).expect("valid");
    let group = manifest.group_config();
    assert_eq!(group.message_model(), MessageModel::Broadcasting);
    assert_eq!(group.broadcast_retry(), BroadcastRetry::Local);
    assert_eq!(group.offset_beyond_end(), OffsetBeyondEnd::MinOffset);
}

#[test]
fn keys_without_effect_in_a_message_model_are_problems() {
    problems(
        &format!(
            "{SMALLEST}[consume]\nbroadcast_retry = \"drop\"\noffset_beyond_end = \"earliest\"\n"
        ),
        &expect![[r#"
            plugin.toml:8: consume.broadcast_retry = "drop": has no effect; remove it, or set message_model = "broadcasting"; other groups retry through the broker
            plugin.toml:9: consume.offset_beyond_end = "earliest": is none of the words that can stand here; write "broker" or "min_offset" or "max_offset"
        "#]],
    );
    problems(
        &format!(
            "message_model = \"broadcasting\"\nallocate_message_queue_strategy = \"AVG\"{SMALLEST}\
             [consume]\nmax_reconsume_times = 3\nbroadcast_retry = \"dead\"\n"
        ),
        &expect![[r#"
            plugin.toml:2: allocate_message_queue_strategy = "AVG": has no effect; remove it: in a broadcasting group every host consumes every queue
            plugin.toml:9: consume.max_reconsume_times = 3: has no effect; remove it, or set broadcast_retry = "local": without it a message that failed does not come again
            plugin.toml:10: consume.broadcast_retry = "dead": is none of the words that can stand here; write "drop" or "local"
        "#]],
    );
}

#[test]
fn start_timestamps_are_checked() {
    let mut all = String::new();
    for start in [
        "consume_from_where = \"timestamp\"",
        "consume_timestamp = \"2026-11-30T08:00:00Z\"",
        "consume_from_where = \"timestamp\"\nconsume_timestamp = \"20261130080000\"",
        "consume_from_where = \"timestamp\"\nconsume_timestamp = \"yesterday\"",
        "consume_from_where = \"timestamp\"\nconsume_timestamp = 1796035465927",
        "consume_from_where = \"timestamp\"\nconsume_timestamp = \"1969-01-01T00:00:00Z\"",
        "consume_from_where = \"min_offset\"",
    ] {
        let text = format!("{start}{SMALLEST}");
        let found = Manifest::parse(Path::new("plugin.toml"), &text).expect_err("problems");
        all.push_str(&format!("{found}\n"));
    }
    expect![[r#"
        plugin.toml: consume_timestamp: is missing; add consume_timestamp = "2026-11-30T08:00:00Z", since consume_from_where is "timestamp"
        plugin.toml:1: consume_timestamp = "2026-11-30T08:00:00Z": has no effect; set consume_from_where = "timestamp", or remove it
        plugin.toml:2: consume_timestamp = "20261130080000": is not a point in time; write a point in time in UTC, for example "2026-11-30T08:00:00Z"
        plugin.toml:2: consume_timestamp = "yesterday": is not a point in time; write a point in time in UTC, for example "2026-11-30T08:00:00Z"
        plugin.toml:2: consume_timestamp = 1796035465927: is a number, not a text; write a point in time in UTC, for example "2026-11-30T08:00:00Z"
        plugin.toml:2: consume_timestamp = "1969-01-01T00:00:00Z": is not a point in time; write a point in time in UTC, for example "2026-11-30T08:00:00Z"
        plugin.toml:1: consume_from_where = "min_offset": is none of the words that can stand here; write "last_offset" or "first_offset" or "timestamp"
    "#]].assert_eq(&all);
}

#[test]
fn key_that_stands_twice_is_one_clear_problem() {
    problems(
        &format!("name = \"other\"{SMALLEST}"),
        &expect![[r#"
            plugin.toml:2: name: stands twice; remove one of the two
        "#]],
    );
}

#[test]
fn broken_toml_names_the_line_and_nothing_that_follows_from_it() {
    problems(
        &SMALLEST.replace("[[subscription]]", "[[subscription"),
        &expect![[r#"
            plugin.toml:5: is not TOML: unclosed array table, expected `]]`; correct this line
        "#]],
    );
}

#[test]
fn arbitrary_text_never_panics() {
    let mut text = SMALLEST.to_owned();
    for end in (0..SMALLEST.len()).rev() {
        let _ = Manifest::parse(Path::new("plugin.toml"), &text[..end]);
    }
    for garbage in [
        "\u{0}",
        "=",
        "[[[[",
        "a.b.c = {",
        "name = 'ü",
        "\u{feff}name=1",
    ] {
        text.insert_str(5, garbage);
        let _ = Manifest::parse(Path::new("plugin.toml"), &text);
    }
}
