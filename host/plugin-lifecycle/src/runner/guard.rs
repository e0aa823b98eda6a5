//! Watches the calls of a deployment, so that trouble which began with a switch can take
//! it back: many of its last calls trap, break a limit or run out of time. What they came
//! to is written down, too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use wasm::Event;

use crate::event::Generation;
use crate::slot::CallRecord;

/// Calls that are looked at.
const LAST_CALLS: usize = 20;
/// Fewer failures among them are no trouble.
const FAILED_MIN: usize = 5;
/// Deployments whose trouble nobody has looked at yet; more tell it again later.
pub(super) const TROUBLES_MAX: usize = 16;

/// A deployment that makes trouble, and which.
pub(super) type Trouble = (Generation, String);

/// The last calls of a deployment.
#[derive(Default)]
struct LastCalls {
    failed: VecDeque<bool>,
}

impl LastCalls {
    /// Whether it makes trouble.
    fn ended(&mut self, has_failed: bool) -> bool {
        if self.failed.len() == LAST_CALLS {
            self.failed.pop_front();
        }
        self.failed.push_back(has_failed);
        let failed = self.failed.iter().filter(|failed| **failed).count();
        has_failed && failed >= FAILED_MIN && failed * 2 >= self.failed.len()
    }
}

/// Passes every event on, writes calls down and tells of trouble.
pub(super) fn watch(
    observer: wasm::Observer,
    generation: Generation,
    record: Arc<CallRecord>,
    troubles: mpsc::Sender<Trouble>,
) -> wasm::Observer {
    let calls = Arc::new(Mutex::new(LastCalls::default()));
    Arc::new(move |event| {
        observer(event);
        let failure = match event {
            Event::CallFinished(report) => {
                record.finished(report.messages, report.wall);
                None
            }
            // A failed batch was counted when it failed.
            Event::CallFailed(failed) if !failed.isolated && failed.message_queue.is_some() => {
                record.broke();
                Some(failed)
            }
            _ => return,
        };
        let is_trouble = {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.ended(failure.is_some())
        };
        if is_trouble && let Some(failed) = failure {
            let reason = format!(
                "its calls keep failing, the last one in {}: {}",
                failed.phase, failed.kind
            );
            let _ = troubles.try_send((generation, reason));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_last_calls_and_at_least_five_are_trouble() {
        let mut calls = LastCalls::default();
        assert!((0..4).all(|_| !calls.ended(true)), "too few");
        assert!(calls.ended(true));
        let mut calls = LastCalls::default();
        (0..100).for_each(|_| assert!(!calls.ended(false)));
        let first = (1..).find(|_| calls.ended(true));
        assert_eq!(first, Some(10));
        assert!(!calls.ended(false), "only a failure tells");
    }
}
