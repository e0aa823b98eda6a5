//! What is sent, and how listeners take it.

use std::time::Duration;

use consumer::listener::{ConcurrentlyStatus, ConsumeResult, MessageOutcome, OrderlyStatus};
use fastrand::Rng;

/// What a listener is like at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mood {
    /// Of a hundred calls, so many last seconds.
    pub(crate) slow: u32,
    /// Of a hundred messages, so many fail.
    pub(crate) failing: u32,
}

/// What became of one message of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Failed {
        dead: bool,
    },
    Returned,
    /// Done if it is committed later.
    Uncommitted,
    /// With everything uncommitted before it.
    RolledBack,
}

/// How long a call lasts.
pub(crate) fn call_time(mood: Mood, random: &mut Rng) -> Duration {
    if random.u32(0..100) < mood.slow {
        Duration::from_millis(random.u64(200..20_000))
    } else {
        Duration::from_micros(random.u64(50..40_000))
    }
}

/// What a listener answers for so many messages, and what that means for each.
pub(crate) fn result(
    messages: usize,
    mood: Mood,
    random: &mut Rng,
) -> (ConsumeResult, Vec<Outcome>) {
    let fails = |random: &mut Rng| random.u32(0..100) < mood.failing;
    let all = |outcome| vec![outcome; messages];
    if !fails(random) {
        let success = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
        return (ConsumeResult::Concurrently(success), all(Outcome::Done));
    }
    let failed = Outcome::Failed { dead: false };
    match random.u32(0..20) {
        0 => (ConsumeResult::NotFinished, all(Outcome::Returned)),
        1 => {
            let later = ConcurrentlyStatus::ReconsumeLater { delay_level: None };
            (ConsumeResult::Concurrently(later), all(failed))
        }
        2 => (
            // Not what a concurrent listener can say.
            ConsumeResult::Orderly(OrderlyStatus::Success),
            all(failed),
        ),
        5 => {
            let reason = "trap".into();
            (ConsumeResult::Failed { reason }, all(failed))
        }
        3 => {
            let ack_index = random.i32(-2..8);
            let status = ConcurrentlyStatus::ConsumeSuccess {
                ack_index: Some(ack_index),
            };
            let done = usize::try_from(ack_index + 1).unwrap_or(0);
            let outcomes = (0..messages).map(|index| match index < done {
                true => Outcome::Done,
                false => failed,
            });
            (ConsumeResult::Concurrently(status), outcomes.collect())
        }
        kind => {
            let outcomes: Vec<Outcome> = (0..messages)
                .map(|_| match random.u32(0..12) {
                    0..=5 => Outcome::Done,
                    6..=8 => failed,
                    9 => Outcome::Failed { dead: true },
                    _ => Outcome::Returned,
                })
                .collect();
            let mut each: Vec<MessageOutcome> = outcomes.iter().map(|o| said(*o, random)).collect();
            let mut outcomes = outcomes;
            if kind == 4 {
                // An outcome is missing.
                each.pop();
                if let Some(last) = outcomes.last_mut() {
                    *last = failed;
                }
            }
            let status = ConcurrentlyStatus::Each(each);
            (ConsumeResult::Concurrently(status), outcomes)
        }
    }
}

fn said(outcome: Outcome, random: &mut Rng) -> MessageOutcome {
    match outcome {
        Outcome::Done => MessageOutcome::Done,
        Outcome::Returned | Outcome::Uncommitted | Outcome::RolledBack => {
            MessageOutcome::NotFinished
        }
        Outcome::Failed { dead: true } => MessageOutcome::DeadLetter {
            reason: "cannot be read".into(),
        },
        Outcome::Failed { dead: false } if random.u32(0..4) == 0 => MessageOutcome::Failed {
            reason: "trap".into(),
        },
        Outcome::Failed { dead: false } => MessageOutcome::ReconsumeLater {
            delay_level: [None, Some(1), Some(2)][random.usize(..3)],
        },
    }
}
