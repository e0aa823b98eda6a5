//! The one task that owns a [`Client`]: feeds it what happened, does what it asks for.
//!
//! After every input the outputs are drained; then the task waits, in one place, for
//! the next command, report, permit or deadline. It never waits for anyone else, so a
//! slow broker or listener delays nothing but itself. Inputs are taken by the batch and
//! the outputs drained once for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consumer::assignment::QueueSelector;
use consumer::listener::{ConsumeResult, Dispatch, MessageListener};
use consumer::publish::{OutgoingMessage, SendMode};
use consumer::pull_task::{PullTaskCallback, PullTaskResult, PullerRequestId};
use consumer::{
    Client, GroupConfig, GroupId, PauseKind, PauseScope, RunningInfo, SeekForward, SeekId, SeekTo,
    SendId, ServerRequest, ServerRequestId, Sought,
};
use protocol::subscription::SubscriptionData;
use protocol::{Instant, MessageQueue, RemotingCommand};
use remoting::{Clock, RemotingClient, Responder};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::call_gate::{ASKED_AGAIN_MIN, CallGate};
use crate::consume_pool::{Call, CallId, CallRequest, CallResult, ConsumePool, Permit};
use crate::event::Event;
use crate::local_offsets::LocalOffsets;
use crate::mailbox::{CallEnd, Input, Mailbox};
use crate::producer::SendOutcome;
use crate::puller::PullerReply;
use crate::requests::Requests;
use crate::shutdown::{Shutdown, Step, StopReport};
use crate::{COMMANDS_MAX, DriverConfig, DriverError, DriverStatus, Observer};

/// Requests of peers whose answer the rules may still owe; the oldest are forgotten.
const SERVER_ANSWERS_MAX: usize = 1_024;

/// Where the task sleeps to when nothing is due: far, and within tokio's range.
const FAR: Duration = Duration::from_secs(86_400);

/// What is asked of the task.
pub(crate) enum Command {
    Subscribe {
        group: Box<GroupConfig>,
        worker: Worker,
        reply: oneshot::Sender<Result<(), DriverError>>,
    },
    Unsubscribe {
        consumer_group: Arc<str>,
        reply: oneshot::Sender<Result<StopReport, DriverError>>,
    },
    ChangeSubscription {
        consumer_group: Arc<str>,
        subscription: Box<SubscriptionData>,
        reply: oneshot::Sender<Result<(), DriverError>>,
    },
    Pause {
        consumer_group: Arc<str>,
        scope: PauseScope,
        kind: PauseKind,
        by: Arc<str>,
        reply: oneshot::Sender<Result<(), DriverError>>,
    },
    Resume {
        consumer_group: Arc<str>,
        scope: PauseScope,
        reply: oneshot::Sender<Result<(), DriverError>>,
    },
    Assign {
        consumer_group: Arc<str>,
        queues: Vec<QueueSelector>,
        reply: oneshot::Sender<Result<(), DriverError>>,
    },
    Seek {
        consumer_group: Arc<str>,
        queue: MessageQueue,
        to: SeekTo,
        forward: SeekForward,
        reply: oneshot::Sender<Result<Sought, DriverError>>,
    },
    Send {
        messages: Vec<OutgoingMessage>,
        mode: SendMode,
        timeout: Duration,
        reply: oneshot::Sender<SendOutcome>,
    },
    Status(oneshot::Sender<DriverStatus>),
    Stop {
        drain_timeout: Duration,
        reply: oneshot::Sender<StopReport>,
    },
}

/// Who works for a group.
pub(crate) enum Worker {
    Listener(Arc<dyn MessageListener>),
    PullTasks(Arc<dyn PullTaskCallback>),
}

impl Worker {
    fn properties(&self) -> Vec<(String, String)> {
        match self {
            Self::Listener(listener) => listener.properties(),
            Self::PullTasks(callback) => callback.properties(),
        }
    }

