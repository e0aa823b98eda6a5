//! Request 36: give a message back to the broker, to be delivered again later.

use super::header;

header! {
    /// Code 36.
    ConsumerSendMsgBackRequestHeader {
        /// Position in the **commit log**, not in the queue.
        offset: i64 = "offset",
        group: String = "group",
        /// Below 0: dead letter now. 0: the broker chooses. Above: that level.
        delay_level: i32 = "delayLevel",
        origin_msg_id: Option<String> = "originMsgId",
        origin_topic: Option<String> = "originTopic",
        unit_mode: Option<bool> = "unitMode",
        /// Brokers honour it from clients of version 121 and above.
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        bname: Option<String> = "bname",
    }
}
