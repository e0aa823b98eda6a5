//! Collects the values of a group and checks all of them at once.

use std::time::Duration;

use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::topic;

use super::GroupConfig;
use crate::assignment::QueueSelector;
use crate::config::{
    AllocateMessageQueueStrategy, BroadcastRetry, ConsumeFromWhere, OffsetBeyondEnd,
};
use crate::listener::{ConsumeMode, MessageModel};

/// Tasks that run all the time are no tasks.
const PULL_TASK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Collects the values of a [`GroupConfig`]; nothing is checked before `build`.
#[derive(Clone, Debug)]
pub struct GroupConfigBuilder {
    pub(super) config: GroupConfig,
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
