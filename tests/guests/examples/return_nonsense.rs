//! Answers that fit the types and make no sense, by the first body of the batch: "short" one
//! outcome too few, "long" one too many, "high" an ack index of 1000, "low" one of -1000,
//! "level" the delay level 4,000,000,000; else an empty list of outcomes.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::bytes;
struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let done = |count: usize| (0..count).map(|_| Outcome::Done).collect();
        Ok(match bytes!(data, messages[0].body) {
            b"short" => ConsumeStatus::Each(done(messages.len() - 1)),
            b"long" => ConsumeStatus::Each(done(messages.len() + 1)),
            b"high" => ConsumeStatus::ConsumeSuccess(Some(1000)),
            b"low" => ConsumeStatus::ConsumeSuccess(Some(-1000)),
            b"level" => ConsumeStatus::ReconsumeLater(Some(4_000_000_000)),
            _ => ConsumeStatus::Each(Vec::new()),
        })
    }
}

export!(Listener);
