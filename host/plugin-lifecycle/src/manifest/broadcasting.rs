//! Keys that depend on whether a group divides its queues: what a broadcasting group does
//! with failures, and what has no effect in one of the two models.

use consumer::config::{BroadcastRetry, GroupConfigBuilder, OffsetBeyondEnd};
use consumer::listener::MessageModel;

use wasm::ListenerKind;

use super::of_kind::OfKind;
use crate::document::Section;
use crate::problem::Fault;

/// `message_model`.
pub(super) fn message_model(root: &Section<'_, '_>) -> MessageModel {
    root.or("message_model", MessageModel::Clustering, |value| {
        value.choice(
            &[
                ("clustering", MessageModel::Clustering),
                ("broadcasting", MessageModel::Broadcasting),
            ],
            &[],
        )
    })
}

/// `broadcast_retry` and `offset_beyond_end` of `[consume]`, and faults of keys that the
/// model makes useless.
pub(super) fn read(
    root: &Section<'_, '_>,
    consume: OfKind<'_, '_, '_>,
    model: MessageModel,
    builder: GroupConfigBuilder,
) -> GroupConfigBuilder {
    let retry = consume.or("broadcast_retry", BroadcastRetry::Drop, |value| {
        value.choice(
            &[
                ("drop", BroadcastRetry::Drop),
                ("local", BroadcastRetry::Local),
            ],
            &[],
        )
    });
    let beyond_end = consume.or("offset_beyond_end", OffsetBeyondEnd::Broker, |value| {
        value.choice(
            &[
                ("broker", OffsetBeyondEnd::Broker),
                ("min_offset", OffsetBeyondEnd::MinOffset),
                ("max_offset", OffsetBeyondEnd::MaxOffset),
            ],
            &[],
        )
    });
    let useless = |section: &Section<'_, '_>, key, remedy: &str| {
        if section.has(key) {
            section.fault(key, Fault::new("has no effect", remedy));
        }
    };
    match model {
        MessageModel::Clustering => {
            if consume.kind == ListenerKind::Concurrent {
                useless(
                    consume.section,
                    "broadcast_retry",
                    "remove it, or set message_model = \"broadcasting\"; other groups retry through the broker",
                );
            }
        }
        MessageModel::Broadcasting => {
            useless(
                root,
                "allocate_message_queue_strategy",
                "remove it: in a broadcasting group every host consumes every queue",
            );
            if consume.kind == ListenerKind::Concurrent && retry == BroadcastRetry::Drop {
                useless(
                    consume.section,
                    "max_reconsume_times",
                    "remove it, or set broadcast_retry = \"local\": without it a message that failed does not come again",
                );
            }
        }
    }
    builder
        .message_model(model)
        .broadcast_retry(retry)
        .offset_beyond_end(beyond_end)
}
