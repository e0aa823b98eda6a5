//! `[limits]`: the box of a plugin. Part of the revision: another limit is another
//! revision.

use std::time::Duration;

use crate::document::Section;

/// When a plugin gets a fresh instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Isolation {
    /// Warm instances serve many calls, one at a time.
    #[default]
    Shared,
    /// A fresh instance for each call.
    Batch,
}

/// What one plugin may use. Every value is in the range that its key takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `shared` or `batch`.
    pub isolation: Isolation,
    /// Linear memories of one instance together; at 75 % the instance is recycled.
    pub memory_bytes: u64,
    /// CPU time of one call.
    pub compute_time: Duration,
    /// Instantiate and `init` together, computing and waiting.
    pub init_time: Duration,
    /// What one transfer from guest to host may hold.
    pub host_memory_bytes: u64,
    /// Elements of all tables of an instance.
    pub table_elements: u64,
    /// Lines a plugin may log in a second; more are counted and dropped.
    pub log_lines_per_second: u32,
    /// Bytes one call may log; more are counted and dropped.
    pub log_bytes_per_call: u64,
    /// An instance is replaced after so many calls.
    pub recycle_after_calls: u64,
    /// An instance is replaced at this age.
    pub recycle_after_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            isolation: Isolation::Shared,
            memory_bytes: 128 << 20,
            compute_time: Duration::from_secs(10),
            init_time: Duration::from_secs(10),
            host_memory_bytes: 16 << 20,
            table_elements: 100_000,
            log_lines_per_second: 100,
            log_bytes_per_call: 64 << 10,
            recycle_after_calls: 100_000,
            recycle_after_age: Duration::from_secs(3600),
        }
    }
}

/// One page of linear memory; less holds nothing.
const MEMORY_MIN: u64 = 64 << 10;
/// The pool's ceiling.
const MEMORY_MAX: u64 = 1 << 30;
/// The epoch ticker's step; nothing shorter can be told apart.
const TIME_MIN: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Reads `[limits]`; what is missing or wrong has its default.
pub(super) fn read(section: Section<'_, '_>) -> Limits {
    let default = Limits::default();
    let limits = Limits {
        isolation: section.or("isolation", default.isolation, |value| {
            value.choice(
                &[("shared", Isolation::Shared), ("batch", Isolation::Batch)],
                &[(
                    "process",
                    "write \"batch\" for a fresh instance in each call",
                )],
            )
        }),
        memory_bytes: section.or("memory", default.memory_bytes, |value| {
            value.byte_size(MEMORY_MIN..=MEMORY_MAX)
        }),
        compute_time: section.or("compute_time", default.compute_time, |value| {
            value.duration(TIME_MIN..=HOUR)
        }),
        init_time: section.or("init_time", default.init_time, |value| {
            value.duration(TIME_MIN..=HOUR)
        }),
        host_memory_bytes: section.or("host_memory", default.host_memory_bytes, |value| {
            value.byte_size(MEMORY_MIN..=MEMORY_MAX)
        }),
        table_elements: section.or("table_elements", default.table_elements, |value| {
            value.count(1..=10_000_000)
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
        log_bytes_per_call: section.or("log_bytes_per_call", default.log_bytes_per_call, |value| {
            value.byte_size(0..=16 << 20)
        }),
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
