//! Only the first message of a batch is done, by an ack index of 0.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::ConsumeSuccess(Some(0)))
    }
}

export!(Listener);
