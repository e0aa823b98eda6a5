//! [`Client`]: what the groups of one process share, and the single entry point of the
//! crate. RocketMQ: `MQClientInstance`.
//!
//! Every input goes through here: it is looked up by its epoch, handed to the file whose
//! concern it is, and followed by `settle`, which sends what the input has made due. What
//! can happen by itself is one match in `handle_timeout`.

mod names;
mod requests;

pub(crate) use requests::{InFlight, Purpose};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::message::message_id::UniqueIdGenerator;
use protocol::subscription::ExpressionType;
use protocol::{Address, Instant, MessageQueue, RemotingCommand, topic};

use crate::assignment::{AssignError, QueueSelector};
use crate::config::{ClientConfig, GroupConfig};
use crate::consume::turns::ReadyQueues;
use crate::consume::{Call, CallTime};
use crate::epoch::{Epoch, EpochTable};
use crate::event::Event;
use crate::group::{AssignedQueue, ConsumerGroup, GroupTopic, Life};
use crate::heartbeat::Announcement;
use crate::hold::Hold;
use crate::listener::{ConsumeRequest, ConsumeRequestId, ConsumeResult};
use crate::local_offsets::{LocalOffsets, PendingLocalOffsets};
use crate::memory::{GroupMemory, Memory};
use crate::offset::{Release, SeekError, SeekForward, SeekId, SeekTo, Seeks, Sought};
use crate::pause::Pauses;
use crate::process_queue::{FailedMessage, KeptRun};
use crate::publish::sending::Send;
use crate::publish::{OutgoingMessage, SendError, SendMode, SendResult};
use crate::pull_task::run::PullTasks;
use crate::pull_task::{
    PullTaskId, PullTaskRequest, PullTaskResult, PullerAnswer, PullerRequest, PullerRequestId,
    QueuePullerError,
};
use crate::queue_lock::QueueLocks;
use crate::rebalance::Rebalance;
use crate::rebalance::compare::Comparison;
use crate::request::{
    PendingRequest, RequestError, RequestId, Response, ServerRequest, ServerRequestId,
};
use crate::retry::SendBacks;
use crate::retry::returns::Returns;
use crate::route::Routes;
use crate::server_request::RunningInfo;
use crate::server_request::direct::DirectCalls;
use crate::statistics::Statistics;
use crate::subscriptions::Check;
use crate::timers::{Timer, Timers};
use crate::unix_clock::UnixClock;

/// Names one group of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub(crate) Epoch);

/// Names one send of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SendId(pub(crate) u64);

/// Why a group was not taken in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// RocketMQ registers a group once per client.
    #[error("consumer group \"{consumer_group}\" is already registered in this client")]
    Duplicate {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// The client stops.
    #[error("the client is stopping")]
    Stopping,
    /// Comes later.
    #[error("{what} is not supported yet")]
    Unsupported {
        /// What.
        what: &'static str,
    },
}

