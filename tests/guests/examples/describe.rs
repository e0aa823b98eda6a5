//! Dead-letters every message with everything it knows about it as the reason, one fact a
//! line: `name=value`, properties as `property.NAME=VALUE`.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::{bytes, text};
use mqlet::listener::call;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .enumerate()
                .map(|(index, message)| {
                    Outcome::DeadLetter(describe(index, message, &data, &context))
                })
                .collect(),
        ))
    }
}

export!(Listener);

fn describe(index: usize, message: &Message, data: &[u8], context: &BatchContext) -> String {
    let mut facts = vec![
        ("consumer-group", context.consumer_group.clone()),
        ("topic", context.topic.clone()),
        ("broker-name", context.broker_name.clone()),
        ("queue-id", context.queue_id.to_string()),
        ("broadcasting", context.broadcasting.to_string()),
        ("message-id", text(bytes!(data, message.message_id))),
        ("body", text(bytes!(data, message.body))),
        ("queue-offset", message.queue_offset.to_string()),
        ("commit-log-offset", message.commit_log_offset.to_string()),
        ("born-timestamp-ms", message.born_timestamp_ms.to_string()),
        ("store-timestamp-ms", message.store_timestamp_ms.to_string()),
        ("reconsume-times", message.reconsume_times.to_string()),
        ("flag", message.flag.to_string()),
        ("sys-flag", message.sys_flag.to_string()),
        ("store-size", message.store_size.to_string()),
    ];
    if let Some(details) = u32::try_from(index).ok().and_then(call::details) {
        facts.extend([
            ("born-host", details.born_host),
            ("store-host", details.store_host),
            ("offset-message-id", details.offset_message_id),
            ("body-crc", details.body_crc.to_string()),
            (
                "prepared-transaction-offset",
                details.prepared_transaction_offset.to_string(),
            ),
        ]);
    }
    let facts = facts
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"));
    let properties = bytes!(data, message.properties)
        .split(|byte| *byte == 2)
        .filter(|pair| !pair.is_empty())
        .map(|pair| format!("property.{}", text(pair).replace('\u{1}', "=")));
    facts.chain(properties).collect::<Vec<_>>().join("\n")
}
