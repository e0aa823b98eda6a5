//! `init` computes for ever.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener-with-lifecycle", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use exports::mqlet::listener::lifecycle::Guest as Lifecycle;
struct Listener;

impl Lifecycle for Listener {
    fn init(_settings: Vec<(String, String)>) -> Result<(), String> {
        loop {
            std::hint::black_box(());
        }
    }

    fn shutdown() {}
}

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

export!(Listener);
