//! `mqlet usage`: what plugins, tenants and the host itself have used.

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::usage::UsageAnswer;
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::runtime;
use crate::table::Table;

/// List what the plugins and tenants of a running host have used
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lists what was used since the host started: CPU seconds, memory times seconds, messages,
bytes in and out, calls, and phases that were ended, by reason. There is a row for each
plugin and each tenant, one for what the host itself computed, and one for the whole
process; the tenants' rows and the host's add up to it.

Examples:
  mqlet usage
  mqlet usage --output json
  mqlet usage --socket /run/mqlet/control.sock"
)]
pub(crate) struct UsageArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`UsageArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &UsageArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let rows: Vec<UsageAnswer> = runtime::block_on(1, client.get("/v1/usage"))?;
    match output.format() {
        OutputFormat::Json => {
            for row in &rows {
                output.result("", row)?;
            }
        }
        OutputFormat::Text => output.note(table(&rows))?,
    }
    Ok(Exit::Done)
}

fn table(rows: &[UsageAnswer]) -> Table {
    let mut table = Table::new(&[
        "KIND",
        "TENANT",
        "PLUGIN",
        "CPU S",
        "MIB S",
        "MESSAGES",
        "BYTES IN",
        "BYTES OUT",
        "CALLS",
        "KILLS",
    ]);
    for row in rows {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
        let used = row.of_guests.as_ref();
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let kills = used.map(|used| used.kills.values().sum());
        table.row(vec![
            row.kind.name().to_owned(),
            name(&row.tenant),
            name(&row.plugin),
            format!("{:.3}", row.cpu_seconds),
            used.map_or_else(
                || "-".to_owned(),
                |used| format!("{:.1}", used.memory_mib_seconds),
            ),
            count(used.map(|used| used.messages)),
            count(used.map(|used| used.bytes_in)),
            count(used.map(|used| used.bytes_out)),
            count(used.map(|used| used.calls)),
            count(kills),
        ]);
    }
    table
}
