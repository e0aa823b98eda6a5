//! What a snapshot means, for somebody who was woken up by it: what is the matter, what
//! comes next by itself, what to do.
//!
//! Every state has exactly one reason; the matches here are exhaustive, so that a new
//! state does not compile without its words. When several things are wrong, the one that
//! has to end first is named.

use std::fmt;
use std::time::Duration;

use protocol::MessageQueue;
use protocol::code::response_code;

use super::{
    Activity, Delivery, FlowControl, GroupState, GroupStatus, OtherQueue, PauseStatus, QueueStatus,
    RouteStatus, TopicStatus,
};
use crate::listener::MessageModel;
use crate::pause::{PauseKind, PauseScope};
use crate::request::RequestError;
use crate::timers::PULL_SUSPEND;

/// What ends flow control.
const AGAIN_WHEN_FINISHED: &str = "it is pulled again when messages are finished";

/// A call that has run for so long is worth a word.
const SLOW_CALL: Duration = Duration::from_secs(5);

/// Why something is as it is, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// For programs, and for whoever looks it up in the manual.
    pub cause: Cause,
    /// What is the case.
    pub what: String,
    /// What happens next by itself, with its time when that is known.
    pub next: String,
    /// What a person can do; empty when there is nothing to be done.
    pub remedy: String,
}

/// Everything that a reason can be about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Nothing is to be consumed, a pull waits for the next message.
    CaughtUp,
    /// Messages come through.
    Consuming,
    /// A call has been running for seconds.
    ListenerSlow,
    /// `consume_thread_max` calls are under way.
    ConsumeThreadMax,
    /// The tenant's or the host's `calls_max` are under way.
    CallsMax,
    /// Failed messages are on their way back to the broker.
    SendingBack,
    /// No broker took failed messages back.
    SendBackFailed,
    /// An orderly group has not got the queue's lock.
    WaitsForLock,
    /// A message has failed and holds up its queue, which is consumed in order.
    Suspended,
    /// A run of the queue's pull task is under way.
    PullTaskRuns,
    /// Between two runs of the queue's pull task.
    PullTaskWaits,
    /// The last run of the queue's pull task failed.
    PullTaskFailed,
    /// The queue's pull task is due, and has no free call.
    PullTaskDue,
    /// Finding out where to begin.
    Starting,
    /// It could not be found out where to begin.
    StartFailed,
    /// The broker is down, or the way to it.
    BrokerUnreachable,
    /// No route says where the broker is.
    NoBrokerAddress,
    /// The broker has not read our heartbeat, or forgot it.
    SubscriptionNotKnown,
    /// A broker does not accept the expression, or has not said so yet.
    SubscriptionRefused,
    /// The broker refuses the pulls.
    PullRefused,
    /// The broker asked to slow down.
    BrokerFlowControl,
    /// Over `pull_threshold_for_queue`.
    PullThresholdForQueue,
    /// Over `pull_threshold_size_for_queue`.
    PullThresholdSizeForQueue,
    /// Over its share of `pull_threshold_for_topic`.
    PullThresholdForTopic,
    /// Over its share of `pull_threshold_size_for_topic`.
    PullThresholdSizeForTopic,
    /// Over `consume_concurrently_max_span`.
    ConsumeConcurrentlyMaxSpan,
    /// The group's own `buffer_bytes` are used up.
    GroupBufferBytes,
    /// The tenant's `buffer_bytes` are used up, and the group's share of them.
    BufferBytes,
    /// Paused by request.
    Paused,
    /// Draining by request.
    Draining,
    /// Drained by request.
    Drained,
    /// The group leaves.
    Stopping,
    /// The topic does not exist.
    TopicMissing,
    /// No name server has said yet where the topic is.
    RouteUnknown,
    /// The topic has no queue that may be read.
    NoReadableQueue,
    /// The topic has no such queue.
    NoSuchQueue,
    /// No broker has taken our heartbeat, or none says who the members are.
    MembersUnknown,
    /// The members are known, and the queues cannot be divided among them.
    QueuesNotAllocated,
    /// Another member has it.
    OtherMember,
    /// There are more members than queues.
    MoreMembersThanQueues,
    /// Another client has our id.
    ClientIdClash,
    /// The offsets that this host keeps cannot be read or stored.
    LocalOffsets,
    /// Our last commit of a queue is under way.
    LastCommit,
    /// Ours, and about to be taken.
    Assigning,
}

