//! Pulls that wait for a message: found again when one arrives, when their time is up,
//! or when their connection goes.
//!
//! RocketMQ looks at waiting pulls every 5 s as well and then wakes those that a filter
//! kept asleep, so that their offset moves on; so do we. Their own end comes in time
//! here, and up to 5 s late there. RocketMQ: `PullRequestHoldService`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::header::PullMessageRequestHeader;
use protocol::subscription::SubscriptionData;
use protocol::{Instant, RemotingCommand};

use crate::ConnectionId;

/// A pull that found nothing and may wait.
#[derive(Debug)]
pub(crate) struct HeldPull {
    pub(crate) connection: ConnectionId,
    pub(crate) request: RemotingCommand,
    pub(crate) header: PullMessageRequestHeader,
    pub(crate) queue_id: u32,
    pub(crate) filter: Arc<SubscriptionData>,
    pub(crate) deadline: Instant,
}

/// All waiting pulls.
#[derive(Debug)]
pub(crate) struct LongPoll {
    held: BTreeMap<HoldId, HeldPull>,
    queues: BTreeMap<Arc<str>, BTreeMap<u32, BTreeSet<HoldId>>>,
    deadlines: BTreeSet<(Instant, HoldId)>,
    next_id: HoldId,
    held_max: usize,
    check_interval: Duration,
    /// `None` while nothing waits.
    next_check: Option<Instant>,
}

type HoldId = u64;

impl LongPoll {
    pub(crate) fn new(held_max: usize, check_interval: Duration) -> Self {
        Self {
            held: BTreeMap::new(),
            queues: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_id: 0,
            held_max,
            check_interval,
            next_check: None,
        }
    }

    /// No room for another pull: answer it now.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.held_max
    }

    /// Lets a pull wait.
    pub(crate) fn hold(&mut self, pull: HeldPull, now: Instant) {
        let id = self.next_id;
        self.next_id += 1;
        self.deadlines.insert((pull.deadline, id));
        if !self.queues.contains_key(pull.header.topic.as_str()) {
            self.queues
                .insert(pull.header.topic.as_str().into(), BTreeMap::new());
        }
        if let Some(queues) = self.queues.get_mut(pull.header.topic.as_str()) {
            queues.entry(pull.queue_id).or_default().insert(id);
        }
        self.held.insert(id, pull);
        if self.next_check.is_none() {
            self.next_check = Some(now + self.check_interval);
        }
    }

    /// Takes out the pulls of a queue that want a message with this tag code, now that
    /// the queue ends at `max_offset`.
    pub(crate) fn take_arrived(
        &mut self,
        topic: &str,
        queue_id: u32,
        max_offset: u64,
        tags_code: i64,
    ) -> Vec<HeldPull> {
        let Some(ids) = self
            .queues
            .get(topic)
            .and_then(|queues| queues.get(&queue_id))
        else {
            return Vec::new();
        };
        let woken: Vec<HoldId> = ids
            .iter()
            .filter(|id| {
                self.held.get(id).is_some_and(|pull| {
                    is_behind(pull, max_offset) && pull.filter.matches_code(tags_code)
                })
            })
            .copied()
            .collect();
        woken.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Takes out the pulls whose time is up and, every few seconds, those whose queue
    /// went on without a message for them.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        max_offset: impl Fn(&str, u32) -> u64,
    ) -> Vec<HeldPull> {
        let mut woken: BTreeSet<HoldId> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| *id)
            .collect();
        if self.next_check.is_some_and(|check| check <= now) {
            self.next_check = Some(now + self.check_interval);
            woken.extend(
                self.held
                    .iter()
                    .filter(|(_, pull)| {
                        is_behind(pull, max_offset(&pull.header.topic, pull.queue_id))
                    })
                    .map(|(id, _)| *id),
            );
        }
        woken.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Forgets the pulls of a connection that is gone.
    pub(crate) fn drop_connection(&mut self, connection: ConnectionId) {
        let gone: Vec<HoldId> = self
            .held
            .iter()
            .filter(|(_, pull)| pull.connection == connection)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.take(id);
        }
    }

    /// When something will have to be taken out.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        [deadline, self.next_check].into_iter().flatten().min()
    }

    fn take(&mut self, id: HoldId) -> Option<HeldPull> {
        let pull = self.held.remove(&id)?;
        self.deadlines.remove(&(pull.deadline, id));
        if let Some(queues) = self.queues.get_mut(pull.header.topic.as_str()) {
            if let Some(ids) = queues.get_mut(&pull.queue_id) {
                ids.remove(&id);
                if ids.is_empty() {
                    queues.remove(&pull.queue_id);
                }
            }
            if queues.is_empty() {
                self.queues.remove(pull.header.topic.as_str());
            }
        }
        if self.held.is_empty() {
            self.next_check = None;
        }
        Some(pull)
    }
}

