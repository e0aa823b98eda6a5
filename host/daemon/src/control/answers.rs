//! What is asked and answered over the control socket: plain types, made from the
//! snapshots of the tenants' clients. Times are milliseconds, offsets numbers.

pub(crate) mod failures;
pub(crate) mod usage;

use std::time::Duration;

use consumer::listener::{ConsumeMode, MessageModel};
use consumer::pause::{PauseKind, PauseScope};
use consumer::status::{
    Cause, GroupState, GroupStatus, OtherQueue, PauseStatus, QueueStatus, Reason,
};
use driver::DriverStatus;
use protocol::{MessageQueue, QueueOffset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::directory::{PluginEntry, PluginState};

/// Why nothing was done.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    /// For people.
    pub(crate) error: String,
}

impl ErrorAnswer {
    pub(crate) fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
        }
    }
}

/// What is to be held back or to go on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseRequest {
    pub(crate) consumer_group: String,
    /// Only when several tenants have the group.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    #[serde(default)]
    pub(crate) topic: Option<String>,
    /// `topic@broker:id`
    #[serde(default)]
    pub(crate) queue: Option<String>,
    /// Why, for whoever looks later.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// Where a queue is to go on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeekRequest {
    pub(crate) consumer_group: String,
    /// Only when several tenants have the group.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// `topic@broker:id`
    pub(crate) queue: String,
    pub(crate) to: SeekPlace,
    /// Messages that were not consumed may be passed over.
    #[serde(default)]
    pub(crate) skip: bool,
}

/// `{"offset": 7}`, `"min_offset"`, `"max_offset"` or `{"timestamp_ms": 1790000000000}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SeekPlace {
    Offset(u64),
    MinOffset,
    MaxOffset,
    TimestampMs(u64),
}

/// Where a queue was, and where it goes on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SeekAnswer {
    pub(crate) tenant: String,
    pub(crate) consumer_group: String,
    /// `topic@broker:id`
    pub(crate) queue: String,
    /// Everything below was finished, if anything was begun.
    pub(crate) from: Option<u64>,
    pub(crate) to: u64,
    /// Messages that were not consumed and are not going to be.
    pub(crate) skipped: u64,
    /// Messages that were consumed and come again.
    pub(crate) again: u64,
}

/// What is to be explained: a queue (`topic@broker:id`), a group, a topic or a plugin.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    pub(crate) target: String,
}

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReasonAnswer {
    /// One word, explained in the manual.
    pub(crate) cause: String,
    /// Nothing is wrong and nothing was held back.
    pub(crate) healthy: bool,
    pub(crate) what: String,
    /// What happens next by itself.
    pub(crate) next: String,
    /// What can be done.
    pub(crate) remedy: String,
}

impl From<&Reason> for ReasonAnswer {
    fn from(reason: &Reason) -> Self {
        Self {
            cause: reason.cause.to_string(),
            healthy: reason.cause.is_healthy(),
            what: reason.what.clone(),
            next: reason.next.clone(),
            remedy: reason.remedy.clone(),
        }
    }
}

impl ReasonAnswer {
    /// With what only the shell knows: which bound of the tenant or the host is reached.
    pub(crate) fn of(reason: &Reason, status: &DriverStatus) -> Self {
        let mut answer = Self::from(reason);
        if reason.cause == Cause::CallsMax
            && let Some(budget) = &status.gate_closed
        {
            "tenant-budget".clone_into(&mut answer.cause);
            answer.what.clone_from(budget);
            "its messages are handed over when the tenant is within its budget again"
                .clone_into(&mut answer.next);
            "wait, or raise the budget in [tenants.NAME.budgets] of mqlet.toml"
                .clone_into(&mut answer.remedy);
        } else if reason.cause == Cause::CallsMax {
            let (calls, max) = (status.calls, status.calls_max);
            answer.what = if calls >= max {
                format!("all {max} calls of the tenant's calls_max are under way")
            } else {
                "all calls of the host's calls_max are under way, those of other tenants among them"
                    .to_owned()
            };
        }
        answer
    }
}

