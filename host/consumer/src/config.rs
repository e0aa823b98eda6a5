//! What a client and its groups are told: RocketMQ's words, RocketMQ's defaults unless
//! the field says why not. A [`GroupConfig`] with an invalid value cannot be built.
//!
//! Plain values from whoever starts the client; files, units and environment are read
//! elsewhere.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use protocol::Address;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::topic;

use crate::assignment::QueueSelector;
use crate::listener::{ConsumeMode, MessageModel};
pub use crate::rebalance::allocate::{
    AllocateError, AllocateMessageQueueStrategy, MachineRoomResolver,
};

/// What the groups of one client share. RocketMQ: `ClientConfig`.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Unique in the cluster: `IP@PID#random`. Two clients with one id each consume the
    /// share of one.
    pub client_id: String,
    /// Asked in turn until one answers; not empty.
    pub namesrv_addr: Vec<Address>,
    /// Around every name of a group and topic that goes to a cluster; empty for none.
    /// Listeners and senders do not see it. RocketMQ: `ClientConfig#namespace`.
    pub namespace: String,
    /// Part of the ids of messages that are sent.
    pub ip: IpAddr,
    /// Part of the ids of messages that are sent.
    pub pid: u32,
    /// Bytes of pull answers that may be held; one answer more when it is the first of its
    /// group. Half is divided among the groups, each of which has its share for itself.
    pub buffer_bytes: u64,
    /// A larger body, decompressed, is a fault of its message.
    pub body_bytes_max: u32,
    /// A larger body is not sent. RocketMQ: `maxMessageSize`.
    pub max_message_size: u32,
    /// Send-backs and dead letters under way; more wait in their queue.
    pub send_backs_max: usize,
    /// Sends of guests and users under way; more are refused.
    pub sends_max: usize,
    /// Queues that a topic gets when sending creates it. RocketMQ: `defaultTopicQueueNums`.
    pub default_topic_queue_nums: u32,
}

impl ClientConfig {
    /// Defaults for everything but identity and name servers.
    pub fn new(client_id: impl Into<String>, namesrv_addr: Vec<Address>) -> Self {
        Self {
            client_id: client_id.into(),
            namesrv_addr,
            namespace: String::new(),
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pid: 1,
            buffer_bytes: 1 << 30,
            body_bytes_max: 32 << 20,
            max_message_size: 4 << 20,
            send_backs_max: 256,
            sends_max: 1024,
            default_topic_queue_nums: 4,
        }
    }
}

/// Where a group without a committed offset begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsumeFromWhere {
    /// At the end of each queue. Queues that appear later start at their beginning.
    #[default]
    LastOffset,
    /// At the oldest message of each queue.
    FirstOffset,
    /// At the first message stored at this time or later, Unix milliseconds.
    Timestamp(u64),
}

/// Tasks that run all the time are no tasks.
const PULL_TASK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// What a broadcasting group does with a message that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BroadcastRetry {
    /// It does not come again, as in RocketMQ.
    #[default]
    Drop,
    /// It is tried again here after a while, `max_reconsume_times` times.
    Local,
}

/// Where to go on when the offset of a group is beyond the end of its queue: the broker
/// lost messages, or the topic was made anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OffsetBeyondEnd {
    /// Where the broker says, as in RocketMQ: 5.x says the end.
    #[default]
    Broker,
    /// At the oldest message.
    MinOffset,
    /// At the end.
    MaxOffset,
}

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

/// Collects the values of a [`GroupConfig`]; nothing is checked before `build`.
#[derive(Clone, Debug)]
pub struct GroupConfigBuilder {
    config: GroupConfig,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: $type) -> Self {
            self.config.$name = value;
            self
        }
    )*};
}