/// The rules of one client. After every input, drain the outputs (`poll_*`), then wait
/// until `poll_timeout` or the next input. Time never goes back. Same inputs and seed,
/// same outputs.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) client_id: Arc<str>,
    pub(crate) clock: UnixClock,
    pub(crate) random: fastrand::Rng,
    pub(crate) ids: UniqueIdGenerator,
    /// Time of the last input.
    now: Instant,
    pub(crate) timers: Timers,

    pub(crate) routes: Routes,
    pub(crate) announcement: Announcement,
    pub(crate) owed_heartbeats: Vec<Epoch>,
    pub(crate) groups: EpochTable<ConsumerGroup>,
    pub(crate) group_names: BTreeMap<Arc<str>, Epoch>,
    /// An entry is an assignment: its epoch is the assignment's.
    pub(crate) queues: EpochTable<AssignedQueue>,
    /// Queues whose finished offset may not be known to the broker.
    pub(crate) changed_offsets: Vec<Epoch>,
    pub(crate) releases: EpochTable<Release>,
    pub(crate) locks: QueueLocks,
    pub(crate) memory: Memory,

    /// Groups with messages to hand out and calls to spare, in turn.
    pub(crate) ready_groups: VecDeque<Epoch>,
    pub(crate) calls: EpochTable<Call>,
    pub(crate) pull_tasks: PullTasks,
    /// Broadcasting groups whose offsets are to be stored.
    pub(crate) local_offsets_due: BTreeSet<Epoch>,
    pub(crate) local_offsets_work: VecDeque<PendingLocalOffsets>,
    pub(crate) send_backs: SendBacks,
    pub(crate) sends: EpochTable<Send>,
    pub(crate) next_send: u64,
    pub(crate) seeks: Seeks,
    /// Groups with drains that are not at their end.
    pub(crate) draining_groups: BTreeSet<Epoch>,
    pub(crate) stopping: bool,
    pub(crate) stopped: bool,

    pub(crate) in_flight: EpochTable<InFlight>,
    /// Requests made so far.
    requests_made: u64,
    requests: VecDeque<PendingRequest>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) send_results: VecDeque<(SendId, Result<Vec<SendResult>, SendError>)>,
    pub(crate) answers: VecDeque<(ServerRequestId, RemotingCommand)>,
    pub(crate) running_infos: VecDeque<RunningInfo>,
    pub(crate) direct_calls: DirectCalls,

    #[cfg(any(test, feature = "testing"))]
    pub(crate) planted_bug: Option<crate::planted_bugs::PlantedBug>,

    /// Reused, so that a pull answer costs no list of its own.
    pub(crate) kept_runs: Vec<KeptRun>,
    pub(crate) failed_messages: Vec<FailedMessage>,
}

