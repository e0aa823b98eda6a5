//! SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.
//!
//! Every answer carries region and trace switch, refusals too: Java's producer falls
//! back to its defaults only when the map is there. RocketMQ: `SendMessageProcessor`.

use std::net::SocketAddr;

use protocol::code::{request_code, response_code};
use protocol::header::{SendMessageRequestHeader, SendMessageResponseHeader};
use protocol::message::codec;
use protocol::message::message_id::offset_message_id;
use protocol::message::properties::{self, Properties};
use protocol::subscription::tags_code;
use protocol::sys_flag::MessageSysFlag;
use protocol::topic::{
    RETRY_GROUP_TOPIC_PREFIX, check_topic_name, dead_letter_topic, is_not_allowed_send_topic,
    is_retry_topic, retry_topic,
};
use protocol::{ExtFields, Instant, RemotingCommand};

use super::put_message::Draft;
use super::{Broker, FAQ, Refusal, success_with};
use crate::connection_id::ConnectionId;
use crate::event::Event;
use crate::groups::max_reconsume_times;
use crate::topics::TooManyTopics;

/// Queues of a retry topic and of a dead-letter topic.
pub(super) const RETRY_QUEUE_NUMS: u32 = 1;
pub(super) const DLQ_QUEUE_NUMS: u32 = 1;

impl Broker {
    pub(super) fn send_message(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
        now: Instant,
    ) -> RemotingCommand {
        let result = self.try_send(connection, request, now);
        let region = Some(self.config.region.to_string());
        match result {
            Ok(header) => success_with(
                request,
                &SendMessageResponseHeader {
                    msg_region: region,
                    trace_on: Some(true),
                    ..header
                },
            ),
            Err(refusal) => {
                let mut fields = ExtFields::default();
                fields.set(properties::MSG_REGION, region);
                fields.set(properties::TRACE_SWITCH, Some("true"));
                refusal.response(request).with_ext_fields(fields)
            }
        }
    }

    fn try_send(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
        now: Instant,
    ) -> Result<SendMessageResponseHeader, Refusal> {
        let fields = request.ext_fields.clone().unwrap_or_default();
        let header = SendMessageRequestHeader::decode_for(request.code, &fields)?;
        if request.body.is_empty() {
            // RocketMQ fails with a NullPointerException here.
            return Err(Refusal::new(
                response_code::SYSTEM_ERROR,
                "the message has no body; send at least one byte",
            ));
        }
        let peer = self.peer(connection);
        let queue_id = self.check_send(&header, peer)?;
        let mut properties =
            Properties::decode(header.properties.as_deref().unwrap_or_default().as_bytes());
        let draft = Draft {
            topic: header.topic.clone(),
            queue_id,
            flag: header.flag,
            sys_flag: MessageSysFlag(header.sys_flag),
            born_timestamp_ms: header.born_timestamp,
            born_host: peer,
            reconsume_times: header.reconsume_times.unwrap_or(0),
            body: request.body.clone(),
            properties: Default::default(),
        };
        let is_batch =
            request.code == request_code::SEND_BATCH_MESSAGE || header.batch == Some(true);
        if is_batch {
            self.send_batch(&draft, &properties, now)
        } else {
            self.send_single(draft, &mut properties, &header, request, now)
        }
    }

    /// The queue to store in. RocketMQ: `AbstractSendMessageProcessor#msgCheck`.
    fn check_send(
        &mut self,
        header: &SendMessageRequestHeader,
        peer: SocketAddr,
    ) -> Result<u32, Refusal> {
        check_topic_name(&header.topic).map_err(|_| invalid_topic(&header.topic))?;
        if is_not_allowed_send_topic(&header.topic) {
            return Err(Refusal::new(
                response_code::NO_PERMISSION,
                format!("Sending message to topic[{}] is forbidden.", header.topic),
            ));
        }
        self.ensure_topic(header)?;
        let Some(topic) = self.topics.get(&header.topic) else {
            return Err(Refusal::new(
                response_code::TOPIC_NOT_EXIST,
                format!(
                    "topic[{}] not exist, apply first please!{FAQ}",
                    header.topic
                ),
            ));
        };
        if !topic.perm.is_writeable() {
            return Err(Refusal::new(
                response_code::NO_PERMISSION,
                format!("the topic[{}] sending message is forbidden", header.topic),
            ));
        }
        let queue_nums = topic.write_queue_nums.max(topic.read_queue_nums);
        match u32::try_from(header.queue_id) {
            Ok(queue_id) if queue_id < queue_nums => Ok(queue_id),
            Ok(queue_id) => Err(Refusal::new(
                response_code::INVALID_PARAMETER,
                format!("request queueId[{queue_id}] is illegal, {topic} Producer: {peer}"),
            )),
            Err(_) => {
                let write_queue_nums = topic.write_queue_nums;
                Ok(self.choose_queue(write_queue_nums))
            }
        }
    }

