//! Typed questions to name servers and brokers, their translation to and from
//! RemotingCommand, and requests that a broker makes of us.
//!
//! The rules say whom to ask ([`Destination`]) and what ([`Request`]). Whoever carries a
//! request keeps its [`Expect`], a small value that turns the answer into a [`Response`]
//! without the rules, so that messages are decoded off the task that owns them.

mod decode;
mod encode;

pub use decode::Expect;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::body::TopicRouteData;
use protocol::code::response_code;
use protocol::header::SendMessageRequestHeader;
use protocol::message::MessageBatch;
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::{Address, MessageQueue, QueueOffset, RemotingCommand};

use crate::epoch::Epoch;

/// Names one request of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub(crate) Epoch);

impl RequestId {
    /// For maps and logs of the shell.
    pub fn to_u64(self) -> u64 {
        self.0.to_u64()
    }
}

/// Whom to ask.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Destination {
    /// A name server.
    NameServer(Address),
    /// A broker, master or slave.
    Broker(Address),
}

impl Destination {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        match self {
            Self::NameServer(address) | Self::Broker(address) => address,
        }
    }
}

/// A request to be sent now.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// Comes back with the answer.
    pub id: RequestId,
    /// Whom to ask.
    pub destination: Destination,
    /// What.
    pub request: Request,
    /// How long to wait for the answer.
    pub timeout: Duration,
    /// Nobody answers: send it and forget it, no `handle_response`.
    pub oneway: bool,
}

/// What we ask.
#[derive(Clone, Debug)]
pub enum Request {
    /// Where does a topic live?
    GetRouteInfo {
        /// The topic.
        topic: Arc<str>,
    },
    /// We are here, with these groups.
    HeartBeat {
        /// An encoded `HeartbeatData`.
        body: Bytes,
    },
    /// Would this subscription work?
    CheckClientConfig {
        /// Us.
        client_id: Arc<str>,
        /// The group.
        consumer_group: Arc<str>,
        /// Topic and expression.
        subscription: Box<SubscriptionData>,
    },
    /// These groups leave.
    UnregisterClient {
        /// Us.
        client_id: Arc<str>,
        /// Group that leaves.
        consumer_group: Option<Arc<str>>,
        /// Group of senders that leaves.
        producer_group: Option<Arc<str>>,
    },
    /// Who is in the group?
    GetConsumerListByGroup {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// What does a member of the group read? Passed on to the member by the broker.
    GetConsumerRunningInfo {
        /// The group.
        consumer_group: Arc<str>,
        /// The member.
        client_id: Arc<str>,
    },
    /// What did the group commit? The broker must not make up a zero.
    QueryConsumerOffset {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
    },
    /// The group has finished everything below.
    UpdateConsumerOffset {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// The next offset wanted after a restart.
        commit_offset: QueueOffset,
    },
    /// The next messages, please.
    PullMessage(Box<PullMessage>),
    /// The next offset to be written.
    GetMaxOffset {
        /// The queue.
        queue: MessageQueue,
    },
    /// The oldest offset there is.
    GetMinOffset {
        /// The queue.
        queue: MessageQueue,
    },
    /// The first offset stored at a time or later.
    SearchOffset {
        /// The queue.
        queue: MessageQueue,
        /// Unix milliseconds.
        timestamp_ms: u64,
    },
    /// These queues are ours for the next minute, please.
    LockBatch {
        /// Us.
        client_id: Arc<str>,
        /// The group.
        consumer_group: Arc<str>,
        /// Queues of one broker.
        queues: BTreeSet<MessageQueue>,
    },
    /// These queues are anybody's.
    UnlockBatch {
        /// Us.
        client_id: Arc<str>,
        /// The group.
        consumer_group: Arc<str>,
        /// Queues of one broker.
        queues: BTreeSet<MessageQueue>,
    },
    /// Deliver a message again later, or never.
    SendMessageBack(Box<SendMessageBack>),
    /// Store a message or a batch.
    SendMessage(Box<SendMessage>),
}

/// A pull of one queue.
#[derive(Clone, Debug)]
pub struct PullMessage {
    /// The group.
    pub consumer_group: Arc<str>,
    /// The queue.
    pub queue: MessageQueue,
    /// First offset wanted.
    pub queue_offset: QueueOffset,
    /// At most so many messages.
    pub max_msg_nums: u32,
    /// At most so many bytes.
    pub max_msg_bytes: u32,
    /// What memory holds as finished; committed by the broker if `commit`.
    pub commit_offset: Option<QueueOffset>,
    /// Whether the broker stores `commit_offset`.
    pub commit: bool,
    /// How long the broker may hold the request; zero: not at all.
    pub suspend: Duration,
    /// The expression, when it counts in place of what heartbeats announced.
    pub subscription: Option<Arc<str>>,
    /// Version of the subscription; the broker must know at least this one.
    pub sub_version: i64,
    /// What the subscription is written in.
    pub expression_type: ExpressionType,
    /// Of one message of the answer, decompressed.
    pub body_bytes_max: u32,
}

/// A message that is given back.
#[derive(Clone, Debug)]
pub struct SendMessageBack {
    /// The group.
    pub consumer_group: Arc<str>,
    /// Name of the broker that has the message.
    pub broker_name: Arc<str>,
    /// Place in the broker's commit log.
    pub commit_log_offset: u64,
    /// Below 0: dead letter now. 0: the broker chooses. Above: that level.
    pub delay_level: i32,
    /// For people.
    pub message_id: String,
    /// The topic it was first sent to.
    pub origin_topic: Arc<str>,
    /// At this many attempts it becomes a dead letter.
    pub max_reconsume_times: i32,
}

/// A message or batch on its way out.
#[derive(Clone, Debug)]
pub struct SendMessage {
    /// Everything but the body.
    pub header: SendMessageRequestHeader,
    /// As stored.
    pub body: Bytes,
}

/// What came back, decoded.
#[derive(Clone, Debug)]
pub enum Response {
    /// Where a topic lives.
    Route(Box<TopicRouteData>),
    /// Accepted, nothing to say.
    Done,
    /// The members of a group.
    ConsumerList(Vec<String>),
    /// What a member reads.
    Subscriptions(Vec<SubscriptionData>),
    /// What the group committed; `None` when it never did.
    ConsumerOffset(Option<QueueOffset>),
    /// Messages, or why there are none.
    Pull(PullAnswer),
    /// An end of a queue, or a point in time.
    Offset(QueueOffset),
    /// The queues that are locked for us now, of those we asked for.
    Locked(BTreeSet<MessageQueue>),
    /// Where the message was stored.
    Sent(SentMessage),
}

/// Why a pull ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullStatus {
    /// There are messages.
    Found,
    /// The queue has no more.
    NoNewMessage,
    /// Nothing that the subscription wants.
    NoMatchedMessage,
    /// The offset is not in the queue.
    OffsetIllegal,
}

