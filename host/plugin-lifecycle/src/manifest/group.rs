//! The part of a manifest that is RocketMQ's: group, subscriptions, `[consume]`.
//!
//! Ranges and defaults are `consumer::config`'s; this file reads kinds and units and
//! says in a person's words what the rules refuse.

use std::time::{Duration, UNIX_EPOCH};

use consumer::config::{
    AllocateMessageQueueStrategy, ConsumeFromWhere, GroupConfig, GroupConfigBuilder,
};
use consumer::listener::ConsumeMode;
use protocol::subscription::{ExpressionType, SubscriptionData, SubscriptionError};
use protocol::topic::{self, NameError};
use wasm::ListenerKind;

use super::of_kind::OfKind;
use super::{assign, broadcasting};
use crate::document::Section;
use crate::problem::Fault;
use crate::value::Value;

/// RocketMQ's own bound for `consumeTimeout`.
const CONSUME_TIMEOUT_MAX: Duration = Duration::from_secs(180 * 60);
/// RocketMQ's `consumeMessageBatchMaxSize`: with more, one failure repeats the batch.
const ORDERLY_BATCH: u32 = 1;
/// A queue that is looked at less often is forgotten.
const PULL_TASK_INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// RocketMQ's own bound for `suspendCurrentQueueTimeMillis`.
const SUSPEND_MAX: Duration = Duration::from_secs(30);

/// The group's name and configuration; `None` only beside a problem.
pub(super) fn read(
    root: &Section<'_, '_>,
    kind: ListenerKind,
) -> Option<(String, GroupConfigBuilder)> {
    let consumer_group = root.required("consumer_group", "\"hello-group\"", |value| {
        let group = value.text()?;
        topic::check_group_name(group).map_err(|error| name_fault(&error))?;
        Ok(group.to_owned())
    });
    let message_model = broadcasting::message_model(root);
    let strategy = allocate_message_queue_strategy(root);
    let consume_from_where = consume_from_where(OfKind {
        section: root,
        kind,
    });
    let subscriptions = subscriptions(root, kind);
    let builder = GroupConfig::builder(consumer_group.as_deref().unwrap_or("none"))
        .allocate_message_queue_strategy(strategy)
        .consume_from_where(consume_from_where);
    let builder = subscriptions
        .iter()
        .cloned()
        .fold(builder, GroupConfigBuilder::subscription);
    let section = root.section("consume");
    let of_kind = OfKind {
        section: &section,
        kind,
    };
    let builder = broadcasting::read(root, of_kind, message_model, builder);
    let builder = assign::read(root, &subscriptions, message_model, builder);
    let builder = consume(of_kind, builder);
    section.refuse_unknown();

    if let Err(error) = builder.clone().build() {
        let is_told = root.has_problems();
        for problem in error.problems {
            if let Some(key) = problem.key.strip_prefix("consume.") {
                root.section("consume")
                    .fault(key, Fault::new("is out of range", problem.rule));
            } else if !is_told {
                // The readers above find all others, with their line; should one of them
                // miss any, no plugin is refused without a word.
                root.fault(problem.key, Fault::new("is not possible", problem.rule));
            }
        }
        return None;
    }
    Some((consumer_group?, builder))
}

fn allocate_message_queue_strategy(root: &Section<'_, '_>) -> AllocateMessageQueueStrategy {
    const OTHERS: &str = "write \"AVG\", \"AVG_BY_CIRCLE\" or \"CONSISTENT_HASH\", \
        the same in every member of the group";
    // Made when chosen: strategies are no plain words.
    let make: fn() -> AllocateMessageQueueStrategy = root.or(
        "allocate_message_queue_strategy",
        || AllocateMessageQueueStrategy::Averagely,
        |value| {
            value.choice(
                &[
                    ("AVG", || AllocateMessageQueueStrategy::Averagely),
                    ("AVG_BY_CIRCLE", || {
                        AllocateMessageQueueStrategy::AveragelyByCircle
                    }),
                    ("CONSISTENT_HASH", || {
                        AllocateMessageQueueStrategy::consistent_hash()
                    }),
                ],
                &[
                    ("MACHINE_ROOM", OTHERS),
                    ("MACHINE_ROOM_NEARBY", OTHERS),
                    ("CONFIG", OTHERS),
                ],
            )
        },
    );
    make()
}

