//! Finding messages: requests 12 and 33.

use super::header;

header! {
    /// By key or unique key. Code 12.
    QueryMessageRequestHeader {
        topic: String = "topic",
        key: String = "key",
        max_num: i32 = "maxNum",
        begin_timestamp: i64 = "beginTimestamp",
        end_timestamp: i64 = "endTimestamp",
        index_type: Option<String> = "indexType",
        /// The key is a unique key, not one of the user's.
        unique_key_query: Option<bool> = "_UNIQUE_KEY_QUERY",
    }
}

header! {
    /// Answer to 12, with codes 0 and 22.
    QueryMessageResponseHeader {
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset",
    }
}

header! {
    /// By its place in the commit log. Code 33.
    ViewMessageRequestHeader {
        /// Position in the commit log.
        offset: i64 = "offset",
        topic: Option<String> = "topic",
    }
}