impl Cause {
    /// Every one.
    pub const ALL: [Self; 44] = [
        Self::CaughtUp,
        Self::Consuming,
        Self::ListenerSlow,
        Self::ConsumeThreadMax,
        Self::CallsMax,
        Self::SendingBack,
        Self::SendBackFailed,
        Self::WaitsForLock,
        Self::Suspended,
        Self::PullTaskRuns,
        Self::PullTaskWaits,
        Self::PullTaskFailed,
        Self::PullTaskDue,
        Self::Starting,
        Self::StartFailed,
        Self::BrokerUnreachable,
        Self::NoBrokerAddress,
        Self::SubscriptionNotKnown,
        Self::SubscriptionRefused,
        Self::PullRefused,
        Self::BrokerFlowControl,
        Self::PullThresholdForQueue,
        Self::PullThresholdSizeForQueue,
        Self::PullThresholdForTopic,
        Self::PullThresholdSizeForTopic,
        Self::ConsumeConcurrentlyMaxSpan,
        Self::GroupBufferBytes,
        Self::BufferBytes,
        Self::Paused,
        Self::Draining,
        Self::Drained,
        Self::Stopping,
        Self::TopicMissing,
        Self::RouteUnknown,
        Self::NoReadableQueue,
        Self::NoSuchQueue,
        Self::MembersUnknown,
        Self::QueuesNotAllocated,
        Self::OtherMember,
        Self::MoreMembersThanQueues,
        Self::ClientIdClash,
        Self::LocalOffsets,
        Self::LastCommit,
        Self::Assigning,
    ];

    /// As it stands in listings and in the manual.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught-up",
            Self::Consuming => "consuming",
            Self::ListenerSlow => "listener-slow",
            Self::ConsumeThreadMax => "consume-thread-max",
            Self::CallsMax => "calls-max",
            Self::SendingBack => "sending-back",
            Self::SendBackFailed => "send-back-failed",
            Self::WaitsForLock => "waits-for-lock",
            Self::Suspended => "suspended",
            Self::PullTaskRuns => "pull-task-runs",
            Self::PullTaskWaits => "pull-task-waits",
            Self::PullTaskFailed => "pull-task-failed",
            Self::PullTaskDue => "pull-task-due",
            Self::Starting => "starting",
            Self::StartFailed => "start-failed",
            Self::BrokerUnreachable => "broker-unreachable",
            Self::NoBrokerAddress => "no-broker-address",
            Self::SubscriptionNotKnown => "subscription-not-known",
            Self::SubscriptionRefused => "subscription-refused",
            Self::PullRefused => "pull-refused",
            Self::BrokerFlowControl => "broker-flow-control",
            Self::PullThresholdForQueue => "pull-threshold-for-queue",
            Self::PullThresholdSizeForQueue => "pull-threshold-size-for-queue",
            Self::PullThresholdForTopic => "pull-threshold-for-topic",
            Self::PullThresholdSizeForTopic => "pull-threshold-size-for-topic",
            Self::ConsumeConcurrentlyMaxSpan => "consume-concurrently-max-span",
            Self::GroupBufferBytes => "group-buffer-bytes",
            Self::BufferBytes => "buffer-bytes",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Stopping => "stopping",
            Self::TopicMissing => "topic-missing",
            Self::RouteUnknown => "route-unknown",
            Self::NoReadableQueue => "no-readable-queue",
            Self::NoSuchQueue => "no-such-queue",
            Self::MembersUnknown => "members-unknown",
            Self::QueuesNotAllocated => "queues-not-allocated",
            Self::OtherMember => "other-member",
            Self::MoreMembersThanQueues => "more-members-than-queues",
            Self::ClientIdClash => "client-id-clash",
            Self::LocalOffsets => "local-offsets",
            Self::LastCommit => "last-commit",
            Self::Assigning => "assigning",
        }
    }

    /// Nothing is wrong and nothing was held back.
    pub fn is_healthy(self) -> bool {
        matches!(
            self,
            Self::CaughtUp
                | Self::Consuming
                | Self::OtherMember
                | Self::PullTaskRuns
                | Self::PullTaskWaits
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for part in [&self.next, &self.remedy] {
            if !part.is_empty() {
                write!(f, "; {part}")?;
            }
        }
        Ok(())
    }
}

