//! Every message is done, said with the Rust SDK: what that costs is measured with it.

use mqlet_guest::{ConcurrentListener, Error, Message, Outcome};

#[derive(Default)]
struct Succeed;

impl ConcurrentListener for Succeed {
    fn consume_message(&mut self, _message: Message<'_>) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }
}

mqlet_guest::export!(Succeed);
