//! Writes "to standard output N" and "to standard error N" for each message (N: its queue
//! offset), one log line of each level with the context "levels", and a last line without an
//! end to standard output.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use std::io::Write;
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        for message in messages {
            println!("to standard output {}", message.queue_offset);
            eprintln!("to standard error {}", message.queue_offset);
        }
        for (level, text) in [
            (Level::Trace, "trace"),
            (Level::Debug, "debug"),
            (Level::Info, "info"),
            (Level::Warn, "warn"),
            (Level::Error, "error"),
            (Level::Critical, "critical"),
        ] {
            log(level, "levels", text);
        }
        print!("without an end");
        std::io::stdout()
            .flush()
            .map_err(|error| error.to_string())?;
        Ok(ConsumeStatus::ConsumeSuccess(None))
    }
}

export!(Listener);
