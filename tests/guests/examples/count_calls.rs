//! Counts its calls in memory of its own and dead-letters every message with the reason
//! "call N", so that a test can see which calls met the same instance.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use std::sync::atomic::{AtomicU32, Ordering};

static CALLS: AtomicU32 = AtomicU32::new(0);

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        let reason = format!("call {call}");
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(|_| Outcome::DeadLetter(reason.clone()))
                .collect(),
        ))
    }
}

export!(Listener);
