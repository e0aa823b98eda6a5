//! Examples, and random histories beside a plain ordered map that does the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::epoch::EpochTable;
use crate::testing::{TestMessage, batch};

fn messages(offsets: &[u64]) -> Arc<MessageBatch> {
    let messages: Vec<_> = offsets.iter().map(|&o| TestMessage::new("T", o)).collect();
    batch(&messages)
}

fn put(queue: &mut ProcessQueue, offsets: &[u64]) -> u32 {
    let batch = messages(offsets);
    let kept = KeptRun {
        range: 0..u32::try_from(batch.len()).expect("small"),
        topic: "T".into(),
    };
    queue.put(&batch, 100, &[kept])
}

fn epochs(count: usize) -> Vec<Epoch> {
    let mut table = EpochTable::default();
    (0..count).map(|_| table.insert(())).collect()
}

#[test]
fn a_run_goes_through_in_one_piece() {
    let mut queue = ProcessQueue::default();
    assert_eq!(put(&mut queue, &[5, 6, 8]), 3);
    assert_eq!((queue.head(), queue.span()), (Some(QueueOffset(5)), 3));
    let call = epochs(1)[0];
    let taken = queue.take(32, call).expect("three are free");
    assert_eq!((taken.runs.len(), taken.span.messages), (1, 3));
    assert_eq!(queue.finished_offset(), Some(QueueOffset(5)));
    queue.finish(call, taken.span);
    assert_eq!(queue.finished_offset(), Some(QueueOffset(9)));
    assert_eq!(
        (queue.messages(), queue.body_bytes(), queue.held_bytes()),
        (0, 0, 0)
    );
}

#[test]
fn one_slow_call_pins_the_offset() {
    let mut queue = ProcessQueue::default();
    put(&mut queue, &[0, 1, 2, 3]);
    let calls = epochs(2);
    let slow = queue.take(1, calls[0]).expect("free");
    let fast = queue.take(3, calls[1]).expect("free");
    queue.finish(calls[1], fast.span);
    assert_eq!(queue.finished_offset(), Some(QueueOffset(0)));
    assert_eq!(queue.held_bytes(), 100);
    queue.finish(calls[0], slow.span);
    assert_eq!(queue.finished_offset(), Some(QueueOffset(4)));
    assert_eq!(queue.held_bytes(), 0);
}

#[test]
fn a_failed_message_stays_until_the_broker_has_it() {
    let mut queue = ProcessQueue::default();
    put(&mut queue, &[0, 1, 2]);
    let calls = epochs(2);
    let taken = queue.take(32, calls[0]).expect("free");
    let mut failed = Vec::new();
    queue.finish_each(
        calls[0],
        taken.span,
        |index| {
            if index == 1 {
                Fate::Failed
            } else {
                Fate::Finished
            }
        },
        &mut failed,
    );
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].index, failed[0].offset, failed[0].batch_index),
        (1, QueueOffset(1), 1)
    );
    assert_eq!(queue.finished_offset(), Some(QueueOffset(1)));
    assert!(queue.take(32, calls[1]).is_none());

    assert!(queue.retry_failed(QueueOffset(1)));
    let again = queue.take(32, calls[1]).expect("free again");
    assert_eq!(again.runs[0].local_reconsume_times, 1);
    queue.finish_each(calls[1], again.span, |_| Fate::Failed, &mut failed);
    assert!(queue.remove_failed(QueueOffset(1)));
    assert!(!queue.remove_failed(QueueOffset(1)));
    assert_eq!(queue.finished_offset(), Some(QueueOffset(3)));
}

#[test]
fn a_call_takes_messages_of_one_topic() {
    let mut queue = ProcessQueue::default();
    let batch = messages(&[0, 1, 2]);
    let kept = [(0..2, "A"), (2..3, "B")].map(|(range, topic)| KeptRun {
        range,
        topic: topic.into(),
    });
    queue.put(&batch, 1, &kept);
    let calls = epochs(2);
    let first = queue.take(32, calls[0]).expect("free");
    let second = queue.take(32, calls[1]).expect("free");
    assert_eq!((&*first.topic, first.span.messages), ("A", 2));
    assert_eq!((&*second.topic, second.span.messages), ("B", 1));
}

#[test]
fn a_repeated_offset_keeps_its_message_and_a_lower_one_is_taken_in() {
    let mut queue = ProcessQueue::default();
    put(&mut queue, &[10, 12]);
    assert_eq!(put(&mut queue, &[10, 11, 9]), 2);
    assert_eq!((queue.messages(), queue.head()), (4, Some(QueueOffset(9))));
    let call = epochs(1)[0];
    let taken = queue.take(32, call).expect("free");
    let offsets: Vec<_> = taken
        .runs
        .iter()
        .flat_map(|run| {
            run.range
                .clone()
                .map(|i| run.batch.message(i).queue_offset().0)
        })
        .collect();
    assert_eq!(offsets, [9, 10, 11, 12]);
}

