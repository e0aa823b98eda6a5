//! Listeners that consume each queue in its order.
//!
//! The host makes one call at a time for each queue, and the next messages only after
//! those before them are done. What may be an instance's memory between two calls is no
//! place to keep anything: the next call of a queue can come to another instance.

use std::time::Duration;

use crate::Error;
use crate::bindings::orderly::exports::mqlet::listener::orderly as wit;
use crate::message::{Batch, Message};

/// Consumes the messages of a queue in its order, one by one. RocketMQ:
/// `MessageListenerOrderly`.
///
/// Right as long as a call has one message (`consume_message_batch_max_size = 1`, the
/// default of orderly listeners). With more, all of them get one answer: the first one
/// that suspends or fails ends the call, and the whole batch comes again, those before it
/// included; a rollback of any of them is one of the batch; and a commit with a success
/// behind it is a success. While auto-commit is on that is the same; with
/// `auto_commit = false` what was committed waits for the next commit, and comes again if a
/// rollback, a restart or another member is there first. To commit in the middle of a batch
/// is not possible: keep `consume_message_batch_max_size = 1` for it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an orderly listener",
    note = "implement `mqlet_guest::OrderlyListener` (one message at a time) or \
            `mqlet_guest::OrderlyBatchListener` (a batch at a time) for it"
)]
pub trait OrderlyListener: 'static {
    /// Consumes one message.
    ///
    /// # Errors
    /// An error suspends the queue, as [`OrderlyStatus::suspend`] does; its text goes to
    /// the operator.
    fn consume_message(&mut self, message: Message<'_>) -> Result<OrderlyStatus, Error>;
}

/// Consumes the messages of a queue in its order, a batch at a time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an orderly listener",
    note = "implement `mqlet_guest::OrderlyListener` (one message at a time) or \
            `mqlet_guest::OrderlyBatchListener` (a batch at a time) for it"
)]
pub trait OrderlyBatchListener: 'static {
    /// Consumes the first messages of a queue, in offset order, never none.
    ///
    /// # Errors
    /// An error suspends the queue; its text goes to the operator.
    fn consume_batch(&mut self, batch: &Batch) -> Result<OrderlyStatus, Error>;
}

impl<T: OrderlyListener> OrderlyBatchListener for T {
    fn consume_batch(&mut self, batch: &Batch) -> Result<OrderlyStatus, Error> {
        let mut answer = OrderlyStatus::Success;
        for message in batch.iter() {
            let status = self.consume_message(message)?;
            answer = match (answer, status) {
                (_, OrderlyStatus::SuspendCurrentQueueAMoment { .. }) => return Ok(status),
                // It goes on: while auto-commit is on, this is a success like another.
                (OrderlyStatus::Rollback, _) => OrderlyStatus::Rollback,
                // Also a success behind a commit: to commit both would lose what may still
                // be rolled back; to commit neither costs a repeat at most.
                (_, status) => status,
            };
        }
        Ok(answer)
    }
}

/// What becomes of a batch. RocketMQ: `ConsumeOrderlyStatus` with its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderlyStatus {
    /// Consumed.
    Success,
    /// The batch stays first in its queue and comes again.
    SuspendCurrentQueueAMoment {
        /// When. `None`: after the manifest's `suspend_current_queue_time`. The host has
        /// bounds: 10 ms to 30 s.
        after: Option<Duration>,
    },
    /// With `auto_commit = false`: what was consumed since the last commit is done. Else
    /// the same as success.
    Commit,
    /// With `auto_commit = false`: what was consumed since the last commit comes again.
    /// Else the same as success.
    Rollback,
}

impl OrderlyStatus {
    /// Again after the manifest's `suspend_current_queue_time`.
    pub fn suspend() -> Self {
        Self::SuspendCurrentQueueAMoment { after: None }
    }

    /// Again after this time.
    pub fn suspend_for(after: Duration) -> Self {
        Self::SuspendCurrentQueueAMoment { after: Some(after) }
    }
}

impl From<OrderlyStatus> for wit::ConsumeStatus {
    fn from(status: OrderlyStatus) -> Self {
        match status {
            OrderlyStatus::Success => Self::Success,
            OrderlyStatus::SuspendCurrentQueueAMoment { after } => {
                Self::SuspendCurrentQueueAMoment(after.map(milliseconds))
            }
            OrderlyStatus::Commit => Self::Commit,
            OrderlyStatus::Rollback => Self::Rollback,
        }
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{consume_orderly, message};

    /// Does what the body says.
    struct Obedient;

    impl OrderlyListener for Obedient {
        fn consume_message(&mut self, message: Message<'_>) -> Result<OrderlyStatus, Error> {
            match message.body_text()? {
                "wait" => Ok(OrderlyStatus::suspend_for(Duration::from_secs(2))),
                "commit" => Ok(OrderlyStatus::Commit),
                "rollback" => Ok(OrderlyStatus::Rollback),
                "fail" => Err("told to fail".into()),
                _ => Ok(OrderlyStatus::Success),
            }
        }
    }

    #[test]
    fn one_answer_stands_for_the_batch_and_the_weaker_one_when_two_differ() {
        let wait = OrderlyStatus::suspend_for(Duration::from_secs(2));
        for (bodies, status) in [
            (vec!["a", "b"], Ok(OrderlyStatus::Success)),
            (vec!["a", "commit"], Ok(OrderlyStatus::Commit)),
            (vec!["commit", "commit"], Ok(OrderlyStatus::Commit)),
            (vec!["a", "wait", "commit"], Ok(wait)),
            (vec!["commit", "rollback"], Ok(OrderlyStatus::Rollback)),
            (vec!["rollback", "a"], Ok(OrderlyStatus::Rollback)),
            (vec!["rollback", "fail"], Err("told to fail".to_owned())),
            (vec!["a", "fail"], Err("told to fail".to_owned())),
            (vec!["commit", "a"], Ok(OrderlyStatus::Success)),
            (vec!["commit", "a", "commit"], Ok(OrderlyStatus::Commit)),
            (vec!["commit", "a", "rollback"], Ok(OrderlyStatus::Rollback)),
        ] {
            let messages = bodies.iter().map(|body| message("topic").body(*body));
            assert_eq!(
                consume_orderly(&mut Obedient, messages).status,
                status,
                "{bodies:?}"
            );
        }
    }

    #[test]
    fn long_suspension_is_cut_and_none_is_the_configured_one() {
        let sent = |status: OrderlyStatus| format!("{:?}", wit::ConsumeStatus::from(status));
        assert_eq!(
            sent(OrderlyStatus::suspend_for(Duration::MAX)),
            "ConsumeStatus::SuspendCurrentQueueAMoment(Some(4294967295))"
        );
        assert_eq!(
            sent(OrderlyStatus::suspend()),
            "ConsumeStatus::SuspendCurrentQueueAMoment(None)"
        );
    }
}
