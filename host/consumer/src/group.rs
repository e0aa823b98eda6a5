//! [`ConsumerGroup`]: what a group reads and which queues it holds; [`AssignedQueue`]: one
//! of them, for as long as it is ours.
//!
//! Plain state. What moves it: `rebalance` (takes and gives back), `offset::start` and
//! `pull` (fetch), `consume` and `retry` (finish), `stop` (end).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::subscription::SubscriptionData;
use protocol::{Instant, MessageQueue, QueueOffset};

use crate::assignment::QueueSelector;
use crate::config::{AllocateError, GroupConfig};
use crate::consume::CallTime;
use crate::consume::orderly::OrderlyState;
use crate::consume::turns::{CallsUnderWay, ReadyQueues};
use crate::epoch::Epoch;
use crate::hold::Hold;
use crate::local_offsets::LocalOffsets;
use crate::memory::GroupMemory;
use crate::offset::{CommitState, Start, StartStep};
use crate::pause::Pauses;
use crate::process_queue::ProcessQueue;
use crate::pull::{BadRecord, Pull};
use crate::pull_task::run::Task;
use crate::queue_lock::{QueueLock, Unlock};
use crate::rebalance::Rebalance;
use crate::rebalance::compare::Comparison;
use crate::request::{RequestError, RequestId};
use crate::retry::returns::Returns;
use crate::route::BrokerId;
use crate::statistics::Statistics;
use crate::subscriptions::Check;
use crate::timers::Timer;

/// One consumer group of this client.
#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    pub(crate) name: Arc<str>,
    pub(crate) config: GroupConfig,
    pub(crate) subscribed_at: Instant,
    /// As configured, then the retry topic, which broadcasting groups do not have.
    pub(crate) topics: Vec<GroupTopic>,
    pub(crate) life: Life,
    /// The first announcement that names it.
    pub(crate) since_version: u64,
    pub(crate) rebalance: Rebalance,
    pub(crate) comparison: Comparison,
    pub(crate) returns: Returns,
    /// Its queues, when they are given by hand.
    pub(crate) assigned: Option<Vec<QueueSelector>>,
    pub(crate) ready: ReadyQueues,
    /// It stands in the client's list of ready groups.
    pub(crate) is_ready: bool,
    /// Calls under way, those for queues that are gone included.
    pub(crate) calls: u32,
    /// Those of them that have messages of the retry topic.
    pub(crate) retry_calls: u32,
    pub(crate) call_time: CallTime,
    pub(crate) memory: GroupMemory,
    /// Queues given back whose last offset is not confirmed yet.
    pub(crate) releasing: BTreeSet<MessageQueue>,
    /// Queues given back whose call is awaited; they are in `releasing` too.
    pub(crate) leaving: BTreeMap<MessageQueue, Epoch>,
    /// Queues with an orderly call under way, whatever has become of the assignment.
    pub(crate) orderly_calls: BTreeSet<MessageQueue>,
    /// What we last knew to be committed of queues that we no longer hold.
    pub(crate) last_committed: BTreeMap<MessageQueue, QueueOffset>,
    /// Offsets that this host keeps, when the group is broadcasting.
    pub(crate) local: LocalOffsets,
    /// Messages on their way back to the broker.
    pub(crate) send_backs: u32,
    /// What holds its pulls back by request.
    pub(crate) pauses: Pauses,
    /// What holds its calls back because its listener keeps failing.
    pub(crate) hold: Hold,
    /// Brokers that have not yet heard that it leaves.
    pub(crate) unregistering: u32,
}

/// Where a group is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Running,
    /// No pulls, no new calls; waits for those under way.
    Draining,
    /// Waits for its last offsets to be stored.
    Committing,
    /// No heartbeat names it any more; waits for those under way that do. A broker reads
    /// them beside other requests: one read after the group's end would bring it back.
    Silent {
        /// The first version of what we announce without it.
        from_version: u64,
    },
    /// Waits for the brokers to hear of it.
    Unregistering,
}

