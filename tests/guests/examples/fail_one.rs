//! A message whose body starts with "fail" comes again later, the others are done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::bytes;
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
                    if bytes!(data, message.body).starts_with(b"fail") {
                        Outcome::ReconsumeLater(None)
                    } else {
                        Outcome::Done
                    }
                })
                .collect(),
        ))
    }
}

export!(Listener);
