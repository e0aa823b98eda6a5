//! [`GroupConfig`]: what one consumer group is told. Its builder checks it.

mod builder;

pub use builder::{GroupConfigBuilder, GroupConfigError, GroupConfigProblem};

use std::sync::Arc;
use std::time::Duration;

use protocol::subscription::SubscriptionData;
use protocol::topic;

use super::{AllocateMessageQueueStrategy, BroadcastRetry, ConsumeFromWhere, OffsetBeyondEnd};
use crate::assignment::QueueSelector;
use crate::listener::{ConsumeMode, MessageModel};

/// One consumer group, checked.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    consumer_group: Arc<str>,
    message_model: MessageModel,
    consume_from_where: ConsumeFromWhere,
    subscriptions: Vec<SubscriptionData>,
    mode: ConsumeMode,
    allocate_message_queue_strategy: AllocateMessageQueueStrategy,
    consume_message_batch_max_size: u32,
    consume_thread_max: u32,
    consume_timeout: Duration,
    max_reconsume_times: Option<u32>,
    pull_batch_size: u32,
    pull_batch_size_in_bytes: u32,
    pull_threshold_for_queue: u32,
    pull_threshold_size_for_queue: u64,
    pull_threshold_for_topic: Option<u32>,
    pull_threshold_size_for_topic: Option<u64>,
    consume_concurrently_max_span: u32,
    buffer_bytes: Option<u64>,
    suspend_current_queue_time: Duration,
    pull_task_interval: Option<Duration>,
    broadcast_retry: BroadcastRetry,
    offset_beyond_end: OffsetBeyondEnd,
    assign: Option<Vec<QueueSelector>>,
    dead_letter_properties: Vec<(String, String)>,
}

impl GroupConfig {
    /// RocketMQ's attempts before the dead letters, concurrently.
    pub const MAX_RECONSUME_TIMES: u32 = 16;
    /// RocketMQ's pause between two runs of a pull task:
    /// `PullTaskContext#pullNextDelayTimeMillis`.
    pub const PULL_TASK_INTERVAL: Duration = Duration::from_millis(200);

    /// Starts with the defaults.
    pub fn builder(consumer_group: impl Into<Arc<str>>) -> GroupConfigBuilder {
        GroupConfigBuilder {
            config: Self {
                consumer_group: consumer_group.into(),
                message_model: MessageModel::Clustering,
                consume_from_where: ConsumeFromWhere::LastOffset,
                subscriptions: Vec::new(),
                mode: ConsumeMode::Concurrently,
                allocate_message_queue_strategy: AllocateMessageQueueStrategy::Averagely,
                consume_message_batch_max_size: 32,
                consume_thread_max: 20,
                consume_timeout: Duration::from_secs(60),
                max_reconsume_times: None,
                pull_batch_size: 32,
                pull_batch_size_in_bytes: 256 << 10,
                pull_threshold_for_queue: 1000,
                pull_threshold_size_for_queue: 100 << 20,
                pull_threshold_for_topic: None,
                pull_threshold_size_for_topic: None,
                consume_concurrently_max_span: 2000,
                buffer_bytes: None,
                suspend_current_queue_time: Duration::from_secs(1),
                pull_task_interval: None,
                broadcast_retry: BroadcastRetry::Drop,
                offset_beyond_end: OffsetBeyondEnd::Broker,
                assign: None,
                dead_letter_properties: Vec::new(),
            },
        }
    }

