//! [`Timer`]: everything that can happen by itself, and the one ordered table of it.
//!
//! Each timer stands in the table at most once; setting it again moves it. What idles
//! costs its entry and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::Instant;

use crate::epoch::Epoch;

/// Between two questions for a known route. RocketMQ: `pollNameServerInterval`.
pub(crate) const ROUTE_REFRESH: Duration = Duration::from_secs(30);
/// The same when the route lacks queues that were there before: their broker may be
/// restarting, and nobody reads them until the route has them again.
pub(crate) const SHRUNK_ROUTE_REFRESH: Duration = Duration::from_secs(5);
/// After so long they are taken for gone.
pub(crate) const SHRUNK_ROUTE_WATCHED: Duration = Duration::from_secs(300);
/// Between two questions for a topic that does not exist.
pub(crate) const MISSING_TOPIC_REFRESH: Duration = Duration::from_secs(5);
/// The same while no name server answers.
pub(crate) const NO_NAME_SERVER_RETRY: Duration = Duration::from_secs(1);
/// The same for a known topic: what is known may be wrong, and stays known until one
/// answers. RocketMQ waits for its next poll.
pub(crate) const KNOWN_ROUTE_RETRY: Duration = Duration::from_secs(5);
/// RocketMQ: `heartbeatBrokerInterval`.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(30);
/// After a heartbeat that was not taken.
pub(crate) const HEARTBEAT_RETRY: Duration = Duration::from_secs(1);
/// A heartbeat names every group: with many of them it is not sent after each change.
pub(crate) const HEARTBEAT_PAUSE_PER_GROUP: Duration = Duration::from_millis(1);
/// Bound of the pause between two heartbeats.
pub(crate) const HEARTBEAT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// RocketMQ: `rocketmq.client.rebalance.waitInterval`.
pub(crate) const REBALANCE: Duration = Duration::from_secs(20);
/// While unbalanced, and between two rebalances that somebody asked for. RocketMQ:
/// `rocketmq.client.rebalance.minInterval`, a second: less, so that who has an orderly
/// queue next has its lock within a second, whichever broker it asked first.
pub(crate) const REBALANCE_MIN: Duration = Duration::from_millis(750);
/// RocketMQ: `persistConsumerOffsetInterval`.
pub(crate) const PERSIST_OFFSETS: Duration = Duration::from_secs(5);
/// After a failed pull or start. RocketMQ: `pullTimeDelayMillsWhenException`.
pub(crate) const PULL_DELAY_WHEN_ERROR: Duration = Duration::from_secs(1);
/// After a run of a pull task that failed, unless its interval is longer. RocketMQ:
/// `MQPullConsumerScheduleService#pullTimeDelayMillsWhenException`.
pub(crate) const PULL_TASK_DELAY_WHEN_FAILED: Duration = Duration::from_secs(1);
/// After a run of a pull task that pulled nothing, whatever its guest asks for: it would
/// otherwise run, and ask its broker, as fast as both can.
pub(crate) const PULL_TASK_PAUSE_WHEN_IDLE: Duration = Duration::from_millis(10);
/// When the broker asks to slow down. RocketMQ: `PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL`.
pub(crate) const PULL_DELAY_WHEN_BROKER_FLOW_CONTROL: Duration = Duration::from_millis(20);
/// Between two looks for memory while queues wait for some and there is some. RocketMQ:
/// `PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL`.
pub(crate) const PULL_DELAY_WHEN_CACHE_FLOW_CONTROL: Duration = Duration::from_millis(50);
/// Before offsets that could not be read are asked for again.
pub(crate) const LOCAL_OFFSETS_RETRY: Duration = Duration::from_secs(5);
/// Before a message of a broadcasting group is tried again the first time; doubles.
pub(crate) const BROADCAST_RETRY: Duration = Duration::from_secs(1);
/// Bound of that, and of what a listener asks for: a waiting message keeps the offset of
/// its queue where it is.
pub(crate) const BROADCAST_RETRY_MAX: Duration = Duration::from_secs(30);
/// A pull that was sent less than this before a reset, and carries an offset, may still
/// be on its way to the broker's store: the reset waits.
pub(crate) const RESET_SETTLE: Duration = Duration::from_secs(1);
/// How long the broker may hold a pull. RocketMQ: `BROKER_SUSPEND_MAX_TIME_MILLIS`.
pub(crate) const PULL_SUSPEND: Duration = Duration::from_secs(15);
/// All locks of a group. RocketMQ: `rocketmq.client.rebalance.lockInterval`.
pub(crate) const LOCK_RENEWAL: Duration = Duration::from_secs(20);
/// A lock ends so long after it was asked for; brokers keep it twice as long. RocketMQ:
/// `rocketmq.client.rebalance.lockMaxLiveTime`.
pub(crate) const LOCK_LIVE_TIME: Duration = Duration::from_secs(30);
/// While another client has the lock of a queue that is ours. RocketMQ: the delay of
/// `RebalanceService#wakeup` when not all is locked.
pub(crate) const LOCK_RETRY: Duration = Duration::from_millis(500);
/// After a request for locks that failed.
pub(crate) const LOCK_RETRY_WHEN_ERROR: Duration = Duration::from_secs(1);
/// After an unlock that failed.
pub(crate) const UNLOCK_RETRY: Duration = Duration::from_secs(1);
/// Before a message is tried again that could not be sent back. RocketMQ:
/// `ConsumeMessageConcurrentlyService#submitConsumeRequestLater`.
pub(crate) const LOCAL_RETRY: Duration = Duration::from_secs(5);

