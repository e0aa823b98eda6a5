//! The behaviour that the guests of every language share. The topic "refuse" is refused with
//! "refuse refused"; a body that starts with "!" is dead-lettered with "ID is malformed", one
//! with "?" comes back at delay level 3, the rest is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::{bytes, text};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        if context.topic == "refuse" {
            return Err(format!("{} refused", context.topic));
        }
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(|message| match bytes!(data, message.body).first() {
                    Some(b'!') => Outcome::DeadLetter(format!(
                        "{} is malformed",
                        text(bytes!(data, message.message_id))
                    )),
                    Some(b'?') => Outcome::ReconsumeLater(Some(3)),
                    _ => Outcome::Done,
                })
                .collect(),
        ))
    }
}

export!(Listener);
