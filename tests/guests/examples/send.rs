//! Sends each message on: to the topic in its property "to", else to its own topic with "-out"
//! appended; body, tag and keys as they came, property "from" with the message id. The property
//! "how" may be "batch" (all of the batch in one) or "oneway", "delay" a number of milliseconds,
//! "then" what is done after: "trap", "fail", "later", "first" (is done) or "wait" (for ever).
//! Fails with the error's name.

wit_bindgen::generate!({ path: "../../wit", world: "concurrent-listener", generate_all });

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message};
use guests::{bytes, property, text};
use mqlet::listener::producer::{self, Delay, OutgoingMessage};
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let outgoing = messages.iter().map(|message| OutgoingMessage {
            topic: property(bytes!(data, message.properties), "to")
                .unwrap_or_else(|| format!("{}-out", context.topic)),
            body: bytes!(data, message.body).to_vec(),
            tags: property(bytes!(data, message.properties), "TAGS"),
            keys: property(bytes!(data, message.properties), "KEYS")
                .iter()
                .flat_map(|keys| keys.split(' '))
                .map(str::to_owned)
                .collect(),
            properties: vec![("from".to_owned(), text(bytes!(data, message.message_id)))],
            delay: property(bytes!(data, message.properties), "delay")
                .and_then(|delay| delay.parse().ok())
                .map(Delay::Milliseconds),
            sharding_key: property(bytes!(data, message.properties), "sharding-key"),
            flag: message.flag,
        });
        let outgoing: Vec<_> = outgoing.collect();
        let how = property(bytes!(data, messages[0].properties), "how").unwrap_or_default();
        let results = match how.as_str() {
            "batch" => producer::send_batch(&outgoing),
            "oneway" => outgoing
                .iter()
                .try_for_each(producer::send_oneway)
                .map(|()| Vec::new()),
            _ => outgoing.iter().map(producer::send).collect(),
        };
        let results = results.map_err(|error| format!("{error:?}"))?;
        for result in results {
            let line = match result.stored {
                Some(at) => format!(
                    "sent {} to {} {}",
                    result.message_id, at.broker_name, at.queue_id
                ),
                None => format!("will send {}", result.message_id),
            };
            log(Level::Info, "send", &line);
        }
        let then = property(bytes!(data, messages[0].properties), "then").unwrap_or_default();
        match then.as_str() {
            "trap" => panic!("told to trap"),
            "fail" => Err("told to fail".to_owned()),
            "later" => Ok(ConsumeStatus::ReconsumeLater(None)),
            "first" => Ok(ConsumeStatus::ConsumeSuccess(Some(0))),
            "wait" => {
                std::thread::sleep(std::time::Duration::from_secs(1 << 20));
                Ok(ConsumeStatus::ConsumeSuccess(None))
            }
            _ => Ok(ConsumeStatus::ConsumeSuccess(None)),
        }
    }
}

export!(Listener);