    fn dispatch(&self) -> Dispatch {
        match self {
            Self::Listener(listener) => listener.dispatch(),
            Self::PullTasks(callback) => callback.dispatch(),
        }
    }
}

/// Runs a client until it is stopped and all has ended.
pub(crate) async fn run(
    config: DriverConfig,
    observer: Observer,
    mut commands: mpsc::Receiver<Command>,
    dispatch_changed: Arc<Notify>,
) -> StopReport {
    let mut task = ClientTask::new(config, observer);
    let deadline = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(deadline);
    let mut inputs = Vec::new();
    loop {
        task.drain();
        if task.has_ended() {
            break;
        }
        let wakes_at = task.clock.to_tokio(task.poll_timeout());
        if deadline.deadline() != wakes_at {
            deadline.as_mut().reset(wakes_at);
        }
        tokio::select! {
            command = commands.recv(), if !task.is_abandoned => match command {
                Some(command) => {
                    task.handle_command(command);
                    // What else is there costs no further round, but does not keep
                    // the reports waiting either.
                    for _ in 0..COMMANDS_MAX {
                        let Ok(command) = commands.try_recv() else { break };
                        task.handle_command(command);
                    }
                }
                None => task.abandon(),
            },
            () = task.mailbox.filled() => {}
            () = dispatch_changed.notified() => task.ask_listeners(),
            () = task.pool.host_permit() => {}
            () = &mut deadline => task.handle_timeout(),
        }
        task.mailbox.take(&mut inputs);
        let now = task.clock.now();
        for input in inputs.drain(..) {
            task.handle_input(input, now);
        }
    }
    task.requests.close().await;
    task.report_stopped()
}

struct ClientTask {
    client: Client,
    clock: Clock,
    observer: Observer,
    mailbox: Arc<Mailbox>,
    requests: Requests,
    pool: ConsumePool,
    gate: Option<Arc<dyn CallGate>>,
    /// While calls are kept back: why, and when the gate is asked again.
    gate_closed: Option<(String, Instant)>,
    local_offsets: LocalOffsets,
    groups: BTreeMap<Arc<str>, Group>,
    /// Those on their way out: nobody else is asked for a deadline.
    leaving: usize,
    sends: BTreeMap<SendId, oneshot::Sender<SendOutcome>>,
    seeks: BTreeMap<SeekId, oneshot::Sender<Result<Sought, DriverError>>>,
    pullers: BTreeMap<PullerRequestId, PullerReply>,
    /// Whose turn it is when both kinds of work wait.
    pull_task_is_next: bool,
    server_requests: BTreeMap<ServerRequestId, Responder>,
    next_server_request: u64,
    /// Events have it in their names, users do not.
    namespace: String,
    drain_timeout: Duration,
    stop: Option<Stop>,
    /// Nobody can give commands any more.
    is_abandoned: bool,
    has_given_up: bool,
}

struct Group {
    id: GroupId,
    worker: Worker,
    leaving: Option<Leaving>,
}

impl Group {
    /// A pause counts from when it was asked for, which is later than `now`: a probe must
    /// not come before its time.
    fn dispatch(&self, clock: &Clock, now: Instant) -> Dispatch {
        match self.worker.dispatch() {
            Dispatch::Held { pause, reason } if !pause.is_zero() => Dispatch::Held {
                pause: pause + (clock.now() - now),
                reason,
            },
            dispatch => dispatch,
        }
    }
}

/// A group on its way out.
struct Leaving {
    shutdown: Shutdown,
    replies: Vec<oneshot::Sender<Result<StopReport, DriverError>>>,
}

impl Leaving {
    fn tell(&mut self, is_complete: bool, now: Instant) {
        let report = self.shutdown.report(is_complete, now);
        for reply in self.replies.drain(..) {
            reply.send(Ok(report)).ok();
        }
    }
}

/// The client on its way out.
struct Stop {
    shutdown: Shutdown,
    replies: Vec<oneshot::Sender<StopReport>>,
}

