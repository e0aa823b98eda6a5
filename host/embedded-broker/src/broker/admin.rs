//! What tools ask for: topics made and deleted, offsets reset.
//!
//! RocketMQ: `AdminBrokerProcessor`.

use std::collections::BTreeMap;

use protocol::body::ResetOffsetBody;
use protocol::code::{request_code, response_code};
use protocol::header::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, Header as _, ResetOffsetRequestHeader,
};
use protocol::topic::{check_topic_name, is_system_topic};
use protocol::{MessageQueue, RemotingCommand};

use super::send_message::invalid_topic;
use super::{Answer, Broker, Refusal, header, success};
use crate::event::Event;
use crate::message_store::Boundary;
use crate::offsets::Commit;
use crate::topics::{Perm, QUEUES_PER_TOPIC_MAX, TopicConfig};

/// Why a topic was not added; the broker's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot create topic \"{topic}\": {reason}")]
pub struct AddTopicError {
    /// The name given.
    pub topic: String,
    /// Why not.
    pub reason: String,
}

impl Broker {
    /// Makes sure of a topic, for whoever runs the broker. One that is there stays as
    /// it is.
    ///
    /// # Errors
    /// A name against RocketMQ's rules, more queues than a topic can have, no room.
    pub fn add_topic(&mut self, topic: &str, queue_nums: u32) -> Result<(), AddTopicError> {
        if self.topics.get(topic).is_some() {
            return Ok(());
        }
        let queue_nums = i32::try_from(queue_nums).unwrap_or(i32::MAX);
        let header = CreateTopicRequestHeader {
            topic: topic.to_owned(),
            read_queue_nums: queue_nums,
            write_queue_nums: queue_nums,
            perm: 6,
            topic_filter_type: "SINGLE_TAG".to_owned(),
            ..CreateTopicRequestHeader::default()
        };
        let request =
            RemotingCommand::request(request_code::UPDATE_AND_CREATE_TOPIC, header.encode());
        match self.create_topic(&request) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(AddTopicError {
                topic: topic.to_owned(),
                reason: refusal.remark,
            }),
        }
    }

    /// Creates a topic, or changes it.
    pub(super) fn create_topic(&mut self, request: &RemotingCommand) -> Answer {
        let header: CreateTopicRequestHeader = header(request)?;
        check_topic_name(&header.topic).map_err(|_| invalid_topic(&header.topic))?;
        if is_system_topic(&header.topic) {
            return Err(Refusal::new(
                response_code::INVALID_PARAMETER,
                format!("The topic[{}] is conflict with system topic.", header.topic),
            ));
        }
        let queue_nums = |asked: i32, name: &str| {
            u32::try_from(asked)
                .ok()
                .filter(|nums| *nums <= QUEUES_PER_TOPIC_MAX)
                .ok_or_else(|| {
                    Refusal::new(
                        response_code::INVALID_PARAMETER,
                        format!("{name} is {asked}; give 0 to {QUEUES_PER_TOPIC_MAX} queues"),
                    )
                })
        };
        let config = TopicConfig {
            topic_name: header.topic.as_str().into(),
            read_queue_nums: queue_nums(header.read_queue_nums, "readQueueNums")?,
            write_queue_nums: queue_nums(header.write_queue_nums, "writeQueueNums")?,
            perm: Perm(u32::try_from(header.perm).unwrap_or(0)),
            topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
            order: header.order,
        };
        let is_new = self.topics.get(&header.topic).is_none();
        let write_queue_nums = config.write_queue_nums;
        let put = self.topics.put(config).map(|_| ());
        put.map_err(|error| self.too_many_topics(&error))?;
        if is_new {
            self.event(Event::TopicCreated {
                topic: header.topic.into(),
                write_queue_nums,
            });
        }
        Ok(success(request))
    }

    /// Forgets a topic and its messages.
    pub(super) fn delete_topic(&mut self, request: &RemotingCommand) -> Answer {
        let header: DeleteTopicRequestHeader = header(request)?;
        if header.topic.is_empty() || is_system_topic(&header.topic) {
            return Err(Refusal::new(
                response_code::INVALID_PARAMETER,
                format!("The topic[{}] is conflict with system topic.", header.topic),
            ));
        }
        if self.topics.remove(&header.topic) {
            self.store.remove_topic(&header.topic);
        }
        Ok(success(request))
    }

    /// Sets a group's offsets of a topic; the next pull of each queue hears of it.
    /// RocketMQ: `AdminBrokerProcessor#resetOffsetInner`.
    pub(super) fn reset_offset(&mut self, request: &RemotingCommand) -> Answer {
        let header: ResetOffsetRequestHeader = header(request)?;
        let Some(topic) = self.topics.get(&header.topic) else {
            return Err(Refusal::new(
                response_code::TOPIC_NOT_EXIST,
                format!("Topic {} does not exist", header.topic),
            ));
        };
        if !self.groups.contains(&header.group) {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_GROUP_NOT_EXIST,
                format!("Group {} does not exist", header.group),
            ));
        }
        let queue_ids = match header.queue_id.map(u32::try_from) {
            Some(Ok(queue_id)) => queue_id..queue_id.saturating_add(1),
            _ => 0..topic.read_queue_nums,
        };
        let mut offset_table = BTreeMap::new();
        for queue_id in queue_ids {
            let offset = self.reset_target(&header, queue_id)?;
            let commit = self
                .offsets
                .reset(&header.group, &header.topic, queue_id, offset);
            if commit == Commit::Full {
                self.event(Event::LimitReached {
                    setting: "offsets_max",
                });
                continue;
            }
            let queue = MessageQueue::new(&header.topic, &self.config.broker_name, queue_id);
            offset_table.insert(queue, offset);
        }
        Ok(success(request).with_body(ResetOffsetBody { offset_table }.encode()))
    }

    fn reset_target(
        &self,
        header: &ResetOffsetRequestHeader,
        queue_id: u32,
    ) -> Result<i64, Refusal> {
        let wire = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let max = wire(self.store.max_offset(&header.topic, queue_id));
        let is_explicit = header.queue_id.is_some_and(|queue_id| queue_id >= 0);
        match header.offset.filter(|offset| is_explicit && *offset != -1) {
            Some(offset) => {
                let min = wire(self.store.min_offset(&header.topic, queue_id));
                if offset < min || offset > max.saturating_add(1) {
                    return Err(Refusal::new(
                        response_code::SYSTEM_ERROR,
                        format!("Target offset {offset} not in consume queue range [{min}-{max}]"),
                    ));
                }
                Ok(offset)
            }
            None if header.timestamp < 0 => Ok(max),
            None => Ok(wire(self.store.search_offset(
                &header.topic,
                queue_id,
                header.timestamp,
                Boundary::Lower,
            ))),
        }
    }
}
