//! Every message goes to the dead letters with the reason "ID is not wanted".

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::{bytes, text};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(|message| {
                    Outcome::DeadLetter(format!(
                        "{} is not wanted",
                        text(bytes!(data, message.message_id))
                    ))
                })
                .collect(),
        ))
    }
}

export!(Listener);