impl Life {
    /// Not on its way out.
    pub(crate) fn stays(self) -> bool {
        matches!(self, Self::Running)
    }

    /// Heartbeats name it.
    pub(crate) fn is_announced(self) -> bool {
        !matches!(self, Self::Silent { .. } | Self::Unregistering)
    }
}

/// A topic that a group reads.
#[derive(Debug)]
pub(crate) struct GroupTopic {
    pub(crate) name: Arc<str>,
    /// In the table of routes.
    pub(crate) topic: Epoch,
    /// As announced; its version rises with every change of the assignment.
    pub(crate) subscription: SubscriptionData,
    /// What pulls ask the broker to know at least. It does not rise with the assignment,
    /// so that no pull meets a broker that has yet to read the heartbeat.
    pub(crate) pull_version: i64,
    /// The expression, when pulls say it themselves. Brokers keep the one with the highest
    /// version, and a version is the clock of some member: an older, narrower one may win,
    /// of this member or of another, and would pass over messages. A broker compiles SQL
    /// for each pull that carries it, so that it is carried only after a change.
    pub(crate) carried_filter: Option<Arc<str>>,
    pub(crate) is_retry: bool,
    /// Whether brokers can do what it asks for.
    pub(crate) check: Check,
    /// What is to take its place once a broker has said yes to it.
    pub(crate) pending: Option<(SubscriptionData, Check)>,
    /// The last refusal that there was an event for.
    pub(crate) refusal_told: Option<String>,
    /// The announcement that a broker must know before it is pulled from; 0 unless the
    /// subscription has changed.
    pub(crate) known_from: u64,
    /// The queues there were when the topic was first seen: others appeared later.
    pub(crate) first_queues: Option<Vec<MessageQueue>>,
    /// Why the last attempt to divide its queues failed.
    pub(crate) not_allocated: Option<AllocateError>,
    pub(crate) statistics: Statistics,
    /// Queues that are ours.
    pub(crate) held: BTreeMap<MessageQueue, Epoch>,
}

/// A queue that is ours. Its epoch in the client's table is the assignment's.
#[derive(Debug)]
pub(crate) struct AssignedQueue {
    pub(crate) group: Epoch,
    /// Index in the group's topics.
    pub(crate) topic_index: usize,
    pub(crate) queue: MessageQueue,
    pub(crate) broker: BrokerId,
    pub(crate) phase: Phase,
    pub(crate) process_queue: ProcessQueue,
    pub(crate) next_offset: QueueOffset,
    pub(crate) commit: CommitState,
    /// The last commit of the assignment before, which must not come after ours.
    pub(crate) awaits_commit: Option<RequestId>,
    /// It stands in its group's list of ready queues.
    pub(crate) is_ready: bool,
    /// Whom the broker told us to ask.
    pub(crate) preferred_broker: u64,
    pub(crate) bad_record: Option<BadRecord>,
    /// The message at which the last answer to a pull task ended, since it is damaged.
    pub(crate) damaged: Option<QueueOffset>,
    /// Failed pulls or starts in a row, and why.
    pub(crate) failures: u32,
    /// There was an event for this row.
    pub(crate) failure_told: bool,
    pub(crate) last_error: Option<RequestError>,
    /// Why the last run of its pull task failed, if it did.
    pub(crate) task_error: Option<String>,
    /// Illegal offsets, or empty answers that came at once, in a row.
    pub(crate) fruitless: u32,
    /// Messages that wait here for another attempt, soonest first.
    pub(crate) local_retries: VecDeque<(Instant, QueueOffset)>,
    /// `None` when the group needs none.
    pub(crate) lock: Option<QueueLock>,
    pub(crate) orderly: OrderlyState,
    pub(crate) max_offset: Option<QueueOffset>,
    pub(crate) pulled_at: Option<Instant>,
    pub(crate) consumed_at: Option<Instant>,
}

