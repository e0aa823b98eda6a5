//! What administration tools ask a broker.

use super::header;

header! {
    /// Creates or changes a topic. Code 17.
    CreateTopicRequestHeader {
        topic: String = "topic",
        default_topic: String = "defaultTopic",
        read_queue_nums: i32 = "readQueueNums",
        write_queue_nums: i32 = "writeQueueNums",
        /// 2 write, 4 read, 6 both.
        perm: i32 = "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: String = "topicFilterType",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        order: bool = "order",
        /// `+name=value` and `-name`, joined by commas.
        attributes: Option<String> = "attributes",
        force: Option<bool> = "force",
    }
}

header! {
    /// Deletes a topic. Code 215.
    DeleteTopicRequestHeader {
        topic: String = "topic",
    }
}

header! {
    /// A topic's configuration; the answer is a `TopicConfig`. Code 351.
    GetTopicConfigRequestHeader {
        topic: String = "topic",
        lo: Option<bool> = "lo",
    }
}

header! {
    /// Offsets and times of a topic's queues; the answer is a `TopicStatsTable`. Code 202.
    GetTopicStatsInfoRequestHeader {
        topic: String = "topic",
    }
}

header! {
    /// How far a group is; the answer is a `ConsumeStats`. Code 208.
    GetConsumeStatsRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: Option<String> = "topic",
        /// Topics joined by semicolons.
        topic_list: Option<String> = "topicList",
    }
}

header! {
    /// Who is connected for a group; the answer is a `ConsumerConnection`. Code 203.
    GetConsumerConnectionListRequestHeader {
        consumer_group: String = "consumerGroup",
    }
}

header! {
    /// Which groups consume a topic; the answer is a `GroupList`. Code 300.
    QueryTopicConsumeByWhoRequestHeader {
        topic: String = "topic",
    }
}
