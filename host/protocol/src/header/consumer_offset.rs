//! Committed offsets: requests 14 and 15, and the resets 220 to 223.

use super::header;

header! {
    /// Asks for the offset that a group committed. Code 14.
    QueryConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// Absent means true: the broker may answer 0 for a young queue.
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
        bname: Option<String> = "bname",
    }
}

header! {
    /// With response code 0; "none stored" is code 22 without this header.
    QueryConsumerOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// Commits an offset, normally one-way. Code 15.
    UpdateConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        commit_offset: i64 = "commitOffset",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Broker to client, one-way, with a `ResetOffsetBody`: forget what you hold of
    /// this topic and go on from there. Code 220, and code 222 from a tool to a broker.
    ResetOffsetRequestHeader {
        topic: String = "topic",
        group: String = "group",
        /// Unix milliseconds; −1 is the end of the queue.
        timestamp: i64 = "timestamp",
        /// Always false on the wire of code 220.
        is_force: Option<bool> = "isForce",
        /// −1 is every queue.
        queue_id: Option<i32> = "queueId",
        /// −1 is "by timestamp".
        offset: Option<i64> = "offset",
    }
}

header! {
    /// Broker to client (code 221) and tool to broker (code 223): which offsets does
    /// the group hold in memory.
    GetConsumerStatusRequestHeader {
        topic: String = "topic",
        group: String = "group",
        client_addr: Option<String> = "clientAddr",
    }
}
