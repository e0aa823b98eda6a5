//! Transactional messages: requests 37 and 39.

use super::header;

header! {
    /// One-way: how the local transaction ended. Code 37.
    EndTransactionRequestHeader {
        producer_group: String = "producerGroup",
        tran_state_table_offset: i64 = "tranStateTableOffset",
        commit_log_offset: i64 = "commitLogOffset",
        /// 8 commit, 12 roll back, 0 not known.
        commit_or_rollback: i32 = "commitOrRollback",
        from_transaction_check: Option<bool> = "fromTransactionCheck",
        msg_id: String = "msgId",
        transaction_id: Option<String> = "transactionId",
        topic: Option<String> = "topic",
        bname: Option<String> = "bname",
    }
}

header! {
    /// Broker to client, one-way: how did this transaction end. Code 39.
    CheckTransactionStateRequestHeader {
        tran_state_table_offset: i64 = "tranStateTableOffset",
        commit_log_offset: i64 = "commitLogOffset",
        /// The unique key.
        msg_id: Option<String> = "msgId",
        transaction_id: Option<String> = "transactionId",
        offset_msg_id: Option<String> = "offsetMsgId",
        /// The half topic.
        topic: Option<String> = "topic",
        bname: Option<String> = "bname",
    }
}
