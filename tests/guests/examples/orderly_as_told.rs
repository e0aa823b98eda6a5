//! An orderly listener that does what the first word of the first body says: `suspend [MS]`,
//! `commit`, `rollback`, `fail TEXT`, `trap`; anything else is success.

wit_bindgen::generate!({ path: "../../wit", world: "orderly-listener", generate_all });

use exports::mqlet::listener::orderly::{BatchContext, ConsumeStatus, Guest, Message};
use guests::text;

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let body = text(&messages[0].body);
        let (word, argument) = body.split_once(' ').unwrap_or((&body, ""));
        match word {
            "suspend" => Ok(ConsumeStatus::SuspendCurrentQueueAMoment(
                argument.trim().parse().ok(),
            )),
            "commit" => Ok(ConsumeStatus::Commit),
            "rollback" => Ok(ConsumeStatus::Rollback),
            "fail" => Err(argument.to_owned()),
            "trap" => panic!("told to trap"),
            _ => Ok(ConsumeStatus::Success),
        }
    }
}

export!(Listener);
