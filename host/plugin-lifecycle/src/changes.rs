//! What one revision of a plugin has and another has not, in words: its component, what it
//! may reach, and every key of its manifest.
//!
//! Keys are compared as they are written: one that is new and says what was the default
//! before is named, too. `[build]` and `[dev]` are for developers and count for nothing.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};
use wasm::{ClockGrant, Grants, ProducerMode};

use crate::document::is_secret;
use crate::manifest::Manifest;
use crate::revision::Digest;

/// Longer values are cut.
const SHOWN_VALUE_CHARACTERS_MAX: usize = 60;
/// Told by other words, or no part of what runs.
const NOT_COMPARED: [&str; 5] = ["component", "sha256", "grants", "build", "dev"];

/// A line for each difference; what may newly be reached stands first.
pub fn between(before: (&Manifest, Digest), now: (&Manifest, Digest)) -> Vec<String> {
    let ((before, old_component), (now, component)) = (before, now);
    let mut lines = Vec::new();
    let (had, has) = (reached(before.grants()), reached(now.grants()));
    lines.extend(
        has.difference(&had)
            .map(|new| format!("it newly may {new}")),
    );
    lines.extend(
        had.difference(&has)
            .map(|old| format!("it may no longer {old}")),
    );
    if old_component != component {
        let (old, new) = (old_component.short(), component.short());
        lines.push(format!("another component: {old} → {new}"));
    }
    lines.extend(keys(&written(before), &written(now)));
    lines
}

/// Each hole in the box, as something that a plugin may do.
fn reached(grants: &Grants) -> BTreeSet<String> {
    let mut may = BTreeSet::new();
    let mut add = |what: String| {
        may.insert(what);
    };
    if let Some(producer) = &grants.producer {
        for topic in &producer.topics {
            add(format!("send to {topic}"));
        }
        if producer.mode == ProducerMode::Immediate {
            add("send though its call fails (mode = \"immediate\")".to_owned());
        }
        if let Some(rate) = producer.messages_per_second {
            add(format!("send {rate} messages a second"));
        }
        let (messages, bytes) = (producer.messages_per_call, producer.bytes_per_call);
        add(format!(
            "send {messages} messages and {bytes} bytes in a call"
        ));
    }
    if let Some(http) = &grants.http {
        for host in &http.hosts {
            add(format!("ask {host} by HTTP"));
        }
        for method in &http.methods {
            add(format!("ask by {method}"));
        }
        for network in &http.private {
            add(format!(
                "connect to {network}, which is not the public internet"
            ));
        }
        let (request, response) = (http.request_bytes, http.response_bytes);
        add(format!(
            "send {request} and get {response} bytes by a request"
        ));
    }
    for bucket in &grants.buckets {
        add(format!("use bucket {bucket}"));
    }
    if grants.config {
        add("ask for its settings and secrets".to_owned());
    }
    match grants.clock {
        ClockGrant::Exact => add("read the exact time".to_owned()),
        ClockGrant::Coarse => add("read a coarse time".to_owned()),
        ClockGrant::Frozen => {}
    }
    if let Some(folder) = &grants.folder {
        add(format!("read {}", folder.display()));
    }
    may
}

/// Values by their dotted keys.
fn written(manifest: &Manifest) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    // A manifest that was never a file has no text.
    let table: Table = manifest.text().parse().unwrap_or_default();
    for (key, value) in table {
        if !NOT_COMPARED.contains(&key.as_str()) {
            collect(key, &value, &mut all);
        }
    }
    all
}

fn collect(key: String, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                collect(format!("{key}.{name}"), value, all);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_table) => {
            for (place, entry) in list.iter().enumerate() {
                // A subscription is known by its topic.
                let topic = entry.get("topic").and_then(Value::as_str);
                let name = topic.map_or_else(|| place.to_string(), str::to_owned);
                collect(format!("{key}.{name}"), entry, all);
            }
        }
        value => {
            all.insert(key, value.to_string());
        }
    }
}

fn keys(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let lines = names.into_iter().filter_map(|key| {
        let shown = |value: &str| match is_secret(key) {
            true => "(not shown)".to_owned(),
            false => shortened(value),
        };
        match (before.get(key), now.get(key)) {
            (Some(old), Some(new)) if old == new => None,
            (Some(old), Some(new)) => Some(format!("{key}: {} → {}", shown(old), shown(new))),
            (None, Some(new)) => Some(format!("{key}: newly {}", shown(new))),
            (Some(old), None) => Some(format!("{key}: no longer {}", shown(old))),
            (None, None) => None,
        }
    });
    lines.collect()
}

fn shortened(value: &str) -> String {
    match value.char_indices().nth(SHOWN_VALUE_CHARACTERS_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEAD: &str = "name = \"a\"\ncomponent = \"a.wasm\"\nconsumer_group = \"g\"\n";

    fn manifest(rest: &str) -> Manifest {
        let text = format!("{HEAD}{rest}");
        Manifest::parse(Path::new("plugin.toml"), &text).expect("valid")
    }

    #[test]
    fn each_difference_has_its_words() {
        let before = manifest(
            "[[subscription]]\ntopic = \"orders\"\nexpression = \"a\"\n\
             [limits]\nmemory = \"64MiB\"\n[settings]\ngreeting = \"hi\"\nold = \"1\"\n\
             api-token = \"first\"\n[grants]\nproducer = { topics = [\"out\", \"log\"] }\n",
        );
        let now = manifest(
            "[[subscription]]\ntopic = \"orders\"\nexpression = \"b\"\n\
             [[subscription]]\ntopic = \"refunds\"\n\
             [limits]\nmemory = \"128MiB\"\n[settings]\ngreeting = \"hello\"\nnew = \"2\"\n\
             api-token = \"second\"\n[grants]\nproducer = { topics = [\"out\", \"money\"] }\n\
             http = { hosts = [\"api.example.org\"], methods = [\"GET\"] }\n[dev]\nmessages = \"m\"\n",
        );
        let changes = between((&before, Digest::of(b"1")), (&now, Digest::of(b"2")));
        expect_test::expect![[r#"
            it newly may ask api.example.org by HTTP
            it newly may ask by GET
            it newly may send 4194304 and get 4194304 bytes by a request
            it newly may send to money
            it may no longer send to log
            another component: 6b86b273ff34 → d4735e3a265e
            limits.memory: "64MiB" → "128MiB"
            settings.api-token: (not shown) → (not shown)
            settings.greeting: "hi" → "hello"
            settings.new: newly "2"
            settings.old: no longer "1"
            subscription.orders.expression: "a" → "b"
            subscription.refunds.topic: newly "refunds""#]]
        .assert_eq(&changes.join("\n"));
    }

    #[test]
    fn the_same_has_no_changes() {
        let one = manifest("[[subscription]]\ntopic = \"t\"\n");
        let component = Digest::of(b"1");
        assert_eq!(between((&one, component), (&one, component)), [""; 0]);
    }
}
