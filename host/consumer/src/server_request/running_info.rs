//! 307: how a group is doing, as RocketMQ's tools read it.
//!
//! The rules fill in what they hold. What runs the listener has more to say (plugin,
//! revision, limits, calls under way): whoever takes the answer adds it before it is
//! encoded. RocketMQ: `DefaultMQPushConsumerImpl#consumerRunningInfo`.

use std::sync::Arc;

use protocol::body::{
    ConsumeType, ConsumerRunningInfo, ProcessQueueInfo, running_info_property as property,
};
use protocol::code::response_code;
use protocol::header::GetConsumerRunningInfoRequestHeader;
use protocol::{Instant, QueueOffset, RemotingCommand};

use super::{decode, malformed};
use crate::client::Client;
use crate::config::ConsumeFromWhere;
use crate::group::{AssignedQueue, ConsumerGroup};
use crate::listener::{ConsumeMode, MessageModel};
use crate::request::ServerRequestId;
use crate::timers::LOCK_LIVE_TIME;

/// The name of the version that we send, `protocol::command::VERSION`.
const CLIENT_VERSION: &str = "V5_3_3";
/// Groups that may be asked about before anybody takes the answers.
const RUNNING_INFOS_MAX: usize = 64;

/// An answer to 307 that wants to be completed and encoded.
#[derive(Debug)]
pub struct RunningInfo {
    /// Comes back with the answer.
    pub id: ServerRequestId,
    /// The group, as its user knows it.
    pub consumer_group: Arc<str>,
    /// Stacks were asked for too.
    pub jstack: bool,
    /// What the rules know.
    pub info: ConsumerRunningInfo,
    response: RemotingCommand,
}

impl RunningInfo {
    /// The answer.
    pub fn encode(self) -> RemotingCommand {
        self.response.with_body(self.info.encode())
    }
}

impl Client {
    /// The next answer to a broker that asked how a group is doing.
    pub fn poll_running_info(&mut self) -> Option<RunningInfo> {
        self.running_infos.pop_front()
    }

    /// An answer at once only when there is nothing to be said.
    pub(super) fn running_info(
        &mut self,
        id: ServerRequestId,
        command: &RemotingCommand,
        now: Instant,
    ) -> Option<RemotingCommand> {
        let header = match decode::<GetConsumerRunningInfoRequestHeader>(command) {
            Ok(header) => header,
            Err(error) => return Some(malformed(command, &error)),
        };
        let group = self.group_names.get(header.consumer_group.as_str());
        let Some(group) = group.and_then(|&group| self.groups.get(group)) else {
            return Some(unknown_group(command, &header.consumer_group));
        };
        if self.running_infos.len() >= RUNNING_INFOS_MAX {
            let busy = RemotingCommand::response_to(command, response_code::SYSTEM_BUSY);
            return Some(busy.with_remark("too many questions at once, ask again"));
        }
        let answer = RunningInfo {
            id,
            consumer_group: self.without_namespace(&group.name),
            jstack: header.jstack_enable == Some(true),
            info: self.info_of(group, now),
            response: RemotingCommand::response_to(command, response_code::SUCCESS),
        };
        self.running_infos.push_back(answer);
        None
    }

    fn info_of(&self, group: &ConsumerGroup, now: Instant) -> ConsumerRunningInfo {
        let mut info = ConsumerRunningInfo::default();
        let subscriptions = group.topics.iter().map(|topic| topic.subscription.clone());
        info.subscription_set = subscriptions.collect();
        for topic in &group.topics {
            let status = topic.statistics.status(now);
            info.status_table.insert(topic.name.to_string(), status);
            for (name, &epoch) in &topic.held {
                if let Some(queue) = self.queues.get(epoch) {
                    let queue = self.process_queue_info(queue, now);
                    info.mq_table.insert(name.clone(), queue);
                }
            }
        }
        info.properties = self
            .properties(group)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        info
    }