impl ClientTask {
    fn new(config: DriverConfig, observer: Observer) -> Self {
        let clock = Clock::start();
        // A clock before 1970 is as wrong as any other.
        let unix_now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mailbox = Mailbox::new();
        let namespace = config.client.namespace.clone();
        let remoting = RemotingClient::new(config.remoting, Arc::clone(&mailbox) as _);
        let namesrv_addr = config.client.namesrv_addr.iter();
        let local_offsets = LocalOffsets::new(
            config.local_offsets,
            namesrv_addr.map(ToString::to_string).collect(),
            Arc::clone(&mailbox),
        );
        Self {
            client: Client::new(config.client, fastrand::u64(..), clock.now(), unix_now),
            clock,
            observer,
            requests: Requests::new(remoting, Arc::clone(&mailbox)),
            pool: ConsumePool::new(config.calls_max, config.permits, Arc::clone(&mailbox)),
            mailbox,
            gate: config.gate,
            gate_closed: None,
            local_offsets,
            groups: BTreeMap::new(),
            leaving: 0,
            sends: BTreeMap::new(),
            seeks: BTreeMap::new(),
            pullers: BTreeMap::new(),
            pull_task_is_next: false,
            server_requests: BTreeMap::new(),
            next_server_request: 0,
            namespace,
            drain_timeout: config.drain_timeout,
            stop: None,
            is_abandoned: false,
            has_given_up: false,
        }
    }

