//! A pull task that pulls from its offset (the oldest message when there is none) and
//! obeys the first word of each body, one after the other; after each it moves its offset.
//! A word's argument stands after a blank or an equals sign.
//!
//! `fail TEXT` (the offset stays before it) | `trap` | `trap-once` (traps while the offset is
//! not past it, then is fine: it moves the offset first) | `loop` | `wait [MS]` (for ever
//! without a number) | `next MS` (returns that, at once) | `ask TIMES` (asks for the oldest
//! offset) | `pull MAX` (pulls so many) | `at OFFSET` (sets the offset there and returns) |
//! `send TOPIC` (its body), then done | `send-stubbornly TOPIC` (the same, and moves the offset
//! again when that fails) | `facts` (returns what the host says as an error). Anything else is done.
//!
//! Each message that it comes to is written down first: "ledger[0:queue:body]".

wit_bindgen::generate!({ path: "../../wit", world: "scheduled-pull", generate_all });

use std::time::Duration;

use exports::mqlet::listener::pull_task::{BatchContext, Guest};
use guests::{bytes, text};
use mqlet::listener::producer::{self, OutgoingMessage};
use mqlet::listener::pull_consumer::{
    PullResult, fetch_consume_offset, max_offset, min_offset, pull, search_offset,
    update_consume_offset,
};
use mqlet::listener::{call, types::Message};
use wasi::logging::logging::{Level, log};

struct Task;

impl Guest for Task {
    fn do_pull_task(context: BatchContext) -> Result<Option<u32>, String> {
        let offset = match fetch_consume_offset()? {
            Some(offset) => offset,
            None => min_offset()?,
        };
        let pulled = pull("*", offset, 32)?;
        for (index, message) in pulled.messages.iter().enumerate() {
            let body = text(bytes!(pulled.data, message.body).trim_ascii_end());
            let entry = format!("ledger[0:{}:{}]", context.queue_id, body.replace(' ', "="));
            log(Level::Info, "ledger", &entry);
            if let Some(next) = obey(&body, index, message, &pulled, &context)? {
                return Ok(Some(next));
            }
            update_consume_offset(message.queue_offset + 1)?;
        }
        update_consume_offset(pulled.next_begin_offset)?;
        Ok(None)
    }
}

export!(Task);

fn obey(
    body: &str,
    index: usize,
    message: &Message,
    pulled: &PullResult,
    context: &BatchContext,
) -> Result<Option<u32>, String> {
    let (word, argument) = body.split_once([' ', '=']).unwrap_or((body, ""));
    let number: Option<u32> = argument.trim().parse().ok();
    let offset = message.queue_offset;
    match word {
        "fail" => return Err(argument.to_owned()),
        "send" | "send-stubbornly" => {
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
            if word == "send-stubbornly"
                && let Err(error) = update_consume_offset(offset + 1)
            {
                log(Level::Warn, "again", &format!("again: {error}"));
                update_consume_offset(offset + 1)?;
            }
        }
        "trap" => panic!("told to trap"),
        "trap-once" => {
            update_consume_offset(message.queue_offset + 1)?;
            panic!("told to trap once");
        }
        "loop" => loop {
            std::hint::black_box(());
        },
        "wait" => std::thread::sleep(number.map_or(Duration::from_secs(1 << 20), |ms| {
            Duration::from_millis(ms.into())
        })),
        "next" => {
            update_consume_offset(message.queue_offset + 1)?;
            return Ok(number);
        }
        "ask" => {
            for _ in 0..number.unwrap_or(1) {
                min_offset()?;
            }
        }
        "pull" => {
            let more = pull("*", message.queue_offset, number.unwrap_or(u32::MAX))?;
            let messages = more.messages.len();
            return Err(format!("{messages}, next {}", more.next_begin_offset));
        }
        "at" => {
            update_consume_offset(argument.parse().unwrap_or(u64::MAX))?;
            return Ok(Some(0));
        }
        "facts" => {
            let details = call::details(u32::try_from(index).unwrap_or(u32::MAX));
            let beyond = u32::try_from(pulled.messages.len()).unwrap_or(u32::MAX);
            return Err(format!(
                "{} {}@{}:{} broadcasting {} status {:?} id {} times {} queue {}..{} searched {} \
                 stored by {:?} beyond {} cancelled {}",
                context.consumer_group,
                context.topic,
                context.broker_name,
                context.queue_id,
                context.broadcasting,
                pulled.status,
                text(bytes!(pulled.data, message.message_id)),
                message.reconsume_times,
                pulled.min_offset,
                max_offset()?,
                search_offset(message.store_timestamp_ms)?,
                details.map(|details| details.store_host),
                call::details(beyond).is_some(),
                call::cancelled(),
            ));
        }
        _ => {}
    }
    Ok(None)
}
