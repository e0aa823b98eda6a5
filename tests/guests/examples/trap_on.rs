//! Traps on a batch that has a message whose body starts with "trap", takes 300 ms for each
//! whose body starts with "slow", and wants those that start with "dead" among the dead
//! letters; else everything is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::bytes;
use std::time::Duration;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        assert!(
            !messages
                .iter()
                .any(|message| bytes!(data, message.body).starts_with(b"trap")),
            "a message told this guest to trap"
        );
        let outcomes = messages.iter().map(|message| {
            let body = bytes!(data, message.body);
            if body.starts_with(b"slow") {
                std::thread::sleep(Duration::from_millis(300));
            }
            match body.starts_with(b"dead") {
                true => Outcome::DeadLetter("as it was told".to_owned()),
                false => Outcome::Done,
            }
        });
        Ok(ConsumeStatus::Each(outcomes.collect()))
    }
}

export!(Listener);
