//! [`Event`]: every fact worth a log line, a number or a test. One for a run of messages
//! or a change of state, never one for a message that went well; repeated failures are
//! told once, with their end.

mod step;

pub use step::Step;

use std::sync::Arc;
use std::time::Duration;

use protocol::{Address, MessageQueue, QueueOffset};

use crate::config::AllocateError;
use crate::listener::OrderlyStatus;
use crate::local_offsets::LocalOffsetsSource;
use crate::offset::SeekFailure;
use crate::pause::{PauseKind, PauseScope};
use crate::request::RequestError;

/// Something that happened in a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A name server did not answer; the next one is asked.
    NameServerFailed {
        /// Which.
        address: Address,
        /// Why.
        error: RequestError,
    },
    /// A name server answers again.
    NameServerRecovered {
        /// Which.
        address: Address,
    },
    /// No name server knows the topic (yet); it is asked for again.
    TopicMissing {
        /// The topic.
        topic: Arc<str>,
    },
    /// A topic appeared, or its queues changed.
    RouteChanged {
        /// The topic.
        topic: Arc<str>,
        /// Queues that can be read.
        read_queues: u32,
    },
    /// The broker at this address knows our groups now.
    HeartbeatAccepted {
        /// Which.
        address: Address,
    },
    /// It did not take the heartbeat.
    HeartbeatFailed {
        /// Which.
        address: Address,
        /// Why.
        error: RequestError,
    },
    /// A broker refuses our access key, or what it may do; it is asked again with growing
    /// pauses, and nothing else is sent to it.
    AccessRefused {
        /// Which.
        address: Address,
        /// Its words.
        error: RequestError,
    },
    /// A broker takes our heartbeats, but not with this group: the others go on without it,
    /// and it is asked again with growing pauses.
    GroupRefused {
        /// Which broker.
        address: Address,
        /// The group.
        consumer_group: Arc<str>,
        /// Its words.
        error: RequestError,
    },
    /// It takes them with the group, too.
    GroupAccepted {
        /// Which broker.
        address: Address,
        /// The group.
        consumer_group: Arc<str>,
    },
    /// A broker that refused us takes our heartbeats again.
    AccessGranted {
        /// Which.
        address: Address,
    },
    /// A broker refuses an expression, or to evaluate any. It is asked again with every
    /// refresh of the route.
    SubscriptionRefused {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// The expression.
        expression: Arc<str>,
        /// It was to take another's place, which stays; else the group consumes nothing.
        is_change: bool,
        /// The broker's words.
        error: RequestError,
    },
    /// The group reads a topic with another filter from here on.
    SubscriptionChanged {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// The new expression.
        expression: Arc<str>,
    },
    /// The members of the group could not be found out; its queues stay as they are.
    MembersUnknown {
        /// The group.
        consumer_group: Arc<str>,
        /// Why.
        reason: String,
    },
    /// Another member of the group reads something else: what one of them does not want
    /// may be consumed by nobody.
    SubscriptionsDiffer {
        /// The group.
        consumer_group: Arc<str>,
        /// The other member's client id.
        member: String,
        /// Topics and expressions.
        what: String,
    },
    /// They do not differ any more.
    SubscriptionsAgree {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// The queues of a topic could not be divided among the members; they stay as they
    /// are.
    QueuesNotAllocated {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// Why.
        error: AllocateError,
    },
    /// The share of the group changed.
    Rebalanced {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// Members of the group; 0 when the queues are given by hand.
        members: u32,
        /// Queues taken now.
        taken: Vec<MessageQueue>,
        /// Queues given back now.
        released: Vec<MessageQueue>,
    },
    /// A queue is about to be pulled from this offset.
    QueueStarted {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Where it begins.
        offset: QueueOffset,
        /// Which rule chose the offset.
        policy: StartPolicy,
    },
    /// A queue could not be started; it is tried again.
    QueueStartFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Why.
        error: RequestError,
    },
    /// The broker said the offset is not in the queue, and we go on elsewhere.
    OffsetCorrected {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// What we asked for.
        from: QueueOffset,
        /// What the broker said.
        to: QueueOffset,
        /// The broker's name of the case.
        reason: String,
    },
    /// The first of a row of failed pulls.
    PullFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Why.
        error: RequestError,
    },
    /// The end of a row of failed pulls.
    PullRecovered {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// How many failed.
        failures: u32,
    },
    /// A queue does what it does all the time; told only on request.
    Step {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// What.
        step: Step,
    },
    /// A listener answered for a run of messages.
    Consumed {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic as the listener saw it.
        topic: Arc<str>,
        /// Where the messages were pulled from.
        queue: MessageQueue,
        /// The first message.
        first_offset: QueueOffset,
        /// Messages that are done.
        done: u32,
        /// Messages that come again or become dead letters.
        failed: u32,
        /// From hand-over to answer.
        elapsed: Duration,
    },
    /// A run of a queue's pull task has ended.
    PullTaskRan {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Messages that it pulled.
        messages: u32,
        /// From hand-over to answer.
        elapsed: Duration,
        /// Why it failed, if it did; the next run comes later then.
        failure: Option<String>,
    },
    /// A guest set the offset of its queue back.
    OffsetSetBack {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Where it stood.
        from: QueueOffset,
        /// Where it stands now.
        to: QueueOffset,
    },
    /// A message was consumed at the wish of an operator (309); nothing else came of it.
    ConsumedDirectly {
        /// The group.
        consumer_group: Arc<str>,
        /// RocketMQ's word for the outcome: `CR_SUCCESS`, `CR_LATER` and so on.
        result: &'static str,
        /// From hand-over to answer.
        elapsed: Duration,
    },
    /// Somebody made a queue go on somewhere else.
    Sought {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Everything below was finished, if anything was begun.
        from: Option<QueueOffset>,
        /// Where it goes on.
        to: QueueOffset,
    },
    /// The place to go on at could not be found out; the queue stays where it is.
    SeekFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Why.
        error: SeekFailure,
    },
    /// A listener's answer had outcomes for another number of messages.
    OutcomesMismatched {
        /// The group.
        consumer_group: Arc<str>,
        /// Messages given.
        expected: u32,
        /// Outcomes returned.
        actual: u32,
    },
    /// An answer came for work that is no longer ours; it changed nothing.
    StaleConsumeResult {
        /// The group, if it is still there.
        consumer_group: Option<Arc<str>>,
    },
    /// Messages that brokers took back should have come again long ago.
    RetriesMissed {
        /// The group.
        consumer_group: Arc<str>,
        /// How many.
        messages: usize,
        /// For how long the first of them has been missed.
        lasted: Duration,
    },
    /// The broker has a message back.
    SentBack {
        /// The group.
        consumer_group: Arc<str>,
        /// Where it was pulled from.
        queue: MessageQueue,
        /// Which message.
        offset: QueueOffset,
        /// As asked for; 0 is the broker's schedule, −1 a dead letter.
        delay_level: i32,
        /// How.
        route: SendBackRoute,
    },
    /// A message is a dead letter, with its reason.
    DeadLettered {
        /// The group.
        consumer_group: Arc<str>,
        /// Where it was pulled from.
        queue: MessageQueue,
        /// Which message.
        offset: QueueOffset,
        /// Its id, as its sender was given it.
        message_id: String,
        /// Why.
        reason: Arc<str>,
    },
    /// The broker would not take a message back in any way: it is tried again here.
    SendBackFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// Where it was pulled from.
        queue: MessageQueue,
        /// Which message.
        offset: QueueOffset,
        /// Why.
        reason: String,
    },
    /// A record that cannot be consumed; it is asked for again first.
    BadRecord {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Its offset, or the first offset it can have.
        offset: QueueOffset,
        /// What is wrong.
        reason: String,
        /// What is done about it.
        action: BadRecordAction,
    },
    /// An offset was not stored; it will be tried again.
    CommitFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// What was to be stored.
        offset: QueueOffset,
        /// Whether nobody will try again, since the queue is no longer ours.
        last: bool,
        /// Why.
        error: RequestError,
    },
    /// The broker's stored offset is behind what this client committed before.
    CommittedOffsetWentBack {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// What was committed.
        from: QueueOffset,
        /// What is stored now.
        to: QueueOffset,
    },
    /// An operator moved the offset of a queue; what was under way does not count.
    OffsetReset {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// What was finished.
        from: Option<QueueOffset>,
        /// Where it goes on.
        to: QueueOffset,
    },
    /// A reset of offsets that changed nothing, or not all it names.
    ResetIgnored {
        /// The group named.
        consumer_group: String,
        /// The topic named.
        topic: String,
        /// Why.
        reason: String,
    },
    /// What this host has stored of a broadcasting group was read.
    LocalOffsetsLoaded {
        /// The group.
        consumer_group: Arc<str>,
        /// Queues whose offset is known.
        queues: usize,
        /// Which copy it is.
        source: LocalOffsetsSource,
    },
    /// The offsets of a broadcasting group could not be read (then none of its queues
    /// starts) or stored; it is tried again. The first of a row.
    LocalOffsetsFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// Whether they were read before: then they could not be stored.
        is_loaded: bool,
        /// Whether nobody will try again, since the group leaves.
        last: bool,
        /// Why, and what to do.
        reason: String,
    },
    /// The end of a row of failures.
    LocalOffsetsRecovered {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// A message failed and waits here for another attempt: its group broadcasts, or was
    /// given its queues by hand.
    RetriedHere {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Which message.
        offset: QueueOffset,
        /// How long it waits.
        after: Duration,
    },
    /// A message of a broadcasting group failed and does not come again.
    MessageDropped {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Which message.
        offset: QueueOffset,
        /// Why.
        reason: Arc<str>,
    },
    /// Nothing more is fetched; what was fetched is still consumed.
    Paused {
        /// The group.
        consumer_group: Arc<str>,
        /// All of it, or a part.
        scope: PauseScope,
        /// Whether its end is waited for.
        kind: PauseKind,
        /// Who asked, for people.
        by: Arc<str>,
    },
    /// A drain is at its end: everything fetched is finished, the offsets are stored.
    Drained {
        /// The group.
        consumer_group: Arc<str>,
        /// All of it, or a part.
        scope: PauseScope,
    },
    /// A pause or drain has ended: by request, or since the paused queue was given back.
    Resumed {
        /// The group.
        consumer_group: Arc<str>,
        /// All of it, or a part.
        scope: PauseScope,
    },
    /// The queue is ours: its orderly group may consume it.
    QueueLocked {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
    },
    /// Another client has the lock of a queue that is ours; it is asked for until it is
    /// granted.
    QueueLockRefused {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
    },
    /// A lock could not be asked for, or not be renewed; it is asked for again.
    QueueLockFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Why.
        error: String,
    },
    /// The lock of a queue has ended. What was fetched is dropped, and comes again from
    /// what is committed when the queue is locked again.
    QueueLockLost {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// How.
        loss: LockLoss,
    },
    /// The broker knows that the queue is anybody's.
    QueueUnlocked {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
    },
    /// The broker could not be told; the lock ends by itself within a minute.
    UnlockFailed {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// Why.
        error: RequestError,
    },
    /// A message has failed for long and holds up its queue, which is consumed in order.
    /// Told once for the row of failures.
    QueueBlocked {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// The message.
        offset: QueueOffset,
        /// Calls that failed since the row began.
        attempts: u32,
        /// Since the first of them.
        lasted: Duration,
    },
    /// The end of such a row: the message is done, or a dead letter.
    QueueUnblocked {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// The message.
        offset: QueueOffset,
        /// Calls that failed.
        attempts: u32,
        /// Since the first of them.
        lasted: Duration,
    },
    /// A listener answered commit or rollback though auto-commit is on; RocketMQ takes
    /// both for a success, and so do we.
    StatusWithoutMeaning {
        /// The group.
        consumer_group: Arc<str>,
        /// The queue.
        queue: MessageQueue,
        /// The answer.
        status: OrderlyStatus,
    },
    /// The group has left the cluster.
    GroupLeft {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// A request of a broker that we do not serve.
    ServerRequestRefused {
        /// The broker.
        from: Address,
        /// The request code.
        code: i32,
    },
    /// Every group has left; nothing more will happen.
    Stopped,
}

/// How a lock ended before we gave it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockLoss {
    /// The broker refused to renew it.
    Refused,
    /// It was not renewed in time.
    Expired,
}

/// Which rule chose where a queue begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartPolicy {
    /// What the group committed.
    Committed,
    /// `consume_from_where = "last_offset"`.
    LastOffset,
    /// `consume_from_where = "first_offset"`.
    FirstOffset,
    /// `consume_from_where = "timestamp"`.
    /// The time, Unix milliseconds; brokers compare it with their own clock's.
    Timestamp(u64),
    /// The queue appeared after the group began: at its oldest message.
    AppearedLater,
    /// A retry topic begins at its oldest message.
    RetryTopic,
    /// Somebody made it go on here.
    Sought,
    /// The broker corrected the offset.
    Corrected,
    /// An operator moved it.
    Reset,
}

/// How a message went back to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendBackRoute {
    /// As RocketMQ does it.
    SendBack,
    /// Published to the retry topic, since the send-back failed.
    Published,
}

/// What is done about a bad record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRecordAction {
    /// Asked for again, alone.
    AskedAgain,
    /// Made a dead letter.
    DeadLetter,
    /// Skipped for good.
    Skipped,
}
