//! `mqlet groups`: the groups of a running host, and how each is doing.

use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::GroupAnswer;
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::runtime;
use crate::table::Table;

/// List the consumer groups of a running host
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lists the consumer groups of a running host: members, queues held here, messages fetched
and not finished, lag as far as known, and the most important reason why a group is as it
is. \"mqlet explain GROUP\" says more.

Examples:
  mqlet groups
  mqlet groups --output json
  mqlet groups --socket /run/mqlet/control.sock"
)]
pub(crate) struct GroupsArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`GroupsArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &GroupsArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let groups: Vec<GroupAnswer> = runtime::block_on(1, client.get("/v1/groups"))?;
    match output.format() {
        OutputFormat::Json => {
            for group in &groups {
                output.result("", group)?;
            }
        }
        OutputFormat::Text if groups.is_empty() => output.note("no group")?,
        OutputFormat::Text => output.note(table(&groups))?,
    }
    Ok(Exit::Done)
}

fn table(groups: &[GroupAnswer]) -> Table {
    let mut table = Table::new(&[
        "GROUP", "TENANT", "PLUGIN", "STATE", "MEMBERS", "QUEUES", "CACHED", "LAG", "CALLS", "WHY",
    ]);
    for group in groups {
        table.row(vec![
            group.consumer_group.clone(),
            group.tenant.clone(),
            group.plugin.clone().unwrap_or_else(|| "-".to_owned()),
            group.state.clone(),
            group.members.len().to_string(),
            group.queues.to_string(),
            group.cached_messages.to_string(),
            group.lag.to_string(),
            format!("{}/{}", group.calls, group.calls_max),
            group.reason.cause.clone(),
        ]);
    }
    table
}
