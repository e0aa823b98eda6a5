//! CONSUMER_SEND_MSG_BACK: a consumer failed, and the message is stored again for its
//! group, later each time, until it is a dead letter.
//!
//! RocketMQ: `AbstractSendMessageProcessor#consumerSendMsgBack`.

use protocol::code::response_code;
use protocol::header::ConsumerSendMsgBackRequestHeader;
use protocol::message::message_id::offset_message_id;
use protocol::message::properties::{self, Properties};
use protocol::topic::retry_topic;
use protocol::{Instant, RemotingCommand};

use super::put_message::Draft;
use super::send_message::{RETRY_QUEUE_NUMS, unknown_group};
use super::{Answer, Broker, Refusal, header, success};
use crate::groups::max_reconsume_times;

/// Level of the first attempt when the client leaves it to the broker.
const FIRST_RETRY_LEVEL: i32 = 3;

impl Broker {
    pub(super) fn consumer_send_msg_back(
        &mut self,
        request: &RemotingCommand,
        now: Instant,
    ) -> Answer {
        let header: ConsumerSendMsgBackRequestHeader = header(request)?;
        let Some(config) = self.groups.find_config(&header.group) else {
            return Err(unknown_group(&header.group));
        };
        let max = max_reconsume_times(config, request, header.max_reconsume_times);
        self.ensure_retry_topic(&header.group)?;
        let queue_id = self.choose_queue(RETRY_QUEUE_NUMS);
        let message = u64::try_from(header.offset)
            .ok()
            .and_then(|offset| self.stored_message(offset))
            .ok_or_else(|| {
                Refusal::new(
                    response_code::SYSTEM_ERROR,
                    format!("look message by offset failed, {}", header.offset),
                )
            })?;
        let mut properties = Properties::decode(&message.properties);
        if properties.get(properties::RETRY_TOPIC).is_none() {
            properties.set(properties::RETRY_TOPIC, &*message.topic);
        }
        if properties.get(properties::ORIGIN_MESSAGE_ID).is_none() {
            let offset = u64::try_from(message.commit_log_offset).unwrap_or(0);
            properties.set(
                properties::ORIGIN_MESSAGE_ID,
                offset_message_id(message.store_host, offset),
            );
        }
        properties.set(properties::WAIT_STORE_MSG_OK, "false");
        let mut draft = Draft {
            topic: retry_topic(&header.group),
            queue_id,
            flag: message.flag,
            sys_flag: message.sys_flag,
            born_timestamp_ms: message.born_timestamp_ms,
            born_host: message.born_host,
            reconsume_times: message.reconsume_times.saturating_add(1),
            body: message.body,
            properties: Default::default(),
        };
        let level = if message.reconsume_times >= max || header.delay_level < 0 {
            self.make_dead_letter(&mut draft, &header.group)?;
            0
        } else if header.delay_level == 0 {
            FIRST_RETRY_LEVEL.saturating_add(message.reconsume_times)
        } else {
            header.delay_level
        };
        properties.set(properties::DELAY_TIME_LEVEL, level.to_string());
        self.put_message(draft, &mut properties, now)?;
        Ok(success(request))
    }
}
