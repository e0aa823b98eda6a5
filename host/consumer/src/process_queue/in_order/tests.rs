//! Random histories of one queue beside a list that does the same in the simplest way.

use super::*;
use crate::epoch::EpochTable;
use crate::process_queue::KeptRun;
use crate::testing::{TestMessage, batch};

/// A message as the list has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    offset: u64,
    attempts: u32,
    is_uncommitted: bool,
}

#[test]
fn what_failed_comes_first_and_nothing_is_lost_in_any_history() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut queue = ProcessQueue::default();
        let mut list: Vec<Entry> = Vec::new();
        let mut calls = EpochTable::default();
        let mut end = 0;
        for _ in 0..60 {
            if random.bool() {
                let count = random.u64(1..6);
                let messages: Vec<_> = (end..end + count)
                    .map(|offset| TestMessage::new("T1", offset))
                    .collect();
                let kept = KeptRun {
                    range: 0..u32::try_from(count).unwrap_or(0),
                    topic: "T1".into(),
                };
                queue.put(&batch(&messages), 1, &[kept]);
                list.extend((end..end + count).map(|offset| Entry {
                    offset,
                    attempts: 0,
                    is_uncommitted: false,
                }));
                end += count;
            }
            let max = random.u32(1..5);
            let call = calls.insert(());
            let Some(taken) = queue.take_in_order(max, call) else {
                assert!(list.iter().all(|entry| entry.is_uncommitted), "seed {seed}");
                continue;
            };
            assert!(!queue.has_next_in_order(), "one call at a time");
            // The first that are not done, as long as they failed equally often.
            let first = list.iter().position(|entry| !entry.is_uncommitted);
            let first = first.unwrap_or(list.len());
            let attempts = list[first].attempts;
            let alike = list[first..].iter().take(max as usize);
            let alike = alike.take_while(|e| e.attempts == attempts).count();
            let got: Vec<(u64, u32)> = taken
                .runs
                .iter()
                .flat_map(|run| {
                    let local = run.local_reconsume_times;
                    let batch = &run.batch;
                    run.range
                        .clone()
                        .map(move |i| (batch.message(i).queue_offset().0, local))
                })
                .collect();
            let expected = list[first..first + alike].iter();
            let expected: Vec<_> = expected.map(|e| (e.offset, e.attempts)).collect();
            assert_eq!(got, expected, "seed {seed}");
            // Some calls of it succeed, then one fails, the rest is not reached.
            let done = random.usize(..=alike);
            let span = taken.span;
            let some = u32::try_from(done).unwrap_or(0);
            if let Some(span) = queue.first_of_call(call, span, some) {
                if random.bool() {
                    queue.commit(call, span);
                    list.drain(..first + done);
                } else {
                    queue.keep_uncommitted(call, span);
                    for entry in &mut list[first..first + done] {
                        entry.is_uncommitted = true;
                    }
                }
            }
            if let Some(span) = queue.first_of_call(call, taken.span, 1) {
                let offset = span.first.0;
                match random.u32(0..4) {
                    0 => {
                        queue.roll_back(call, span);
                        for entry in list.iter_mut().filter(|e| e.offset <= offset) {
                            entry.is_uncommitted = false;
                        }
                    }
                    1 => {
                        // Once more is enough: it goes to the dead letters.
                        let mut exhausted = Vec::new();
                        queue.put_back(call, span, Some(0), &mut exhausted);
                        assert_eq!(exhausted.len(), 1);
                        assert!(!queue.has_next_in_order(), "nothing passes a dead letter");
                        assert!(queue.remove_failed(exhausted[0].offset));
                        list.retain(|entry| entry.offset != offset);
                    }
                    _ => {
                        queue.put_back(call, span, None, &mut Vec::new());
                        for entry in list.iter_mut().filter(|e| e.offset == offset) {
                            entry.attempts += 1;
                        }
                    }
                }
            }
            queue.return_called(call, taken.span);
            assert_eq!(queue.messages() as usize, list.len(), "seed {seed}");
            let head = list.first().map(|entry| entry.offset);
            assert_eq!(queue.head().map(|offset| offset.0), head, "seed {seed}");
        }
    }
}
