//! `mqlet pause`, `mqlet drain` and `mqlet resume`: hold a group, topic or queue of a
//! running host back, and let it go on.

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;

use crate::cli::{self, ControlArguments, GlobalArguments};
use crate::commands::explain;
use crate::control::answers::{
    self, ExplainAnswer, ExplainRequest, GroupAnswer, PauseAnswer, PauseRequest,
};
use crate::control::client::ControlClient;
use crate::exit::{self, Exit};
use crate::output::Output;
use crate::runtime;

/// Between two looks at a drain.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Which part of a host.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScopeArguments {
    /// The consumer group
    pub(crate) group: String,
    /// Only this topic of the group; its retries come from %RETRY%GROUP
    #[arg(long, value_name = "TOPIC", conflicts_with = "queue")]
    pub(crate) topic: Option<String>,
    /// Only this queue, written topic@broker:id
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// The group's tenant, when several have such a group
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// Stop pulling a group, topic or queue of a running host
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Stops pulling a group, topic or queue. What was fetched is still consumed, offsets are
still committed, and the host stays a member of the group: no other member takes its
queues. A queue is held back while its group, its topic or itself is paused.

A pause lasts until \"mqlet resume\" or the end of the host; that of a queue also ends when
the queue goes to another member.

Examples:
  mqlet pause hello-group --reason \"database is down\"
  mqlet pause hello-group --topic hello
  mqlet pause hello-group --queue hello@broker-a:3"
)]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    pub(crate) scope: ScopeArguments,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Pause a group, topic or queue, and wait until everything fetched is finished
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Stops pulling a group, topic or queue, as \"mqlet pause\" does, and waits until every
message that was fetched is finished and the brokers have stored the offsets: nothing is
left to be done for it here. It stays paused until \"mqlet resume\".

Ends with 1 when that takes longer than --timeout; the drain goes on.

Examples:
  mqlet drain hello-group
  mqlet drain hello-group --topic hello --timeout 5m
  mqlet drain hello-group --no-wait"
)]
pub(crate) struct DrainArguments {
    #[command(flatten)]
    pub(crate) scope: ScopeArguments,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How long to wait for the end
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "1m")]
    pub(crate) timeout: Duration,
    /// Do not wait for the end
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// End a pause or drain of a group, topic or queue
#[derive(Args, Debug)]
#[command(
    after_help = exit::HELP,
    long_about = "\
Ends a pause or drain of exactly this group, topic or queue. What a wider or narrower one
holds back stays so, and is listed.

Examples:
  mqlet resume hello-group
  mqlet resume hello-group --topic hello
  mqlet resume hello-group --queue hello@broker-a:3"
)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(crate) scope: ScopeArguments,
}

/// See [`PauseArguments`].
pub(crate) fn pause(
    global: &GlobalArguments,
    arguments: &PauseArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.scope.control.socket(global)?);
    let request = request(&arguments.scope, arguments.reason.clone());
    let group: GroupAnswer = runtime::block_on(1, client.post("/v1/pause", &request))?;
    let left = match group.cached_messages {
        0 => String::new(),
        count => format!("; {count} messages that the group has fetched are still consumed"),
    };
    output.result(
        format_args!("paused {}{left}", named(&arguments.scope)),
        &group,
    )?;
    Ok(Exit::Done)
}

/// See [`ResumeArguments`].
pub(crate) fn resume(
    global: &GlobalArguments,
    arguments: &ResumeArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.scope.control.socket(global)?);
    let request = request(&arguments.scope, None);
    let group: GroupAnswer = runtime::block_on(1, client.post("/v1/resume", &request))?;
    let mut text = format!("resumed {}", named(&arguments.scope));
    for pause in &group.pauses {
        let name = pause.name.as_deref().unwrap_or(&group.consumer_group);
        text.push_str(&format!(
            "\nstill {}: {} {name}, by {}",
            pause.state, pause.scope, pause.by
        ));
    }
    output.result(text, &group)?;
    Ok(Exit::Done)
}

