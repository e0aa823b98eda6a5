//! Allocates memory, and touches it, until it is refused; that is a trap.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let mut hoard = Vec::new();
        loop {
            hoard.push(std::hint::black_box(vec![1_u8; 1 << 20]));
        }
    }
}

export!(Listener);
