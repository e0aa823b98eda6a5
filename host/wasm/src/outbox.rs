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

/// What one call has sent, and what of it waits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Of the whole call, those that left included.
    messages: u32,
    bytes: u64,
    waiting: Vec<Parcel>,
}

/// What one function call of the guest sends.
#[derive(Debug)]
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

/// A call may send no more.
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
}

impl Outbox {
    /// Counts messages of the call, wherever they go, or refuses them all.
    pub(crate) fn count(
        &mut self,
        messages: &[OutgoingMessage],
        grant: &ProducerGrant,
    ) -> Result<(), Full> {
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let bytes: usize = messages.iter().map(size).sum();
        let messages = self.messages.saturating_add(count);
        let bytes = self.bytes.saturating_add(bytes as u64);
        if messages > grant.messages_per_call {
            return Err(Full::Messages(grant.messages_per_call));
        }
        if bytes > grant.bytes_per_call {
            return Err(Full::Bytes(grant.bytes_per_call));
        }
        (self.messages, self.bytes) = (messages, bytes);
        Ok(())
    }

    /// Keeps what was prepared and counted.
    pub(crate) fn put(&mut self, parcel: Parcel) {
        self.waiting.push(parcel);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
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
    for parcel in parcels {
        let count = parcel.messages().len();
        let topic = parcel.messages().first().map(|first| first.topic.clone());
        plugin.add_bytes_out(parcel.messages().iter().map(size).sum());
        let sending = match parcel {
            Parcel::Acknowledged(messages) => plugin
                .producer
                .send(messages, deadline.saturating_duration_since(Instant::now())),
            Parcel::Oneway(message) => plugin.producer.send_oneway(message),
        };
        sending.await.map_err(|source| Stuck {
            left,
            messages,
            topic: topic.unwrap_or_default(),
            source,
        })?;
        left += count;
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

/// What is counted of a message: body and properties.
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
            bytes_per_call: 10,
            ..ProducerGrant::new(Vec::new())
        };
        let mut outbox = Outbox::default();
        assert!(
            outbox
                .count(&[message("1234"), message("5")], &grant)
                .is_ok()
        );
        let two = [message("6"), message("7")];
        assert!(matches!(outbox.count(&two, &grant), Err(Full::Messages(3))));
        assert!(matches!(
            outbox.count(&[message("123456")], &grant),
            Err(Full::Bytes(10))
        ));
        assert!(outbox.count(&[message("12345")], &grant).is_ok());
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
