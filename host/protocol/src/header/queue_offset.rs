//! Limits of one queue: requests 29 to 32.

use super::header;

header! {
    /// The offset of a point in time. Code 29.
    SearchOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// Unix milliseconds.
        timestamp: i64 = "timestamp",
        /// `LOWER` (also when absent) or `UPPER`, in any case.
        boundary_type: Option<String> = "boundaryType",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Answer to 29.
    SearchOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// The next offset to be written. Code 30.
    GetMaxOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        committed: Option<bool> = "committed",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Answer to 30.
    GetMaxOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// The oldest offset there is. Code 31.
    GetMinOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Answer to 31.
    GetMinOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// When the oldest message was stored. Code 32.
    GetEarliestMsgStoretimeRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Answer to 32.
    GetEarliestMsgStoretimeResponseHeader {
        /// Unix milliseconds; −1 is "no message".
        timestamp: i64 = "timestamp",
    }
}
