//! What a guest sends in a call, kept until it is known what the call came to.
//!
//! Messages leave in the order they were sent, when the call has succeeded and before
//! anything it consumed counts as done; those of a call that failed are dropped. What
//! fails to leave fails the call: its messages come again, and what had left before
//! leaves again. So a message is sent at least once for each message that is done, and
//! never for one that is not.
//!
//! A call may have done only some of its messages. Nobody knows which of them a sent one
//! belongs to: all leave when one is done or dead, none when all come again.

use std::time::{Duration, Instant};

use consumer::listener::{ConcurrentlyStatus, MessageOutcome, OrderlyStatus};
use consumer::publish::{OutgoingMessage, SendError};

use crate::grants::ProducerGrant;
use crate::outcome::Status;
use crate::plugin::Plugin;

/// Bytes that a message, a key, and a property's name and value each cost beside what
/// stands in them.
const HELD_PER_TEXT: usize = 64;

/// What one call has sent, and what of it waits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Of the whole call, those that left included.
    messages: u32,
    bytes: u64,
    waiting: Vec<Parcel>,
}

/// What one function call of the guest sends.
#[derive(Clone, Debug)]
pub(crate) enum Parcel {
    /// One message, or a batch.
    Acknowledged(Vec<OutgoingMessage>),
    Oneway(OutgoingMessage),
}

impl Parcel {
    fn messages(&self) -> &[OutgoingMessage] {
        match self {
            Self::Acknowledged(messages) => messages,
            Self::Oneway(message) => std::slice::from_ref(message),
        }
    }
}

/// What a call has sent when its next messages are among it.
#[derive(Debug)]
pub(crate) struct Counted {
    messages: u32,
    bytes: u64,
}

/// A call may send no more.
#[derive(Debug)]
pub(crate) enum Full {
    Messages(u32),
    Bytes(u64),
}

/// Why not everything left.
#[derive(Debug, thiserror::Error)]
#[error(
    "its outbox could not leave: {left} of {messages} messages were sent, then topic \"{topic}\": {source}"
)]
pub(crate) struct Stuck {
    left: usize,
    messages: usize,
    topic: String,
    source: SendError,
    /// The parcel that failed, and those behind it.
    kept: Vec<Parcel>,
}

impl Stuck {
    /// What did not leave, for whoever tries again.
    pub(crate) fn into_kept(self) -> Vec<Parcel> {
        self.kept
    }
}

impl Outbox {
    /// What the call would have sent with these messages, wherever they go; all of them are
    /// refused when that is too much.
    pub(crate) fn counted(
        &self,
        messages: &[OutgoingMessage],
        grant: &ProducerGrant,
    ) -> Result<Counted, Full> {
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let bytes: usize = messages.iter().map(held).sum();
        let messages = self.messages.saturating_add(count);
        let bytes = self.bytes.saturating_add(bytes as u64);
        if messages > grant.messages_per_call {
            return Err(Full::Messages(grant.messages_per_call));
        }
        if bytes > grant.bytes_per_call {
            return Err(Full::Bytes(grant.bytes_per_call));
        }
        Ok(Counted { messages, bytes })
    }

    /// Nothing speaks against these messages any more.
    pub(crate) fn count(&mut self, Counted { messages, bytes }: Counted) {
        (self.messages, self.bytes) = (messages, bytes);
    }

    /// Keeps what was prepared and counted.
    pub(crate) fn put(&mut self, parcel: Parcel) {
        self.waiting.push(parcel);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts back what could not leave, in front of whatever came meanwhile.
    pub(crate) fn put_back(&mut self, parcels: Vec<Parcel>) {
        drop(self.waiting.splice(..0, parcels));
    }

    /// Takes out what waits; the count stays.
    pub(crate) fn take_waiting(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.waiting)
    }
}

/// Sends parcels one after the other, within this time, up to the first that fails.
pub(crate) async fn leave(
    parcels: Vec<Parcel>,
    plugin: &Plugin,
    time: Duration,
) -> Result<(), Stuck> {
    let deadline = Instant::now() + time;
    let messages = parcels.iter().map(|parcel| parcel.messages().len()).sum();
    let mut left = 0;
    let mut parcels = parcels.into_iter();
    while let Some(parcel) = parcels.next() {
        plugin.add_bytes_out(parcel.messages().iter().map(size).sum());
        // Its bodies are shared, not copied.
        let sending = match parcel.clone() {
            Parcel::Acknowledged(messages) => plugin
                .producer
                .send(messages, deadline.saturating_duration_since(Instant::now())),
            Parcel::Oneway(message) => plugin.producer.send_oneway(message),
        };
        if let Err(source) = sending.await {
            let first = parcel.messages().first();
            return Err(Stuck {
                left,
                messages,
                topic: first.map_or_else(String::new, |first| first.topic.clone()),
                source,
                kept: std::iter::once(parcel).chain(parcels).collect(),
            });
        }
        left += parcel.messages().len();
    }
    Ok(())
}

