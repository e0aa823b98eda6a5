//! Watches what a group has committed, from outside, all the while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::broker::Connection;

/// Between two looks at all queues.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that looks until it is told to stop.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<History>>,
}

/// What was seen.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// By queue, each change with the time it was seen.
    changes: BTreeMap<u32, Vec<(Instant, u64)>>,
}

impl Watch {
    /// Looks at the group's offsets of all queues of a topic.
    pub fn start(broker_addr: &str, group: &str, topic: &str, queues: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (is_over, group, topic) = (Arc::clone(&stop), group.to_owned(), topic.to_owned());
        let mut connection = Connection::open(broker_addr);
        let watcher = thread::spawn(move || {
            let mut history = History::default();
            loop {
                let last = is_over.load(Ordering::Relaxed);
                for queue_id in 0..queues {
                    if let Some(offset) = connection.committed(&group, &topic, queue_id) {
                        history.note(queue_id, offset);
                    }
                }
                if last {
                    return history;
                }
                thread::sleep(LOOK_INTERVAL);
            }
        });
        Self {
            stop,
            watcher: Some(watcher),
        }
    }

    /// Ends it after one more look.
    ///
    /// # Panics
    /// When the broker went away.
    pub fn stop(mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let watcher = self.watcher.take().expect("stopped once");
        watcher.join().expect("the broker answers")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl History {
    fn note(&mut self, queue_id: u32, offset: u64) {
        let changes = self.changes.entry(queue_id).or_default();
        if changes.last().is_none_or(|&(_, last)| last != offset) {
            changes.push((Instant::now(), offset));
        }
    }

    /// Every time that an offset went back: queue, from, to.
    pub fn steps_back(&self) -> Vec<(u32, u64, u64)> {
        let steps = self.changes.iter().flat_map(|(&queue_id, changes)| {
            changes.windows(2).filter_map(move |pair| {
                let (from, to) = (pair[0].1, pair[1].1);
                (to < from).then_some((queue_id, from, to))
            })
        });
        steps.collect()
    }

    /// Of how many queues a commit was seen.
    pub fn queues_committed(&self) -> usize {
        self.changes.len()
    }

    /// The furthest that was committed before a time.
    pub fn furthest_before(&self, queue_id: u32, at: Instant) -> u64 {
        let changes = self.changes.get(&queue_id).into_iter().flatten();
        let before = changes.take_while(|&&(seen, _)| seen <= at);
        before.map(|&(_, offset)| offset).max().unwrap_or(0)
    }

    /// The last that was seen.
    pub fn last(&self, queue_id: u32) -> Option<u64> {
        Some(self.changes.get(&queue_id)?.last()?.1)
    }
}
