//! Writes 10,000 log lines of 100 bytes, a line of 1 MB, and as much to standard output and
//! standard error, with every batch; then everything is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        _messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        for line in 0..10_000 {
            let line = format!("{line:0100}");
            log(Level::Info, "flood", &line);
            println!("{line}");
            eprintln!("{line}");
        }
        let long = "x".repeat(1 << 20);
        log(Level::Info, "flood", &long);
        println!("{long}");
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

export!(Listener);
