//! What was used: a row for each plugin, each tenant and the host itself, and their sum.

use std::time::Duration;

use super::super::answers::usage::{UsageAnswer, UsageKind};
use super::super::directory::Directory;
use super::super::http::Answer;

/// Rows that add up: plugins to tenants, tenants and the host to the process.
pub(super) fn usage(directory: &Directory) -> Answer {
    let mut rows = Vec::new();
    let mut guests = Duration::ZERO;
    for entry in directory.tenants() {
        let tenant = entry.tenant.name();
        let mut sum = wasm::UsageSnapshot::default();
        for (plugin, used) in entry.tenant.usage() {
            sum.add(&used);
            rows.push(UsageAnswer::new(
                UsageKind::Plugin,
                Some(tenant),
                Some(&plugin),
                &used,
            ));
        }
        guests += sum.computed;
        rows.push(UsageAnswer::new(
            UsageKind::Tenant,
            Some(tenant),
            None,
            &sum,
        ));
    }
    // After the guests' rows: it has all that they have.
    let process = wasm::process_cpu_time();
    rows.push(UsageAnswer::of_cpu(
        UsageKind::Host,
        process.saturating_sub(guests),
    ));
    rows.push(UsageAnswer::of_cpu(UsageKind::Process, process));
    Answer::json(200, &rows)
}