impl GroupConfigBuilder {
    setters! {
        /// Clustering unless set.
        message_model: MessageModel;
        /// The end of each queue unless set.
        consume_from_where: ConsumeFromWhere;
        /// Concurrently unless set.
        mode: ConsumeMode;
        /// `AVG` unless set.
        allocate_message_queue_strategy: AllocateMessageQueueStrategy;
        /// 32 unless set.
        consume_message_batch_max_size: u32;
        /// 20 unless set.
        consume_thread_max: u32;
        /// A minute unless set.
        consume_timeout: Duration;
        /// 32 unless set.
        pull_batch_size: u32;
        /// 256 KiB unless set.
        pull_batch_size_in_bytes: u32;
        /// 1000 unless set.
        pull_threshold_for_queue: u32;
        /// 100 MiB unless set.
        pull_threshold_size_for_queue: u64;
        /// 2000 unless set.
        consume_concurrently_max_span: u32;
        /// A second unless set.
        suspend_current_queue_time: Duration;
        /// Dropped unless set.
        broadcast_retry: BroadcastRetry;
        /// The broker's word unless set.
        offset_beyond_end: OffsetBeyondEnd;
        /// None unless set.
        dead_letter_properties: Vec<(String, String)>;
    }

    /// Makes it a group of pull tasks, which run at this interval unless the guest says
    /// when. [`GroupConfig::PULL_TASK_INTERVAL`] is RocketMQ's.
    #[must_use]
    pub fn pull_task_interval(mut self, value: Duration) -> Self {
        self.config.pull_task_interval = Some(value);
        self
    }

    /// Gives it these queues, in place of its share among the group's members. What fails
    /// waits here for its next attempt: nobody reads the retry topic of such a group.
    #[must_use]
    pub fn assign(mut self, queues: Vec<QueueSelector>) -> Self {
        self.config.assign = Some(queues);
        self
    }

    /// Adds a topic.
    #[must_use]
    pub fn subscription(mut self, subscription: SubscriptionData) -> Self {
        self.config.subscriptions.push(subscription);
        self
    }

    /// A topic has no threshold of its own unless set.
    #[must_use]
    pub fn pull_threshold_for_topic(mut self, value: u32) -> Self {
        self.config.pull_threshold_for_topic = Some(value);
        self
    }

    /// A topic has no threshold of its own unless set.
    #[must_use]
    pub fn pull_threshold_size_for_topic(mut self, value: u64) -> Self {
        self.config.pull_threshold_size_for_topic = Some(value);
        self
    }

    /// A group has no bound of its own unless set.
    #[must_use]
    pub fn buffer_bytes(mut self, value: u64) -> Self {
        self.config.buffer_bytes = Some(value);
        self
    }

    /// 16 unless set; orderly for ever.
    #[must_use]
    pub fn max_reconsume_times(mut self, value: u32) -> Self {
        self.config.max_reconsume_times = Some(value);
        self
    }

