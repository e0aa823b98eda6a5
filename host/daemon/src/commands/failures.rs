//! `mqlet failures`: the failed calls that a running host remembers.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::failures::{FailureAnswer, FailuresRequest};
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::printable;
use crate::runtime;

/// List failed calls of the plugins of a running host
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lists the calls of plugins that trapped, were killed at a deadline or broke a limit, oldest
first: what happened, to which messages, the guest's own back-trace, and what it logged
last. A host remembers the last hundred of each plugin, until it stops.

Examples:
  mqlet failures
  mqlet failures hello --newest 1
  mqlet failures hello --output json"
)]
pub(crate) struct FailuresArguments {
    /// Only of this plugin
    pub(crate) plugin: Option<String>,
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// At most so many of each tenant, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) newest: usize,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`FailuresArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &FailuresArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let request = FailuresRequest {
        plugin: arguments.plugin.clone(),
        tenant: arguments.tenant.clone(),
        newest: arguments.newest,
    };
    let asked = client.post("/v1/failures", &request);
    let failures: Vec<FailureAnswer> = runtime::block_on(1, asked)?;
    if failures.is_empty() {
        output.note("no call failed")?;
    }
    for failure in &failures {
        match output.format() {
            OutputFormat::Json => output.result("", failure)?,
            OutputFormat::Text => output.note(text(failure))?,
        }
    }
    Ok(Exit::Done)
}

/// Texts of guests stand on lines of their own, whatever is in them.
fn text(failure: &FailureAnswer) -> String {
    let mut text = format!(
        "{}  plugin {} (tenant {}, revision {}) failed in {}: {}",
        failure.at,
        failure.plugin,
        failure.tenant,
        failure.revision,
        failure.phase,
        printable::one_line(&failure.reason),
    );
    // Writing to a string does not fail.
    if let Some(queue) = &failure.queue {
        let first = failure.failed_messages.first();
        let from = first.map_or(String::new(), |first| {
            format!(" from offset {} ({})", first.queue_offset, first.message_id)
        });
        let alone = match failure.isolated {
            true => ", tried alone after its batch failed",
            false => "",
        };
        let _ = write!(
            text,
            "\n  {} messages of {queue}{from}, attempt {}{alone}",
            failure.messages, failure.attempt
        );
    }
    let _ = write!(
        text,
        "\n  computed {:.1} of {} ms, took {:.1} of {} ms, {} of {} bytes of memory",
        failure.compute_ms,
        failure.limits.compute_time_ms,
        failure.wall_ms,
        failure.limits.wall_ms,
        failure.memory_bytes,
        failure.limits.memory_bytes
    );
    for frame in &failure.backtrace {
        let _ = write!(text, "\n    at {}", printable::one_line(frame));
    }
    for line in &failure.last_log_lines {
        let _ = write!(
            text,
            "\n    {} {}: {}",
            line.source,
            line.level,
            printable::one_line(&line.text)
        );
    }
    if failure.log_lines_dropped > 0 {
        let _ = write!(
            text,
            "\n    {} lines over its limits were dropped",
            failure.log_lines_dropped
        );
    }
    text
}