    /// What tools need, then the group's settings under RocketMQ's names.
    fn properties(&self, group: &ConsumerGroup) -> Vec<(&'static str, String)> {
        let config = &group.config;
        let servers = self.routes.name_servers.iter();
        let namesrv_addr: String = servers
            .map(|server| format!("{};", server.address))
            .collect();
        let is_orderly = matches!(config.mode(), ConsumeMode::Orderly { .. });
        let consume_type = match config.pull_task_interval() {
            Some(_) => ConsumeType::Actively,
            None => ConsumeType::Passively,
        };
        let consume_type = consume_type.as_str().to_owned();
        vec![
            (property::CONSUME_TYPE, consume_type),
            (property::CONSUME_ORDERLY, is_orderly.to_string()),
            (
                property::THREADPOOL_CORE_SIZE,
                config.consume_thread_max().to_string(),
            ),
            (
                property::CONSUMER_START_TIMESTAMP,
                self.clock.unix_ms(group.subscribed_at).to_string(),
            ),
            (property::NAMESERVER_ADDR, namesrv_addr),
            (property::CLIENT_VERSION, CLIENT_VERSION.to_owned()),
            ("consumerGroup", group.name.to_string()),
            (
                "messageModel",
                match config.message_model() {
                    MessageModel::Clustering => "CLUSTERING",
                    MessageModel::Broadcasting => "BROADCASTING",
                }
                .to_owned(),
            ),
            (
                "consumeFromWhere",
                match config.consume_from_where() {
                    ConsumeFromWhere::LastOffset => "CONSUME_FROM_LAST_OFFSET",
                    ConsumeFromWhere::FirstOffset => "CONSUME_FROM_FIRST_OFFSET",
                    ConsumeFromWhere::Timestamp(_) => "CONSUME_FROM_TIMESTAMP",
                }
                .to_owned(),
            ),
            (
                "allocateMessageQueueStrategy",
                config.allocate_message_queue_strategy().name().into_owned(),
            ),
            ("consumeThreadMax", config.consume_thread_max().to_string()),
            (
                "consumeMessageBatchMaxSize",
                config.consume_message_batch_max_size().to_string(),
            ),
            (
                "consumeTimeoutMillis",
                config.consume_timeout().as_millis().to_string(),
            ),
            (
                "maxReconsumeTimes",
                config
                    .max_reconsume_times()
                    .map_or("-1".to_owned(), |max| max.to_string()),
            ),
            ("pullBatchSize", config.pull_batch_size().to_string()),
            (
                "pullThresholdForQueue",
                config.pull_threshold_for_queue().to_string(),
            ),
            (
                "pullThresholdSizeForQueue",
                (config.pull_threshold_size_for_queue() >> 20).to_string(),
            ),
            (
                "pullThresholdForTopic",
                config
                    .pull_threshold_for_topic()
                    .map_or("-1".to_owned(), |max| max.to_string()),
            ),
            (
                "pullThresholdSizeForTopic",
                config
                    .pull_threshold_size_for_topic()
                    .map_or("-1".to_owned(), |max| (max >> 20).to_string()),
            ),
            (
                "consumeConcurrentlyMaxSpan",
                config.consume_concurrently_max_span().to_string(),
            ),
            ("language", "RUST".to_owned()),
        ]
    }

    /// RocketMQ: `ProcessQueue#fillProcessQueueInfo`.
    fn process_queue_info(&self, queue: &AssignedQueue, now: Instant) -> ProcessQueueInfo {
        let cached = &queue.process_queue;
        // What has not happened yet is shown as now, as in Java.
        let unix_ms = |at: Option<Instant>| {
            i64::try_from(self.clock.unix_ms(at.unwrap_or(now))).unwrap_or(i64::MAX)
        };
        let offset = |offset: Option<QueueOffset>| offset.map_or(0, QueueOffset::to_wire);
        ProcessQueueInfo {
            cached_msg_count: i32::try_from(cached.messages()).unwrap_or(i32::MAX),
            cached_msg_min_offset: offset(cached.head()),
            cached_msg_max_offset: offset(cached.last()),
            cached_msg_size_in_mib: i32::try_from(cached.body_bytes() >> 20).unwrap_or(i32::MAX),
            commit_offset: queue.commit.finished().map_or(-1, QueueOffset::to_wire),
            last_consume_timestamp: unix_ms(queue.consumed_at),
            last_pull_timestamp: unix_ms(queue.pulled_at),
            locked: queue.lock.as_ref().is_some_and(|lock| lock.is_live(now)),
            last_lock_timestamp: unix_ms(queue.lock.as_ref().and_then(|lock| {
                let asked = lock.live_until()?.since_origin();
                Some(Instant::after_origin(asked.saturating_sub(LOCK_LIVE_TIME)))
            })),
            ..ProcessQueueInfo::default()
        }
    }
}

pub(super) fn unknown_group(command: &RemotingCommand, consumer_group: &str) -> RemotingCommand {
    RemotingCommand::response_to(command, response_code::SYSTEM_ERROR).with_remark(format!(
        "The Consumer Group <{consumer_group}> not exist in this consumer"
    ))
}
