//! An orderly listener that obeys the first word of each body, one after the other, up to
//! the first whose answer is not success: that is the answer for the batch. A word's
//! argument stands after a blank or an equals sign.
//!
//! `suspend [MS]` | `suspend-until TIMES` (while it was tried less often), then success |
//! `commit` | `rollback` | `rollback-once` (in this instance), then commit | `fail TEXT` |
//! `trap` | `trap-in-batch` (success when alone) | `send TOPIC` (its body), then success | `loop` | `wait [MS]` (for ever without a
//! number), then success. Anything else is success.
//!
//! Each message that it comes to is written down first: "ledger[times:queue:body]".

wit_bindgen::generate!({ path: "../../wit", world: "orderly-listener", generate_all });

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use exports::mqlet::listener::orderly::{BatchContext, ConsumeStatus, Guest, Message};
use guests::{bytes, text};
use mqlet::listener::producer::{self, OutgoingMessage};
use wasi::logging::logging::{Level, log};

struct Listener;

thread_local! {
    static ROLLED_BACK: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
}

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        for message in &messages {
            let body = text(bytes!(data, message.body));
            let entry = format!(
                "ledger[{}:{}:{}]",
                message.reconsume_times,
                context.queue_id,
                body.replace(' ', "=")
            );
            log(Level::Info, "ledger", &entry);
            match obey(&body, message, messages.len())? {
                ConsumeStatus::Success => {}
                status => return Ok(status),
            }
        }
        Ok(ConsumeStatus::Success)
    }
}

export!(Listener);

fn obey(body: &str, message: &Message, messages: usize) -> Result<ConsumeStatus, String> {
    let (word, argument) = body.split_once([' ', '=']).unwrap_or((body, ""));
    let number: Option<u32> = argument.trim().parse().ok();
    match word {
        "send" => {
            let message = OutgoingMessage {
                topic: argument.to_owned(),
                body: body.as_bytes().to_vec(),
                tags: None,
                keys: Vec::new(),
                properties: Vec::new(),
                delay: None,
                sharding_key: None,
                flag: 0,
            };
            producer::send(&message).map_err(|error| format!("{error:?}"))?;
        }
        "suspend" => return Ok(ConsumeStatus::SuspendCurrentQueueAMoment(number)),
        "suspend-until" if message.reconsume_times < number.unwrap_or(1) => {
            return Ok(ConsumeStatus::SuspendCurrentQueueAMoment(None));
        }
        "commit" => return Ok(ConsumeStatus::Commit),
        "rollback" => return Ok(ConsumeStatus::Rollback),
        "rollback-once" => {
            let offset = message.queue_offset;
            let is_first = ROLLED_BACK.with_borrow_mut(|offsets| offsets.insert(offset));
            return Ok(match is_first {
                true => ConsumeStatus::Rollback,
                false => ConsumeStatus::Commit,
            });
        }
        "fail" => return Err(argument.to_owned()),
        "trap" => panic!("told to trap"),
        "trap-in-batch" if messages > 1 => panic!("told to trap in a batch"),
        "loop" => loop {
            std::hint::black_box(());
        },
        "wait" => std::thread::sleep(number.map_or(Duration::from_secs(1 << 20), |ms| {
            Duration::from_millis(ms.into())
        })),
        _ => {}
    }
    Ok(ConsumeStatus::Success)
}