/// See [`DrainArguments`].
pub(crate) fn drain(
    global: &GlobalArguments,
    arguments: &DrainArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let client = ControlClient::new(arguments.scope.control.socket(global)?);
    runtime::block_on(1, drain_and_wait(&client, arguments, output))
}

async fn drain_and_wait(
    client: &ControlClient,
    arguments: &DrainArguments,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let scope = &arguments.scope;
    let deadline = Instant::now().checked_add(arguments.timeout);
    let request = request(scope, arguments.reason.clone());
    let mut group: GroupAnswer = client.post("/v1/drain", &request).await?;
    let mut told = u64::MAX;
    loop {
        match pause_of(&group, scope).map(|pause| (pause.state.as_str(), &pause.by)) {
            Some(("drained", _)) => break,
            Some(("draining", _)) => {}
            // A pause has no end to wait for.
            Some((state, by)) => bail!(
                "the drain of {} was ended: it is {state} now, as asked by {by}",
                named(scope)
            ),
            None => bail!(
                "the drain of {} was ended by somebody else, or its queue has gone to another member",
                named(scope)
            ),
        }
        if arguments.no_wait {
            output.result(format_args!("draining {}", named(scope)), &group)?;
            return Ok(Exit::Done);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            bail!(
                "{} is not drained after {}, and goes on:\n{}",
                named(scope),
                humantime::format_duration(arguments.timeout),
                why(client, scope).await
            );
        }
        if group.cached_messages != told {
            told = group.cached_messages;
            output.note(format_args!("{told} messages of the group are left"))?;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let groups: Vec<GroupAnswer> = client.get("/v1/groups").await?;
        let (tenant, name) = (group.tenant, group.consumer_group);
        let found = groups
            .into_iter()
            .find(|other| other.tenant == tenant && other.consumer_group == name);
        let Some(found) = found else {
            bail!("group \"{name}\" has left the host meanwhile");
        };
        group = found;
    }
    output.result(
        format_args!(
            "drained {}: everything fetched is finished, the offsets are stored",
            named(scope)
        ),
        &group,
    )?;
    Ok(Exit::Done)
}

/// What keeps a drain from its end, in words.
async fn why(client: &ControlClient, scope: &ScopeArguments) -> String {
    let target = scope.queue.as_ref().or(scope.topic.as_ref());
    let request = ExplainRequest {
        target: target.unwrap_or(&scope.group).clone(),
    };
    match client.post::<ExplainAnswer>("/v1/explain", &request).await {
        Ok(answer) => explain::text(&answer),
        Err(error) => format!("{error:#}"),
    }
}

fn request(scope: &ScopeArguments, reason: Option<String>) -> PauseRequest {
    PauseRequest {
        consumer_group: scope.group.clone(),
        tenant: scope.tenant.clone(),
        topic: scope.topic.clone(),
        queue: scope.queue.clone(),
        reason,
    }
}

/// The pause of exactly this scope.
fn pause_of<'a>(group: &'a GroupAnswer, scope: &ScopeArguments) -> Option<&'a PauseAnswer> {
    let (kind, name) = match (&scope.topic, &scope.queue) {
        (Some(topic), _) => ("topic", Some(topic.clone())),
        // As the host writes it: ids may be given as 03.
        (None, Some(queue)) => (
            "queue",
            answers::parse_queue(queue).map(|queue| queue.to_string()),
        ),
        (None, None) => ("group", None),
    };
    let mut pauses = group.pauses.iter();
    pauses.find(|pause| pause.scope == kind && pause.name == name)
}

fn named(scope: &ScopeArguments) -> String {
    let group = &scope.group;
    match (&scope.topic, &scope.queue) {
        (Some(topic), _) => format!("topic {topic} of group {group}"),
        (None, Some(queue)) => format!("queue {queue} of group {group}"),
        (None, None) => format!("group {group}"),
    }
}
