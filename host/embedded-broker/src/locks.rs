//! Queue locks of orderly consumers: who may consume a queue, for the next minute.
//!
//! Locks belong to client ids, not to connections: a crashed consumer's queues are free
//! when its locks expire. RocketMQ: `RebalanceLockManager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue};

/// All locks, by group and queue.
#[derive(Debug)]
pub(crate) struct QueueLocks {
    groups: BTreeMap<Arc<str>, BTreeMap<MessageQueue, Lock>>,
    live_time: Duration,
    /// Locks in `groups`, expired ones included.
    count: usize,
    count_max: usize,
}

#[derive(Debug)]
struct Lock {
    client_id: Arc<str>,
    updated_at: Instant,
}

impl QueueLocks {
    pub(crate) fn new(live_time: Duration, count_max: usize) -> Self {
        Self {
            groups: BTreeMap::new(),
            live_time,
            count: 0,
            count_max,
        }
    }

    /// Gives the client every queue that nobody else holds, and renews its own. Returns
    /// those of these queues that it holds now. A queue that the table has no
    /// room for is refused.
    pub(crate) fn lock(
        &mut self,
        group: &str,
        client_id: &str,
        queues: &BTreeSet<MessageQueue>,
        now: Instant,
    ) -> BTreeSet<MessageQueue> {
        let live_time = self.live_time;
        let locks = self.groups.entry(group.into()).or_default();
        let mut held = BTreeSet::new();
        for queue in queues {
            let granted = match locks.get_mut(queue) {
                Some(lock) if &*lock.client_id == client_id || lock.is_expired(live_time, now) => {
                    *lock = Lock::new(client_id, now);
                    true
                }
                Some(_) => false,
                None if self.count < self.count_max => {
                    locks.insert(queue.clone(), Lock::new(client_id, now));
                    self.count += 1;
                    true
                }
                None => false,
            };
            if granted {
                held.insert(queue.clone());
            }
        }
        if locks.is_empty() {
            self.groups.remove(group);
        }
        held
    }

    /// Gives up the queues that this client holds; others stay locked.
    pub(crate) fn unlock(&mut self, group: &str, client_id: &str, queues: &BTreeSet<MessageQueue>) {
        let Some(locks) = self.groups.get_mut(group) else {
            return;
        };
        for queue in queues {
            if locks
                .get(queue)
                .is_some_and(|lock| &*lock.client_id == client_id)
            {
                locks.remove(queue);
                self.count -= 1;
            }
        }
        if locks.is_empty() {
            self.groups.remove(group);
        }
    }

    /// Whether the group holds any lock that has not expired: then it is an orderly one.
    pub(crate) fn is_any_held(&self, group: &str, now: Instant) -> bool {
        self.groups.get(group).is_some_and(|locks| {
            locks
                .values()
                .any(|lock| !lock.is_expired(self.live_time, now))
        })
    }

    /// Takes all locks of a group away.
    #[cfg(feature = "testing")]
    pub(crate) fn revoke(&mut self, group: &str) -> usize {
        let revoked = self.groups.remove(group).map_or(0, |locks| locks.len());
        self.count -= revoked;
        revoked
    }
}

impl Lock {
    fn new(client_id: &str, now: Instant) -> Self {
        Self {
            client_id: client_id.into(),
            updated_at: now,
        }
    }

    fn is_expired(&self, live_time: Duration, now: Instant) -> bool {
        now.saturating_since(self.updated_at) > live_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn queues(ids: &[u32]) -> BTreeSet<MessageQueue> {
        ids.iter()
            .map(|id| MessageQueue::new("T", "b", *id))
            .collect()
    }

    fn locks() -> QueueLocks {
        QueueLocks::new(Duration::from_secs(60), 3)
    }

    #[test]
    fn second_client_gets_only_what_is_free() {
        let mut locks = locks();
        assert_eq!(
            locks.lock("G", "A", &queues(&[0, 1]), at(0)),
            queues(&[0, 1])
        );
        assert_eq!(locks.lock("G", "B", &queues(&[1, 2]), at(1)), queues(&[2]));
        assert_eq!(locks.lock("other", "B", &queues(&[]), at(1)), queues(&[]));
    }

    #[test]
    fn renewed_lock_lives_on_and_a_silent_one_is_taken_over() {
        let mut locks = locks();
        locks.lock("G", "A", &queues(&[0, 1]), at(0));
        locks.lock("G", "A", &queues(&[0]), at(40));
        assert_eq!(locks.lock("G", "B", &queues(&[0, 1]), at(61)), queues(&[1]));
        assert!(locks.is_any_held("G", at(121)));
        assert!(!locks.is_any_held("G", at(122)));
    }

    #[test]
    fn only_the_holder_unlocks() {
        let mut locks = locks();
        locks.lock("G", "A", &queues(&[0]), at(0));
        locks.unlock("G", "B", &queues(&[0]));
        assert_eq!(locks.lock("G", "B", &queues(&[0]), at(1)), queues(&[]));
        locks.unlock("G", "A", &queues(&[0]));
        assert_eq!(locks.lock("G", "B", &queues(&[0]), at(1)), queues(&[0]));
    }

    #[test]
    fn full_table_refuses_new_locks_and_renews_old_ones() {
        let mut locks = locks();
        assert_eq!(
            locks.lock("G", "A", &queues(&[0, 1, 2, 3]), at(0)),
            queues(&[0, 1, 2])
        );
        assert_eq!(locks.lock("G", "A", &queues(&[2, 3]), at(1)), queues(&[2]));
        locks.unlock("G", "A", &queues(&[0]));
        assert_eq!(locks.lock("G", "A", &queues(&[3]), at(2)), queues(&[3]));
    }
}
