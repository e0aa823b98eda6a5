//! A snapshot for people: who owns what, how far it is, and why it is idle.
//!
//! Made on request from what the rules hold; nothing is kept for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, MessageQueue, QueueOffset};

use crate::epoch::Epoch;

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
}

/// A group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub consumer_group: Arc<str>,
    /// Where it is in its life.
    pub state: GroupState,
    /// Members when last asked; 0 before the first answer.
    pub members: usize,
    /// Calls under way.
    pub calls: u32,
    /// What keeps the whole group from consuming.
    pub waits_for: Vec<String>,
    /// By topic, the retry topic among them.
    pub topics: Vec<TopicStatus>,
}

/// Where a group is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupState {
    /// Consuming, or trying to.
    Running,
    /// No pulls by request.
    Paused,
    /// Waiting for its calls before it leaves.
    Draining,
    /// Storing its offsets and telling the brokers.
    Leaving,
}

/// A subscribed topic.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// Its name.
    pub topic: Arc<str>,
    /// What is known of it.
    pub route: RouteStatus,
    /// The group's share, in order.
    pub queues: Vec<QueueStatus>,
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

/// A queue of ours.
#[derive(Clone, Debug)]
pub struct QueueStatus {
    /// Which.
    pub queue: MessageQueue,
    /// Its assignment.
    pub epoch: Epoch,
    /// Messages fetched and not finished.
    pub cached_messages: u32,
    /// Bytes of their bodies.
    pub cached_bytes: u64,
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
    /// What it is doing, or why it does nothing.
    pub activity: Activity,
}

/// What a queue is doing, or why it does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Finding out where to begin.
    Starting,
    /// It could not be found out; tried again soon.
    StartFailed {
        /// Why.
        error: String,
    },
    /// A pull is under way: the queue is live.
    Pulling,
    /// The last pull failed; tried again soon.
    PullFailed {
        /// Why.
        error: String,
    },
    /// The broker asked to slow down.
    BrokerFlowControl,
    /// The broker of the queue has no address.
    NoBroker,
    /// Enough is fetched; goes on when messages are finished.
    FlowControl(FlowControl),
    /// By request.
    Paused,
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
    /// `consume_concurrently_max_span`
    Span,
    /// The client's `buffer_bytes`
    Buffer,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("finding out where to begin"),
            Self::StartFailed { error } => write!(f, "cannot find out where to begin: {error}"),
            Self::Pulling => f.write_str("pulling"),
            Self::PullFailed { error } => write!(f, "the last pull failed: {error}"),
            Self::BrokerFlowControl => f.write_str("the broker asked to slow down"),
            Self::NoBroker => f.write_str("no address of its broker is known"),
            Self::FlowControl(FlowControl::Count) => {
                f.write_str("over pull_threshold_for_queue, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Size) => {
                f.write_str("over pull_threshold_size_for_queue, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Span) => {
                f.write_str("over consume_concurrently_max_span, waiting for the listener")
            }
            Self::FlowControl(FlowControl::Buffer) => {
                f.write_str("the tenant's buffer_bytes are used up, waiting for listeners")
            }
            Self::Paused => f.write_str("paused"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}
