//! The behaviour that the orderly guests of every language share. The topic "refuse" is
//! refused with "refuse refused"; a first body that starts with "!" suspends its queue
//! for 250 ms, one with "?" for the configured time, one with "+" commits, one with "-"
//! rolls back, the rest is success.

wit_bindgen::generate!({ path: "../../wit", world: "orderly-listener", generate_all });

use exports::mqlet::listener::orderly::{BatchContext, ConsumeStatus, Guest, Message};
use guests::bytes;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        if context.topic == "refuse" {
            return Err(format!("{} refused", context.topic));
        }
        Ok(match bytes!(data, messages[0].body).first() {
            Some(b'!') => ConsumeStatus::SuspendCurrentQueueAMoment(Some(250)),
            Some(b'?') => ConsumeStatus::SuspendCurrentQueueAMoment(None),
            Some(b'+') => ConsumeStatus::Commit,
            Some(b'-') => ConsumeStatus::Rollback,
            _ => ConsumeStatus::Success,
        })
    }
}

export!(Listener);
