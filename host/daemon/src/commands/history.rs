//! `mqlet history`: what happened to the plugins of a host, from its ledger.

use std::path::PathBuf;

use clap::Args;

use crate::cli::GlobalArguments;
use crate::config;
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::revisions::ledger::{self, Entry};
use crate::table::Table;

/// Show what happened to the plugins of a host
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Shows the host's ledger: switches, rollbacks, failed deployments and canaries, who or what
asked for each, what the steps took, what was in flight at a switch, how long it paused
dispatch, and repeats. With --output json, also the last offset of each queue that the old
revision finished and the first that the new one was given. The ledger is read from
state_dir: no host needs to run.

--verify compares every line with its checksum and with the line before it, and ends with 1
when one was changed or is missing.

Examples:
  mqlet history
  mqlet history hello --output json
  mqlet history --verify"
)]
pub(crate) struct HistoryArguments {
    /// Only this plugin
    pub(crate) plugin: Option<String>,
    /// Look for lines that were changed or are missing
    #[arg(long)]
    pub(crate) verify: bool,
    /// The host's configuration file, which says where its state is
    /// [default: mqlet.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// See [`HistoryArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &HistoryArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let state_dir = config::state_dir(arguments.config.as_deref(), global)?;
    let (mut entries, damage) = ledger::read_all(&state_dir)?;
    let lines = entries.len();
    if let Some(plugin) = &arguments.plugin {
        entries.retain(|entry| entry.plugin == *plugin);
    }
    match output.format() {
        OutputFormat::Json => {
            for entry in &entries {
                output.result("", entry)?;
            }
        }
        OutputFormat::Text if entries.is_empty() => output.note("nothing happened yet")?,
        OutputFormat::Text => output.note(table(&entries))?,
    }
    if !arguments.verify {
        return Ok(Exit::Done);
    }
    anyhow::ensure!(
        damage.is_empty(),
        "the ledger in {} is damaged:\n{}",
        state_dir.display(),
        damage.join("\n")
    );
    output.note(format_args!(
        "all {lines} lines are whole, and none is missing"
    ))?;
    Ok(Exit::Done)
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        "TIME",
        "PLUGIN",
        "WHAT",
        "NUMBER",
        "REVISION",
        "BEFORE",
        "BY",
        "PAUSE",
        "IN FLIGHT",
        "REPEATS",
        "STEPS OR REASON",
    ]);
    for entry in entries {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let switch = entry.switch.as_ref();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(entry.at_ms);
        let steps = entry.steps.iter();
        let steps: Vec<String> = steps
            .map(|step| format!("{} {:.1} ms", step.step, step.ms))
            .collect();
        let first_line = |reason: &String| reason.lines().next().unwrap_or_default().to_owned();
        let why = entry.reason.as_ref().map(first_line);
        table.row(vec![
            humantime::format_rfc3339_seconds(at).to_string(),
            entry.plugin.clone(),
            entry.what.clone(),
            or_none(entry.number.map(|number| number.to_string())),
            or_none(entry.revision.clone()),
            or_none(entry.before.clone()),
            or_none(entry.by.clone()),
            or_none(
                switch
                    .and_then(|switch| switch.first_call_after_ms)
                    .map(|ms| format!("{ms:.3} ms")),
            ),
            or_none(switch.map(|switch| switch.in_flight.to_string())),
            or_none(switch.map(|switch| switch.repeats.to_string())),
            or_none(why.or_else(|| (!steps.is_empty()).then(|| steps.join(", ")))),
        ]);
    }
    table
}