impl Client {
    /// A client without groups. `unix_now` is the wall clock at `now`.
    pub fn new(config: ClientConfig, seed: u64, now: Instant, unix_now: Duration) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let ids = UniqueIdGenerator::new(config.ip, config.pid, random.u32(..));
        Self {
            client_id: config.client_id.as_str().into(),
            clock: UnixClock::new(now, unix_now),
            random,
            ids,
            now,
            timers: Timers::default(),
            routes: Routes::new(config.namesrv_addr.clone()),
            announcement: Announcement::default(),
            owed_heartbeats: Vec::new(),
            groups: EpochTable::default(),
            group_names: BTreeMap::new(),
            queues: EpochTable::default(),
            changed_offsets: Vec::new(),
            releases: EpochTable::default(),
            locks: QueueLocks::default(),
            memory: Memory::new(config.buffer_bytes),
            ready_groups: VecDeque::new(),
            calls: EpochTable::default(),
            pull_tasks: PullTasks::default(),
            local_offsets_due: BTreeSet::new(),
            local_offsets_work: VecDeque::new(),
            send_backs: SendBacks::default(),
            sends: EpochTable::default(),
            next_send: 0,
            seeks: Seeks::default(),
            draining_groups: BTreeSet::new(),
            stopping: false,
            stopped: false,
            in_flight: EpochTable::default(),
            requests_made: 0,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            send_results: VecDeque::new(),
            answers: VecDeque::new(),
            running_infos: VecDeque::new(),
            direct_calls: DirectCalls::default(),
            #[cfg(any(test, feature = "testing"))]
            planted_bug: None,
            kept_runs: Vec::new(),
            failed_messages: Vec::new(),
            config,
        }
    }

    /// The answer to a request, or why there is none. Late and repeated ones are ignored.
    pub fn handle_response(
        &mut self,
        id: RequestId,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        self.end_expired_locks(now);
        let Some(in_flight) = self.in_flight.remove(id.0) else {
            return;
        };
        let InFlight {
            purpose,
            peer,
            number,
        } = in_flight;
        let is_answered = matches!(result, Ok(_) | Err(RequestError::Refused { .. }));
        if let Some(peer) = peer.and_then(|peer| self.routes.peers.get_mut(peer)) {
            peer.last_error = match &result {
                Err(error) if !is_answered => Some(error.to_string()),
                _ => None,
            };
            if is_answered {
                peer.answered = peer.answered.max(number);
            }
        }
        match purpose {
            Purpose::Route(topic, server) => self.handle_route(topic, &server, result, now),
            Purpose::Heartbeat(peer) => {
                self.handle_heartbeat(peer, done(result), now);
                // Also when the peer is gone: a group may wait for this answer.
                self.leave_after_heartbeat();
            }
            Purpose::Check(group, topic) => {
                self.handle_check(group, topic, id, done(result), now);
            }
            Purpose::Members(group, peer) => self.handle_members(group, peer, result, now),
            Purpose::Compare(group, member) => {
                self.handle_comparison(group, member, result, now);
            }
            Purpose::Start(queue) => self.handle_start(queue, peer, result, now),
            Purpose::Pull(queue) => self.handle_pull(queue, result, now),
            Purpose::Seek(seeking) => self.handle_seek(&seeking, result, now),
            Purpose::Puller(asked) => self.handle_puller(asked, peer, result, now),
            Purpose::Commit(queue, offset) => {
                self.handle_commit(queue, peer, offset, done(result), now);
            }
            Purpose::CommitBefore(queue) => self.handle_commit_before(queue, now),
            Purpose::SecondLook(queue) => self.handle_second_look(queue, peer, &result, now),
            Purpose::Order(peer) => self.handle_order(peer, is_answered, now),
            Purpose::FinalCommit(release) => {
                self.handle_final_commit(release, peer, done(result), now);
            }
            Purpose::LastLook(release) => self.handle_last_look(release, result, now),
            Purpose::Lock(round) => self.handle_locked(round, result, now),
            Purpose::Unlock(release) => self.handle_unlocked(release, done(result), now),
            Purpose::SendBack(back) => self.handle_send_back(back, done(result), now),
            Purpose::Send(send) => self.handle_send(send, result, now),
            Purpose::Unregister(group, peer, tries) => {
                self.handle_unregistered(group, peer, tries, &done(result));
            }
        }
        self.settle(now);
    }

    /// A request that a broker makes of us; answered through `poll_answer`, unless it is
    /// one-way.
    pub fn handle_server_request(&mut self, request: ServerRequest, now: Instant) {
        self.serve(request, now);
        self.settle(now);
    }

    /// A connection to this address was made.
    pub fn handle_connected(&mut self, address: &Address, now: Instant) {
        self.peer_connected(address);
        self.settle(now);
    }

    /// The connection to this address is gone. Its requests fail on their own.
    pub fn handle_disconnected(&mut self, address: &Address, now: Instant) {
        self.peer_disconnected(address);
        self.renew_locks_of(address, now);
        self.contest_disconnected(address, now);
        self.settle(now);
    }

    /// What came of a consume request. Late ones change nothing but the group's number
    /// of calls.
    #[expect(clippy::needless_pass_by_value, reason = "a result is handed over")]
    pub fn handle_consume_result(
        &mut self,
        id: ConsumeRequestId,
        result: ConsumeResult,
        now: Instant,
    ) {
        self.end_expired_locks(now);
        self.consume_result(id, &result, now);
        self.settle(now);
    }

    /// What came of a run of a pull task. Late ones change nothing but the group's number
    /// of calls.
    pub fn handle_pull_task_result(
        &mut self,
        id: PullTaskId,
        result: PullTaskResult,
        now: Instant,
    ) {
        self.pull_task_result(id, result, now);
        self.settle(now);
    }

    /// Time has come to `poll_timeout`, or passed it.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.end_expired_locks(now);
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Route(topic) => self.ask_route(topic),
                Timer::Heartbeat(peer) => self.heartbeat_due(peer),
                Timer::Rebalance(group) => self.rebalance(group, now),
                Timer::Compare(group) => self.compare(group, now),
                Timer::PersistOffsets => self.persist_offsets(now),
                Timer::LocalOffsets(group) => self.load_local_offsets(group),
                Timer::Buffer => self.pull_who_waits_for_memory(now),
                Timer::Queue(queue) => self.queue_due(queue, now),
                Timer::LocalRetry(queue) => self.retry_here(queue, now),
                Timer::Hold(group) => self.hold_ended(group),
                Timer::Lock(group) => self.ask_for_locks(group, now),
                Timer::Unlock(release) => self.unlock_due(release, now),
                Timer::Suspension(queue) => self.suspension_ended(queue),
                Timer::Send(send) => self.send_due(send, now),
            }
        }
        self.settle(now);
    }

    /// Takes a group in; it starts by itself as topics and brokers turn up.
    ///
    /// # Errors
    /// The group is there already, or the client stops.
    pub fn subscribe(
        &mut self,
        config: GroupConfig,
        now: Instant,
    ) -> Result<GroupId, SubscribeError> {
        if self.stopping {
            return Err(SubscribeError::Stopping);
        }
        let config = config.in_namespace(&self.config.namespace);
        if self.group_names.contains_key(config.consumer_group()) {
            return Err(SubscribeError::Duplicate {
                consumer_group: self.without_namespace(config.consumer_group()),
            });
        }
        let group = self.new_group(config, now);
        let name = Arc::clone(&group.name);
        let topics: Vec<Epoch> = group.topics.iter().map(|topic| topic.topic).collect();
        let epoch = self.groups.insert(group);
        self.group_names.insert(name, epoch);
        self.divide_memory();
        for topic in topics {
            if let Some(route) = self.routes.topics.get_mut(topic) {
                route.subscribers.push(epoch);
            }
            self.note_first_route(epoch, topic);
            self.ask_route(topic);
        }
        self.load_local_offsets(epoch);
        self.announce_change();
        self.rebalance_soon(epoch, now);
        self.settle(now);
        Ok(GroupId(epoch))
    }

    fn new_group(&mut self, config: GroupConfig, now: Instant) -> ConsumerGroup {
        let unix_ms = i64::try_from(self.clock.unix_ms(now)).unwrap_or(i64::MAX);
        let retry_topic = topic::retry_topic(config.consumer_group());
        let retry = protocol::subscription::SubscriptionData::all(&retry_topic);
        let retry = config.reads_retry_topic().then_some((retry, true));
        let subscriptions = config.subscriptions().iter().map(|s| (s.clone(), false));
        let mut topics = Vec::new();
        for (mut subscription, is_retry) in subscriptions.chain(retry) {
            subscription.sub_version = unix_ms;
            let topic = self.routes.topic(&subscription.topic);
            topics.push(GroupTopic {
                name: subscription.topic.as_str().into(),
                topic,
                check: Check::of(&subscription),
                pending: None,
                refusal_told: None,
                known_from: 0,
                carried_filter: (!is_retry && subscription.expression_type == ExpressionType::Tag)
                    .then(|| subscription.sub_string.as_str().into()),
                subscription,
                pull_version: unix_ms,
                is_retry,
                first_queues: None,
                not_allocated: None,
                statistics: Statistics::default(),
                held: BTreeMap::new(),
            });
        }
        let assigned = config.assign().map(<[_]>::to_vec);
        let is_checked = topics.iter().all(|topic| topic.check == Check::Passed);
        ConsumerGroup {
            name: Arc::clone(config.consumer_group()),
            config,
            subscribed_at: now,
            topics,
            life: Life::Running,
            // Not before brokers have said yes to it.
            since_version: if is_checked {
                self.announcement.version + 1
            } else {
                u64::MAX
            },
            rebalance: Rebalance::default(),
            comparison: Comparison::default(),
            returns: Returns::default(),
            assigned,
            ready: ReadyQueues::default(),
            is_ready: false,
            calls: 0,
            retry_calls: 0,
            call_time: CallTime::default(),
            memory: GroupMemory::default(),
            releasing: BTreeSet::new(),
            leaving: BTreeMap::new(),
            orderly_calls: BTreeSet::new(),
            last_committed: BTreeMap::new(),
            local: LocalOffsets::default(),
            send_backs: 0,
            pauses: Pauses::default(),
            hold: Hold::default(),
            unregistering: 0,
        }
    }

    /// The group leaves in order: no pulls, no new calls, wait for its calls, commit,
    /// unregister; then `Event::GroupLeft`.
    pub fn unsubscribe(&mut self, group: GroupId, now: Instant) {
        self.leave(group.0);
        self.settle(now);
    }

    /// Gives a group other queues; it was made with [`GroupConfig::assign`]. An empty list
    /// takes all away.
    ///
    /// # Errors
    /// The group divides its queues, or a topic is not subscribed.
    pub fn assign(
        &mut self,
        group: GroupId,
        mut queues: Vec<QueueSelector>,
        now: Instant,
    ) -> Result<(), AssignError> {
        for queue in &mut queues {
            queue.topic = self.in_namespace(&queue.topic);
        }
        let result = self.change_assignment(group, queues, now);
        self.settle(now);
        result.map_err(|error| error.without_namespace(self))
    }

    /// A queue of ours goes on somewhere else: what was fetched is dropped, results of
    /// calls under way commit nothing, the place is committed before the first pull
    /// (`Event::Sought`). A place that the broker must be asked for is taken when it has
    /// answered (`Event::SeekFailed` if it refuses). The outcome comes from
    /// `poll_seek_result`.
    pub fn seek(
        &mut self,
        group: GroupId,
        queue: &MessageQueue,
        to: SeekTo,
        forward: SeekForward,
        now: Instant,
    ) -> SeekId {
        let queue = self.queue_in_namespace(queue);
        let id = self.seek_queue(group, &queue, to, forward, now);
        self.settle(now);
        id
    }

    /// All groups leave in order. Whoever cannot wait for a call answers
    /// [`ConsumeResult::NotFinished`] for it.
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        let groups: Vec<Epoch> = self.groups.iter().map(|(epoch, _)| epoch).collect();
        for group in groups {
            self.leave(group);
        }
        self.settle(now);
    }

    /// Sends messages of one topic; several go as one batch. The outcome comes from
    /// `poll_send_result`.
    #[expect(clippy::needless_pass_by_value, reason = "messages are handed over")]
    pub fn send(
        &mut self,
        messages: Vec<OutgoingMessage>,
        mode: SendMode,
        timeout: Duration,
        now: Instant,
    ) -> SendId {
        let id = self.start_send(&messages, mode, timeout, now);
        self.settle(now);
        id
    }

    /// A run of a pull task asks something of its queue. The answer comes from
    /// `poll_puller_answer`, exactly once.
    pub fn ask_queue(
        &mut self,
        run: PullTaskId,
        request: PullerRequest,
        now: Instant,
    ) -> PullerRequestId {
        let id = self.ask_queue_of_run(run, request, now);
        self.settle(now);
        id
    }

    /// The next request to be sent.
    pub fn poll_request(&mut self) -> Option<PendingRequest> {
        self.requests.pop_front()
    }

    /// The next call of a listener. Ask only when it can be made at once: what is taken
    /// here is under way.
    pub fn poll_consume_request(&mut self) -> Option<Arc<ConsumeRequest>> {
        self.next_consume_request(self.now)
    }

    /// The next run of a pull task; as with `poll_consume_request`.
    pub fn poll_pull_task(&mut self) -> Option<Arc<PullTaskRequest>> {
        self.next_pull_task(self.now)
    }

    /// The next answer to what a run asked.
    pub fn poll_puller_answer(
        &mut self,
    ) -> Option<(PullerRequestId, Result<PullerAnswer, QueuePullerError>)> {
        self.pull_tasks.requests.answers.pop_front()
    }

    /// The outcome of a seek.
    pub fn poll_seek_result(&mut self) -> Option<(SeekId, Result<Sought, SeekError>)> {
        self.seeks.poll()
    }

    /// The outcome of a send.
    pub fn poll_send_result(&mut self) -> Option<(SendId, Result<Vec<SendResult>, SendError>)> {
        self.send_results.pop_front()
    }

    /// The next answer to a broker's request.
    pub fn poll_answer(&mut self) -> Option<(ServerRequestId, RemotingCommand)> {
        self.answers.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call `handle_timeout` at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.next();
        let lock = self.locks.next_end();
        timer.into_iter().chain(lock).min()
    }

    /// Every group has left and every send has ended, after `stop`.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// What every input ends with: sends what it has made due.
    pub(crate) fn settle(&mut self, now: Instant) {
        debug_assert!(self.now <= now, "time went back");
        self.now = now;
        self.end_expired_locks(now);
        self.wake_who_waits_for_memory(now);
        self.send_waiting_back(now);
        self.drain_further(now);
        self.send_owed_heartbeats(now);
        self.store_due_local_offsets();
        self.tell_when_stopped();
    }
}

fn done(result: Result<Response, RequestError>) -> Result<(), RequestError> {
    result.map(|_| ())
}
