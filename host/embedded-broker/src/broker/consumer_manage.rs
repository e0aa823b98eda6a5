//! Member lists, consumer offsets and queue locks.
//!
//! RocketMQ: `ConsumerManageProcessor`, `AdminBrokerProcessor#lockBatchMQ`.

use protocol::body::{
    ConsumerList, LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody,
};
use protocol::code::response_code;
use protocol::header::{
    GetConsumerListByGroupRequestHeader, Header, HeaderError, QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader, UpdateConsumerOffsetRequestHeader,
};
use protocol::{ExtFields, Instant, RemotingCommand};

use super::{Answer, Broker, Refusal, header, queue_id, success, success_with};
use crate::offsets::Commit;

impl Broker {
    pub(super) fn consumer_list_by_group(&mut self, request: &RemotingCommand) -> Answer {
        let header: GetConsumerListByGroupRequestHeader = header(request)?;
        let consumer_ids = self.groups.client_ids(&header.consumer_group);
        if consumer_ids.is_empty() {
            return Err(Refusal::new(
                response_code::SYSTEM_ERROR,
                format!("no consumer for this group, {}", header.consumer_group),
            ));
        }
        let body = ConsumerList { consumer_ids }.encode();
        Ok(success(request)
            .with_ext_fields(ExtFields::default())
            .with_body(body))
    }

    /// A group without an offset starts at 0 in a queue that still has its first
    /// message, whatever its start policy; a request may ask not to be told so.
    pub(super) fn query_consumer_offset(&mut self, request: &RemotingCommand) -> Answer {
        let header: QueryConsumerOffsetRequestHeader = header(request)?;
        let not_found = |remark| Err(Refusal::new(response_code::QUERY_NOT_FOUND, remark));
        let queue = queue_id(header.queue_id);
        let stored = queue.and_then(|queue| {
            self.offsets
                .query(&header.consumer_group, &header.topic, queue)
        });
        let is_young =
            queue.is_some_and(|queue| self.store.entry(&header.topic, queue, 0).is_some());
        let offset = match stored {
            Some(offset) => offset,
            None if header.set_zero_if_not_found == Some(false) => {
                return not_found("Not found, do not set to zero, maybe this group boot first");
            }
            None if is_young => 0,
            None => {
                return not_found(
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                );
            }
        };
        Ok(success_with(
            request,
            &QueryConsumerOffsetResponseHeader { offset },
        ))
    }

    pub(super) fn update_consumer_offset(&mut self, request: &RemotingCommand) -> Answer {
        let fields = request.ext_fields.clone().unwrap_or_default();
        let group = fields.get("consumerGroup").unwrap_or_default();
        let topic = fields.get("topic").unwrap_or_default();
        if !self.groups.contains(group) {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_GROUP_NOT_EXIST,
                format!("Group {group} not exist!"),
            ));
        }
        if self.topics.get(topic).is_none() {
            return Err(Refusal::new(
                response_code::TOPIC_NOT_EXIST,
                format!("Topic {topic} not exist!"),
            ));
        }
        let invalid = |what| {
            Refusal::new(
                response_code::INVALID_PARAMETER,
                format!("{what} is null, topic is {topic}"),
            )
        };
        let header =
            UpdateConsumerOffsetRequestHeader::decode(&fields).map_err(|error| match error {
                HeaderError::Missing {
                    field: "queueId", ..
                } => invalid("QueueId"),
                HeaderError::Missing {
                    field: "commitOffset",
                    ..
                } => invalid("Offset"),
                error => Refusal::new(response_code::INVALID_PARAMETER, error.to_string()),
            })?;
        let Some(queue_id) = queue_id(header.queue_id) else {
            return Err(invalid("QueueId"));
        };
        let success = success(request).with_ext_fields(ExtFields::default());
        match self.commit_offset(group, topic, queue_id, header.commit_offset) {
            Commit::Stored => Ok(success),
            Commit::ResetPending => Ok(success.with_remark("Offset has been previously reset")),
            Commit::Full => Err(Refusal::new(
                response_code::SYSTEM_ERROR,
                "the broker stores no more consumer offsets; raise offsets_max",
            )),
        }
    }

    pub(super) fn lock_batch_mq(&mut self, request: &RemotingCommand, now: Instant) -> Answer {
        let body = LockBatchRequestBody::decode(&request.body)
            .map_err(|error| Refusal::new(response_code::SYSTEM_ERROR, error.to_string()))?;
        let lock_ok_mq_set =
            self.locks
                .lock(&body.consumer_group, &body.client_id, &body.mq_set, now);
        Ok(success(request).with_body(LockBatchResponseBody { lock_ok_mq_set }.encode()))
    }

    pub(super) fn unlock_batch_mq(&mut self, request: &RemotingCommand) -> Answer {
        let body = UnlockBatchRequestBody::decode(&request.body)
            .map_err(|error| Refusal::new(response_code::SYSTEM_ERROR, error.to_string()))?;
        self.locks
            .unlock(&body.consumer_group, &body.client_id, &body.mq_set);
        Ok(success(request))
    }
}
