//! Asks everything that `call` knows and dead-letters every message with the answers, one a
//! line: `remaining-ms`, `revision`, `cancelled`, `traceparent`, `details-beyond-end` (whether
//! there are details beyond the end of the batch), `random` (how many bytes of 10,000 asked
//! for, and whether two draws differ).

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use mqlet::listener::call;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let beyond = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let facts = [
            format!("remaining-ms={}", call::remaining_ms()),
            format!("revision={}", call::revision()),
            format!("cancelled={}", call::cancelled()),
            format!("traceparent={}", call::traceparent().unwrap_or_default()),
            format!("details-beyond-end={}", call::details(beyond).is_some()),
            format!(
                "random={} {}",
                call::random(10_000).len(),
                call::random(16) != call::random(16)
            ),
        ];
        let reason = facts.join("\n");
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(|_| Outcome::DeadLetter(reason.clone()))
                .collect(),
        ))
    }
}

export!(Listener);