/// Of a queue that nobody has looked at.
impl Default for Reason {
    fn default() -> Self {
        Self::new(Cause::Starting, "not known yet", "", "")
    }
}

impl Reason {
    /// From its parts.
    pub fn new(
        cause: Cause,
        what: impl Into<String>,
        next: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            cause,
            what: what.into(),
            next: next.into(),
            remedy: remedy.into(),
        }
    }
}

impl QueueStatus {
    /// Why the queue is as it is.
    pub(super) fn find_reason(
        &self,
        group: &GroupStatus,
        last_error: Option<&RequestError>,
    ) -> Reason {
        let broker = &self.queue.broker_name;
        match &self.activity {
            Activity::Stopping => stopping(group),
            Activity::Paused(pause) => self.paused(pause, group),
            Activity::WaitsForLock { obstacle } => Reason::new(
                Cause::WaitsForLock,
                match obstacle {
                    None => format!("asking broker \"{broker}\" for the queue's lock"),
                    Some(obstacle) => format!("the queue's lock is not ours: {obstacle}"),
                },
                "it is asked for again every second; a broker ends a lock that nobody renews after a minute",
                "if it stays so, look which member has it, and whether the broker is up",
            ),
            Activity::Suspended {
                offset,
                attempts,
                lasted,
            } => Reason::new(
                Cause::Suspended,
                format!(
                    "message {offset} has failed {attempts} times in {}, and nothing behind it is consumed",
                    approximately(*lasted)
                ),
                "it is tried again in a moment",
                "repair the plugin (its failures are in the log), or set max_reconsume_times",
            ),
            Activity::TaskRuns => Reason::new(
                Cause::PullTaskRuns,
                "its pull task runs",
                "a run that takes too long is killed",
                "",
            ),
            Activity::TaskWaits { again_in } => Reason::new(
                Cause::PullTaskWaits,
                "its pull task rests between two runs, as it asked to",
                format!("it runs again {}", within(*again_in)),
                "",
            ),
            Activity::TaskFailed { error, again_in } => Reason::new(
                Cause::PullTaskFailed,
                format!("the last run of its pull task failed: {error}"),
                format!("it runs again {}", within(*again_in)),
                "repair the plugin; its failures are in the log",
            ),
            Activity::TaskDue => Reason::new(
                Cause::PullTaskDue,
                format!(
                    "its pull task is due and waits for a free call; {} of {} are under way in the group",
                    group.calls, group.calls_max
                ),
                "it runs when one of them ends, or one of the tenant's or the host's",
                "make the runs shorter, or raise consume_thread_max or calls_max",
            ),
            Activity::Starting => Reason::new(
                Cause::Starting,
                format!("asking broker \"{broker}\" where the group begins"),
                "it is pulled as soon as the broker has answered",
                "",
            ),
            Activity::StartFailed { error, again_in } => {
                let what = "where the group begins is not known, so nothing is pulled";
                match error {
                    RequestError::Refused { .. } | RequestError::Malformed { .. } => Reason::new(
                        Cause::StartFailed,
                        format!("{what}: broker \"{broker}\" {error}"),
                        again(*again_in),
                        "look at the broker's log, and whether topic and group exist there",
                    ),
                    _ => unreachable(
                        broker,
                        &format!("{what}: broker \"{broker}\""),
                        error,
                        *again_in,
                    ),
                }
            }
            Activity::Unannounced { again_in } => Reason::new(
                Cause::SubscriptionNotKnown,
                format!("broker \"{broker}\" has yet to take the changed subscription"),
                format!(
                    "it is pulled with its answer, looked at again {}",
                    within(*again_in)
                ),
                "look at the log for what became of the heartbeat",
            ),
            Activity::NoBroker { again_in } => Reason::new(
                Cause::NoBrokerAddress,
                format!("no name server knows an address of broker \"{broker}\""),
                format!("the route is asked for again {}", within(*again_in)),
                "start the broker, or look why it does not register with the name servers",
            ),
            Activity::PullFailed { error, again_in } => self.pull_failed(error, *again_in),
            Activity::BrokerFlowControl => Reason::new(
                Cause::BrokerFlowControl,
                match last_error {
                    Some(error) => format!("broker \"{broker}\" asked to slow down: {error}"),
                    None => format!("broker \"{broker}\" answers pulls at once without messages"),
                },
                "it is pulled again in a moment",
                "look at the load of the broker",
            ),
            Activity::FlowControl(threshold) => self.over_threshold(*threshold, group),
            Activity::Pulling { answered_in } => self.live(*answered_in, group),
        }
    }