/// Groups, topics or queues of a client that are looked after at RocketMQ's pace. With
/// more of them rebalancing, the refresh of routes and the wait of a pull at its broker take
/// longer in proportion, so that up to [`STRETCH_MAX`] times as many that idle cost their
/// brokers no more of these requests a second than this many; from there on the rate grows
/// again. Heartbeats, locks and offsets keep their pace.
pub(crate) const AT_FULL_PACE: u32 = 2_500;
/// At most so often longer: a lost notification is not noticed before.
const STRETCH_MAX: u32 = 4;

/// A period for one of so many.
pub(crate) fn stretched(period: Duration, count: usize) -> Duration {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let count = count.clamp(AT_FULL_PACE, AT_FULL_PACE * STRETCH_MAX);
    period * count / AT_FULL_PACE
}

/// Patience with answers, RocketMQ's values.
pub(crate) mod timeout {
    use std::time::Duration;

    pub(crate) const ROUTE: Duration = Duration::from_secs(3);
    pub(crate) const HEARTBEAT: Duration = Duration::from_secs(3);
    pub(crate) const UNREGISTER: Duration = Duration::from_secs(3);
    pub(crate) const CHECK: Duration = Duration::from_secs(3);
    pub(crate) const CONSUMER_LIST: Duration = Duration::from_secs(3);
    /// The broker asks the member, and waits for it.
    pub(crate) const RUNNING_INFO: Duration = Duration::from_secs(10);
    pub(crate) const CONSUMER_OFFSET: Duration = Duration::from_secs(5);
    pub(crate) const QUEUE_OFFSET: Duration = Duration::from_secs(6);
    pub(crate) const LOCK: Duration = Duration::from_secs(1);
    pub(crate) const SEND_BACK: Duration = Duration::from_secs(5);
    /// Of a pull, beyond the time that the broker may hold it.
    pub(crate) const PULL_BEYOND_SUSPEND: Duration = Duration::from_secs(15);
    /// Of a pull that does not wait for messages. RocketMQ: `consumerPullTimeoutMillis`.
    pub(crate) const TASK_PULL: Duration = Duration::from_secs(10);
    pub(crate) const SEND: Duration = Duration::from_secs(3);
}

/// Everything that can happen by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Ask for the route of a topic.
    Route(Epoch),
    /// Send a heartbeat to a broker's address.
    Heartbeat(Epoch),
    /// Rebalance a group.
    Rebalance(Epoch),
    /// Ask a member of a group what it reads.
    Compare(Epoch),
    /// Store the offsets that changed.
    PersistOffsets,
    /// Read the stored offsets of a broadcasting group.
    LocalOffsets(Epoch),
    /// Pull more of the queues that wait for memory.
    Buffer,
    /// Go on with a queue: start it, or pull.
    Queue(Epoch),
    /// Try messages again that could not be sent back.
    LocalRetry(Epoch),
    /// Try a group's listener again.
    Hold(Epoch),
    /// Ask for the locks of a group.
    Lock(Epoch),
    /// Tell a broker again that a released queue is unlocked.
    Unlock(Epoch),
    /// The end of a queue's suspension.
    Suspension(Epoch),
    /// A send has had its time.
    Send(Epoch),
}

/// When each timer is due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, Timer)>,
    at: BTreeMap<Timer, Instant>,
}

impl Timers {
    /// Sets or moves a timer.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if let Some(before) = self.at.insert(timer, at) {
            self.due.remove(&(before, timer));
        }
        self.due.insert((at, timer));
    }

    /// Sets a timer, or moves it forward; never later.
    pub(crate) fn set_earliest(&mut self, timer: Timer, at: Instant) {
        if self.at.get(&timer).is_none_or(|&before| at < before) {
            self.set(timer, at);
        }
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at.contains_key(&timer)
    }

    /// When it is due, if it is set.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        self.at.get(&timer).copied()
    }

    /// The next timer that is due, taken out.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let &(at, timer) = self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        self.at.remove(&timer);
        Some(timer)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn thousands_are_looked_after_at_a_slower_pace() {
        let period = Duration::from_secs(20);
        assert_eq!(stretched(period, 1), period);
        assert_eq!(stretched(period, 2_500), period);
        assert_eq!(stretched(period, 3_750), period * 3 / 2);
        assert_eq!(stretched(period, 4_999), Duration::from_millis(39_992));
        assert_eq!(stretched(period, 10_000), period * 4);
        assert_eq!(stretched(period, 1_000_000), period * 4);
    }

    #[test]
    fn a_timer_stands_in_the_table_once_and_fires_when_due() {
        let mut timers = Timers::default();
        timers.set(Timer::PersistOffsets, at(5));
        timers.set(Timer::PersistOffsets, at(7));
        timers.set_earliest(Timer::PersistOffsets, at(9));
        assert_eq!(timers.next(), Some(at(7)));
        timers.set_earliest(Timer::PersistOffsets, at(6));
        assert_eq!(timers.pop_due(at(5)), None);
        assert_eq!(timers.pop_due(at(6)), Some(Timer::PersistOffsets));
        assert_eq!((timers.pop_due(at(9)), timers.next()), (None, None));
    }
}
