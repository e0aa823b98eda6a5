//! A snapshot for people: who owns what, how far it is, and why it is idle.
//!
//! Made on request from what the rules hold; nothing is kept for it. This file has what
//! is the case, `snapshot` how it is found, `reason` what it means in words: what is
//! waited for, what comes next by itself, and what to do.

mod cause;
mod group_reason;
mod queue_reason;
mod reason;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, MessageQueue, QueueOffset};

use crate::epoch::Epoch;
use crate::listener::{ConsumeMode, MessageModel};
use crate::pause::{PauseKind, PauseScope};
use crate::request::RequestError;

pub use cause::Cause;
pub use reason::Reason;

/// All of one client.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// As brokers know it.
    pub client_id: Arc<str>,
    /// Name servers in the order they are asked, with their last error.
    pub name_servers: Vec<PeerStatus>,
    /// Brokers that routes name, with their last error.
    pub brokers: Vec<BrokerStatus>,
    /// By name.
    pub groups: Vec<GroupStatus>,
    /// Bytes of pull answers held.
    pub held_bytes: u64,
    /// At so many nothing is pulled.
    pub buffer_bytes: u64,
    /// Requests whose answer is awaited.
    pub requests_in_flight: usize,
    /// Send-backs and dead letters under way or waiting.
    pub send_backs: usize,
    /// The stop has begun.
    pub stopping: bool,
}

/// A peer and what went wrong with it last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Which.
    pub address: Address,
    /// `None` after a success.
    pub last_error: Option<String>,
}

/// A broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerStatus {
    /// Its name.
    pub broker_name: Arc<str>,
    /// 0 is the master.
    pub broker_id: u64,
    /// Where.
    pub address: Address,
    /// It has taken our latest heartbeat.
    pub knows_us: bool,
    /// `None` after a success.
    pub last_error: Option<String>,
    /// Why it takes nothing from us: its words about our access key.
    pub refused: Option<String>,
}

/// A group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub consumer_group: Arc<str>,
    /// Where it is in its life.
    pub state: GroupState,
    /// Clustering or broadcasting.
    pub message_model: MessageModel,
    /// Concurrently or orderly.
    pub mode: ConsumeMode,
    /// Client ids of the members when last asked; empty before the first answer.
    pub members: Vec<String>,
    /// Calls under way.
    pub calls: u32,
    /// At so many no more are made: `consume_thread_max`.
    pub calls_max: u32,
    /// How long the oldest of them has been under way.
    pub oldest_call: Option<Duration>,
    /// Wall clock of one call, after which it is killed.
    pub consume_timeout: Duration,
    /// Of the recent calls.
    pub mean_call: Option<Duration>,
    /// Bytes of pull answers that the group holds.
    pub held_bytes: u64,
    /// At so many nothing is pulled, if it has a bound of its own.
    pub buffer_bytes: Option<u64>,
    /// Messages on their way back to the broker.
    pub send_backs: u32,
    /// Messages that brokers took back so far, to come again.
    pub sent_back: u64,
    /// Messages that came here from the retry topic so far, whoever sent them back.
    pub came_back: u64,
    /// What was asked to be held back.
    pub pauses: Vec<PauseStatus>,
    /// Its listener keeps failing, and is not called.
    pub hold: Option<HoldStatus>,
    /// When its members are asked for next.
    pub rebalance_in: Option<Duration>,
    /// What keeps the whole group from consuming, or is wrong with it.
    pub reasons: Vec<Reason>,
    /// By topic, the retry topic among them.
    pub topics: Vec<TopicStatus>,
}

/// Calls that are held back because their listener keeps failing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldStatus {
    /// What the listener says.
    pub reason: Arc<str>,
    /// Until one message is tried; `None`: that is under way, or waits for a message.
    pub probe_in: Option<Duration>,
}

/// Where a group is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// Consuming, or trying to.
    Running,
    /// No pulls by request.
    Paused,
    /// Waiting for its calls before it leaves.
    Stopping,
    /// Storing its offsets and telling the brokers.
    Leaving,
}

/// A pause or drain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PauseStatus {
    /// What is held back.
    pub scope: PauseScope,
    /// Whether its end is waited for.
    pub kind: PauseKind,
    /// Everything fetched is finished and the offsets are stored. Never for a pause.
    pub drained: bool,
    /// Who asked, for people.
    pub by: Arc<str>,
    /// How long ago it began.
    pub since: Duration,
}

/// A subscribed topic.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// Its name.
    pub topic: Arc<str>,
    /// What of it is read.
    pub expression: String,
    /// The group's own, for messages that come again.
    pub is_retry: bool,
    /// What is known of it.
    pub route: RouteStatus,
    /// When a name server is asked about it next.
    pub route_in: Option<Duration>,
    /// Why none of its queues can be consumed by anybody here, or something is wrong.
    pub reason: Option<Reason>,
    /// The group's share, in order.
    pub queues: Vec<QueueStatus>,
    /// The others, in order.
    pub others: Vec<OtherQueue>,
}

/// What is known of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteStatus {
    /// Not asked yet, or not answered.
    Unknown {
        /// What the name servers said last.
        last_error: Option<String>,
    },
    /// It does not exist; asked again every few seconds.
    Missing,
    /// It exists.
    Known {
        /// Queues that can be read.
        read_queues: usize,
        /// What went wrong when last asked.
        last_error: Option<String>,
    },
}