    fn pull_failed(&self, error: &RequestError, again_in: Option<Duration>) -> Reason {
        let broker = &self.queue.broker_name;
        match error.code() {
            Some(
                response_code::SUBSCRIPTION_NOT_EXIST | response_code::SUBSCRIPTION_NOT_LATEST,
            ) => Reason::new(
                Cause::SubscriptionNotKnown,
                format!("broker \"{broker}\" has not read our newest heartbeat: {error}"),
                format!("a heartbeat is on its way, and {}", again(again_in)),
                "if it stays so, give all members of the group the same subscriptions",
            ),
            Some(_) => Reason::new(
                Cause::PullRefused,
                format!("broker \"{broker}\" does not let us pull: {error}"),
                again(again_in),
                "look whether topic and group may be read there (permissions, consumeEnable)",
            ),
            None => unreachable(broker, &format!("broker \"{broker}\""), error, again_in),
        }
    }

    fn paused(&self, pause: &PauseStatus, group: &GroupStatus) -> Reason {
        let PauseStatus {
            scope,
            kind,
            drained,
            by,
            since,
        } = pause;
        let since = approximately(*since);
        let rest = match self.cached_messages {
            0 => "nothing that was fetched is left".to_owned(),
            count => format!("{count} fetched messages are still to be consumed"),
        };
        let (cause, verb) = match (kind, drained) {
            (PauseKind::Pause, _) => (Cause::Paused, "paused"),
            (PauseKind::Drain, false) => (Cause::Draining, "draining"),
            (PauseKind::Drain, true) => (Cause::Drained, "drained"),
        };
        Reason::new(
            cause,
            format!("{scope} was asked to stop pulling by {by} {since} ago ({verb}); {rest}"),
            "it stays so until somebody resumes it",
            resume_command(scope, group),
        )
    }

    fn over_threshold(&self, threshold: FlowControl, group: &GroupStatus) -> Reason {
        let messages = |count| format!("{count} messages are fetched and not finished");
        let bytes = |count| format!("{count} bytes of messages are fetched and not finished");
        let (cause, what, key) = match threshold {
            FlowControl::Count => (
                Cause::PullThresholdForQueue,
                messages(self.cached_messages),
                "pull_threshold_for_queue",
            ),
            FlowControl::Size => (
                Cause::PullThresholdSizeForQueue,
                bytes(self.cached_bytes),
                "pull_threshold_size_for_queue",
            ),
            FlowControl::TopicCount => (
                Cause::PullThresholdForTopic,
                messages(self.cached_messages),
                "this queue's share of pull_threshold_for_topic",
            ),
            FlowControl::TopicSize => (
                Cause::PullThresholdSizeForTopic,
                bytes(self.cached_bytes),
                "this queue's share of pull_threshold_size_for_topic",
            ),
            FlowControl::Span => {
                let (first, last) = self.cached_offsets.unwrap_or_default();
                (
                    Cause::ConsumeConcurrentlyMaxSpan,
                    format!("message {first} is not finished, and {last} is fetched already"),
                    "consume_concurrently_max_span",
                )
            }
            FlowControl::GroupBuffer => (
                Cause::GroupBufferBytes,
                format!(
                    "the group holds {} bytes of fetched messages",
                    group.held_bytes
                ),
                "buffer_bytes in [consume] of the manifest",
            ),
            FlowControl::Buffer => return self.out_of_memory(group),
        };
        let delivery = self.delivery_reason(group);
        Reason::new(
            cause,
            format!("{what}, more than {key} allows: {}", delivery.what),
            AGAIN_WHEN_FINISHED,
            format!("make the listener faster; raising {key} only costs memory"),
        )
    }

