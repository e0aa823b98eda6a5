//! An orderly listener; every batch is done.

wit_bindgen::generate!({ path: "../../wit", world: "orderly-listener", generate_all });

use exports::mqlet::listener::orderly::{BatchContext, ConsumeStatus, Guest, Message};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::Success)
    }
}

export!(Listener);