/// What is being done about a queue.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Waiting for its lock, and then to be found out.
    Locking(StartStep),
    /// Finding out where to begin.
    Starting(Start),
    /// Pulling, or held back from it.
    Pulling(Pull),
    /// Worked by a pull task, which pulls for itself.
    Task(Task),
}

impl ConsumerGroup {
    /// Heartbeats name it.
    pub(crate) fn is_announced(&self) -> bool {
        self.life.is_announced() && (self.is_checked() || self.since_version != u64::MAX)
    }

    /// Whether another call may be made.
    pub(crate) fn may_call(&self) -> bool {
        self.life.stays() && self.calls < self.config.consume_thread_max() && self.is_admitted()
    }

    /// Its guest pulls for itself.
    pub(crate) fn is_pull_task(&self) -> bool {
        self.config.pull_task_interval().is_some()
    }

    pub(crate) fn calls_under_way(&self) -> CallsUnderWay {
        CallsUnderWay {
            all: self.calls,
            retries: self.retry_calls,
            max: self.config.consume_thread_max(),
        }
    }

    /// The queue that has the next call.
    pub(crate) fn next_ready(&mut self) -> Option<Epoch> {
        let calls = self.calls_under_way();
        self.ready.pop(calls)
    }

    /// The topic of its retries, in the table of routes.
    pub(crate) fn retry_topic(&self) -> Option<Epoch> {
        let mut topics = self.topics.iter();
        topics.find(|topic| topic.is_retry).map(|topic| topic.topic)
    }

    /// Queues that are ours, topic by topic.
    pub(crate) fn held(&self) -> impl Iterator<Item = Epoch> {
        self.topics
            .iter()
            .flat_map(|topic| topic.held.values().copied())
    }
}

impl AssignedQueue {
    pub(crate) fn new(
        group: Epoch,
        topic_index: usize,
        queue: MessageQueue,
        broker: BrokerId,
        step: StartStep,
        lock: Option<QueueLock>,
    ) -> Self {
        Self {
            group,
            topic_index,
            queue,
            broker,
            phase: match lock {
                Some(_) => Phase::Locking(step),
                None => Phase::Starting(Start::new(step)),
            },
            process_queue: ProcessQueue::default(),
            next_offset: QueueOffset(0),
            commit: CommitState::default(),
            awaits_commit: None,
            is_ready: false,
            preferred_broker: 0,
            bad_record: None,
            damaged: None,
            failures: 0,
            failure_told: false,
            last_error: None,
            task_error: None,
            fruitless: 0,
            local_retries: VecDeque::new(),
            lock,
            orderly: OrderlyState::default(),
            max_offset: None,
            pulled_at: None,
            consumed_at: None,
        }
    }

    /// A failed message becomes free at this time.
    pub(crate) fn retry_at(&mut self, at: Instant, offset: QueueOffset) {
        let place = self.local_retries.partition_point(|&(due, _)| due <= at);
        self.local_retries.insert(place, (at, offset));
    }

    /// Timers that its epoch may have.
    pub(crate) fn timers(epoch: Epoch) -> [Timer; 3] {
        [
            Timer::Queue(epoch),
            Timer::LocalRetry(epoch),
            Timer::Suspension(epoch),
        ]
    }

    /// It was given back, and its call is awaited.
    pub(crate) fn is_leaving(&self) -> bool {
        self.orderly.is_leaving
    }

    /// What its release owes the broker.
    pub(crate) fn unlock(&self) -> Unlock {
        match &self.lock {
            Some(lock) if lock.needs_unlock() => Unlock::Owed { tries: 0 },
            _ => Unlock::NotNeeded,
        }
    }
}

/// How long ago.
pub(crate) fn since(at: Option<Instant>, now: Instant) -> Option<Duration> {
    at.map(|at| now - at)
}
