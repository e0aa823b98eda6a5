//! `mqlet queues`: the queues of a running host's groups, who has each, and why it is as
//! it is.

use anyhow::Context as _;
use clap::Args;

use crate::cli::{ControlArguments, GlobalArguments};
use crate::control::answers::QueueAnswer;
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::{Output, OutputFormat};
use crate::runtime;
use crate::table::Table;

/// List the queues of a running host's groups
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Lists the queues of every topic that the groups of a running host read: who has each,
messages fetched and not finished, lag, how long ago it was pulled and consumed, and why it
is as it is. With --output json every offset stands there too.

Examples:
  mqlet queues
  mqlet queues hello-group
  mqlet queues hello-group --output json"
)]
pub(crate) struct QueuesArguments {
    /// Only of this consumer group
    pub(crate) group: Option<String>,
    /// Leave out the queues of other members
    #[arg(long)]
    pub(crate) ours: bool,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// See [`QueuesArguments`].
pub(crate) fn execute(
    global: &GlobalArguments,
    arguments: &QueuesArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.control.socket(global)?);
    let queues = client.get::<Vec<QueueAnswer>>("/v1/queues");
    let mut queues = runtime::block_on(1, queues)?;
    if let Some(group) = &arguments.group {
        queues.retain(|queue| queue.consumer_group == *group);
        queues.first().with_context(|| {
            format!("no queue of group \"{group}\" is known here; mqlet explain {group} says why")
        })?;
    }
    queues.retain(|queue| queue.ours || !arguments.ours);
    match output.format() {
        OutputFormat::Json => {
            for queue in &queues {
                output.result("", queue)?;
            }
        }
        OutputFormat::Text if queues.is_empty() => output.note("no queue")?,
        OutputFormat::Text => output.note(table(&queues))?,
    }
    Ok(Exit::Done)
}

fn table(queues: &[QueueAnswer]) -> Table {
    let mut table = Table::new(&[
        "QUEUE", "GROUP", "OWNER", "CACHED", "LAG", "PULLED", "CONSUMED", "WHY",
    ]);
    for queue in queues {
        let owner = match (&queue.owner, queue.ours) {
            (_, true) => "us",
            (Some(owner), false) => owner.as_str(),
            (None, false) => "?",
        };
        table.row(vec![
            queue.queue.clone(),
            queue.consumer_group.clone(),
            owner.to_owned(),
            queue.cached_messages.to_string(),
            queue.lag.map_or("?".to_owned(), |lag| lag.to_string()),
            ago(queue.since_last_pull_ms),
            ago(queue.since_last_consume_ms),
            queue.reason.cause.clone(),
        ]);
    }
    table
}

/// `3s ago`, or that it never happened.
fn ago(milliseconds: Option<u64>) -> String {
    match milliseconds {
        Some(milliseconds) => format!("{}s ago", milliseconds / 1000),
        None => "never".to_owned(),
    }
}
