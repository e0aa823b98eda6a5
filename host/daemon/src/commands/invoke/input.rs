//! Where the messages of an invocation come from, and how they become the requests
//! that a listener gets from the consumer.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use consumer::GroupConfig;
use consumer::listener::{ConsumeRequest, ConsumeRequestId, MessageRun};
use protocol::MessageQueue;
use protocol::message::MessageBatch;
use protocol::message::batch::DecodeLimits;
use protocol::message::codec::{MessageVersion, StoredMessage, body_crc};
use protocol::message::message_id::UniqueIdGenerator;
use protocol::message::properties::{self, Properties, check_user_property};
use protocol::subscription::SubscriptionData;
use protocol::sys_flag::MessageSysFlag;

use super::InvokeArguments;
use crate::exit::UsageError;
use crate::message_json::{self, MESSAGES_BYTES_MAX, MESSAGES_MAX, MessageJson};

/// Broker of a message that names none.
const BROKER_NAME_DEFAULT: &str = "invoke";
/// Address of that broker; nothing listens there.
const HOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The messages as they were asked for, flags applied, in order.
pub(super) fn messages(arguments: &InvokeArguments) -> anyhow::Result<Vec<MessageJson>> {
    let mut messages = match (&arguments.body, &arguments.message) {
        (Some(body), _) => vec![of_body(body.clone())],
        (None, Some(file)) => {
            let text = if file == Path::new("-") {
                read(std::io::stdin(), "standard input")?
            } else {
                let shown = file.display().to_string();
                read(
                    File::open(file).with_context(|| format!("cannot read {shown}"))?,
                    &shown,
                )?
            };
            let text = std::str::from_utf8(&text)
                .with_context(|| format!("{} is not UTF-8 text", file.display()))?;
            message_json::parse(text).with_context(|| format!("cannot use {}", file.display()))?
        }
        (None, None) if std::io::stdin().is_terminal() => Vec::new(),
        (None, None) => lines(&read(std::io::stdin(), "standard input")?),
    };
    if messages.is_empty() {
        let how = "there is no message; give --body TEXT, --message FILE.json, or one body a line on standard input";
        bail!(UsageError(how.to_owned()));
    }
    for message in &mut messages {
        apply_flags(message, arguments)?;
    }
    if messages.len() * arguments.count as usize > MESSAGES_MAX {
        bail!(UsageError(format!(
            "more than {MESSAGES_MAX} messages; lower --count"
        )));
    }
    let once = messages.clone();
    for _ in 1..arguments.count {
        messages.extend_from_slice(&once);
    }
    Ok(messages)
}

