//! `init` refuses with "the setting mode is missing", unless there is a setting "mode".

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener-with-lifecycle", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use exports::mqlet::listener::lifecycle::Guest as Lifecycle;
struct Listener;

impl Lifecycle for Listener {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        if settings.iter().any(|(name, _)| name == "mode") {
            Ok(())
        } else {
            Err("the setting mode is missing".to_owned())
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
