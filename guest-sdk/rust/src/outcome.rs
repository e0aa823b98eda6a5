//! What a listener answers.

use crate::bindings::exports::mqlet::listener::concurrent as wit;

/// What becomes of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Consumed.
    Done,
    /// Sent back to the broker and delivered again later.
    ReconsumeLater {
        /// RocketMQ's delay level, from 1. `None`: the broker's schedule, longer with each
        /// attempt.
        delay_level: Option<u32>,
    },
    /// Straight to the dead letters.
    DeadLetter {
        /// For people; kept with the message.
        reason: String,
    },
}

impl Outcome {
    /// Again later, on the broker's schedule.
    pub fn reconsume_later() -> Self {
        Self::ReconsumeLater { delay_level: None }
    }

    /// Again later, at one of RocketMQ's delay levels (1 is 1 s, 2 is 5 s, 3 is 10 s, 4 is
    /// 30 s, 5 is 1 min, … unless the broker is configured otherwise).
    pub fn reconsume_at(delay_level: u32) -> Self {
        Self::ReconsumeLater {
            delay_level: Some(delay_level),
        }
    }

    /// Straight to the dead letters, with a reason for people.
    pub fn dead_letter(reason: impl Into<String>) -> Self {
        Self::DeadLetter {
            reason: reason.into(),
        }
    }
}

impl From<Outcome> for wit::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::ReconsumeLater { delay_level } => Self::ReconsumeLater(delay_level),
            Outcome::DeadLetter { reason } => Self::DeadLetter(reason),
        }
    }
}

/// What becomes of a batch. RocketMQ: `ConsumeConcurrentlyStatus` with its context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsumeStatus {
    /// All are done.
    ConsumeSuccess,
    /// Messages up to and including this position (from 0) are done, later ones are sent
    /// back. −1: none is done. RocketMQ: `context.setAckIndex`.
    AckIndex(i32),
    /// The whole batch is sent back.
    ReconsumeLater {
        /// As in [`Outcome::ReconsumeLater`].
        delay_level: Option<u32>,
    },
    /// One outcome for each message, in order; a missing one counts as reconsume later.
    Each(Vec<Outcome>),
}

impl From<ConsumeStatus> for wit::ConsumeStatus {
    fn from(status: ConsumeStatus) -> Self {
        match status {
            ConsumeStatus::ConsumeSuccess => Self::ConsumeSuccess(None),
            ConsumeStatus::AckIndex(index) => Self::ConsumeSuccess(Some(index)),
            ConsumeStatus::ReconsumeLater { delay_level } => Self::ReconsumeLater(delay_level),
            ConsumeStatus::Each(outcomes) => {
                Self::Each(outcomes.into_iter().map(Into::into).collect())
            }
        }
    }
}
