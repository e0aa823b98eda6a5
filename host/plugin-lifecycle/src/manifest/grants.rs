//! `[grants]`: what reaches outside the box. Nothing by default.

use std::path::{Path, PathBuf};

use wasm::{ClockGrant, Grants, HttpGrant, ProducerGrant, ProducerMode};

use crate::document::Section;
use crate::manifest::group;
use crate::problem::{Fault, beside};
use crate::value::Value;

/// Messages a plugin may send in a second, when its grant names no number.
pub const MESSAGES_PER_SECOND_DEFAULT: u32 = 1000;
/// Bodies of requests and answers are held in part only; this is to end what never ends.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// Characters of a bucket's name.
const BUCKET_NAME_MAX: usize = 64;

/// Reads `[grants]`.
pub(super) fn read(file: &Path, section: Section<'_, '_>) -> Grants {
    let grants = Grants {
        producer: producer(&section),
        http: http(&section),
        buckets: buckets(&section),
        config: section.or("config", false, |value| value.boolean()),
        clock: section.or("clock", ClockGrant::default(), |value| {
            let clocks = [
                ("exact", ClockGrant::Exact),
                ("coarse", ClockGrant::Coarse),
                ("frozen", ClockGrant::Frozen),
            ];
            value.choice(&clocks, &[])
        }),
        folder: section.optional("folder", |value| folder(file, value)),
    };
    section.refuse_unknown();
    grants
}

fn producer(grants: &Section<'_, '_>) -> Option<ProducerGrant> {
    if !grants.has("producer") {
        return None;
    }
    let section = grants.section("producer");
    let topics = section.required("topics", "[\"hello-out\"]", topics);
    let messages_per_second = section.or(
        "messages_per_second",
        MESSAGES_PER_SECOND_DEFAULT,
        |value| {
            value
                .count(1..=1_000_000)
                .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        },
    );
    let mode = section.or("mode", ProducerMode::default(), |value| {
        let modes = [
            ("outbox", ProducerMode::Outbox),
            ("immediate", ProducerMode::Immediate),
        ];
        value.choice(&modes, &[])
    });
    let messages_per_call = section.or(
        "messages_per_call",
        ProducerGrant::MESSAGES_PER_CALL,
        |value| {
            value
                .count(1..=100_000)
                .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
        },
    );
    let bytes_per_call = section.or("bytes_per_call", ProducerGrant::BYTES_PER_CALL, |value| {
        value.byte_size(1..=1 << 30)
    });
    section.refuse_unknown();
    Some(ProducerGrant {
        mode,
        messages_per_second: Some(messages_per_second),
        messages_per_call,
        bytes_per_call,
        ..ProducerGrant::new(topics?)
    })
}

fn topics(value: Value<'_>) -> Result<Vec<String>, Fault> {
    let topics = named(value, "name the topics the plugin may send to")?;
    for topic in &topics {
        group::check_topic(topic)
            .map_err(|fault| Fault::new(format!("\"{topic}\" {}", fault.what), fault.remedy))?;
    }
    Ok(topics)
}

fn http(grants: &Section<'_, '_>) -> Option<HttpGrant> {
    if !grants.has("http") {
        return None;
    }
    let section = grants.section("http");
    if !section.is_present() {
        return None;
    }
    let hosts = section.required("hosts", "[\"api.example.org\"]", |value| {
        let hosts = named(value, "name the hosts the plugin may ask")?;
        parsed(
            &hosts,
            "write a name, *.NAME for all names below it, or an address; with :PORT when it is not the scheme's own",
        )
    });
    let methods = section.optional("methods", |value| {
        let methods = named(value, "name the methods the plugin may use")?;
        for method in &methods {
            let is_method = method
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'-');
            if !is_method || method == "CONNECT" {
                return Err(Fault::new(
                    format!("\"{method}\" cannot be granted"),
                    "write methods in capitals, for example [\"GET\", \"POST\"]; CONNECT is none",
                ));
            }
        }
        Ok(methods)
    });
    let private = section.optional("private", |value| {
        let networks = named(value, "name the networks that may be connected to")?;
        parsed(
            &networks,
            "write an address or a network, for example 10.1.0.0/16",
        )
    });
    let bytes = |key| {
        section.or(key, HttpGrant::BODY_BYTES, |value| {
            value.byte_size(0..=BODY_BYTES_MAX)
        })
    };
    let (request_bytes, response_bytes) = (bytes("request_bytes"), bytes("response_bytes"));
    section.refuse_unknown();
    let mut grant = HttpGrant::new(hosts?);
    grant.methods = methods.unwrap_or(grant.methods);
    grant.private = private.unwrap_or_default();
    grant.request_bytes = request_bytes;
    grant.response_bytes = response_bytes;
    Some(grant)
}

fn buckets(grants: &Section<'_, '_>) -> Vec<String> {
    if !grants.has("keyvalue") {
        return Vec::new();
    }
    let section = grants.section("keyvalue");
    if !section.is_present() {
        return Vec::new();
    }
    let buckets = section.required("buckets", "[\"orders\"]", |value| {
        let buckets = named(value, "name the buckets the plugin may open")?;
        for bucket in &buckets {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if bucket.len() > BUCKET_NAME_MAX || !bucket.chars().all(allowed) {
                return Err(Fault::new(
                    format!("\"{}\" is no name of a bucket", bucket.escape_debug()),
                    format!("write at most {BUCKET_NAME_MAX} letters, digits, -, _ and ."),
                ));
            }
        }
        Ok(buckets)
    });
    section.refuse_unknown();
    buckets.unwrap_or_default()
}

/// Whether it is there is asked when the plugin is loaded: what a manifest says does not
/// depend on the disk.
fn folder(file: &Path, value: Value<'_>) -> Result<PathBuf, Fault> {
    Ok(beside(file, Path::new(value.text()?)))
}

/// Texts; not none of them, and none empty.
pub(crate) fn named(value: Value<'_>, remedy: &str) -> Result<Vec<String>, Fault> {
    let texts = value.texts()?;
    if texts.is_empty() || texts.iter().any(|text| text.is_empty()) {
        return Err(Fault::new(
            "grants nothing",
            format!("{remedy}, or remove the grant"),
        ));
    }
    Ok(texts.into_iter().map(str::to_owned).collect())
}

pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    texts: &[String],
    remedy: &str,
) -> Result<Vec<T>, Fault> {
    let parsed = texts.iter().map(|text| {
        let fault = |error| Fault::new(format!("\"{}\" {error}", text.escape_debug()), remedy);
        text.parse().map_err(fault)
    });
    parsed.collect()
}
