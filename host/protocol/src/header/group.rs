//! Membership: heartbeat answers, leaving, member lists, and what brokers and tools
//! ask a client about itself (307, 309).

use super::header;

header! {
    /// Comes with the answer to a heartbeat (code 34) from 5.x brokers.
    HeartbeatResponseHeader {
        is_support_heart_beat_v2: Option<bool> = "IS_SUPPORT_HEART_BEAT_V2",
        is_sub_change: Option<bool> = "IS_SUB_CHANGE",
    }
}

header! {
    /// Leaves groups on this connection. Code 35.
    UnregisterClientRequestHeader {
        client_id: String = "clientID",
        producer_group: Option<String> = "producerGroup",
        consumer_group: Option<String> = "consumerGroup",
    }
}

header! {
    /// Asks for the client ids of a group; the answer is a `ConsumerList`. Code 38.
    GetConsumerListByGroupRequestHeader {
        consumer_group: String = "consumerGroup",
    }
}

header! {
    /// Broker to client, one-way: the group's members changed. Code 40.
    NotifyConsumerIdsChangedRequestHeader {
        consumer_group: String = "consumerGroup",
    }
}

header! {
    /// Checks a subscription that is not by tag; the question is in the body
    /// (`CheckClientRequestBody`). Code 46.
    CheckClientConfigRequestHeader {}
}

header! {
    /// To a broker and on to a client: how is it doing. Code 307.
    GetConsumerRunningInfoRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: String = "clientId",
        jstack_enable: Option<bool> = "jstackEnable",
    }
}

header! {
    /// To a broker and on to a client: consume this message (the body) now. Code 309.
    ConsumeMessageDirectlyResultRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: Option<String> = "clientId",
        /// The offset id.
        msg_id: Option<String> = "msgId",
        broker_name: Option<String> = "brokerName",
        topic: Option<String> = "topic",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
    }
}

header! {
    /// Locks queues for orderly consumption; see `LockBatchRequestBody`. Code 41.
    LockBatchMqRequestHeader {}
}

header! {
    /// Gives locks back; see `UnlockBatchRequestBody`. Code 42.
    UnlockBatchMqRequestHeader {}
}
