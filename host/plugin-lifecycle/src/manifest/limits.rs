//! `[limits]`: the box of a plugin. Part of the revision: another limit is another
//! revision.
//!
//! The values are `wasm`'s, defaults included; this file knows their keys and ranges.

use std::time::Duration;

use wasm::{Grants, Isolation, Limits, ListenerKind, POOL_MEMORY_BYTES_MAX};

use crate::document::Section;
use crate::problem::Fault;

/// One page of linear memory; less holds nothing.
const MEMORY_MIN: u64 = 64 << 10;
/// The epoch ticker's step; nothing shorter can be told apart.
const TIME_MIN: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Reads `[limits]`; what is missing or wrong has its default.
pub(super) fn read(section: Section<'_, '_>) -> Limits {
    let default = Limits::default();
    let size = |key, default, range: std::ops::RangeInclusive<u64>| {
        section.or(key, default, |value| {
            value
                .byte_size(range)
                .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
        })
    };
    let limits = Limits {
        isolation: section.or("isolation", default.isolation, |value| {
            value.choice(
                &[Isolation::Shared, Isolation::Batch, Isolation::Process]
                    .map(|isolation| (isolation.name(), isolation)),
                &[],
            )
        }),
        memory: section.or("memory", default.memory, |value| {
            value.byte_size(MEMORY_MIN..=POOL_MEMORY_BYTES_MAX)
        }),
        compute_time: section.or("compute_time", default.compute_time, |value| {
            value.duration(TIME_MIN..=HOUR)
        }),
        init_time: section.or("init_time", default.init_time, |value| {
            value.duration(TIME_MIN..=HOUR)
        }),
        host_memory: size(
            "host_memory",
            default.host_memory,
            MEMORY_MIN..=POOL_MEMORY_BYTES_MAX,
        ),
        table_elements: section.or("table_elements", default.table_elements, |value| {
            value
                .count(1..=10_000_000)
                .map(|elements| usize::try_from(elements).unwrap_or(usize::MAX))
        }),
        log_lines_per_second: section.or(
            "log_lines_per_second",
            default.log_lines_per_second,
            |value| {
                value
                    .count(0..=1_000_000)
                    .map(|lines| u32::try_from(lines).unwrap_or(u32::MAX))
            },
        ),
        log_bytes_per_call: size(
            "log_bytes_per_call",
            default.log_bytes_per_call,
            0..=16 << 20,
        ),
        recycle_after_calls: section.or(
            "recycle_after_calls",
            default.recycle_after_calls,
            |value| value.count(1..=1_000_000_000),
        ),
        recycle_after_age: section.or("recycle_after_age", default.recycle_after_age, |value| {
            value.duration(Duration::from_secs(1)..=24 * 365 * HOUR)
        }),
    };
    section.refuse_unknown();
    limits
}

/// What plugins in a process of their own cannot have.
pub(super) fn refuse_in_worker(
    section: &Section<'_, '_>,
    limits: &Limits,
    listener: ListenerKind,
    grants: &Grants,
) {
    if limits.isolation != Isolation::Process {
        return;
    }
    for (is_asked, what) in [
        (
            listener == ListenerKind::ScheduledPull,
            "listener = \"scheduled-pull\"",
        ),
        (grants.http.is_some(), "grants.http"),
        (grants.folder.is_some(), "grants.folder"),
    ] {
        if is_asked {
            section.fault(
                "isolation",
                Fault::new(
                    format!("\"process\" does not go with {what}"),
                    "remove one of the two, or write \"batch\" for a fresh instance in each call",
                ),
            );
        }
    }
}
