//! `[grants]`: what reaches outside the box. Nothing by default.

use wasm::{Grants, ProducerGrant, ProducerMode};

use crate::document::Section;
use crate::manifest::group;
use crate::problem::Fault;
use crate::value::Value;

/// Messages a plugin may send in a second, when its grant names no number.
pub const MESSAGES_PER_SECOND_DEFAULT: u32 = 1000;

/// Reads `[grants]`.
pub(super) fn read(section: Section<'_, '_>) -> Grants {
    let grants = Grants {
        producer: producer(&section),
    };
    for key in ["http", "keyvalue", "config", "folder"] {
        section.not_yet(
            key,
            "remove it, and build the component without this import",
        );
    }
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
    let topics = value.texts()?;
    if topics.is_empty() {
        return Err(Fault::new(
            "grants nothing",
            "name the topics the plugin may send to, or remove the grant",
        ));
    }
    for topic in &topics {
        group::check_topic(topic)
            .map_err(|fault| Fault::new(format!("\"{topic}\" {}", fault.what), fault.remedy))?;
    }
    Ok(topics.into_iter().map(str::to_owned).collect())
}
