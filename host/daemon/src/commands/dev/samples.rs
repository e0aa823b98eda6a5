//! The messages that `mqlet dev` sends at its start: those of `[dev] messages`, or ten
//! texts that the subscription lets through.

use std::fs;

use anyhow::Context as _;
use consumer::publish::OutgoingMessage;
use plugin_lifecycle::Manifest;

use crate::message_json::{self, MESSAGES_BYTES_MAX, MessageJson};

/// What is sent when the manifest names no file.
const TEXTS: [&str; 10] = [
    "world", "Ada", "Grace", "Edsger", "Barbara", "Donald", "Radia", "Leslie", "Margaret", "Alan",
];

/// The samples of a plugin; `count` limits them, or repeats the texts.
pub(super) fn samples(
    manifest: &Manifest,
    count: Option<u32>,
) -> anyhow::Result<Vec<OutgoingMessage>> {
    let count = count.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let Some(file) = &manifest.dev().messages else {
        return Ok(texts(manifest, count.unwrap_or(TEXTS.len())));
    };
    let read = || {
        let bytes = fs::metadata(file)?.len();
        if bytes > MESSAGES_BYTES_MAX {
            return Err(std::io::Error::other(format!(
                "it has {bytes} bytes, more than {MESSAGES_BYTES_MAX}"
            )));
        }
        fs::read_to_string(file)
    };
    let text = read().with_context(|| {
        format!(
            "cannot read the samples in {} ([dev] messages)",
            file.display()
        )
    })?;
    let messages = message_json::parse(&text)
        .with_context(|| format!("cannot use the samples in {}", file.display()))?;
    let topic = topic(manifest);
    let messages = messages
        .into_iter()
        .take(count.unwrap_or(usize::MAX))
        .map(|message| outgoing(message, &topic));
    Ok(messages.collect())
}

/// The topic of the first subscription.
pub(super) fn topic(manifest: &Manifest) -> String {
    let group = manifest.group_config();
    let first = group.subscriptions().first();
    first.map(|one| one.topic.clone()).unwrap_or_default()
}

/// The first tag that the first subscription lets through; `None`: it takes all.
pub(super) fn tag(manifest: &Manifest) -> Option<String> {
    let group = manifest.group_config();
    let expression = &group.subscriptions().first()?.sub_string;
    let tag = expression.split("||").next()?.trim();
    (!tag.is_empty() && tag != "*").then(|| tag.to_owned())
}

fn texts(manifest: &Manifest, count: usize) -> Vec<OutgoingMessage> {
    let (topic, tags) = (topic(manifest), tag(manifest));
    let bodies = TEXTS.iter().cycle().take(count);
    bodies
        .map(|body| OutgoingMessage {
            topic: topic.clone(),
            body: (*body).into(),
            tags: tags.clone(),
            ..OutgoingMessage::default()
        })
        .collect()
}

fn outgoing(message: MessageJson, topic: &str) -> OutgoingMessage {
    OutgoingMessage {
        topic: message.topic.unwrap_or_else(|| topic.to_owned()),
        body: message.body,
        tags: message.tags,
        keys: message.keys,
        sharding_key: message.sharding_key,
        properties: message.properties.into_iter().collect(),
        ..OutgoingMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn manifest(more: &str, expression: &str) -> Manifest {
        let text = format!(
            "name = \"a\"\ncomponent = \"a.wasm\"\nconsumer_group = \"g\"\n\
             [[subscription]]\ntopic = \"orders\"\nexpression = \"{expression}\"\n{more}"
        );
        Manifest::parse(Path::new("plugin.toml"), &text).expect("valid")
    }

    #[test]
    fn ten_texts_have_the_first_tag_of_the_expression() {
        let messages = samples(&manifest("", "paid || refunded"), None).expect("no file");
        assert_eq!(messages.len(), 10);
        assert!(messages.iter().all(|one| one.topic == "orders"));
        assert_eq!(messages[0].tags.as_deref(), Some("paid"));
        assert_eq!(tag(&manifest("", "*")), None);
        assert_eq!(
            samples(&manifest("", "*"), Some(12))
                .map(|all| all.len())
                .ok(),
            Some(12)
        );
    }

    #[test]
    fn events_of_an_order_go_to_one_queue_in_the_sample_that_is_about_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/order-ledger/rust");
        let manifest = Manifest::load(&folder.join("plugin.toml")).expect("a sample");
        let messages = samples(&manifest, None).expect("its samples");
        let of_orders = messages.iter().filter(|message| !message.keys.is_empty());
        assert!(of_orders.clone().count() > 0);
        for message in of_orders {
            assert_eq!(message.sharding_key.as_ref(), message.keys.first());
        }
    }

    #[test]
    fn file_of_samples_is_named_when_it_cannot_be_used() {
        let manifest = manifest("[dev]\nmessages = \"missing.jsonl\"", "*");
        let error = samples(&manifest, None).expect_err("not there");
        assert!(error.to_string().contains("missing.jsonl"), "{error}");
    }
}
