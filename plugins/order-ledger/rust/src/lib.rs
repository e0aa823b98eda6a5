//! Writes what happens to orders into a journal, in the order in which it happened.
//!
//! The events of one order stand in one queue, one after the other: "paid" must never be
//! in the journal before "created". So the listener is orderly: while an entry cannot be
//! written, its queue waits. An event that can never be written is skipped, with a line
//! in the log: waiting for it would block its queue for ever.
//!
//! The last event of each order is kept in a bucket, too, for whoever asks where an order
//! stands. An event that comes again writes the same there.

#![forbid(unsafe_code)]

use std::time::Duration;

use mqlet_guest::key_value::Bucket;
use mqlet_guest::producer::{OutgoingMessage, SendError};
use mqlet_guest::{Error, Lifecycle, Message, OrderlyListener, OrderlyStatus, Settings, warn};

struct OrderLedger {
    journal: String,
    states: String,
}

impl Lifecycle for OrderLedger {
    fn init(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            journal: settings.require("journal")?.to_owned(),
            states: settings.require("states")?.to_owned(),
        })
    }
}

impl OrderlyListener for OrderLedger {
    fn consume_message(&mut self, message: Message<'_>) -> Result<OrderlyStatus, Error> {
        let (Some(order), Ok(event)) = (message.keys().next(), message.body_text()) else {
            warn!("{} is no event of an order: skipped", message.message_id());
            return Ok(OrderlyStatus::Success);
        };
        // An error suspends the queue for `suspend_current_queue_time`.
        Bucket::open(&self.states)?.set(order, event)?;
        // Sent twice when its answer is lost; the event's id lets readers see that.
        let entry = OutgoingMessage::new(&self.journal, format!("{order} {event}").as_bytes())
            .key(order)
            .property("event", message.message_id())
            .sharding_key(order);
        match entry.send() {
            Ok(_) => Ok(OrderlyStatus::Success),
            Err(SendError::RateLimited) => {
                Ok(OrderlyStatus::suspend_for(Duration::from_millis(250)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

mqlet_guest::export_orderly!(OrderLedger);

#[cfg(test)]
mod tests {
    use super::*;
    use mqlet_guest::testing::{
        OrderlyRun, TestMessage, bucket, consume_orderly, fail_buckets, grant_bucket, message,
        refuse_sends,
    };

    fn book(event: TestMessage) -> OrderlyRun {
        grant_bucket("orders");
        let settings = Settings::new([("journal", "order-journal"), ("states", "orders")]);
        let mut ledger = OrderLedger::init(&settings).expect("every setting is there");
        consume_orderly(&mut ledger, [event])
    }

    fn paid() -> TestMessage {
        message("order-events").keys("4711").body("paid")
    }

    #[test]
    fn event_is_written_to_the_queue_of_its_order() {
        let run = book(paid());

        assert_eq!(run.status, Ok(OrderlyStatus::Success));
        let [entry] = run.sent.as_slice() else {
            panic!("one entry: {:?}", run.sent)
        };
        assert_eq!(entry.topic, "order-journal");
        assert_eq!(entry.body, b"4711 paid");
        assert_eq!(entry.sharding_key.as_deref(), Some("4711"));
        assert_eq!(bucket("orders")["4711"], b"paid");
    }

    #[test]
    fn queue_waits_while_the_bucket_cannot_be_written() {
        fail_buckets(Some("its server is gone"));
        let run = book(paid());
        assert!(run.status.is_err(), "an error suspends");
        assert!(run.sent.is_empty());
    }

    #[test]
    fn queue_waits_while_the_journal_cannot_be_written() {
        refuse_sends(SendError::RateLimited);
        let soon = OrderlyStatus::suspend_for(Duration::from_millis(250));
        assert_eq!(book(paid()).status, Ok(soon));

        refuse_sends(SendError::Timeout);
        assert!(book(paid()).status.is_err(), "an error suspends, too");
    }

    #[test]
    fn what_can_never_be_written_blocks_nobody() {
        for event in [
            message("order-events").body("no order"),
            message("order-events").keys("4711").body([0xff]),
        ] {
            let run = book(event);
            assert_eq!(run.status, Ok(OrderlyStatus::Success));
            assert!(run.sent.is_empty());
            assert_eq!(run.log_texts(), ["ID-0 is no event of an order: skipped"]);
        }
    }

    #[test]
    fn journal_must_be_named() {
        let error = OrderLedger::init(&Settings::default())
            .err()
            .expect("missing");
        assert!(error.to_string().contains("\"journal\" is missing"));
    }
}