fn consume_from_where(keys: OfKind<'_, '_, '_>) -> ConsumeFromWhere {
    #[derive(Clone, Copy)]
    enum Word {
        Last,
        First,
        Timestamp,
    }
    let word = keys.or("consume_from_where", Word::Last, |value| {
        value.choice(
            &[
                ("last_offset", Word::Last),
                ("first_offset", Word::First),
                ("timestamp", Word::Timestamp),
            ],
            &[],
        )
    });
    let timestamp = keys.optional("consume_timestamp", |value| {
        let since_epoch = value.timestamp()?.duration_since(UNIX_EPOCH);
        let milliseconds = since_epoch.unwrap_or_default().as_millis();
        Ok(u64::try_from(milliseconds).unwrap_or(u64::MAX))
    });
    match (word, timestamp) {
        (Word::Last, None) => ConsumeFromWhere::LastOffset,
        (Word::First, None) => ConsumeFromWhere::FirstOffset,
        (Word::Timestamp, Some(unix_ms)) => ConsumeFromWhere::Timestamp(unix_ms),
        (Word::Timestamp, None) => {
            if !keys.section.has("consume_timestamp") {
                keys.section.missing(
                    "consume_timestamp",
                    "add consume_timestamp = \"2026-11-30T08:00:00Z\", since consume_from_where is \"timestamp\"",
                );
            }
            ConsumeFromWhere::LastOffset
        }
        (Word::Last | Word::First, Some(_)) => {
            keys.section.fault(
                "consume_timestamp",
                Fault::new(
                    "has no effect",
                    "set consume_from_where = \"timestamp\", or remove it",
                ),
            );
            ConsumeFromWhere::LastOffset
        }
    }
}

fn subscriptions(root: &Section<'_, '_>, kind: ListenerKind) -> Vec<SubscriptionData> {
    if !root.has("subscription") {
        root.missing(
            "subscription",
            "add a table [[subscription]] with topic = \"hello\"",
        );
    }
    let mut subscriptions: Vec<SubscriptionData> = Vec::new();
    for section in root.list("subscription") {
        let topic = section.required("topic", "\"hello\"", |value| {
            let topic = value.text()?;
            check_topic(topic)?;
            Ok(topic.to_owned())
        });
        let of_kind = OfKind {
            section: &section,
            kind,
        };
        let is_sql = of_kind.or("expression_type", false, |value| {
            value.choice(&[("tag", false), ("sql92", true)], &[])
        });
        let expression_type = match is_sql {
            false => ExpressionType::Tag,
            true => ExpressionType::Sql92,
        };
        if is_sql && !section.has("expression") {
            section.missing(
                "expression",
                "add expression = \"region = 'eu' AND price > 10\"",
            );
        }
        let named = topic.as_deref().unwrap_or_default();
        let subscription = of_kind.or("expression", Some(SubscriptionData::all(named)), |value| {
            SubscriptionData::build(named, value.text()?, expression_type)
                .map(Some)
                .map_err(|error| expression_fault(&error))
        });
        if subscriptions.iter().any(|other| other.topic == named) {
            section.fault(
                "topic",
                Fault::new(
                    "stands in two subscriptions",
                    "join them in one expression, for example \"TagA || TagB\"",
                ),
            );
        } else if topic.is_some() {
            subscriptions.extend(subscription);
        }
        section.refuse_unknown();
    }
    subscriptions
}

/// A topic that a plugin may name.
pub(super) fn check_topic(topic: &str) -> Result<(), Fault> {
    topic::check_topic_name(topic).map_err(|error| name_fault(&error))?;
    if topic::is_retry_topic(topic) {
        return Err(Fault::new(
            "is a retry topic",
            "name the topic that messages are first sent to; the retry topic of the group comes with it",
        ));
    }
    if topic::is_system_topic(topic) {
        return Err(Fault::new(
            "is a topic of the broker itself",
            "name a topic of your own",
        ));
    }
    Ok(())
}