    /// Creates the topic on its first message, if it may be.
    fn ensure_topic(&mut self, header: &SendMessageRequestHeader) -> Result<(), Refusal> {
        if self.topics.get(&header.topic).is_some() {
            return Ok(());
        }
        let created = self
            .topics
            .get_or_create_on_send(
                &header.topic,
                &header.default_topic,
                header.default_topic_queue_nums,
            )
            .map(|topic| topic.cloned());
        let created = match created {
            Ok(None) if is_retry_topic(&header.topic) => self
                .topics
                .get_or_create(&header.topic, RETRY_QUEUE_NUMS)
                .map(|topic| Some(topic.clone())),
            created => created,
        };
        let created = created.map_err(|error| self.too_many_topics(&error))?;
        if let Some(topic) = created {
            self.event(Event::TopicCreated {
                topic: topic.topic_name,
                write_queue_nums: topic.write_queue_nums,
            });
        }
        Ok(())
    }

    fn send_single(
        &mut self,
        mut draft: Draft,
        properties: &mut Properties,
        header: &SendMessageRequestHeader,
        request: &RemotingCommand,
        now: Instant,
    ) -> Result<SendMessageResponseHeader, Refusal> {
        if is_retry_topic(&draft.topic) {
            self.send_to_retry_topic(&mut draft, properties, header, request, now)?;
        }
        refuse_unsupported(properties)?;
        let unique_key = self.complete_properties(properties, now);
        let queue_id = draft.queue_id;
        let appended = self.put_message(draft, properties, now)?;
        Ok(SendMessageResponseHeader {
            msg_id: offset_message_id(self.config.store_host, appended.physical_offset),
            queue_id: i32::try_from(queue_id).unwrap_or(i32::MAX),
            queue_offset: i64::try_from(appended.queue_offset).unwrap_or(i64::MAX),
            transaction_id: Some(unique_key),
            ..SendMessageResponseHeader::default()
        })
    }

    /// A client sends a failed message back by itself: after too many attempts, or from
    /// a group that consumes in order, it is a dead letter.
    /// RocketMQ: `SendMessageProcessor#handleRetryAndDLQ`.
    fn send_to_retry_topic(
        &mut self,
        draft: &mut Draft,
        properties: &mut Properties,
        header: &SendMessageRequestHeader,
        request: &RemotingCommand,
        now: Instant,
    ) -> Result<(), Refusal> {
        let group = draft
            .topic
            .strip_prefix(RETRY_GROUP_TOPIC_PREFIX)
            .unwrap_or_default()
            .to_owned();
        let Some(config) = self.groups.find_config(&group) else {
            return Err(unknown_group(&group));
        };
        let max = max_reconsume_times(config, request, header.max_reconsume_times);
        if draft.reconsume_times > max || self.locks.is_any_held(&group, now) {
            self.make_dead_letter(draft, &group)?;
            properties.set(properties::DELAY_TIME_LEVEL, "-1");
        }
        Ok(())
    }

    /// Turns a message into a dead letter of a group.
    pub(super) fn make_dead_letter(
        &mut self,
        draft: &mut Draft,
        group: &str,
    ) -> Result<(), Refusal> {
        draft.topic = dead_letter_topic(group);
        draft.queue_id = 0;
        self.ensure_own_topic(&draft.topic.clone(), DLQ_QUEUE_NUMS)?;
        self.event(Event::MessageDeadLettered {
            group: group.into(),
            topic: draft.topic.as_str().into(),
            reconsume_times: draft.reconsume_times,
        });
        Ok(())
    }

    /// The retry topic of a group, created when it is new.
    pub(super) fn ensure_retry_topic(&mut self, group: &str) -> Result<(), Refusal> {
        self.ensure_own_topic(&retry_topic(group), RETRY_QUEUE_NUMS)
    }

