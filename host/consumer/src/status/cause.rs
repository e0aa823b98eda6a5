//! [`Cause`]: everything that a reason can be about, for programs and for the manual.

use std::fmt;

/// Everything that a reason can be about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Nothing is to be consumed, a pull waits for the next message.
    CaughtUp,
    /// Messages come through.
    Consuming,
    /// A call has been running for seconds.
    ListenerSlow,
    /// The listener keeps failing, and is not called for a while.
    ListenerFailing,
    /// `consume_thread_max` calls are under way.
    ConsumeThreadMax,
    /// The tenant's or the host's `calls_max` are under way.
    CallsMax,
    /// Failed messages are on their way back to the broker.
    SendingBack,
    /// Messages that were sent back have not come again.
    RetriesMissed,
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
    /// Another member of the group reads something else.
    SubscriptionsDiffer,
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
    pub const ALL: [Self; 47] = [
        Self::CaughtUp,
        Self::Consuming,
        Self::ListenerSlow,
        Self::ListenerFailing,
        Self::ConsumeThreadMax,
        Self::CallsMax,
        Self::SendingBack,
        Self::RetriesMissed,
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
        Self::SubscriptionsDiffer,
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
            Self::ListenerFailing => "listener-failing",
            Self::ConsumeThreadMax => "consume-thread-max",
            Self::CallsMax => "calls-max",
            Self::SendingBack => "sending-back",
            Self::RetriesMissed => "retries-missed",
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
            Self::SubscriptionsDiffer => "subscriptions-differ",
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
