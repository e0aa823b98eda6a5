//! What a plugin implements: one of these traits.
//!
//! An instance of a plugin runs one call at a time, so a listener has `&mut self` and
//! needs no locks. There may be several instances, each with its own state, and the host
//! replaces them at any time: what must last belongs into messages or a store.

use crate::message::{Batch, Message};
use crate::outcome::{ConsumeStatus, Outcome};
use crate::{Error, warn};

/// Consumes messages concurrently, one by one. RocketMQ: `MessageListenerConcurrently`.
///
/// The right trait unless several messages are cheaper together; then implement
/// [`ConcurrentBatchListener`] instead.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a listener",
    note = "implement `mqlet_guest::ConcurrentListener` (one message at a time) or \
            `mqlet_guest::ConcurrentBatchListener` (a batch at a time) for it"
)]
pub trait ConcurrentListener: 'static {
    /// Consumes one message.
    ///
    /// # Errors
    /// An error brings the message back later, as [`Outcome::reconsume_later`] does; its
    /// text goes to the log. Other messages of the batch are not touched by it.
    fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error>;
}

/// Consumes messages concurrently, a batch at a time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a listener",
    note = "implement `mqlet_guest::ConcurrentListener` (one message at a time) or \
            `mqlet_guest::ConcurrentBatchListener` (a batch at a time) for it"
)]
pub trait ConcurrentBatchListener: 'static {
    /// Consumes a batch: messages of one queue, in offset order, never none.
    ///
    /// # Errors
    /// An error brings the whole batch back later; its text goes to the operator.
    fn consume_batch(&mut self, batch: &Batch) -> Result<ConsumeStatus, Error>;
}

impl<T: ConcurrentListener> ConcurrentBatchListener for T {
    fn consume_batch(&mut self, batch: &Batch) -> Result<ConsumeStatus, Error> {
        let mut outcomes = Vec::new();
        for (index, message) in batch.iter().enumerate() {
            let outcome = self.consume_message(message).unwrap_or_else(|error| {
                warn!("message {} comes back later: {error}", message.message_id());
                Outcome::reconsume_later()
            });
            // Nothing is written down while everything is well.
            if outcome != Outcome::Done && outcomes.is_empty() {
                outcomes.resize(index, Outcome::Done);
                outcomes.push(outcome);
            } else if !outcomes.is_empty() {
                outcomes.push(outcome);
            }
        }
        Ok(if outcomes.is_empty() {
            ConsumeStatus::ConsumeSuccess
        } else {
            ConsumeStatus::Each(outcomes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{consume, message};

    /// Does what the body says.
    struct Obedient;

    impl ConcurrentListener for Obedient {
        fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
            match message.body_text()? {
                "dead" => Ok(Outcome::dead_letter("told so")),
                "later" => Ok(Outcome::reconsume_at(2)),
                "fail" => Err("told to fail".into()),
                _ => Ok(Outcome::Done),
            }
        }
    }

    fn obey(bodies: &[&str]) -> crate::testing::Run {
        consume(
            &mut Obedient,
            bodies.iter().map(|body| message("topic").body(*body)),
        )
    }

    #[test]
    fn batch_that_is_done_writes_no_outcomes() {
        assert_eq!(obey(&["a", "b"]).status, Ok(ConsumeStatus::ConsumeSuccess));
    }

    #[test]
    fn every_message_keeps_its_own_outcome() {
        let run = obey(&["a", "dead", "b", "later", "c"]);

        let expected = [
            Outcome::Done,
            Outcome::dead_letter("told so"),
            Outcome::Done,
            Outcome::reconsume_at(2),
            Outcome::Done,
        ];
        assert_eq!(run.status, Ok(ConsumeStatus::Each(expected.to_vec())));
    }

    #[test]
    fn error_brings_back_its_message_alone_and_is_logged() {
        let run = obey(&["fail", "a"]);

        assert_eq!(run.outcomes(), [Outcome::reconsume_later(), Outcome::Done]);
        assert_eq!(
            run.log_texts(),
            ["message ID-0 comes back later: told to fail"]
        );
    }
}