    fn out_of_memory(&self, group: &GroupStatus) -> Reason {
        let bytes = group.held_bytes;
        Reason::new(
            Cause::BufferBytes,
            format!(
                "the tenant holds as many bytes of fetched messages as its buffer_bytes allows, \
                 and this group with {bytes} its share of them or more"
            ),
            AGAIN_WHEN_FINISHED,
            "look for the group whose listener is slow, or raise buffer_bytes of the tenant",
        )
    }

    /// A pull is under way: what is said is what becomes of the fetched messages.
    fn live(&self, answered_in: Option<Duration>, group: &GroupStatus) -> Reason {
        match self.delivery {
            Delivery::Nothing if self.is_caught_up(answered_in) => Reason::new(
                Cause::CaughtUp,
                "everything is consumed; a pull waits at the broker for the next message",
                match answered_in {
                    Some(time) => format!(
                        "the broker answers at once, without a message within {}",
                        approximately(time)
                    ),
                    None => "the broker answers at once".to_owned(),
                },
                "",
            ),
            Delivery::Nothing => Reason::new(
                Cause::Consuming,
                match self.lag() {
                    Some(lag) => format!("messages are being pulled, {lag} are to be consumed"),
                    None => "the first pull is under way".to_owned(),
                },
                "",
                "",
            ),
            _ => self.delivery_reason(group),
        }
    }

    /// A first pull that the broker does not answer at once is held there: nothing is new.
    fn is_caught_up(&self, answered_in: Option<Duration>) -> bool {
        let held = |left: Duration| left + Duration::from_secs(1) <= PULL_SUSPEND;
        match self.lag() {
            Some(lag) => lag == 0,
            None => answered_in.is_some_and(held),
        }
    }

    /// What becomes of fetched messages.
    fn delivery_reason(&self, group: &GroupStatus) -> Reason {
        let oldest = self.oldest_call.or(group.oldest_call).unwrap_or_default();
        let killed = |oldest: Duration| {
            let left = group.consume_timeout.saturating_sub(oldest);
            format!(
                "the call is killed in {}, at consume_timeout = {}",
                approximately(left),
                approximately(group.consume_timeout)
            )
        };
        match self.delivery {
            Delivery::Nothing => Reason::new(Cause::Consuming, "nothing is fetched", "", ""),
            Delivery::Calling if oldest >= SLOW_CALL => Reason::new(
                Cause::ListenerSlow,
                format!(
                    "the listener has not answered for {}",
                    approximately(oldest)
                ),
                killed(oldest),
                "look what the plugin waits for",
            ),
            Delivery::Calling => Reason::new(
                Cause::Consuming,
                format!("the listener has {} calls with its messages", self.calls),
                "",
                "",
            ),
            Delivery::WaitsForCalls => Reason::new(
                Cause::ConsumeThreadMax,
                format!(
                    "{} of {} calls of consume_thread_max are under way{}, the oldest for {}",
                    group.calls,
                    group.calls_max,
                    if group.calls < group.calls_max {
                        ", and the last is for fresh messages"
                    } else {
                        ""
                    },
                    approximately(group.oldest_call.unwrap_or_default())
                ),
                "its messages are handed over when one of them ends",
                "make the listener faster, or raise consume_thread_max",
            ),
            Delivery::WaitsForPermit => Reason::new(
                Cause::CallsMax,
                "as many calls are under way as the tenant or the host may have",
                "its messages are handed over when one of them ends",
                "look for the group whose listener is slow, or raise calls_max",
            ),
            Delivery::SendingBack => Reason::new(
                Cause::SendingBack,
                format!(
                    "{} failed messages are on their way back to the broker",
                    self.cached_messages
                ),
                "they come again from the retry topic",
                "",
            ),
            Delivery::WaitsForRetry => Reason::new(
                Cause::SendBackFailed,
                format!(
                    "no broker took {} failed messages back, they are kept here",
                    self.local_retries
                ),
                "they are tried again here within five seconds",
                "look at the log for what the broker said, and whether it can be written to",
            ),
        }
    }
}