/// Whether a call that came to this finished any of its messages.
pub(crate) fn finishes(status: &Status) -> bool {
    match status {
        Status::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index }) => {
            ack_index.is_none_or(|ack_index| ack_index >= 0)
        }
        Status::Concurrently(ConcurrentlyStatus::ReconsumeLater { .. }) => false,
        Status::Concurrently(ConcurrentlyStatus::Each(outcomes)) => {
            outcomes.iter().any(|outcome| match outcome {
                MessageOutcome::Done | MessageOutcome::DeadLetter { .. } => true,
                MessageOutcome::ReconsumeLater { .. }
                | MessageOutcome::Failed { .. }
                | MessageOutcome::NotFinished => false,
            })
        }
        Status::Orderly(status) => match status {
            OrderlyStatus::Success | OrderlyStatus::Commit => true,
            OrderlyStatus::SuspendCurrentQueueAMoment { .. } | OrderlyStatus::Rollback => false,
        },
    }
}

/// The same call, when its outbox could not leave: all of it comes again.
pub(crate) fn all_again(status: &Status) -> Status {
    match status {
        Status::Concurrently(_) => {
            Status::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
        }
        Status::Orderly(_) => {
            Status::Orderly(OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None })
        }
    }
}

/// About what a message costs the host while it waits: its texts, and what holds each of
/// them, so that a million empty ones are not nothing.
fn held(message: &OutgoingMessage) -> usize {
    let texts = message.keys.len() + 2 * message.properties.len();
    let names = [&message.tags, &message.sharding_key];
    let names = names.into_iter().flatten().map(String::len).sum::<usize>();
    size(message) + names + message.topic.len() + HELD_PER_TEXT * (1 + texts)
}

/// What is billed of a message: body and properties.
pub(crate) fn size(message: &OutgoingMessage) -> usize {
    let properties = message.properties.iter();
    let properties: usize = properties
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let keys: usize = message.keys.iter().map(String::len).sum();
    message.body.len() + properties + keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &'static str) -> OutgoingMessage {
        OutgoingMessage {
            body: body.into(),
            ..OutgoingMessage::default()
        }
    }

    #[test]
    fn call_sends_no_more_than_its_grant_and_what_was_refused_is_not_counted() {
        let grant = ProducerGrant {
            messages_per_call: 3,
            bytes_per_call: 3 * HELD_PER_TEXT as u64 + 10,
            ..ProducerGrant::new(Vec::new())
        };
        let mut outbox = Outbox::default();
        let two = [message("1234"), message("5")];
        let counted = outbox.counted(&two, &grant).unwrap();
        outbox.count(counted);
        let full = |bodies: &[&'static str]| {
            let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
            outbox.counted(&messages, &grant)
        };
        assert!(matches!(full(&["6", "7"]), Err(Full::Messages(3))));
        assert!(matches!(full(&["123456"]), Err(Full::Bytes(_))));
        assert!(full(&["12345"]).is_ok());
    }

    #[test]
    fn empty_texts_count_too() {
        let grant = ProducerGrant {
            bytes_per_call: 64 << 10,
            ..ProducerGrant::new(Vec::new())
        };
        let mut many_keys = message("");
        many_keys.keys = vec![String::new(); 1_000];
        let mut many_properties = message("");
        many_properties.properties = vec![(String::new(), String::new()); 500];
        for message in [many_keys, many_properties] {
            assert_eq!(size(&message), 0);
            let counted = Outbox::default().counted(&[message], &grant).unwrap();
            assert_eq!(counted.bytes, 1_001 * 64);
        }
        let mut long_names = message("");
        long_names.topic = "t".repeat(40_000);
        long_names.sharding_key = Some("k".repeat(40_000));
        let refused = Outbox::default().counted(&[long_names], &grant);
        assert!(matches!(refused, Err(Full::Bytes(_))));
    }

    #[test]
    fn all_leave_when_anything_is_done_and_none_when_all_comes_again() {
        let concurrently = |outcomes| Status::Concurrently(ConcurrentlyStatus::Each(outcomes));
        let later = || MessageOutcome::ReconsumeLater { delay_level: None };
        let dead = MessageOutcome::DeadLetter { reason: "r".into() };
        let ack = |ack_index| {
            Status::Concurrently(ConcurrentlyStatus::ConsumeSuccess {
                ack_index: Some(ack_index),
            })
        };
        assert!(finishes(&concurrently(vec![later(), MessageOutcome::Done])));
        assert!(finishes(&concurrently(vec![later(), dead])));
        assert!(finishes(&ack(0)));
        assert!(finishes(&Status::Orderly(OrderlyStatus::Commit)));
        assert!(!finishes(&concurrently(vec![later(), later()])));
        assert!(!finishes(&ack(-1)));
        assert!(!finishes(&Status::Orderly(OrderlyStatus::Rollback)));
    }
}
