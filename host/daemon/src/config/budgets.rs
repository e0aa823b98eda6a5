//! `[tenants.NAME.budgets]`: what the plugins of a tenant may use together.

use plugin_lifecycle::document::Section;

/// One instance of an ordinary component and what the next one begins with.
const MEMORY_MIN: u64 = 16 << 20;

/// Reads the table; what is not there has no bound.
pub(crate) fn read(section: Section<'_, '_>) -> wasm::Budgets {
    let count = |key| {
        let count = section.optional(key, |value| value.count(1..=1_000_000_000));
        count.and_then(|count| u32::try_from(count).ok())
    };
    let budgets = wasm::Budgets {
        memory: section.optional("memory", |value| value.byte_size(MEMORY_MIN..=1 << 44)),
        messages_per_second: count("messages_per_second"),
        bytes_out_per_second: section.optional("bytes_out_per_second", |value| {
            value.byte_size(1024..=1 << 40)
        }),
        log_lines_per_second: count("log_lines_per_second"),
    };
    section.refuse_unknown();
    budgets
}
