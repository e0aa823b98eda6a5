//! Sending: requests 10, 310, 320, 324 and 325, and their answer.

use super::{Field, Header, HeaderError, header};
use crate::code::request_code;
use crate::ext_fields::ExtFields;

header! {
    /// Sends a message, or a batch as one body. With these long names it is codes 10
    /// and 324; see [`SendMessageRequestHeaderV2`] for the others.
    SendMessageRequestHeader {
        producer_group: String = "producerGroup",
        topic: String = "topic",
        /// Whose queues a new topic copies, normally `TBW102`.
        default_topic: String = "defaultTopic",
        default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        /// Below 0 the broker picks.
        queue_id: i32 = "queueId",
        /// See `sys_flag::MessageSysFlag`.
        sys_flag: i32 = "sysFlag",
        /// Unix milliseconds.
        born_timestamp: i64 = "bornTimestamp",
        flag: i32 = "flag",
        /// Encoded by `message::properties`.
        properties: Option<String> = "properties",
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        /// The body is a batch.
        batch: Option<bool> = "batch",
        broker_name: Option<String> = "brokerName",
    }
}

impl SendMessageRequestHeader {
    /// Reads whichever form belongs to the request code.
    ///
    /// # Errors
    /// A required field is missing or unreadable.
    pub fn decode_for(code: i32, fields: &ExtFields) -> Result<Self, HeaderError> {
        match code {
            request_code::SEND_MESSAGE_V2
            | request_code::SEND_BATCH_MESSAGE
            | request_code::SEND_REPLY_MESSAGE_V2 => {
                SendMessageRequestHeaderV2::decode(fields).map(|header| header.0)
            }
            _ => Self::decode(fields),
        }
    }
}

/// The same with one-letter names: codes 310, 320 (a batch) and 325.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendMessageRequestHeaderV2(pub SendMessageRequestHeader);

impl Header for SendMessageRequestHeaderV2 {
    fn encode(&self) -> ExtFields {
        let header = &self.0;
        let mut fields =
            ExtFields::with_capacity(14, 128 + header.properties.as_ref().map_or(0, String::len));
        header.producer_group.write(&mut fields, "a");
        header.topic.write(&mut fields, "b");
        header.default_topic.write(&mut fields, "c");
        header.default_topic_queue_nums.write(&mut fields, "d");
        header.queue_id.write(&mut fields, "e");
        header.sys_flag.write(&mut fields, "f");
        header.born_timestamp.write(&mut fields, "g");
        header.flag.write(&mut fields, "h");
        header.properties.write(&mut fields, "i");
        header.reconsume_times.write(&mut fields, "j");
        header.unit_mode.write(&mut fields, "k");
        header.max_reconsume_times.write(&mut fields, "l");
        header.batch.write(&mut fields, "m");
        header.broker_name.write(&mut fields, "n");
        fields
    }

    fn decode(fields: &ExtFields) -> Result<Self, HeaderError> {
        const HEADER: &str = "SendMessageRequestHeaderV2";
        Ok(Self(SendMessageRequestHeader {
            producer_group: Field::read(fields, HEADER, "a")?,
            topic: Field::read(fields, HEADER, "b")?,
            default_topic: Field::read(fields, HEADER, "c")?,
            default_topic_queue_nums: Field::read(fields, HEADER, "d")?,
            queue_id: Field::read(fields, HEADER, "e")?,
            sys_flag: Field::read(fields, HEADER, "f")?,
            born_timestamp: Field::read(fields, HEADER, "g")?,
            flag: Field::read(fields, HEADER, "h")?,
            properties: Field::read(fields, HEADER, "i")?,
            reconsume_times: Field::read(fields, HEADER, "j")?,
            unit_mode: Field::read(fields, HEADER, "k")?,
            max_reconsume_times: Field::read(fields, HEADER, "l")?,
            batch: Field::read(fields, HEADER, "m")?,
            broker_name: Field::read(fields, HEADER, "n")?,
        }))
    }
}

header! {
    /// Where the message was stored. Codes 10 to 12 carry it too: stored, but not
    /// flushed or copied in time.
    SendMessageResponseHeader {
        /// The offset id; ids of a batch are joined by commas.
        msg_id: String = "msgId",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "queueOffset",
        /// The unique key; absent in answers to 324 and 325.
        transaction_id: Option<String> = "transactionId",
        /// Unique key of the one message that an inner batch is stored as.
        batch_uniq_id: Option<String> = "batchUniqId",
        /// For calling back a delayed message.
        recall_handle: Option<String> = "recallHandle",
        /// Also present in refusals.
        msg_region: Option<String> = "MSG_REGION",
        /// Also present in refusals.
        trace_on: Option<bool> = "TRACE_ON",
    }
}
