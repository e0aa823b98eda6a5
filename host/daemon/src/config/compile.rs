//! `[compile]`: what compiling one component may take, whoever it is of.

use std::time::Duration;

use plugin_lifecycle::document::Section;
use wasm::CompileLimits;

/// The engine, its threads and the smallest component take so much.
const MEMORY_MIN: u64 = 64 << 20;
const MEMORY_MAX: u64 = 1 << 40;
const TIME_MIN: Duration = Duration::from_secs(1);
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
const AT_ONCE_MAX: u64 = 64;

/// What is missing or wrong has its default.
pub(super) fn read(section: Section<'_, '_>) -> CompileLimits {
    let default = CompileLimits::default();
    let limits = CompileLimits {
        cpu_time: section.or("cpu_time", default.cpu_time, |value| {
            value.duration(TIME_MIN..=TIME_MAX)
        }),
        timeout: section.or("timeout", default.timeout, |value| {
            value.duration(TIME_MIN..=TIME_MAX)
        }),
        memory: section.or("memory", default.memory, |value| {
            value.byte_size(MEMORY_MIN..=MEMORY_MAX)
        }),
        at_once: section.or("at_once", default.at_once, |value| {
            let at_once = value.count(1..=AT_ONCE_MAX)?;
            Ok(usize::try_from(at_once).unwrap_or(default.at_once))
        }),
    };
    section.refuse_unknown();
    limits
}