fn consume(section: OfKind<'_, '_, '_>, mut builder: GroupConfigBuilder) -> GroupConfigBuilder {
    let kind = section.kind;
    let count = |key| section.optional(key, |value| value.count_u32());
    let time =
        |key, max| section.optional(key, |value| value.duration(Duration::from_millis(1)..=max));
    let batch = count("consume_message_batch_max_size");
    if let Some(value) = batch.or((kind == ListenerKind::Orderly).then_some(ORDERLY_BATCH)) {
        builder = builder.consume_message_batch_max_size(value);
    }
    if let Some(value) = count("consume_thread_max") {
        builder = builder.consume_thread_max(value);
    }
    if let Some(value) = time("consume_timeout", CONSUME_TIMEOUT_MAX) {
        builder = builder.consume_timeout(value);
    }
    let attempts = section.optional("max_reconsume_times", |value| {
        max_reconsume_times(value, kind)
    });
    if let Some(value) = attempts.flatten() {
        builder = builder.max_reconsume_times(value);
    }
    if let Some(value) = time("suspend_current_queue_time", SUSPEND_MAX) {
        builder = builder.suspend_current_queue_time(value);
    }
    let auto_commit = section.optional("auto_commit", |value| value.boolean());
    let interval = time("pull_task_interval", PULL_TASK_INTERVAL_MAX);
    builder = match kind {
        ListenerKind::Concurrent => builder,
        ListenerKind::Orderly => builder.mode(ConsumeMode::Orderly {
            auto_commit: auto_commit.unwrap_or(true),
        }),
        ListenerKind::ScheduledPull => {
            builder.pull_task_interval(interval.unwrap_or(GroupConfig::PULL_TASK_INTERVAL))
        }
    };
    if let Some(value) = count("pull_batch_size") {
        builder = builder.pull_batch_size(value);
    }
    let bytes = section.optional("pull_batch_size_in_bytes", |value| {
        value.byte_size(1..=i32::MAX as u64)
    });
    if let Some(value) = bytes {
        builder = builder.pull_batch_size_in_bytes(u32::try_from(value).unwrap_or(u32::MAX));
    }
    if let Some(value) = count("pull_threshold_for_queue") {
        builder = builder.pull_threshold_for_queue(value);
    }
    let bytes = section.optional("pull_threshold_size_for_queue", |value| {
        value.byte_size(1 << 20..=1 << 30)
    });
    if let Some(value) = bytes {
        builder = builder.pull_threshold_size_for_queue(value);
    }
    if let Some(value) = count("pull_threshold_for_topic") {
        builder = builder.pull_threshold_for_topic(value);
    }
    let bytes = section.optional("pull_threshold_size_for_topic", |value| {
        value.byte_size(1 << 20..=100 << 30)
    });
    if let Some(value) = bytes {
        builder = builder.pull_threshold_size_for_topic(value);
    }
    let bytes = section.optional("buffer_bytes", |value| value.byte_size(1 << 20..=1 << 40));
    if let Some(value) = bytes {
        builder = builder.buffer_bytes(value);
    }
    if let Some(value) = count("consume_concurrently_max_span") {
        builder = builder.consume_concurrently_max_span(value);
    }
    builder
}

/// `None` is for ever.
fn max_reconsume_times(value: Value<'_>, kind: ListenerKind) -> Result<Option<u32>, Fault> {
    match value {
        Value::Toml(toml::de::DeValue::String(text)) if text == "forever" => match kind {
            ListenerKind::Orderly => Ok(None),
            ListenerKind::Concurrent | ListenerKind::ScheduledPull => Err(Fault::new(
                "is for orderly listeners, where skipping a message would break the order",
                "write a number, for example 16; messages that fail more often become dead letters",
            )),
        },
        _ => value.count_u32().map(Some),
    }
}

fn name_fault(error: &NameError) -> Fault {
    match error {
        NameError::Blank { what } => Fault::new("is blank", format!("give the {what} a name")),
        NameError::Character { character, .. } => Fault::new(
            format!("contains {character:?}"),
            "RocketMQ allows letters, digits, %, |, _ and -",
        ),
        NameError::TooLong {
            length, length_max, ..
        } => Fault::new(
            format!("has {length} characters"),
            format!("RocketMQ allows {length_max}"),
        ),
    }
}

fn expression_fault(error: &SubscriptionError) -> Fault {
    match error {
        SubscriptionError::NoTag { .. } => Fault::new(
            "names no tag",
            "write \"*\" for every message, or tags such as \"TagA || TagB\"",
        ),
        SubscriptionError::Empty { .. } => Fault::new("is empty", "write a condition"),
    }
}