    fn ensure_own_topic(&mut self, topic: &str, queue_nums: u32) -> Result<(), Refusal> {
        if self.topics.get(topic).is_some() {
            return Ok(());
        }
        let created = self.topics.get_or_create(topic, queue_nums).map(|_| ());
        created.map_err(|error| self.too_many_topics(&error))?;
        self.event(Event::TopicCreated {
            topic: topic.into(),
            write_queue_nums: queue_nums,
        });
        Ok(())
    }

    pub(super) fn too_many_topics(&mut self, error: &TooManyTopics) -> Refusal {
        self.event(Event::LimitReached {
            setting: "topics_max",
        });
        Refusal::new(response_code::SYSTEM_ERROR, error.to_string())
    }

    /// Adds what every message from a producer has; returns its unique key.
    fn complete_properties(&mut self, properties: &mut Properties, now: Instant) -> String {
        let unique_key = match properties.get(properties::UNIQ_KEY) {
            Some(key) => key.to_owned(),
            None => {
                let key = self.unique_ids.next_id(self.clock.unix_ms(now));
                properties.set(properties::UNIQ_KEY, &*key);
                key
            }
        };
        properties.set(properties::MSG_REGION, &*self.config.region);
        properties.set(properties::TRACE_SWITCH, "true");
        properties.set(properties::CLUSTER, &*self.config.cluster_name);
        properties.remove(properties::POP_CK);
        unique_key
    }

    /// Every message of a batch is stored by itself, with the properties its producer
    /// gave it and nothing else. Nothing is stored unless all of it can be read.
    fn send_batch(
        &mut self,
        draft: &Draft,
        properties: &Properties,
        now: Instant,
    ) -> Result<SendMessageResponseHeader, Refusal> {
        if is_retry_topic(&draft.topic) {
            return Err(Refusal::new(
                response_code::MESSAGE_ILLEGAL,
                "batch request does not support retry group",
            ));
        }
        let is_too_large = draft.body.len() > self.config.message_bytes_max;
        let messages = codec::decode_batch(draft.body.clone())
            .map_err(|error| Refusal::new(response_code::MESSAGE_ILLEGAL, error.to_string()))?;
        if is_too_large || messages.is_empty() {
            return Err(self.illegal_message());
        }
        let mut ids = Vec::with_capacity(messages.len());
        let mut first_offset = None;
        for message in messages {
            let code = tags_code(properties::get(&message.properties, properties::TAGS));
            let child = Draft {
                flag: message.flag,
                body: message.body,
                properties: message.properties,
                ..draft.clone()
            };
            let appended = self.append(child, code, now)?;
            first_offset.get_or_insert(appended.queue_offset);
            ids.push(offset_message_id(
                self.config.store_host,
                appended.physical_offset,
            ));
        }
        Ok(SendMessageResponseHeader {
            msg_id: ids.join(","),
            queue_id: i32::try_from(draft.queue_id).unwrap_or(i32::MAX),
            queue_offset: i64::try_from(first_offset.unwrap_or(0)).unwrap_or(i64::MAX),
            transaction_id: properties.get(properties::UNIQ_KEY).map(str::to_owned),
            ..SendMessageResponseHeader::default()
        })
    }
}

/// What this broker cannot keep its word on is refused, as a stock broker refuses it
/// that has the feature switched off.
fn refuse_unsupported(properties: &Properties) -> Result<(), Refusal> {
    if properties.get(properties::TRANSACTION_PREPARED) == Some("true") {
        return Err(Refusal::new(
            response_code::NO_PERMISSION,
            "the broker sending transaction message is forbidden; use a RocketMQ cluster for transactions",
        ));
    }
    Ok(())
}

pub(super) fn unknown_group(group: &str) -> Refusal {
    Refusal::new(
        response_code::SUBSCRIPTION_GROUP_NOT_EXIST,
        format!("subscription group not exist, {group} {FAQ}"),
    )
}

/// RocketMQ: `TopicValidator#validateTopic`.
pub(super) fn invalid_topic(topic: &str) -> Refusal {
    let remark = if topic.trim().is_empty() {
        "The specified topic is blank.".to_owned()
    } else if topic
        .chars()
        .any(|c| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-')))
    {
        format!(
            "The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    } else {
        "The specified topic is longer than topic max length.".to_owned()
    };
    Refusal::new(response_code::INVALID_PARAMETER, remark)
}
