//! Writes down what it consumes, one log line a batch: "ledger[times:queue:body …]", the
//! line before the answer. A body that starts with "fail" comes back, the rest is done.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::bytes;
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let entries: Vec<String> = messages
            .iter()
            .map(|message| {
                let body = guests::text(bytes!(data, message.body));
                format!("{}:{}:{body}", message.reconsume_times, context.queue_id)
            })
            .collect();
        log(
            Level::Info,
            "ledger",
            &format!("ledger[{}]", entries.join(" ")),
        );
        if !messages
            .iter()
            .any(|message| bytes!(data, message.body).starts_with(b"fail"))
        {
            return Ok(ConsumeStatus::ConsumeSuccess(None));
        }
        Ok(ConsumeStatus::Each(
            messages
                .iter()
                .map(
                    |message| match bytes!(data, message.body).starts_with(b"fail") {
                        true => Outcome::ReconsumeLater(None),
                        false => Outcome::Done,
                    },
                )
                .collect(),
        ))
    }
}

export!(Listener);
