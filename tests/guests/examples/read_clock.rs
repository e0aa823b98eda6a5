//! Compares WASI's wall clock with `call.now-ms`, and the monotonic clock with itself around
//! a pause of 5 ms. Fails, with what it saw, when one is frozen or they are more than 10 s
//! apart.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use mqlet::listener::call;
use std::time::{Duration, Instant, SystemTime};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let started = Instant::now();
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_err(|error| error.to_string())?;
        let host = Duration::from_millis(call::now_ms());
        if wall.abs_diff(host) > Duration::from_secs(10) {
            return Err(format!("WASI says {wall:?}, the host {host:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
        let passed = started.elapsed();
        if passed < Duration::from_millis(5) {
            return Err(format!("{passed:?} passed in a pause of 5 ms"));
        }
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

export!(Listener);