/// Answer to a pull.
#[derive(Clone, Debug)]
pub struct PullAnswer {
    /// Why it ended.
    pub status: PullStatus,
    /// Where to go on.
    pub next_begin_offset: QueueOffset,
    /// The oldest offset there is.
    pub min_offset: QueueOffset,
    /// The next offset to be written.
    pub max_offset: QueueOffset,
    /// Broker id to ask next time.
    pub suggest_which_broker_id: u64,
    /// The broker's internal name of the status.
    pub remark: String,
    /// The messages, if `status` is `Found`.
    pub batch: Option<Arc<MessageBatch>>,
    /// Memory that the batch holds.
    pub frame_bytes: u64,
}

/// Where a message was stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentMessage {
    /// The broker's ids, joined by commas for a batch.
    pub msg_id: String,
    /// The queue.
    pub queue_id: u32,
    /// Place of the first message.
    pub queue_offset: QueueOffset,
}

/// Why there is no [`Response`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// No connection could be made; the peer never saw the request.
    #[error("cannot be reached: {reason}")]
    Unreachable {
        /// What the system said.
        reason: String,
    },
    /// No answer in time; the peer may have done it.
    #[error("no answer in time")]
    Timeout,
    /// The connection broke; the peer may have done it.
    #[error("the connection broke: {reason}")]
    Disconnected {
        /// What the system said.
        reason: String,
    },
    /// The peer said no.
    #[error("refused with code {code}: {remark}")]
    Refused {
        /// RocketMQ's response code.
        code: i32,
        /// The peer's words.
        remark: String,
    },
    /// The peer's answer makes no sense.
    #[error("unreadable answer: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
}

impl RequestError {
    /// The peer does not accept who we are, or what we want to do as that.
    pub fn is_access_refused(&self) -> bool {
        match self {
            Self::Refused { code, remark } => is_access_refused(*code, remark),
            _ => false,
        }
    }

    /// The code of a refusal.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Whether an answer is access control's: ACL 2.0 has a code for it, ACL 1.0 the name of
/// its exception.
pub fn is_access_refused(code: i32, remark: &str) -> bool {
    code == response_code::NO_PERMISSION
        || (code == response_code::SYSTEM_ERROR && remark.contains("AclException"))
}

/// Names one request that a broker made of us.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerRequestId(pub u64);

/// A request that a broker makes of us.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// Given by the shell; comes back with the answer.
    pub id: ServerRequestId,
    /// The broker.
    pub from: Address,
    /// As it came.
    pub command: RemotingCommand,
}

#[cfg(test)]
mod tests;