fn is_behind(pull: &HeldPull, max_offset: u64) -> bool {
    i64::try_from(max_offset).is_ok_and(|max| max > pull.header.queue_offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ExtFields;
    use protocol::subscription::{ExpressionType, tag_hash};

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn pull(connection: u64, queue_id: u32, tag: &str, deadline: u64) -> HeldPull {
        HeldPull {
            connection: ConnectionId(connection),
            request: RemotingCommand::request(11, ExtFields::default()),
            header: PullMessageRequestHeader {
                topic: "T".to_owned(),
                queue_offset: 5,
                ..PullMessageRequestHeader::default()
            },
            queue_id,
            filter: Arc::new(SubscriptionData::build("T", tag, ExpressionType::Tag).unwrap()),
            deadline: at(deadline),
        }
    }

    fn connections(pulls: &[HeldPull]) -> Vec<u64> {
        pulls.iter().map(|pull| pull.connection.0).collect()
    }

    fn long_poll() -> LongPoll {
        LongPoll::new(3, Duration::from_secs(5))
    }

    #[test]
    fn arrival_wakes_who_waits_for_this_queue_and_tag() {
        let mut held = long_poll();
        held.hold(pull(1, 0, "A", 15), at(0));
        held.hold(pull(2, 0, "*", 15), at(0));
        held.hold(pull(3, 1, "*", 15), at(0));
        assert!(held.is_full());
        assert!(held.take_arrived("T", 0, 5, 0).is_empty());
        let tag = i64::from(tag_hash("B"));
        assert_eq!(connections(&held.take_arrived("T", 0, 6, tag)), [2]);
        let tag = i64::from(tag_hash("A"));
        assert_eq!(connections(&held.take_arrived("T", 0, 7, tag)), [1]);
        assert!(held.take_arrived("T", 0, 8, tag).is_empty());
    }

    #[test]
    fn pull_ends_at_its_deadline() {
        let mut held = long_poll();
        held.hold(pull(1, 0, "*", 15), at(0));
        assert_eq!(held.next_timeout(), Some(at(5)));
        assert!(held.take_due(at(14), |_, _| 5).is_empty());
        assert_eq!(held.next_timeout(), Some(at(15)));
        assert_eq!(connections(&held.take_due(at(15), |_, _| 5)), [1]);
        assert_eq!(held.next_timeout(), None);
    }

    #[test]
    fn periodic_look_wakes_a_pull_whose_filter_kept_it_asleep() {
        let mut held = long_poll();
        held.hold(pull(1, 0, "A", 15), at(0));
        assert!(held.take_due(at(4), |_, _| 6).is_empty());
        assert_eq!(connections(&held.take_due(at(5), |_, _| 6)), [1]);
    }

    #[test]
    fn lost_connection_takes_its_pulls_along() {
        let mut held = long_poll();
        held.hold(pull(1, 0, "*", 15), at(0));
        held.hold(pull(2, 0, "*", 15), at(0));
        held.drop_connection(ConnectionId(1));
        assert_eq!(connections(&held.take_arrived("T", 0, 9, 0)), [2]);
    }
}