/// A pause or drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PauseAnswer {
    /// `group`, `topic` or `queue`.
    pub(crate) scope: String,
    /// Which topic or queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// `paused`, `draining` or `drained`.
    pub(crate) state: String,
    pub(crate) by: String,
    pub(crate) since_ms: u64,
}

impl From<&PauseStatus> for PauseAnswer {
    fn from(pause: &PauseStatus) -> Self {
        let (scope, name) = match &pause.scope {
            PauseScope::Group => ("group", None),
            PauseScope::Topic(topic) => ("topic", Some(topic.to_string())),
            PauseScope::Queue(queue) => ("queue", Some(queue.to_string())),
        };
        Self {
            scope: scope.to_owned(),
            name,
            state: match (pause.kind, pause.drained) {
                (PauseKind::Pause, _) => "paused",
                (PauseKind::Drain, false) => "draining",
                (PauseKind::Drain, true) => "drained",
            }
            .to_owned(),
            by: pause.by.to_string(),
            since_ms: milliseconds(pause.since),
        }
    }
}

/// A group of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GroupAnswer {
    pub(crate) tenant: String,
    pub(crate) consumer_group: String,
    pub(crate) plugin: Option<String>,
    /// `loading`, `running`, `paused`, `stopping`, `leaving` or `not-serving`.
    pub(crate) state: String,
    /// `clustering` or `broadcasting`.
    pub(crate) message_model: Option<String>,
    /// `concurrently` or `orderly`.
    pub(crate) mode: Option<String>,
    /// Us, as the members know us.
    pub(crate) client_id: String,
    pub(crate) members: Vec<String>,
    pub(crate) topics: Vec<String>,
    /// Queues of ours.
    pub(crate) queues: usize,
    /// Fetched and not finished.
    pub(crate) cached_messages: u64,
    /// Messages behind, as far as known.
    pub(crate) lag: u64,
    pub(crate) calls: u32,
    pub(crate) calls_max: u32,
    pub(crate) oldest_call_ms: Option<u64>,
    pub(crate) send_backs: u32,
    /// Messages that brokers took back since the start, to come again.
    pub(crate) sent_back: u64,
    /// Messages that came here from the retry topic since the start.
    pub(crate) came_back: u64,
    pub(crate) pauses: Vec<PauseAnswer>,
    /// The most important reason of the group and its queues.
    pub(crate) reason: ReasonAnswer,
}

/// A queue of a group, ours or not.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueueAnswer {
    pub(crate) tenant: String,
    pub(crate) consumer_group: String,
    /// `topic@broker:id`
    pub(crate) queue: String,
    pub(crate) topic: String,
    pub(crate) broker_name: String,
    pub(crate) queue_id: u32,
    /// Client id of the member that has it, as far as known.
    pub(crate) owner: Option<String>,
    pub(crate) ours: bool,
    /// Of our assignment.
    pub(crate) epoch: Option<String>,
    pub(crate) cached_messages: u32,
    pub(crate) cached_bytes: u64,
    pub(crate) calls: u32,
    pub(crate) next_offset: Option<u64>,
    pub(crate) finished_offset: Option<u64>,
    pub(crate) committed_offset: Option<u64>,
    pub(crate) max_offset: Option<u64>,
    pub(crate) lag: Option<u64>,
    pub(crate) since_last_pull_ms: Option<u64>,
    pub(crate) since_last_consume_ms: Option<u64>,
    pub(crate) reason: ReasonAnswer,
}

/// What was found out about a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainAnswer {
    pub(crate) target: String,
    /// Nothing is wrong and nothing was held back.
    pub(crate) healthy: bool,
    /// The most important first.
    pub(crate) findings: Vec<Finding>,
    /// Findings beyond the bound.
    pub(crate) left_out: usize,
}

/// One reason, and what it is about.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) tenant: String,
    pub(crate) consumer_group: String,
    /// A queue, a topic, or nothing for the whole group.
    pub(crate) about: Option<String>,
    pub(crate) reason: ReasonAnswer,
}