/// A queue of a topic that is not ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherQueue {
    /// Which.
    pub queue: MessageQueue,
    /// Who has it, by our strategy and the members as last heard of; `None` when that is
    /// not known.
    pub owner: Option<String>,
    /// Our last commit of it is under way: it is not taken again before.
    pub releasing: bool,
}

/// A queue of ours.
#[derive(Clone, Debug)]
pub struct QueueStatus {
    /// Which.
    pub queue: MessageQueue,
    /// Its assignment.
    pub epoch: Epoch,
    /// Messages fetched and not finished.
    pub cached_messages: u32,
    /// Of these, waiting for a call.
    pub free_messages: u32,
    /// Of these, waiting here for another attempt, since no broker took them back.
    pub local_retries: u32,
    /// Bytes of their bodies.
    pub cached_bytes: u64,
    /// The lowest and the highest of them.
    pub cached_offsets: Option<(QueueOffset, QueueOffset)>,
    /// Calls under way with its messages.
    pub calls: u32,
    /// How long the oldest of them has been under way.
    pub oldest_call: Option<Duration>,
    /// Next offset to be pulled, once known.
    pub next_offset: Option<QueueOffset>,
    /// Everything below is finished.
    pub finished_offset: Option<QueueOffset>,
    /// What the broker confirmed.
    pub committed_offset: Option<QueueOffset>,
    /// The queue's end when last heard of.
    pub max_offset: Option<QueueOffset>,
    /// Since the last answer to a pull.
    pub since_last_pull: Option<Duration>,
    /// Since the last answer of a listener.
    pub since_last_consume: Option<Duration>,
    /// Orderly: how long the broker's lock is still ours; `None` when it is not, or not
    /// needed.
    pub locked_for: Option<Duration>,
    /// What its pull loop is doing, or why it does nothing.
    pub activity: Activity,
    /// What becomes of fetched messages.
    pub delivery: Delivery,
    /// Both in words.
    pub reason: Reason,
}

impl QueueStatus {
    /// Messages between what is finished and the queue's end when last heard of.
    pub fn lag(&self) -> Option<u64> {
        let finished = self.finished_offset?.0;
        Some(self.max_offset?.0.saturating_sub(finished))
    }
}

/// What a queue's pull loop is doing, or why it does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Finding out where to begin.
    Starting,
    /// It could not be found out; tried again soon.
    StartFailed {
        /// Why.
        error: RequestError,
        /// When.
        again_in: Option<Duration>,
    },
    /// A pull is under way: the queue is live.
    Pulling {
        /// The broker answers an empty queue within this time.
        answered_in: Option<Duration>,
        /// It has not answered at once, so there is nothing new.
        is_held: bool,
    },
    /// The last pull failed; tried again soon.
    PullFailed {
        /// Why.
        error: RequestError,
        /// When.
        again_in: Option<Duration>,
    },
    /// The broker asked to slow down.
    BrokerFlowControl,
    /// Its broker has yet to hear of the subscription.
    Unannounced {
        /// When it is looked at again.
        again_in: Option<Duration>,
    },
    /// The broker of the queue has no address.
    NoBroker {
        /// When it is looked for again.
        again_in: Option<Duration>,
    },
    /// Enough is fetched; goes on when messages are finished.
    FlowControl(FlowControl),
    /// An orderly group consumes a queue only under its broker's lock.
    WaitsForLock {
        /// Why it has not got it: another client has it, or the broker could not be asked.
        obstacle: Option<String>,
    },
    /// Its first message has failed and is tried again in a moment.
    Suspended {
        /// The message.
        offset: QueueOffset,
        /// Calls that failed.
        attempts: u32,
        /// Since the first of them.
        lasted: Duration,
    },
    /// Its pull task runs.
    TaskRuns,
    /// Between two runs of its pull task.
    TaskWaits {
        /// When it runs next.
        again_in: Option<Duration>,
    },
    /// The last run failed; the next one comes soon.
    TaskFailed {
        /// Why.
        error: String,
        /// When.
        again_in: Option<Duration>,
    },
    /// Its pull task is due.
    TaskDue,
    /// By request.
    Paused(PauseStatus),
    /// On its way out.
    Stopping,
}

/// Which threshold a queue is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControl {
    /// `pull_threshold_for_queue`
    Count,
    /// `pull_threshold_size_for_queue`
    Size,
    /// The queue's share of `pull_threshold_for_topic`
    TopicCount,
    /// The queue's share of `pull_threshold_size_for_topic`
    TopicSize,
    /// `consume_concurrently_max_span`
    Span,
    /// The group's own `buffer_bytes`
    GroupBuffer,
    /// The client's `buffer_bytes`
    Buffer,
}

impl FlowControl {
    /// It counts for more than one queue.
    pub(crate) fn is_of_memory(self) -> bool {
        matches!(self, Self::GroupBuffer | Self::Buffer)
    }
}

/// What becomes of the messages of a queue that were fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// There are none.
    Nothing,
    /// A listener has them.
    Calling,
    /// The group has `consume_thread_max` calls under way.
    WaitsForCalls,
    /// The group may call, and is given no permit: the tenant or the host is at its
    /// `calls_max`.
    WaitsForPermit,
    /// They failed and are on their way back to the broker.
    SendingBack,
    /// They failed, no broker took them back, and they wait here.
    WaitsForRetry,
}
