//! By position in the batch, and again from the start: done, reconsume later on the broker's
//! schedule, reconsume later at level 2, dead letter with the reason "the fourth".

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        Ok(ConsumeStatus::Each(
            (0..messages.len())
                .map(|index| match index % 4 {
                    0 => Outcome::Done,
                    1 => Outcome::ReconsumeLater(None),
                    2 => Outcome::ReconsumeLater(Some(2)),
                    _ => Outcome::DeadLetter("the fourth".to_owned()),
                })
                .collect(),
        ))
    }
}

export!(Listener);
