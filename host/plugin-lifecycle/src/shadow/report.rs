//! What a shadow did otherwise than the revision that serves.

use std::time::Duration;

use consumer::listener::{
    ConcurrentlyStatus, ConsumeRequest, ConsumeResult, MessageOutcome, OrderlyStatus,
};
use protocol::MessageQueue;

use super::effects::Effect;
use crate::event::Generation;

/// Differences that are kept; the first ones say most.
pub const SAMPLES_MAX: usize = 20;

/// Of one shadow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShadowReport {
    /// Which deployment.
    pub generation: Generation,
    /// Of the requests, in a thousand.
    pub per_mille: u16,
    /// Requests that it got a copy of.
    pub copied: u64,
    /// Requests that it should have had, and there was no room.
    pub left_out: u64,
    /// Copies that were compared: both sides came to an end.
    pub compared: u64,
    /// Messages of those.
    pub messages: u64,
    /// Messages of those with another outcome.
    pub other_outcomes: u64,
    /// Copies of those with other effects.
    pub other_effects: u64,
    /// What it would have done outside, and did not.
    pub not_performed: u64,
    /// The first differences, at most [`SAMPLES_MAX`].
    pub samples: Vec<Difference>,
}

/// Something that was not the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Where the messages are.
    pub queue: MessageQueue,
    /// The message, or the first of the request.
    pub queue_offset: u64,
    /// Its id.
    pub message_id: String,
    /// Outcome or effects.
    pub kind: DifferenceKind,
    /// The revision that serves; for people.
    pub serving: String,
    /// The shadow.
    pub shadow: String,
}

/// What was not the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DifferenceKind {
    /// What became of a message.
    Outcome,
    /// What was done outside in a request.
    Effects,
}

impl ShadowReport {
    pub(super) fn new(generation: Generation, per_mille: u16) -> Self {
        Self {
            generation,
            per_mille,
            copied: 0,
            left_out: 0,
            compared: 0,
            messages: 0,
            other_outcomes: 0,
            other_effects: 0,
            not_performed: 0,
            samples: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, messages: usize, differences: Vec<Difference>) {
        self.compared += 1;
        self.messages += messages as u64;
        for difference in differences {
            match difference.kind {
                DifferenceKind::Outcome => self.other_outcomes += 1,
                DifferenceKind::Effects => self.other_effects += 1,
            }
            if self.samples.len() < SAMPLES_MAX {
                self.samples.push(difference);
            }
        }
    }
}

/// What is not the same; `None`: one of the two was cut short, and nothing can be said.
pub(super) fn compare(
    request: &ConsumeRequest,
    (live, live_effects): (&ConsumeResult, &[Effect]),
    (shadow, shadow_effects): (&ConsumeResult, &[Effect]),
) -> Option<Vec<Difference>> {
    let is_cut = |result: &ConsumeResult| *result == ConsumeResult::NotFinished;
    if is_cut(live) || is_cut(shadow) {
        return None;
    }
    let at = |index: usize, kind, serving: String, shadow: String| {
        let message = request.iter().nth(index)?.message;
        Some(Difference {
            queue: request.message_queue.clone(),
            queue_offset: message.queue_offset().0,
            message_id: String::from_utf8_lossy(message.message_id().as_bytes()).into_owned(),
            kind,
            serving,
            shadow,
        })
    };
    let mut differences = Vec::new();
    for index in 0..request.len() {
        let (Some(live), Some(shadow)) = (said(live, index), said(shadow, index)) else {
            continue;
        };
        if live != shadow {
            differences.extend(at(index, DifferenceKind::Outcome, live, shadow));
        }
    }
    // A request that came to something else in itself does something else.
    if live_effects != shadow_effects {
        let (serving, shadow) = first_difference(live_effects, shadow_effects);
        differences.extend(at(0, DifferenceKind::Effects, serving, shadow));
    }
    Some(differences)
}

fn first_difference(live: &[Effect], shadow: &[Effect]) -> (String, String) {
    let same = live.iter().zip(shadow).take_while(|(a, b)| a == b).count();
    let shown = |all: &[Effect]| match all.get(same) {
        Some(effect) => format!("{} of {}: {effect}", same + 1, all.len()),
        None => format!("no more than {same}"),
    };
    (shown(live), shown(shadow))
}

/// What became of a message, without the words of the guest; `None`: it was not reached.
fn said(result: &ConsumeResult, index: usize) -> Option<String> {
    let level = |level: Option<i32>| match level {
        Some(level) => format!("reconsume later at level {level}"),
        None => "reconsume later".to_owned(),
    };
    Some(match result {
        ConsumeResult::NotFinished => return None,
        ConsumeResult::Failed { .. } => "failed".to_owned(),
        ConsumeResult::Concurrently(status) => match status {
            ConcurrentlyStatus::ConsumeSuccess { ack_index } => {
                let last = ack_index.map_or(i64::MAX, i64::from);
                let is_done = i64::try_from(index).is_ok_and(|index| index <= last);
                match is_done {
                    true => "done".to_owned(),
                    false => level(None),
                }
            }
            ConcurrentlyStatus::ReconsumeLater { delay_level } => level(*delay_level),
            ConcurrentlyStatus::Each(outcomes) => match outcomes.get(index) {
                Some(MessageOutcome::Done) => "done".to_owned(),
                Some(MessageOutcome::ReconsumeLater { delay_level }) => level(*delay_level),
                Some(MessageOutcome::Failed { .. }) => "failed".to_owned(),
                Some(MessageOutcome::DeadLetter { .. }) => "dead letter".to_owned(),
                Some(MessageOutcome::NotFinished) => return None,
                None => level(None),
            },
        },
        ConsumeResult::Orderly(_) | ConsumeResult::OrderlyCalls(_) => {
            match result.orderly_status(index)? {
                OrderlyStatus::Success => "success".to_owned(),
                OrderlyStatus::Commit => "commit".to_owned(),
                OrderlyStatus::Rollback => "rollback".to_owned(),
                OrderlyStatus::SuspendCurrentQueueAMoment { suspend } => match suspend {
                    Some(time) => format!("suspend for {}", time_text(*time)),
                    None => "suspend".to_owned(),
                },
            }
        }
    })
}

fn time_text(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}