impl TopicStatus {
    /// What is wrong with the whole topic.
    pub(super) fn find_reason(&self, not_allocated: Option<&str>) -> Option<Reason> {
        let topic = &self.topic;
        let asked = format!("it is asked for again {}", within(self.route_in));
        match &self.route {
            // It exists as soon as the group is known to a broker.
            RouteStatus::Missing | RouteStatus::Unknown { .. } if self.is_retry => None,
            RouteStatus::Missing => Some(Reason::new(
                Cause::TopicMissing,
                format!("topic \"{topic}\" does not exist yet"),
                asked,
                "create it, send the first message to it, or correct its name in the manifest",
            )),
            RouteStatus::Unknown { last_error } => Some(Reason::new(
                Cause::RouteUnknown,
                format!(
                    "the route of topic \"{topic}\" is not known: {}",
                    last_error
                        .as_deref()
                        .unwrap_or("no name server has answered yet")
                ),
                asked,
                "look at the name servers and the network to them, or correct namesrv_addr",
            )),
            RouteStatus::Known { read_queues: 0, .. } => Some(Reason::new(
                Cause::NoReadableQueue,
                format!("topic \"{topic}\" has no queue that may be read"),
                asked,
                "look at the topic's permissions, and whether its brokers are up",
            )),
            RouteStatus::Known { .. } => not_allocated.map(|error| {
                Reason::new(
                    Cause::QueuesNotAllocated,
                    format!("the queues of topic \"{topic}\" cannot be divided: {error}"),
                    "what is held stays held; it is tried again with the next rebalance",
                    "give all members of the group the same allocation strategy",
                )
            }),
        }
    }
}