/// What a consumer would hand to the listener: neighbours of one topic and queue are
/// one request.
pub(super) fn requests(
    messages: &[MessageJson],
    group: &GroupConfig,
) -> anyhow::Result<Vec<Arc<ConsumeRequest>>> {
    let topic_default = &group.subscriptions()[0].topic;
    let topic = |message: &MessageJson| {
        message
            .topic
            .clone()
            .unwrap_or_else(|| topic_default.clone())
    };
    let queue = |message: &MessageJson| {
        let broker_name = message
            .broker_name
            .as_deref()
            .unwrap_or(BROKER_NAME_DEFAULT);
        MessageQueue::new(&topic(message), broker_name, message.queue_id)
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
    let mut ids = UniqueIdGenerator::new(HOST.ip(), std::process::id(), now.subsec_nanos());
    let mut requests = Vec::new();
    let mut number: u64 = 0;
    for same_queue in messages.chunk_by(|one, other| queue(one) == queue(other)) {
        let message_queue = queue(&same_queue[0]);
        let mut frame = BytesMut::new();
        for message in same_queue {
            let stored = stored(message, &message_queue, number, ids.next_id(now_ms), now_ms);
            stored
                .encode(&mut frame)
                .with_context(|| format!("message {} cannot be stored", number + 1))?;
            number += 1;
        }
        let batch = MessageBatch::decode(frame.freeze(), &DecodeLimits::default());
        if batch.len() != same_queue.len() {
            bail!(
                "{} of {} messages can be read; send fewer or smaller ones",
                batch.len(),
                same_queue.len()
            );
        }
        let length = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        requests.push(Arc::new(ConsumeRequest {
            id: ConsumeRequestId(requests.len() as u64 + 1),
            consumer_group: Arc::clone(group.consumer_group()),
            topic: Arc::clone(&message_queue.topic),
            message_queue,
            message_model: group.message_model(),
            mode: group.mode(),
            runs: vec![MessageRun {
                batch: Arc::new(batch),
                range: 0..length,
                local_reconsume_times: 0,
            }],
            messages_per_call: group.consume_message_batch_max_size(),
            consume_timeout: group.consume_timeout(),
        }));
    }
    Ok(requests)
}

/// Why a consumer of this group would never have got the message; `None` when it would.
pub(super) fn not_delivered(message: &MessageJson, group: &GroupConfig) -> Option<String> {
    let subscriptions = group.subscriptions();
    let topic = message.topic.as_ref().unwrap_or(&subscriptions[0].topic);
    let subscribed: Option<&SubscriptionData> =
        subscriptions.iter().find(|one| one.topic == *topic);
    match subscribed {
        None => Some(format!("the plugin does not subscribe to topic {topic}")),
        Some(one) if !one.matches_tag(message.tags.as_deref()) => Some(format!(
            "its tag {} does not match the subscription's expression {}",
            message.tags.as_deref().unwrap_or("(none)"),
            one.sub_string
        )),
        Some(_) => None,
    }
}

fn of_body(body: impl Into<Bytes>) -> MessageJson {
    MessageJson {
        body: body.into(),
        ..MessageJson::default()
    }
}

fn lines(text: &Bytes) -> Vec<MessageJson> {
    let without_last_end = text.strip_suffix(b"\n").unwrap_or(text);
    if without_last_end.is_empty() {
        return Vec::new();
    }
    without_last_end
        .split(|byte| *byte == b'\n')
        .map(|line| of_body(text.slice_ref(line.strip_suffix(b"\r").unwrap_or(line))))
        .collect()
}

fn read(source: impl Read, name: &str) -> anyhow::Result<Bytes> {
    let mut bytes = Vec::new();
    source
        .take(MESSAGES_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MESSAGES_BYTES_MAX {
        bail!(UsageError(format!(
            "{name} is larger than 64 MiB; divide it"
        )));
    }
    Ok(bytes.into())
}

/// Flags are stronger than what a file says.
fn apply_flags(message: &mut MessageJson, arguments: &InvokeArguments) -> anyhow::Result<()> {
    for (name, value) in &arguments.properties {
        check_user_property(name, value).map_err(|error| UsageError(error.to_string()))?;
        message.properties.insert(name.clone(), value.clone());
    }
    if let Some(topic) = &arguments.topic {
        message.topic = Some(topic.clone());
    }
    if let Some(tag) = &arguments.tag {
        message.tags = Some(tag.clone());
    }
    if !arguments.keys.is_empty() {
        message.keys.clone_from(&arguments.keys);
    }
    if let Some(times) = arguments.reconsume_times {
        message.reconsume_times = times;
    }
    Ok(())
}

fn stored(
    message: &MessageJson,
    message_queue: &MessageQueue,
    number: u64,
    id: String,
    now_ms: u64,
) -> StoredMessage {
    let mut all = Properties::default();
    for (name, value) in &message.properties {
        all.set(name, value);
    }
    if let Some(tag) = &message.tags {
        all.set(properties::TAGS, tag);
    }
    if !message.keys.is_empty() {
        all.set(properties::KEYS, message.keys.join(" "));
    }
    if let Some(sharding_key) = &message.sharding_key {
        all.set(properties::SHARDING_KEY, sharding_key);
    }
    all.set(properties::UNIQ_KEY, id);
    let now_ms = now_ms.cast_signed();
    StoredMessage {
        version: MessageVersion::for_topic(&message_queue.topic),
        body_crc: body_crc(&message.body),
        queue_id: message_queue.queue_id.cast_signed(),
        flag: 0,
        queue_offset: message.queue_offset.unwrap_or(number).cast_signed(),
        commit_log_offset: number.cast_signed(),
        sys_flag: MessageSysFlag::EMPTY,
        born_timestamp_ms: now_ms,
        born_host: HOST,
        store_timestamp_ms: now_ms,
        store_host: HOST,
        reconsume_times: message.reconsume_times.cast_signed(),
        prepared_transaction_offset: 0,
        body: message.body.clone(),
        topic: message_queue.topic.to_string(),
        properties: all.encode().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> GroupConfig {
        let subscription = SubscriptionData::build("orders", "paid || sent", Default::default());
        GroupConfig::builder("g")
            .subscription(subscription.expect("valid"))
            .build()
            .expect("valid")
    }

    #[test]
    fn line_is_a_message_and_an_end_of_line_begins_none() {
        let bodies = |text: &'static str| {
            let messages = lines(&Bytes::from_static(text.as_bytes()));
            messages
                .into_iter()
                .map(|message| message.body)
                .collect::<Vec<_>>()
        };
        assert_eq!(bodies("a\nb"), ["a", "b"]);
        assert_eq!(bodies("a\r\n\nb\n"), ["a", "", "b"]);
        assert!(bodies("").is_empty());
    }

    #[test]
    fn neighbours_of_one_queue_are_one_request_and_keep_everything() {
        let mut messages = vec![of_body("1"), of_body("2"), of_body("3")];
        messages[0].tags = Some("paid".to_owned());
        messages[0].keys = vec!["k".to_owned(), "l".to_owned()];
        messages[0]
            .properties
            .insert("p".to_owned(), "v".to_owned());
        messages[0].reconsume_times = 3;
        messages[2].queue_id = 1;
        messages[2].queue_offset = Some(77);

        let requests = requests(&messages, &group()).expect("they fit");

        let lengths: Vec<_> = requests.iter().map(|request| request.len()).collect();
        assert_eq!(lengths, [2, 1]);
        let first = requests[0].iter().next().expect("two").message;
        assert_eq!(first.topic(), "orders");
        assert_eq!(first.body(), b"1");
        assert_eq!(first.tags(), Some("paid"));
        assert_eq!(first.keys(), Some("k l"));
        assert_eq!(first.property("p"), Some("v"));
        assert_eq!(first.reconsume_times(), 3);
        assert!(first.fault().is_none());
        let last = requests[1].iter().next().expect("one").message;
        assert_eq!(last.queue_offset().0, 77);
        assert_eq!(requests[1].message_queue.queue_id, 1);
    }

    #[test]
    fn message_outside_the_subscription_is_known() {
        let mut message = of_body("1");
        assert!(not_delivered(&message, &group()).is_some_and(|why| why.contains("tag")));
        message.tags = Some("sent".to_owned());
        assert_eq!(not_delivered(&message, &group()), None);
        message.topic = Some("payments".to_owned());
        assert!(not_delivered(&message, &group()).is_some_and(|why| why.contains("payments")));
    }
}