    fn handle_command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Subscribe {
                group,
                worker,
                reply,
            } => {
                let result = self.subscribe(*group, worker, now);
                // Whoever asked may be gone; so below.
                reply.send(result).ok();
            }
            Command::Unsubscribe {
                consumer_group,
                reply,
            } => self.unsubscribe(&consumer_group, reply, now),
            Command::ChangeSubscription {
                consumer_group,
                subscription,
                reply,
            } => {
                let result = self.group(&consumer_group).and_then(|id| {
                    let changed = self.client.change_subscription(id, *subscription, now);
                    changed.map_err(DriverError::ChangeSubscription)
                });
                reply.send(result).ok();
            }
            Command::Pause {
                consumer_group,
                scope,
                kind,
                by,
                reply,
            } => {
                let result = self
                    .group(&consumer_group)
                    .and_then(|id| Ok(self.client.pause(id, &scope, kind, &by, now)?));
                reply.send(result).ok();
            }
            Command::Resume {
                consumer_group,
                scope,
                reply,
            } => {
                let result = self
                    .group(&consumer_group)
                    .and_then(|id| Ok(self.client.resume(id, &scope, now)?));
                reply.send(result).ok();
            }
            Command::Assign {
                consumer_group,
                queues,
                reply,
            } => {
                let result = self
                    .group(&consumer_group)
                    .and_then(|id| Ok(self.client.assign(id, queues, now)?));
                reply.send(result).ok();
            }
            Command::Seek {
                consumer_group,
                queue,
                to,
                forward,
                reply,
            } => match self.group(&consumer_group) {
                Ok(id) => {
                    let id = self.client.seek(id, &queue, to, forward, now);
                    self.seeks.insert(id, reply);
                }
                Err(error) => {
                    reply.send(Err(error)).ok();
                }
            },
            Command::Send {
                messages,
                mode,
                timeout,
                reply,
            } => {
                let id = self.client.send(messages, mode, timeout, now);
                self.sends.insert(id, reply);
            }
            Command::Status(reply) => {
                // What can be handed over is no longer waiting for a permit.
                self.drain();
                reply.send(self.status(now)).ok();
            }
            Command::Stop {
                drain_timeout,
                reply,
            } => self.stop(drain_timeout, Some(reply), now),
        }
    }

    fn subscribe(
        &mut self,
        config: GroupConfig,
        worker: Worker,
        now: Instant,
    ) -> Result<(), DriverError> {
        let pulls = matches!(worker, Worker::PullTasks(_));
        if pulls != config.pull_task_interval().is_some() {
            return Err(DriverError::WrongKind {
                consumer_group: config.consumer_group().to_string(),
            });
        }
        let name = self.user_name(config.consumer_group());
        let id = self.client.subscribe(config, now)?;
        self.groups.insert(
            name,
            Group {
                id,
                worker,
                leaving: None,
            },
        );
        Ok(())
    }

    fn unsubscribe(
        &mut self,
        name: &Arc<str>,
        reply: oneshot::Sender<Result<StopReport, DriverError>>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(name) else {
            let error = DriverError::UnknownGroup {
                consumer_group: name.to_string(),
            };
            reply.send(Err(error)).ok();
            return;
        };
        let leaving = group.leaving.get_or_insert_with(|| {
            self.client.unsubscribe(group.id, now);
            self.leaving += 1;
            Leaving {
                shutdown: Shutdown::new(self.drain_timeout, now),
                replies: Vec::new(),
            }
        });
        leaving.replies.push(reply);
    }

    fn stop(
        &mut self,
        drain_timeout: Duration,
        reply: Option<oneshot::Sender<StopReport>>,
        now: Instant,
    ) {
        let stop = self.stop.get_or_insert_with(|| {
            self.client.stop(now);
            Stop {
                shutdown: Shutdown::new(drain_timeout, now),
                replies: Vec::new(),
            }
        });
        stop.shutdown.shorten(drain_timeout, now);
        stop.replies.extend(reply);
    }

    /// The last handle is gone: what is under way is killed.
    fn abandon(&mut self) {
        self.is_abandoned = true;
        self.stop(Duration::ZERO, None, self.clock.now());
    }

    fn handle_input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Response(id, result) => self.client.handle_response(id, result, now),
            Input::CallEnded(id, end) => self.handle_call_ended(id, end, now),
            Input::QueueAsked(run, request, reply) => {
                let id = self.client.ask_queue(run, request, now);
                self.pullers.insert(id, reply);
            }
            Input::LocalOffsetsLoaded(id, result) => {
                self.client.handle_local_offsets_loaded(id, result, now);
            }
            Input::LocalOffsetsStored(id, result) => {
                self.client.handle_local_offsets_stored(id, result, now);
            }
            Input::LocalOffsetsNotRewritten(consumer_group, error) => {
                (self.observer)(&Event::LocalOffsetsNotRewritten {
                    consumer_group,
                    reason: error.reason,
                });
            }
            Input::Connected(address) => {
                self.client.handle_connected(&address, now);
                (self.observer)(&Event::Connected { address });
            }
            Input::Disconnected {
                address,
                reason,
                has_answered,
            } => {
                self.client.handle_disconnected(&address, now);
                (self.observer)(&Event::Disconnected {
                    address,
                    reason,
                    has_answered,
                });
            }
            Input::ConnectFailed { address, reason } => {
                (self.observer)(&Event::ConnectFailed { address, reason });
            }
            Input::ServerRequest(from, command, responder) => {
                let id = ServerRequestId(self.next_server_request);
                self.next_server_request += 1;
                if !command.is_oneway() {
                    self.server_requests.insert(id, responder);
                    if self.server_requests.len() > SERVER_ANSWERS_MAX {
                        self.server_requests.pop_first();
                    }
                }
                let request = ServerRequest { id, from, command };
                self.client.handle_server_request(request, now);
            }
            Input::ServerRequestsOverloaded(address) => {
                (self.observer)(&Event::ServerRequestsOverloaded { address });
            }
        }
    }

    fn handle_call_ended(&mut self, id: CallId, end: CallEnd, now: Instant) {
        let Some(call) = self.pool.handle_ended(id) else {
            // It was killed, and the rules were told then.
            return;
        };
        let request = &call.request;
        // Whoever keeps failing asks not to be called for a while.
        if let Some(group) = self.groups.get(&**request.consumer_group()) {
            let dispatch = group.dispatch(&self.clock, now);
            self.client.handle_dispatch(group.id, dispatch, now);
        }
        match end {
            CallEnd::Returned { result, elapsed } => {
                if elapsed > request.consume_timeout() {
                    (self.observer)(&Event::CallSlow {
                        consumer_group: Arc::clone(request.consumer_group()),
                        queue: request.message_queue().clone(),
                        elapsed,
                    });
                }
                match (id, result) {
                    (CallId::Consume(id), CallResult::Consumed(result)) => {
                        self.client.handle_consume_result(id, result, now);
                    }
                    (CallId::PullTask(id), CallResult::Ran(result)) => {
                        self.client.handle_pull_task_result(id, result, now);
                    }
                    (CallId::Consume(_), CallResult::Ran(_))
                    | (CallId::PullTask(_), CallResult::Consumed(_)) => {
                        debug_assert!(false, "the result of another kind of call");
                        self.handle_not_finished(&call, now);
                    }
                }
            }
            CallEnd::Panicked { message } => {
                (self.observer)(&Event::ListenerPanicked {
                    consumer_group: Arc::clone(request.consumer_group()),
                    queue: request.message_queue().clone(),
                    message: message.clone(),
                });
                match request {
                    CallRequest::Consume(request) => {
                        let reason = format!("it panicked: {message}").into();
                        let result = ConsumeResult::Failed { reason };
                        self.client.handle_consume_result(request.id, result, now);
                    }
                    CallRequest::PullTask(request) => {
                        let reason = format!("it panicked: {message}");
                        let result = PullTaskResult::Failed { reason };
                        self.client.handle_pull_task_result(request.id, result, now);
                    }
                }
            }
            CallEnd::Dropped => self.handle_not_finished(&call, now),
        }
    }

    /// A listener may have become another one, without a call.
    fn ask_listeners(&mut self) {
        let now = self.clock.now();
        for group in self.groups.values() {
            let dispatch = group.dispatch(&self.clock, now);
            self.client.handle_dispatch(group.id, dispatch, now);
        }
    }

    /// Tells the rules that nothing of a call counts.
    fn handle_not_finished(&mut self, call: &Call, now: Instant) {
        match &call.request {
            CallRequest::Consume(request) => {
                let result = ConsumeResult::NotFinished;
                self.client.handle_consume_result(request.id, result, now);
            }
            CallRequest::PullTask(request) => {
                let result = PullTaskResult::NotFinished;
                self.client.handle_pull_task_result(request.id, result, now);
            }
        }
    }

    fn handle_timeout(&mut self) {
        let now = self.clock.now();
        if self
            .client
            .poll_timeout()
            .is_some_and(|timeout| timeout <= now)
        {
            self.client.handle_timeout(now);
        }
        let groups = (self.leaving > 0).then(|| self.groups.iter_mut());
        let due: Vec<_> = groups
            .into_iter()
            .flatten()
            .filter_map(|(name, group)| {
                let step = group.leaving.as_mut()?.shutdown.handle_timeout(now);
                (step != Step::Wait).then(|| (Arc::clone(name), step))
            })
            .collect();
        for (name, step) in due {
            let killed = match step {
                Step::Kill => self.kill(Some(&name), now),
                Step::GiveUp | Step::Wait => 0,
            };
            let Some(leaving) = self
                .groups
                .get_mut(&name)
                .and_then(|group| group.leaving.as_mut())
            else {
                continue;
            };
            leaving.shutdown.handle_killed(killed);
            if step == Step::GiveUp {
                // The rules go on trying; whoever asked need not wait for it.
                leaving.tell(false, now);
            }
        }
        match self
            .stop
            .as_mut()
            .map_or(Step::Wait, |stop| stop.shutdown.handle_timeout(now))
        {
            Step::Wait => {}
            Step::Kill => {
                let killed = self.kill(None, now);
                if let Some(stop) = &mut self.stop {
                    stop.shutdown.handle_killed(killed);
                }
            }
            Step::GiveUp => {
                (self.observer)(&Event::StopIncomplete);
                self.has_given_up = true;
            }
        }
    }

    /// Kills calls and tells the rules that nothing of them counts.
    fn kill(&mut self, consumer_group: Option<&Arc<str>>, now: Instant) -> u32 {
        let killed = self.pool.kill(consumer_group.map(|name| &**name));
        let calls = u32::try_from(killed.len()).unwrap_or(u32::MAX);
        for call in killed {
            self.handle_not_finished(&call, now);
        }
        if calls > 0 {
            (self.observer)(&Event::CallsKilled {
                consumer_group: consumer_group.cloned(),
                calls,
            });
        }
        calls
    }

    fn drain(&mut self) {
        while let Some(pending) = self.client.poll_request() {
            if let Some(event) = self.requests.send(&pending) {
                (self.observer)(&event);
            }
        }
        while let Some(pending) = self.client.poll_local_offsets() {
            self.local_offsets.start(pending);
        }
        while let Some((id, answer)) = self.client.poll_answer() {
            if let Some(responder) = self.server_requests.remove(&id) {
                responder.answer(answer);
            }
        }
        while let Some(info) = self.client.poll_running_info() {
            if let Some(responder) = self.server_requests.remove(&info.id) {
                responder.answer(self.complete(info));
            }
        }
        while let Some((id, answer)) = self.client.poll_puller_answer() {
            if let Some(reply) = self.pullers.remove(&id) {
                // The run may have been killed.
                reply.send(answer).ok();
            }
        }
        while let Some((id, outcome)) = self.client.poll_send_result() {
            if let Some(reply) = self.sends.remove(&id) {
                reply.send(outcome).ok();
            }
        }
        while let Some((id, result)) = self.client.poll_seek_result() {
            if let Some(reply) = self.seeks.remove(&id) {
                reply.send(result.map_err(DriverError::Seek)).ok();
            }
        }
        self.start_calls();
        while let Some(event) = self.client.poll_event() {
            let left = match &event {
                consumer::Event::GroupLeft { consumer_group } => Some(Arc::clone(consumer_group)),
                _ => None,
            };
            // Whoever waits for the group hears of it after the observer.
            (self.observer)(&Event::Client(event));
            if let Some(name) = left {
                self.handle_group_left(&name);
            }
        }
    }

    /// Starts what may be started: there is work, the gate is open, and there is a permit.
    fn start_calls(&mut self) {
        self.gate_closed = None;
        loop {
            if let Some(closed) = self.gate.as_ref().and_then(|gate| gate.closed()) {
                let at = self.clock.now() + closed.ask_again.max(ASKED_AGAIN_MIN);
                self.gate_closed = Some((closed.reason, at));
                break;
            }
            let Some(permit) = self.pool.try_permit() else {
                break;
            };
            if !self.start_next(permit) {
                break;
            }
        }
        self.pool.give_back_spare();
    }

    fn tell_gate(&self, messages: usize) {
        if let Some(gate) = &self.gate {
            gate.handle_begun(messages);
        }
    }

    /// Adds what the rules do not know: who listens, and the calls under way.
    fn complete(&self, mut info: RunningInfo) -> RemotingCommand {
        if let Some(group) = self.groups.get(&info.consumer_group) {
            info.info.properties.extend(group.worker.properties());
        }
        if info.jstack {
            info.info.jstack = Some(self.pool.describe(&info.consumer_group));
        }
        info.encode()
    }

    /// Starts what is next, the two kinds of work in turn. False when there is none.
    fn start_next(&mut self, permit: Permit) -> bool {
        self.pull_task_is_next = !self.pull_task_is_next;
        let mut run = None;
        if self.pull_task_is_next {
            run = self.client.poll_pull_task();
        }
        let call = match run {
            Some(_) => None,
            None => self.client.poll_consume_request(),
        };
        if let Some(request) = call {
            match self.groups.get(&*request.consumer_group).map(|g| &g.worker) {
                Some(Worker::Listener(listener)) => {
                    self.tell_gate(request.len());
                    self.pool.start(request, Arc::clone(listener), permit);
                }
                // The rules make work for subscribed groups only, and of their kind. Should
                // they not, nothing is called before the next input.
                _ => {
                    debug_assert!(false, "work for {}", request.consumer_group);
                    let result = ConsumeResult::NotFinished;
                    let now = self.clock.now();
                    self.client.handle_consume_result(request.id, result, now);
                    return false;
                }
            }
            return true;
        }
        let Some(request) = run.or_else(|| self.client.poll_pull_task()) else {
            return false;
        };
        match self.groups.get(&*request.consumer_group).map(|g| &g.worker) {
            Some(Worker::PullTasks(callback)) => {
                let callback = Arc::clone(callback);
                self.tell_gate(0);
                self.pool.start_pull_task(request, callback, permit);
            }
            _ => {
                debug_assert!(false, "a run for {}", request.consumer_group);
                let result = PullTaskResult::NotFinished;
                let now = self.clock.now();
                self.client.handle_pull_task_result(request.id, result, now);
                return false;
            }
        }
        true
    }

    /// By the name that brokers know, as the rules and the files have it.
    fn handle_group_left(&mut self, wire_name: &str) {
        self.local_offsets.forget(wire_name);
        let now = self.clock.now();
        let name = self.user_name(wire_name);
        let Some(mut leaving) = self.groups.remove(&name).and_then(|group| group.leaving) else {
            return;
        };
        self.leaving = self.leaving.saturating_sub(1);
        leaving.tell(true, now);
    }

    fn has_ended(&self) -> bool {
        self.stop.is_some() && (self.client.is_stopped() || self.has_given_up)
    }

    fn report_stopped(self) -> StopReport {
        let is_complete = self.client.is_stopped();
        let now = self.clock.now();
        let Some(stop) = self.stop else {
            return StopReport::default();
        };
        let report = stop.shutdown.report(is_complete, now);
        for reply in stop.replies {
            reply.send(report).ok();
        }
        report
    }

    fn poll_timeout(&self) -> Instant {
        // Thousands of groups are not looked at after every input.
        let groups = (self.leaving > 0).then(|| self.groups.values());
        let leaving = groups
            .into_iter()
            .flatten()
            .filter_map(|group| group.leaving.as_ref())
            .filter_map(|leaving| leaving.shutdown.poll_timeout());
        let stop = self
            .stop
            .iter()
            .filter_map(|stop| stop.shutdown.poll_timeout());
        self.client
            .poll_timeout()
            .into_iter()
            .chain(leaving)
            .chain(stop)
            .chain(self.gate_closed.iter().map(|(_, at)| *at))
            .min()
            .unwrap_or_else(|| self.clock.now() + FAR)
    }

    fn status(&self, now: Instant) -> DriverStatus {
        DriverStatus {
            client: self.client.status(now),
            remoting: self.requests.remoting().stats(),
            calls: self.pool.len(),
            calls_max: self.pool.calls_max(),
            waits_for_host_permit: self.pool.waits_for_host_permit(),
            gate_closed: self.gate_closed.as_ref().map(|(reason, _)| reason.clone()),
        }
    }

    /// A group's name without the namespace, as listeners are asked under it.
    fn user_name(&self, name: &str) -> Arc<str> {
        protocol::topic::without_namespace(&self.namespace, name).into()
    }

    fn group(&self, name: &str) -> Result<GroupId, DriverError> {
        self.groups
            .get(name)
            .map(|group| group.id)
            .ok_or_else(|| DriverError::UnknownGroup {
                consumer_group: name.to_owned(),
            })
    }
}
