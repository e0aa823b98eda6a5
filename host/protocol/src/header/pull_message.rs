//! Pull and lite pull: requests 11 and 361 and their answer.

use super::header;

header! {
    /// Asks for messages of one queue. Codes 11 and, with bit 16 of `sys_flag`, 361.
    PullMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// First offset wanted.
        queue_offset: i64 = "queueOffset",
        max_msg_nums: i32 = "maxMsgNums",
        /// See `sys_flag::PullSysFlag`.
        sys_flag: i32 = "sysFlag",
        /// What memory holds, −1 if nothing; counts only with bit 1 of `sys_flag`.
        commit_offset: i64 = "commitOffset",
        /// How long the broker may hold the request, with bit 2 of `sys_flag`.
        suspend_timeout_millis: i64 = "suspendTimeoutMillis",
        /// The expression, sent with bit 4 of `sys_flag` only.
        subscription: Option<String> = "subscription",
        sub_version: i64 = "subVersion",
        /// `TAG` or `SQL92`.
        expression_type: Option<String> = "expressionType",
        /// Since 5.0; the stock broker has its own limits.
        max_msg_bytes: Option<i32> = "maxMsgBytes",
        /// −1 SDK (also when absent), 0 proxy orderly, 1 proxy broadcast, 2 proxy stream.
        request_source: Option<i32> = "requestSource",
        /// The spelling is Java's.
        proxy_froward_client_id: Option<String> = "proxyFrowardClientId",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Comes with response codes 0, 19, 20 and 21, and is mandatory there.
    PullMessageResponseHeader {
        /// Broker id to ask next time; 0 is the master.
        suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        next_begin_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        /// Static topics: add to every offset of the answer.
        offset_delta: Option<i64> = "offsetDelta",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        /// With code 16: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 this subscription.
        forbidden_type: Option<i32> = "forbiddenType",
    }
}
