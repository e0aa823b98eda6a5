//! Requests as they go over the wire.

use protocol::body::{CheckClientRequestBody, LockBatchRequestBody, UnlockBatchRequestBody};
use protocol::code::request_code;
use protocol::header::{
    CheckClientConfigRequestHeader, ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader, GetConsumerRunningInfoRequestHeader,
    GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader, GetRouteInfoRequestHeader, Header,
    PullMessageRequestHeader, QueryConsumerOffsetRequestHeader, SearchOffsetRequestHeader,
    SendMessageRequestHeaderV2, UnregisterClientRequestHeader, UpdateConsumerOffsetRequestHeader,
};
use protocol::sys_flag::PullSysFlag;
use protocol::{ExtFields, MessageQueue, QueueOffset, RemotingCommand};

use super::decode::Answer;
use super::{Expect, PullMessage, Request};

impl Request {
    /// As it goes over the wire, without opaque.
    pub fn to_command(&self) -> RemotingCommand {
        let broker_name = |queue: &MessageQueue| Some(queue.broker_name.to_string());
        let (code, fields) = match self {
            Self::GetRouteInfo { topic } => (
                request_code::GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader {
                    topic: topic.to_string(),
                    accept_standard_json_only: None,
                }
                .encode(),
            ),
            Self::HeartBeat { body } => {
                return RemotingCommand::request(request_code::HEART_BEAT, ExtFields::default())
                    .with_body(body.clone());
            }
            Self::CheckClientConfig {
                client_id,
                consumer_group,
                subscription,
            } => {
                let body = CheckClientRequestBody {
                    client_id: client_id.to_string(),
                    group: consumer_group.to_string(),
                    namespace: None,
                    subscription_data: Some((**subscription).clone()),
                };
                let header = CheckClientConfigRequestHeader {}.encode();
                return RemotingCommand::request(request_code::CHECK_CLIENT_CONFIG, header)
                    .with_body(body.encode());
            }
            Self::UnregisterClient {
                client_id,
                consumer_group,
                producer_group,
            } => (
                request_code::UNREGISTER_CLIENT,
                UnregisterClientRequestHeader {
                    client_id: client_id.to_string(),
                    producer_group: producer_group.as_deref().map(str::to_owned),
                    consumer_group: consumer_group.as_deref().map(str::to_owned),
                }
                .encode(),
            ),
            Self::GetConsumerListByGroup { consumer_group } => (
                request_code::GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroupRequestHeader {
                    consumer_group: consumer_group.to_string(),
                }
                .encode(),
            ),
            Self::GetConsumerRunningInfo {
                consumer_group,
                client_id,
            } => (
                request_code::GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader {
                    consumer_group: consumer_group.to_string(),
                    client_id: client_id.to_string(),
                    jstack_enable: Some(false),
                }
                .encode(),
            ),
            Self::QueryConsumerOffset {
                consumer_group,
                queue,
            } => (
                request_code::QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader {
                    consumer_group: consumer_group.to_string(),
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    set_zero_if_not_found: Some(false),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::UpdateConsumerOffset {
                consumer_group,
                queue,
                commit_offset,
            } => (
                request_code::UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffsetRequestHeader {
                    consumer_group: consumer_group.to_string(),
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    commit_offset: commit_offset.to_wire(),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::PullMessage(pull) => (request_code::PULL_MESSAGE, pull.header().encode()),
            Self::GetMaxOffset { queue } => (
                request_code::GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    committed: None,
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::GetMinOffset { queue } => (
                request_code::GET_MIN_OFFSET,
                GetMinOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::SearchOffset {
                queue,
                timestamp_ms,
            } => (
                request_code::SEARCH_OFFSET_BY_TIMESTAMP,
                SearchOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    timestamp: i64::try_from(*timestamp_ms).unwrap_or(i64::MAX),
                    boundary_type: None,
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::LockBatch {
                client_id,
                consumer_group,
                queues,
            } => {
                let body = LockBatchRequestBody {
                    client_id: client_id.to_string(),
                    consumer_group: consumer_group.to_string(),
                    mq_set: queues.clone(),
                    only_this_broker: false,
                };
                return RemotingCommand::request(request_code::LOCK_BATCH_MQ, ExtFields::default())
                    .with_body(body.encode());
            }
            Self::UnlockBatch {
                client_id,
                consumer_group,
                queues,
            } => {
                let body = UnlockBatchRequestBody {
                    client_id: client_id.to_string(),
                    consumer_group: consumer_group.to_string(),
                    mq_set: queues.clone(),
                    only_this_broker: false,
                };
                return RemotingCommand::request(
                    request_code::UNLOCK_BATCH_MQ,
                    ExtFields::default(),
                )
                .with_body(body.encode());
            }
            Self::SendMessageBack(back) => (
                request_code::CONSUMER_SEND_MSG_BACK,
                ConsumerSendMsgBackRequestHeader {
                    offset: i64::try_from(back.commit_log_offset).unwrap_or(i64::MAX),
                    group: back.consumer_group.to_string(),
                    delay_level: back.delay_level,
                    origin_msg_id: Some(back.message_id.clone()),
                    origin_topic: Some(back.origin_topic.to_string()),
                    unit_mode: Some(false),
                    max_reconsume_times: Some(back.max_reconsume_times),
                    bname: Some(back.broker_name.to_string()),
                }
                .encode(),
            ),
            Self::SendMessage(send) => {
                let code = if send.header.batch == Some(true) {
                    request_code::SEND_BATCH_MESSAGE
                } else {
                    request_code::SEND_MESSAGE_V2
                };
                let fields = SendMessageRequestHeaderV2(send.header.clone()).encode();
                return RemotingCommand::request(code, fields).with_body(send.body.clone());
            }
        };
        RemotingCommand::request(code, fields)
    }

    /// How to read the answer.
    pub fn expect(&self) -> Expect {
        Expect::new(match self {
            Self::GetRouteInfo { .. } => Answer::Route,
            Self::HeartBeat { .. }
            | Self::CheckClientConfig { .. }
            | Self::UnregisterClient { .. }
            | Self::UpdateConsumerOffset { .. }
            | Self::UnlockBatch { .. }
            | Self::SendMessageBack(_) => Answer::Done,
            Self::GetConsumerListByGroup { .. } => Answer::ConsumerList,
            Self::GetConsumerRunningInfo { .. } => Answer::Subscriptions,
            Self::QueryConsumerOffset { .. } => Answer::ConsumerOffset,
            Self::PullMessage(pull) => Answer::Pull {
                body_bytes_max: pull.body_bytes_max,
            },
            Self::GetMaxOffset { .. } => Answer::MaxOffset,
            Self::GetMinOffset { .. } => Answer::MinOffset,
            Self::SearchOffset { .. } => Answer::SearchOffset,
            Self::LockBatch { .. } => Answer::Locked,
            Self::SendMessage(_) => Answer::Sent,
        })
    }
}

impl PullMessage {
    fn header(&self) -> PullMessageRequestHeader {
        let mut sys_flag = PullSysFlag::EMPTY;
        if self.commit {
            sys_flag = sys_flag.with(PullSysFlag::COMMIT_OFFSET);
        }
        if !self.suspend.is_zero() {
            sys_flag = sys_flag.with(PullSysFlag::SUSPEND);
        }
        if self.subscription.is_some() {
            sys_flag = sys_flag.with(PullSysFlag::SUBSCRIPTION);
        }
        PullMessageRequestHeader {
            consumer_group: self.consumer_group.to_string(),
            topic: self.queue.topic.to_string(),
            queue_id: to_i32(self.queue.queue_id),
            queue_offset: self.queue_offset.to_wire(),
            max_msg_nums: to_i32(self.max_msg_nums),
            sys_flag: sys_flag.0,
            commit_offset: self.commit_offset.map_or(-1, QueueOffset::to_wire),
            suspend_timeout_millis: i64::try_from(self.suspend.as_millis()).unwrap_or(i64::MAX),
            subscription: self.subscription.as_deref().map(str::to_owned),
            sub_version: self.sub_version,
            expression_type: Some(self.expression_type.as_str().to_owned()),
            max_msg_bytes: Some(to_i32(self.max_msg_bytes)),
            request_source: None,
            proxy_froward_client_id: None,
            bname: Some(self.queue.broker_name.to_string()),
        }
    }
}

fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