/// How a group is doing.
pub(crate) fn group(
    tenant: &str,
    plugin: Option<&PluginEntry>,
    group: &GroupStatus,
    status: &DriverStatus,
) -> GroupAnswer {
    let queues = || group.topics.iter().flat_map(|topic| &topic.queues);
    GroupAnswer {
        tenant: tenant.to_owned(),
        consumer_group: group.consumer_group.to_string(),
        plugin: plugin.map(|plugin| plugin.name.clone()),
        state: match group.state {
            GroupState::Running => "running",
            GroupState::Paused => "paused",
            GroupState::Stopping => "stopping",
            GroupState::Leaving => "leaving",
        }
        .to_owned(),
        message_model: Some(
            match group.message_model {
                MessageModel::Clustering => "clustering",
                MessageModel::Broadcasting => "broadcasting",
            }
            .to_owned(),
        ),
        mode: Some(
            match group.mode {
                ConsumeMode::Concurrently => "concurrently",
                ConsumeMode::Orderly { .. } => "orderly",
            }
            .to_owned(),
        ),
        client_id: status.client.client_id.to_string(),
        members: group.members.clone(),
        topics: group
            .topics
            .iter()
            .filter(|topic| !topic.is_retry)
            .map(|topic| topic.topic.to_string())
            .collect(),
        queues: queues().count(),
        cached_messages: queues().map(|queue| u64::from(queue.cached_messages)).sum(),
        lag: queues().filter_map(QueueStatus::lag).sum(),
        calls: group.calls,
        calls_max: group.calls_max,
        oldest_call_ms: group.oldest_call.map(milliseconds),
        send_backs: group.send_backs,
        sent_back: group.sent_back,
        came_back: group.came_back,
        pauses: group.pauses.iter().map(PauseAnswer::from).collect(),
        reason: ReasonAnswer::of(&main_reason(group), status),
    }
}

/// A plugin whose group is not taken in, yet or at all.
pub(crate) fn group_without_client(
    tenant: &str,
    consumer_group: &str,
    plugin: &PluginEntry,
    client_id: &str,
) -> GroupAnswer {
    let (state, reason) = match &plugin.state {
        PluginState::Loading | PluginState::Serving => ("loading", loading(plugin)),
        PluginState::Failed(error) => ("not-serving", not_serving(plugin, error)),
    };
    GroupAnswer {
        tenant: tenant.to_owned(),
        consumer_group: consumer_group.to_owned(),
        plugin: Some(plugin.name.clone()),
        state: state.to_owned(),
        message_model: None,
        mode: None,
        client_id: client_id.to_owned(),
        members: Vec::new(),
        topics: Vec::new(),
        queues: 0,
        cached_messages: 0,
        lag: 0,
        calls: 0,
        calls_max: 0,
        oldest_call_ms: None,
        send_backs: 0,
        sent_back: 0,
        came_back: 0,
        pauses: Vec::new(),
        reason,
    }
}

fn loading(plugin: &PluginEntry) -> ReasonAnswer {
    ReasonAnswer {
        cause: "plugin-loading".to_owned(),
        healthy: false,
        what: format!("plugin \"{}\" is being loaded", plugin.name),
        next: "its group is joined when it serves".to_owned(),
        remedy: String::new(),
    }
}

fn not_serving(plugin: &PluginEntry, error: &str) -> ReasonAnswer {
    ReasonAnswer {
        cause: "plugin-not-serving".to_owned(),
        healthy: false,
        what: format!(
            "plugin \"{}\" does not serve, so its group was not joined: {error}",
            plugin.name
        ),
        next: String::new(),
        remedy: "put it right (mqlet check says more) and start the host again".to_owned(),
    }
}

