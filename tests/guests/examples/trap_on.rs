//! Traps on a batch that has a message whose body starts with "trap"; else everything is
//! done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use guests::bytes;
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
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

export!(Listener);
