//! Consumer offsets: where each group wants to go on, by topic and queue.
//!
//! A commit is stored as it comes, lower values too: the broker does not judge offsets.
//! RocketMQ: `ConsumerOffsetManager`.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Committed offsets of all groups, and resets that no pull has picked up yet.
#[derive(Debug)]
pub(crate) struct Offsets {
    /// By group and topic.
    committed: BTreeMap<Arc<str>, BTreeMap<Arc<str>, OffsetsOfTopic>>,
    resets: BTreeMap<(Arc<str>, Arc<str>, u32), i64>,
    count: usize,
    count_max: usize,
}

/// By queue.
type OffsetsOfTopic = BTreeMap<u32, i64>;

/// What became of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commit {
    Stored,
    /// A reset waits for the next pull; the commit is older than it.
    ResetPending,
    /// The table is full.
    Full,
}

impl Offsets {
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            committed: BTreeMap::new(),
            resets: BTreeMap::new(),
            count: 0,
            count_max,
        }
    }

    /// Stores an offset, unless a reset is pending.
    pub(crate) fn commit(
        &mut self,
        group: &str,
        topic: &str,
        queue_id: u32,
        offset: i64,
    ) -> Commit {
        if self.pending_reset(group, topic, queue_id).is_some() {
            return Commit::ResetPending;
        }
        self.store(group, topic, queue_id, offset)
    }

    /// Sets the stored offset and, until the group pulls this queue, lets nobody
    /// overwrite it. RocketMQ: `ConsumerOffsetManager#assignResetOffset`.
    pub(crate) fn reset(&mut self, group: &str, topic: &str, queue_id: u32, offset: i64) -> Commit {
        let commit = self.store(group, topic, queue_id, offset);
        if commit == Commit::Stored {
            self.resets
                .insert((group.into(), topic.into(), queue_id), offset);
        }
        commit
    }

    /// The pull of this queue that hears about the reset; it is over then.
    pub(crate) fn take_reset(&mut self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        if self.resets.is_empty() {
            return None;
        }
        self.resets.remove(&(group.into(), topic.into(), queue_id))
    }

    /// The pending reset or, without one, the committed offset.
    pub(crate) fn query(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        self.pending_reset(group, topic, queue_id).or_else(|| {
            self.committed
                .get(group)?
                .get(topic)?
                .get(&queue_id)
                .copied()
                .filter(|offset| *offset >= 0)
        })
    }

    fn pending_reset(&self, group: &str, topic: &str, queue_id: u32) -> Option<i64> {
        if self.resets.is_empty() {
            return None;
        }
        self.resets
            .get(&(group.into(), topic.into(), queue_id))
            .copied()
    }

    fn store(&mut self, group: &str, topic: &str, queue_id: u32, offset: i64) -> Commit {
        let known = self
            .committed
            .get_mut(group)
            .and_then(|topics| topics.get_mut(topic))
            .and_then(|queues| queues.get_mut(&queue_id));
        if let Some(known) = known {
            *known = offset;
            return Commit::Stored;
        }
        if self.count >= self.count_max {
            return Commit::Full;
        }
        self.count += 1;
        self.committed
            .entry(group.into())
            .or_default()
            .entry(topic.into())
            .or_default()
            .insert(queue_id, offset);
        Commit::Stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_stored_as_it_comes_lower_ones_too() {
        let mut offsets = Offsets::new(10);
        assert_eq!(offsets.query("G", "T", 0), None);
        offsets.commit("G", "T", 0, 7);
        offsets.commit("G", "T", 0, 3);
        assert_eq!(offsets.query("G", "T", 0), Some(3));
        assert_eq!(offsets.query("G", "T", 1), None);
        assert_eq!(offsets.query("H", "T", 0), None);
    }

    #[test]
    fn negative_commit_reads_as_none() {
        let mut offsets = Offsets::new(10);
        offsets.commit("G", "T", 0, -1);
        assert_eq!(offsets.query("G", "T", 0), None);
    }

    #[test]
    fn pending_reset_holds_commits_off_until_a_pull_takes_it() {
        let mut offsets = Offsets::new(10);
        offsets.commit("G", "T", 0, 90);
        offsets.reset("G", "T", 0, 10);
        assert_eq!(offsets.commit("G", "T", 0, 91), Commit::ResetPending);
        assert_eq!(offsets.query("G", "T", 0), Some(10));
        assert_eq!(offsets.take_reset("G", "T", 0), Some(10));
        assert_eq!(offsets.take_reset("G", "T", 0), None);
        assert_eq!(offsets.commit("G", "T", 0, 11), Commit::Stored);
    }

    #[test]
    fn full_table_keeps_what_it_has() {
        let mut offsets = Offsets::new(1);
        offsets.commit("G", "T", 0, 1);
        assert_eq!(offsets.commit("G", "T", 1, 1), Commit::Full);
        assert_eq!(offsets.commit("G", "T", 0, 2), Commit::Stored);
    }
}