/// What an operator should hear first: of the group, else of its queues, else that all is
/// well.
pub(crate) fn main_reason(group: &GroupStatus) -> Reason {
    if let Some(reason) = group.reasons.first() {
        return reason.clone();
    }
    let queues = group.topics.iter().flat_map(|topic| &topic.queues);
    let reasons: Vec<&Reason> = queues.map(|queue| &queue.reason).collect();
    let unhealthy = reasons.iter().find(|reason| !reason.cause.is_healthy());
    let consuming = reasons
        .iter()
        .find(|reason| reason.cause == Cause::Consuming);
    match unhealthy.or(consuming).or(reasons.first()) {
        Some(reason) => (*reason).clone(),
        None => Reason::new(
            Cause::MembersUnknown,
            "its queues have not been divided yet",
            "they are when a broker has answered who the members are",
            "look whether the brokers of its topics are up and reachable",
        ),
    }
}

/// A queue of ours.
pub(crate) fn queue(
    tenant: &str,
    group: &GroupStatus,
    queue: &QueueStatus,
    status: &DriverStatus,
) -> QueueAnswer {
    let offset = |offset: Option<QueueOffset>| offset.map(|offset| offset.0);
    QueueAnswer {
        owner: Some(status.client.client_id.to_string()),
        ours: true,
        epoch: Some(queue.epoch.to_string()),
        cached_messages: queue.cached_messages,
        cached_bytes: queue.cached_bytes,
        calls: queue.calls,
        next_offset: offset(queue.next_offset),
        finished_offset: offset(queue.finished_offset),
        committed_offset: offset(queue.committed_offset),
        max_offset: offset(queue.max_offset),
        lag: queue.lag(),
        since_last_pull_ms: queue.since_last_pull.map(milliseconds),
        since_last_consume_ms: queue.since_last_consume.map(milliseconds),
        ..nobodys(
            tenant,
            group,
            &queue.queue,
            ReasonAnswer::of(&queue.reason, status),
        )
    }
}

/// A queue of somebody else.
pub(crate) fn other_queue(
    tenant: &str,
    group: &GroupStatus,
    other: &OtherQueue,
    status: &DriverStatus,
) -> QueueAnswer {
    let reason = group.explain(&other.queue).unwrap_or_default();
    QueueAnswer {
        owner: other.owner.clone(),
        ..nobodys(
            tenant,
            group,
            &other.queue,
            ReasonAnswer::of(&reason, status),
        )
    }
}

fn nobodys(
    tenant: &str,
    group: &GroupStatus,
    queue: &MessageQueue,
    reason: ReasonAnswer,
) -> QueueAnswer {
    QueueAnswer {
        tenant: tenant.to_owned(),
        consumer_group: group.consumer_group.to_string(),
        queue: queue.to_string(),
        topic: queue.topic.to_string(),
        broker_name: queue.broker_name.to_string(),
        queue_id: queue.queue_id,
        owner: None,
        ours: false,
        epoch: None,
        cached_messages: 0,
        cached_bytes: 0,
        calls: 0,
        next_offset: None,
        finished_offset: None,
        committed_offset: None,
        max_offset: None,
        lag: None,
        since_last_pull_ms: None,
        since_last_consume_ms: None,
        reason,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `topic@broker:id`; broker names may have a colon, ids not.
pub(crate) fn parse_queue(text: &str) -> Option<MessageQueue> {
    let (topic, rest) = text.split_once('@')?;
    let (broker_name, id) = rest.rsplit_once(':')?;
    if topic.is_empty() || broker_name.is_empty() {
        return None;
    }
    Some(MessageQueue::new(topic, broker_name, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_stands_in_the_operators_page() {
        let page = include_str!("../../../docs/operations.md");
        for cause in Cause::ALL {
            let row = format!("`{cause}`");
            assert!(
                page.contains(&row),
                "{row} is not in host/docs/operations.md"
            );
        }
    }

    #[test]
    fn queue_is_read_as_it_is_written() {
        let queue = MessageQueue::new("%RETRY%G", "broker-a", 3);
        assert_eq!(parse_queue(&queue.to_string()), Some(queue));
        for text in ["T", "T@b", "T@b:", "@b:1", "T@:1", "T@b:-1", "T@b:x"] {
            assert_eq!(parse_queue(text), None, "{text}");
        }
    }
}