#[derive(Clone, Debug)]
enum Step {
    /// Ascending from the end, with these gaps.
    Put(Vec<u64>),
    /// Anywhere.
    PutAt(u64),
    Take(u32),
    /// Which call, and what becomes of each message.
    End(prop::sample::Index, Vec<Fate>),
    /// Which failed message, and whether the broker took it.
    Failed(prop::sample::Index, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        4 => Just(Fate::Finished),
        1 => Just(Fate::Failed),
        1 => Just(Fate::Returned),
    ];
    prop_oneof![
        3 => prop::collection::vec(1..4_u64, 1..9).prop_map(Step::Put),
        1 => (0..60_u64).prop_map(Step::PutAt),
        4 => (1..7_u32).prop_map(Step::Take),
        4 => (any::<prop::sample::Index>(), prop::collection::vec(fate, 0..7))
            .prop_map(|(call, fates)| Step::End(call, fates)),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(m, ok)| Step::Failed(m, ok)),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Modelled {
    Free,
    Called(usize),
    Failed,
}

proptest! {
    #[test]
    fn it_answers_as_an_ordered_map_does(steps in prop::collection::vec(step(), 1..80)) {
        let mut queue = ProcessQueue::default();
        let mut model: BTreeMap<u64, Modelled> = BTreeMap::new();
        let mut end = 0;
        let mut calls: Vec<(usize, Epoch, TakenSpan)> = Vec::new();
        let names = epochs(80);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(gaps) => {
                    let mut offset = end;
                    let offsets: Vec<u64> = gaps
                        .iter()
                        .map(|gap| {
                            offset += gap;
                            offset - 1
                        })
                        .collect();
                    put(&mut queue, &offsets);
                    model.extend(offsets.iter().map(|&o| (o, Modelled::Free)));
                    end = offset;
                }
                Step::PutAt(offset) => {
                    put(&mut queue, &[offset]);
                    model.entry(offset).or_insert(Modelled::Free);
                    end = end.max(offset + 1);
                }
                Step::Take(max) => {
                    let taken = queue.take(max, names[number]);
                    let expected: Vec<u64> = model
                        .iter()
                        .skip_while(|(_, state)| **state != Modelled::Free)
                        .take_while(|(_, state)| **state == Modelled::Free)
                        .take(max as usize)
                        .map(|(offset, _)| *offset)
                        .collect();
                    let actual: Vec<u64> = taken
                        .iter()
                        .flat_map(|taken| &taken.runs)
                        .flat_map(|run| {
                            run.range.clone().map(|i| run.batch.message(i).queue_offset().0)
                        })
                        .collect();
                    prop_assert_eq!(&actual, &expected);
                    for offset in expected {
                        model.insert(offset, Modelled::Called(number));
                    }
                    if let Some(taken) = taken {
                        calls.push((number, names[number], taken.span));
                    }
                }
                Step::End(which, fates) => {
                    if calls.is_empty() {
                        continue;
                    }
                    let (number, call, span) = calls.remove(which.index(calls.len()));
                    let fate = |i: u32| fates.get(i as usize).copied().unwrap_or(Fate::Finished);
                    let mut failed = Vec::new();
                    if fates.is_empty() {
                        queue.finish(call, span);
                    } else {
                        queue.finish_each(call, span, fate, &mut failed);
                    }
                    let members: Vec<u64> = model
                        .iter()
                        .filter(|(_, state)| **state == Modelled::Called(number))
                        .map(|(offset, _)| *offset)
                        .collect();
                    prop_assert_eq!(members.len(), span.messages as usize);
                    let mut expected = Vec::new();
                    for (index, offset) in (0..).zip(members) {
                        match fate(index) {
                            Fate::Finished => {
                                model.remove(&offset);
                            }
                            Fate::Failed => {
                                model.insert(offset, Modelled::Failed);
                                expected.push((index, QueueOffset(offset)));
                            }
                            Fate::Returned => {
                                model.insert(offset, Modelled::Free);
                            }
                        }
                    }
                    let failed: Vec<_> = failed.iter().map(|f| (f.index, f.offset)).collect();
                    prop_assert_eq!(failed, expected);
                }
                Step::Failed(which, taken_back) => {
                    let failed: Vec<u64> = model
                        .iter()
                        .filter(|(_, state)| **state == Modelled::Failed)
                        .map(|(offset, _)| *offset)
                        .collect();
                    if failed.is_empty() {
                        continue;
                    }
                    let offset = failed[which.index(failed.len())];
                    if taken_back {
                        prop_assert!(queue.remove_failed(QueueOffset(offset)));
                        model.remove(&offset);
                    } else {
                        prop_assert!(queue.retry_failed(QueueOffset(offset)));
                        model.insert(offset, Modelled::Free);
                    }
                }
            }
            // The offset to commit never passes an unfinished message.
            let head = model.keys().next().copied();
            prop_assert_eq!(queue.head().map(|o| o.0), head);
            let finished = head.or((end > 0).then_some(end));
            prop_assert_eq!(queue.finished_offset().map(|o| o.0), finished);
            let span = model.keys().next_back().map_or(0, |last| last - head.unwrap_or(0));
            prop_assert_eq!(queue.span(), span);
            prop_assert_eq!(queue.messages() as usize, model.len());
            let free = model.values().filter(|s| **s == Modelled::Free).count();
            prop_assert_eq!(queue.free_messages() as usize, free);
            let bytes: usize = model.keys().map(|o| format!("body {o}").len()).sum();
            prop_assert_eq!(queue.body_bytes(), bytes as u64);
            prop_assert_eq!(queue.held_bytes() == 0, model.is_empty());
        }
    }
}
