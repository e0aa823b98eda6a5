//! Keys that mean something to some kinds of plugins only, wherever they stand: to the
//! others they are a problem, with the kind they belong to.

use wasm::ListenerKind;

use crate::document::Section;
use crate::problem::Fault;
use crate::value::Value;

const KEYS: &[(&str, &[ListenerKind])] = &[
    ("consume_from_where", LISTENERS),
    ("consume_timestamp", LISTENERS),
    ("expression", LISTENERS),
    ("expression_type", LISTENERS),
    ("consume_message_batch_max_size", LISTENERS),
    ("max_reconsume_times", LISTENERS),
    ("pull_batch_size", LISTENERS),
    ("pull_batch_size_in_bytes", LISTENERS),
    ("pull_threshold_for_queue", LISTENERS),
    ("pull_threshold_size_for_queue", LISTENERS),
    ("pull_threshold_for_topic", LISTENERS),
    ("pull_threshold_size_for_topic", LISTENERS),
    ("offset_beyond_end", LISTENERS),
    // In order, what failed stays first in every message model.
    ("broadcast_retry", &[ListenerKind::Concurrent]),
    ("consume_concurrently_max_span", &[ListenerKind::Concurrent]),
    ("suspend_current_queue_time", &[ListenerKind::Orderly]),
    ("auto_commit", &[ListenerKind::Orderly]),
    ("pull_task_interval", &[ListenerKind::ScheduledPull]),
];
const LISTENERS: &[ListenerKind] = &[ListenerKind::Concurrent, ListenerKind::Orderly];

/// A table as a kind of plugin reads it.
#[derive(Clone, Copy)]
pub(super) struct OfKind<'s, 'd, 't> {
    pub(super) section: &'s Section<'d, 't>,
    pub(super) kind: ListenerKind,
}

impl OfKind<'_, '_, '_> {
    /// A value, or nothing beside a problem where the key belongs to another kind.
    pub(super) fn optional<T>(
        self,
        key: &'static str,
        read: impl FnOnce(Value<'_>) -> Result<T, Fault>,
    ) -> Option<T> {
        match KEYS.iter().find(|(of_kinds, _)| *of_kinds == key) {
            Some((_, kinds)) if !kinds.contains(&self.kind) => {
                self.section.refused(key, self.of_another_kind(kinds));
                None
            }
            _ => self.section.optional(key, read),
        }
    }

    /// A value with a default.
    pub(super) fn or<T>(
        self,
        key: &'static str,
        default: T,
        read: impl FnOnce(Value<'_>) -> Result<T, Fault>,
    ) -> T {
        self.optional(key, read).unwrap_or(default)
    }

    fn of_another_kind(self, kinds: &[ListenerKind]) -> Fault {
        let remedy = match (self.kind, kinds) {
            (ListenerKind::ScheduledPull, _) => {
                "remove it: a pull task pulls, retries and commits for itself".to_owned()
            }
            (_, [only]) => format!("remove it, or set listener = \"{}\"", only.name()),
            _ => "remove it".to_owned(),
        };
        Fault::new(
            format!("has no meaning while listener is \"{}\"", self.kind.name()),
            remedy,
        )
    }
}