    /// Checks every value. RocketMQ: `DefaultMQPushConsumerImpl#checkConfig`.
    ///
    /// # Errors
    /// All problems at once.
    pub fn build(self) -> Result<GroupConfig, GroupConfigError> {
        let config = self.config;
        let mut problems = Vec::new();
        let mut problem = |key, value: String, rule: String| {
            problems.push(GroupConfigProblem { key, value, rule });
        };
        if let Err(error) = topic::check_group_name(&config.consumer_group) {
            problem(
                "consumer_group",
                config.consumer_group.to_string(),
                error.to_string(),
            );
        }
        if config.subscriptions.is_empty() {
            problem(
                "subscription",
                String::new(),
                "at least one topic is needed".to_owned(),
            );
        }
        for (index, subscription) in config.subscriptions.iter().enumerate() {
            if let Err(error) = topic::check_topic_name(&subscription.topic) {
                problem(
                    "subscription.topic",
                    subscription.topic.clone(),
                    error.to_string(),
                );
            }
            if config.subscriptions[..index]
                .iter()
                .any(|other| other.topic == subscription.topic)
            {
                problem(
                    "subscription.topic",
                    subscription.topic.clone(),
                    "a group subscribes to a topic once; join the tags with ||".to_owned(),
                );
            }
            if let ExpressionType::Other(name) = &subscription.expression_type {
                problem(
                    "subscription.expression_type",
                    name.clone(),
                    "RocketMQ has TAG and SQL92".to_owned(),
                );
            }
        }
        let numbers = [
            (
                "consume.consume_message_batch_max_size",
                u64::from(config.consume_message_batch_max_size),
                1..=1024,
            ),
            (
                "consume.consume_thread_max",
                u64::from(config.consume_thread_max),
                1..=1000,
            ),
            (
                "consume.max_reconsume_times",
                u64::from(config.max_reconsume_times.unwrap_or_default()),
                0..=0x7fff_ffff,
            ),
            (
                "consume.pull_batch_size",
                u64::from(config.pull_batch_size),
                1..=1024,
            ),
            (
                "consume.pull_batch_size_in_bytes",
                u64::from(config.pull_batch_size_in_bytes),
                1..=0x7fff_ffff,
            ),
            (
                "consume.pull_threshold_for_queue",
                u64::from(config.pull_threshold_for_queue),
                1..=65535,
            ),
            (
                "consume.pull_threshold_size_for_queue",
                config.pull_threshold_size_for_queue,
                1 << 20..=1 << 30,
            ),
            (
                "consume.pull_threshold_for_topic",
                u64::from(config.pull_threshold_for_topic.unwrap_or(1)),
                1..=6_553_500,
            ),
            (
                "consume.pull_threshold_size_for_topic",
                config.pull_threshold_size_for_topic.unwrap_or(1 << 20),
                1 << 20..=100 << 30,
            ),
            (
                "consume.buffer_bytes",
                config.buffer_bytes.unwrap_or(1),
                1..=u64::MAX,
            ),
            (
                "consume.consume_concurrently_max_span",
                u64::from(config.consume_concurrently_max_span),
                1..=65535,
            ),
        ];
        for (key, value, range) in numbers {
            if !range.contains(&value) {
                problem(
                    key,
                    value.to_string(),
                    format!("must be {} to {}", range.start(), range.end()),
                );
            }
        }
        if config.consume_timeout.is_zero() {
            problem(
                "consume.consume_timeout",
                "0".to_owned(),
                "must be longer than zero".to_owned(),
            );
        }
        if let Some(queues) = &config.assign {
            if queues.is_empty() {
                problem(
                    "assign",
                    String::new(),
                    "at least one topic is needed".to_owned(),
                );
            }
            if config.message_model == MessageModel::Broadcasting {
                problem(
                    "assign",
                    "with message_model = \"broadcasting\"".to_owned(),
                    "every member of a broadcasting group reads every queue; leave it out"
                        .to_owned(),
                );
            }
            for queue in queues {
                let subscriptions = &config.subscriptions;
                if subscriptions.iter().all(|s| *s.topic != *queue.topic) {
                    problem(
                        "assign.topic",
                        queue.topic.to_string(),
                        "must be the topic of a subscription".to_owned(),
                    );
                }
            }
        }
        if config
            .pull_task_interval
            .is_some_and(|interval| interval < PULL_TASK_INTERVAL_MIN)
        {
            problem(
                "consume.pull_task_interval",
                format!("{:?}", config.pull_task_interval.unwrap_or_default()),
                "must be at least 1ms".to_owned(),
            );
        }
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(GroupConfigError { problems })
        }
    }
}

/// One value that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfigProblem {
    /// As in a manifest: `consume.pull_batch_size`.
    pub key: &'static str,
    /// The value given.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

/// Why a [`GroupConfig`] was not built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", list(problems))]
pub struct GroupConfigError {
    /// Not empty.
    pub problems: Vec<GroupConfigProblem>,
}

fn list(problems: &[GroupConfigProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("{} = \"{}\": {}", problem.key, problem.value, problem.rule))
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_at_once() {
        let error = GroupConfig::builder("a group")
            .pull_batch_size(0)
            .pull_threshold_for_queue(70_000)
            .build()
            .expect_err("four problems");
        let keys: Vec<_> = error.problems.iter().map(|p| p.key).collect();
        assert_eq!(
            keys,
            [
                "consumer_group",
                "subscription",
                "consume.pull_batch_size",
                "consume.pull_threshold_for_queue"
            ]
        );
    }

    #[test]
    fn defaults_are_valid_and_attempts_depend_on_the_mode() {
        let build = |mode| {
            GroupConfig::builder("G1")
                .subscription(SubscriptionData::all("T1"))
                .mode(mode)
                .build()
                .expect("valid")
        };
        let concurrently = build(ConsumeMode::Concurrently);
        let orderly = build(ConsumeMode::Orderly { auto_commit: true });
        assert_eq!(concurrently.max_reconsume_times(), Some(16));
        assert_eq!(orderly.max_reconsume_times(), None);
    }
}