    /// The same with names as the brokers of this namespace know them.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        if !namespace.is_empty() {
            self.consumer_group = topic::wrap_namespace(namespace, &self.consumer_group).into();
            for subscription in &mut self.subscriptions {
                subscription.topic =
                    topic::wrap_namespace(namespace, &subscription.topic).into_owned();
            }
            for queues in self.assign.iter_mut().flatten() {
                queues.topic = topic::wrap_namespace(namespace, &queues.topic).into();
            }
            self.allocate_message_queue_strategy =
                self.allocate_message_queue_strategy.in_namespace(namespace);
        }
        self
    }

    /// The group's name.
    pub fn consumer_group(&self) -> &Arc<str> {
        &self.consumer_group
    }

    /// Clustering or broadcasting.
    pub fn message_model(&self) -> MessageModel {
        self.message_model
    }

    /// Where to begin without a committed offset.
    pub fn consume_from_where(&self) -> ConsumeFromWhere {
        self.consume_from_where
    }

    /// One for each topic, the retry topic not among them; not empty.
    pub fn subscriptions(&self) -> &[SubscriptionData] {
        &self.subscriptions
    }

    /// Concurrently or orderly.
    pub fn mode(&self) -> ConsumeMode {
        self.mode
    }

    /// How queues are divided; all members of the group must have the same.
    pub fn allocate_message_queue_strategy(&self) -> &AllocateMessageQueueStrategy {
        &self.allocate_message_queue_strategy
    }

    /// Messages in one call, 1 to 1024. Not RocketMQ's 1: with an outcome for every
    /// message a failure does not repeat the batch.
    pub fn consume_message_batch_max_size(&self) -> u32 {
        self.consume_message_batch_max_size
    }

    /// Calls at once, 1 to 1000.
    pub fn consume_thread_max(&self) -> u32 {
        self.consume_thread_max
    }

    /// Wall clock of one call. Not RocketMQ's 15 minutes: a hung call must not pin its
    /// queue.
    pub fn consume_timeout(&self) -> Duration {
        self.consume_timeout
    }

    /// Attempts after the first one before the dead letters; `None` is for ever.
    pub fn max_reconsume_times(&self) -> Option<u32> {
        match self.mode {
            ConsumeMode::Concurrently => Some(
                self.max_reconsume_times
                    .unwrap_or(Self::MAX_RECONSUME_TIMES),
            ),
            ConsumeMode::Orderly { .. } => self.max_reconsume_times,
        }
    }

    /// Messages in one pull, 1 to 1024.
    pub fn pull_batch_size(&self) -> u32 {
        self.pull_batch_size
    }

    /// Bytes in one pull; the broker has its own limits.
    pub fn pull_batch_size_in_bytes(&self) -> u32 {
        self.pull_batch_size_in_bytes
    }

    /// More unfinished messages than this in a queue stop its pulls, 1 to 65535.
    pub fn pull_threshold_for_queue(&self) -> u32 {
        self.pull_threshold_for_queue
    }

    /// More bytes of unfinished bodies than this in a queue stop its pulls, 1 MiB to 1 GiB.
    pub fn pull_threshold_size_for_queue(&self) -> u64 {
        self.pull_threshold_size_for_queue
    }

    /// Divided among the queues that this client holds of a topic, it takes the place of
    /// `pull_threshold_for_queue`, and each queue has at least one message. 1 to
    /// 6,553,500; `None`: queues are limited, topics are not.
    pub fn pull_threshold_for_topic(&self) -> Option<u32> {
        self.pull_threshold_for_topic
    }

    /// Divided among the queues that this client holds of a topic, it takes the place of
    /// `pull_threshold_size_for_queue`. 1 MiB to 100 GiB; `None`: queues are limited,
    /// topics are not.
    pub fn pull_threshold_size_for_topic(&self) -> Option<u64> {
        self.pull_threshold_size_for_topic
    }

    /// A larger distance between first and last unfinished offset of a queue stops its
    /// pulls, 1 to 65535.
    pub fn consume_concurrently_max_span(&self) -> u32 {
        self.consume_concurrently_max_span
    }

    /// Bytes of pull answers that the group may hold, beside what its client may; not 0.
    /// `None`: the client's bound alone.
    pub fn buffer_bytes(&self) -> Option<u64> {
        self.buffer_bytes
    }

    /// Orderly: how long a queue waits before a failed message comes again.
    pub fn suspend_current_queue_time(&self) -> Duration {
        self.suspend_current_queue_time
    }

    /// Between two runs of a queue's pull task, when the guest does not say; at least a
    /// millisecond. `Some` makes this a group of pull tasks: it has no listener and no
    /// retry topic, and its guest pulls for itself.
    pub fn pull_task_interval(&self) -> Option<Duration> {
        self.pull_task_interval
    }

    /// Queues given by hand: no member is asked for, and there is no rebalance. `None`:
    /// the group's queues are divided among its members.
    pub fn assign(&self) -> Option<&[QueueSelector]> {
        self.assign.as_deref()
    }

    /// What fails comes again from the group's retry topic.
    pub(crate) fn reads_retry_topic(&self) -> bool {
        self.pull_task_interval.is_none()
            && self.assign.is_none()
            && self.message_model == MessageModel::Clustering
    }

    /// Broadcasting: what is done with a message that failed.
    pub fn broadcast_retry(&self) -> BroadcastRetry {
        self.broadcast_retry
    }

    /// Where to go on when an offset is beyond the end of its queue.
    pub fn offset_beyond_end(&self) -> OffsetBeyondEnd {
        self.offset_beyond_end
    }

    /// Properties added to every dead letter beside its reason.
    pub fn dead_letter_properties(&self) -> &[(String, String)] {
        &self.dead_letter_properties
    }
}
