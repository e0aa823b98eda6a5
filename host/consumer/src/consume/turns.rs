//! [`ReadyQueues`]: which queue of a group has the next call.
//!
//! Queues with fresh messages take turns, and so do those with retries; between the two
//! there are three rules, so that neither starves the other whatever there is of it and
//! however long its calls take:
//! - while both wait, retries have a call after one of each fresh queue, at the latest
//!   after [`FRESH_IN_A_ROW_MAX`];
//! - retries have at most half of the group's calls while fresh messages wait, and never
//!   all: messages that fail because something hangs would else have every call soon;
//! - fresh messages do not have all of them while retries wait.
//!
//! A group with one call at a time has the first rule alone. RocketMQ has none of them:
//! its calls go to whoever was fetched first.

use std::collections::VecDeque;

use crate::epoch::Epoch;

/// One call in nine is for retries, at the least.
const FRESH_IN_A_ROW_MAX: usize = 8;

/// Queues of a group with messages for a call, in turn.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueues {
    fresh: VecDeque<Epoch>,
    retries: VecDeque<Epoch>,
    /// Calls of fresh messages since the last of retries.
    fresh_in_a_row: usize,
}

/// Calls of a group that are under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallsUnderWay {
    pub(crate) all: u32,
    pub(crate) retries: u32,
    pub(crate) max: u32,
}

impl CallsUnderWay {
    /// Retries may have another one though fresh messages wait.
    fn retries_have_few(self) -> bool {
        self.retries < self.max.div_ceil(2)
    }

    /// Retries would leave none to fresh messages.
    pub(crate) fn retries_have_all_but_one(self) -> bool {
        self.max > 1 && self.retries + 1 >= self.max
    }

    /// Fresh messages would leave none to retries.
    fn fresh_have_all_but_one(self) -> bool {
        self.max > 1 && self.retries == 0 && self.all + 1 >= self.max
    }
}

impl ReadyQueues {
    pub(crate) fn push_back(&mut self, queue: Epoch, is_retry: bool) {
        if is_retry {
            self.retries.push_back(queue);
        } else {
            self.fresh.push_back(queue);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.retries.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The queue whose turn it is. `None` also when what there is must leave the call to
    /// others.
    pub(crate) fn pop(&mut self, calls: CallsUnderWay) -> Option<Epoch> {
        if self.are_retries_next(calls) {
            self.fresh_in_a_row = 0;
            self.retries.pop_front()
        } else {
            self.fresh_in_a_row += 1;
            self.fresh.pop_front()
        }
    }

    fn are_retries_next(&self, calls: CallsUnderWay) -> bool {
        if self.retries.is_empty() || calls.retries_have_all_but_one() {
            return false;
        }
        let turn = self.fresh.len().min(FRESH_IN_A_ROW_MAX);
        self.fresh.is_empty()
            || calls.fresh_have_all_but_one()
            || (self.fresh_in_a_row >= turn && calls.retries_have_few())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: CallsUnderWay = CallsUnderWay {
        all: 0,
        retries: 0,
        max: 20,
    };

    fn ready(fresh: u64, retries: u64) -> ReadyQueues {
        let mut ready = ReadyQueues::default();
        for queue in 0..fresh + retries {
            ready.push_back(Epoch::from_u64(queue), queue >= fresh);
        }
        ready
    }

    /// Queues that are called, one call after the other; all have more messages.
    fn turns(fresh: u64, retries: u64, count: usize) -> Vec<u64> {
        let mut ready = ready(fresh, retries);
        let turns = (0..count).map(|_| {
            let queue = ready.pop(CALLS).expect("messages everywhere");
            ready.push_back(queue, queue.to_u64() >= fresh);
            queue.to_u64()
        });
        turns.collect()
    }

    #[test]
    fn few_queues_are_called_in_turn_retries_like_the_others() {
        assert_eq!(turns(2, 1, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(turns(1, 2, 6), [0, 1, 0, 2, 0, 1]);
    }

    #[test]
    fn retries_have_one_call_in_nine_beside_any_number_of_queues() {
        let turns = turns(4096, 1, 900);
        assert_eq!(turns.iter().filter(|&&queue| queue == 4096).count(), 100);
    }

    #[test]
    fn slow_retries_leave_half_of_the_calls_and_one_in_any_case() {
        let with = |retries| CallsUnderWay {
            all: retries,
            retries,
            ..CALLS
        };
        let mut both = ready(1, 1);
        both.fresh_in_a_row = 100;
        assert!(both.are_retries_next(with(9)));
        assert!(!both.are_retries_next(with(10)));
        assert_eq!(ready(0, 1).pop(with(18)).map(Epoch::to_u64), Some(0));
        assert_eq!(ready(0, 1).pop(with(19)), None);
    }

    #[test]
    fn fresh_messages_leave_a_call_to_retries() {
        let with = |all| CallsUnderWay { all, ..CALLS };
        assert!(!ready(5, 1).are_retries_next(with(18)));
        assert!(ready(5, 1).are_retries_next(with(19)));
        // All are theirs while there are no retries.
        assert_eq!(ready(5, 0).pop(with(19)).map(Epoch::to_u64), Some(0));
    }
}
