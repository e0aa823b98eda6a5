//! Calls itself until the stack is used up.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::ConsumeSuccess(Some(deeper(0))))
    }
}

export!(Listener);

#[expect(unconditional_recursion, reason = "that is what this guest is for")]
fn deeper(depth: i32) -> i32 {
    let frame = std::hint::black_box([depth; 64]);
    deeper(depth + 1) + frame[0]
}
