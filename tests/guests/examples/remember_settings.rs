//! Dead-letters every message with the settings that `init` got, one `name=value` a line in
//! their order; `shutdown` logs "goodbye".

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener-with-lifecycle", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use exports::mqlet::listener::lifecycle::Guest as Lifecycle;
use std::sync::OnceLock;
use wasi::logging::logging::{Level, log};

static SETTINGS: OnceLock<String> = OnceLock::new();

struct Listener;

impl Lifecycle for Listener {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        let lines: Vec<_> = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        SETTINGS
            .set(lines.join("\n"))
            .map_err(|_| "init was called twice".to_owned())
    }

    fn shutdown() {
        log(Level::Info, "lifecycle", "goodbye");
    }
}

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let settings = SETTINGS.get().ok_or("init was not called")?;
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(|_| Outcome::DeadLetter(settings.clone()))
                .collect(),
        ))
    }
}

export!(Listener);