impl GroupStatus {
    /// What keeps the whole group from consuming, or is wrong with it.
    pub(super) fn find_reasons(&self, obstacle: Option<&str>, clash: Option<&str>) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        if self.state == GroupState::Stopping || self.state == GroupState::Leaving {
            reasons.push(stopping(self));
        }
        reasons.extend(self.topics.iter().filter_map(|topic| topic.reason.clone()));
        if let Some(obstacle) = obstacle {
            reasons.push(Reason::new(
                Cause::MembersUnknown,
                format!("the members are not known: {obstacle}"),
                format!(
                    "its queues stay as they are; it is asked again {}",
                    within(self.rebalance_in)
                ),
                "look whether the brokers of its topics are up and reachable",
            ));
        }
        if let Some(client_id) = clash {
            reasons.push(Reason::new(
                Cause::ClientIdClash,
                format!("another client has our id {client_id}, both consume the same queues"),
                "",
                "give each its own instance_name",
            ));
        }
        let held = self.topics.iter().any(|topic| !topic.queues.is_empty());
        if reasons.is_empty() && !held && !self.members.is_empty() {
            reasons.push(self.no_queue_left());
        }
        reasons
    }

    fn no_queue_left(&self) -> Reason {
        let queues = self.topics.iter().map(|topic| topic.others.len());
        Reason::new(
            Cause::MoreMembersThanQueues,
            format!(
                "no queue is left for us: the group has {} members, its topics have {} queues",
                self.members.len(),
                queues.sum::<usize>()
            ),
            format!("queues are divided again {}", within(self.rebalance_in)),
            "give the topic more queues, or run fewer members",
        )
    }

    /// Why a queue is as it is, whether it is ours or not. `None` when the group does not
    /// read its topic.
    pub fn explain(&self, queue: &MessageQueue) -> Option<Reason> {
        let topic = self
            .topics
            .iter()
            .find(|topic| topic.topic == queue.topic)?;
        if let Some(held) = topic.queues.iter().find(|held| held.queue == *queue) {
            return Some(held.reason.clone());
        }
        if matches!(self.state, GroupState::Stopping | GroupState::Leaving) {
            return Some(stopping(self));
        }
        if let Some(reason) = &topic.reason {
            return Some(reason.clone());
        }
        let Some(other) = topic.others.iter().find(|other| other.queue == *queue) else {
            return Some(Reason::new(
                Cause::NoSuchQueue,
                format!(
                    "topic \"{}\" has no queue {queue} that may be read",
                    topic.topic
                ),
                format!("the route is asked for again {}", within(topic.route_in)),
                "list the queues with mqlet queues",
            ));
        };
        Some(self.not_ours(other))
    }

    fn not_ours(&self, other: &OtherQueue) -> Reason {
        let divided = format!("queues are divided again {}", within(self.rebalance_in));
        if other.releasing {
            return Reason::new(
                Cause::LastCommit,
                "it was given back, and our last call or commit of it is under way",
                "it may be taken again when the broker has answered",
                "",
            );
        }
        if let Some(owner) = &other.owner {
            return Reason::new(
                Cause::OtherMember,
                format!(
                    "member {owner} has it, one of {} of the group",
                    self.members.len()
                ),
                divided,
                "look there",
            );
        }
        let members = self.reasons.iter();
        let mut of_members = members.filter(|reason| reason.cause == Cause::MembersUnknown);
        match of_members.next() {
            Some(reason) => reason.clone(),
            None if self.members.is_empty() && self.message_model == MessageModel::Clustering => {
                Reason::new(
                    Cause::MembersUnknown,
                    "the members of the group have not been asked for yet",
                    divided,
                    "look whether the brokers of its topics are up and reachable",
                )
            }
            None => Reason::new(Cause::Assigning, "nobody is known to have it", divided, ""),
        }
    }
}

fn stopping(group: &GroupStatus) -> Reason {
    match group.state {
        GroupState::Leaving => Reason::new(
            Cause::Stopping,
            "the group is leaving: its offsets are being stored, the brokers are being told",
            "it is gone when they have answered",
            "",
        ),
        GroupState::Stopping | GroupState::Running | GroupState::Paused => Reason::new(
            Cause::Stopping,
            format!(
                "the group is stopping: {} calls and {} messages on their way back are under way",
                group.calls, group.send_backs
            ),
            "what still runs at drain_timeout is killed",
            "",
        ),
    }
}

fn unreachable(
    broker: &str,
    what: &str,
    error: &RequestError,
    again_in: Option<Duration>,
) -> Reason {
    Reason::new(
        Cause::BrokerUnreachable,
        format!("{what} does not answer: {error}"),
        again(again_in),
        format!("look whether broker \"{broker}\" is up, and at the network to it"),
    )
}

fn resume_command(scope: &PauseScope, group: &GroupStatus) -> String {
    let group = &group.consumer_group;
    match scope {
        PauseScope::Group => format!("mqlet resume {group}"),
        PauseScope::Topic(topic) => format!("mqlet resume {group} --topic {topic}"),
        PauseScope::Queue(queue) => format!("mqlet resume {group} --queue {queue}"),
    }
}

fn again(again_in: Option<Duration>) -> String {
    match again_in {
        Some(time) => format!("it is tried again in {}", approximately(time)),
        None => "it is being tried again now".to_owned(),
    }
}

fn within(time: Option<Duration>) -> String {
    match time {
        Some(time) => format!("in {}", approximately(time)),
        None => "now".to_owned(),
    }
}

/// A time as people say it: `0.2s`, `12s`, `3m 5s`, `2h 10m`.
fn approximately(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 if time.subsec_millis() > 0 => format!("{:.1}s", time.as_secs_f64()),
        0..60 => format!("{seconds}s"),
        60..3600 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}
