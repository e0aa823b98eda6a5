//! A client, a clock and a scripted other side.

use std::sync::Arc;
use std::time::Duration;

use protocol::header::{Header, NotifyConsumerIdsChangedRequestHeader, ResetOffsetRequestHeader};
use protocol::message::MessageBatch;
use protocol::{Address, Instant, MessageQueue, QueueOffset, RemotingCommand};

use super::cluster::Cluster;
use super::describe;
use crate::client::{Client, GroupId};
use crate::config::{ClientConfig, GroupConfig};
use crate::listener::{ConsumeRequest, ConsumeResult};
use crate::local_offsets::{
    LoadedOffsets, LocalOffsetsError, LocalOffsetsSource, LocalOffsetsWork, PendingLocalOffsets,
};
use crate::publish::{OutgoingMessage, SendMode};
use crate::pull_task::{PullTaskId, PullTaskRequest, PullTaskResult, PullerRequest};
use crate::request::{
    PendingRequest, PullAnswer, PullStatus, Request, RequestError, Response, ServerRequest,
    ServerRequestId,
};
use crate::testing::{TestMessage, batch};

/// See the module.
#[derive(Debug)]
pub struct Harness {
    /// The client.
    pub client: Client,
    /// What `settle` answers.
    pub cluster: Cluster,
    /// Calls that may be under way.
    pub permits: usize,
    /// Bodies of answers to brokers are written down.
    pub shows_bodies: bool,
    /// Events are written down.
    pub shows_events: bool,
    now: Instant,
    written: String,
    requests: Vec<(usize, PendingRequest)>,
    requests_seen: usize,
    local_offsets: Vec<PendingLocalOffsets>,
    calls: Vec<(usize, Arc<ConsumeRequest>)>,
    calls_seen: usize,
    runs: Vec<(usize, Arc<PullTaskRequest>)>,
    commits: Vec<(MessageQueue, u64)>,
}

/// Our id.
pub const CLIENT_ID: &str = "10.0.0.9@1#abc";

impl Default for Harness {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl Harness {
    /// A client with one name server, alone in its groups.
    pub fn new(change: impl FnOnce(&mut ClientConfig)) -> Self {
        let mut config = ClientConfig::new(CLIENT_ID, vec![Address::new("10.0.1.1", 9876)]);
        change(&mut config);
        let now = Instant::ORIGIN;
        Self {
            client: Client::new(config, 1, now, Duration::from_secs(1_700_000_000)),
            cluster: Cluster {
                members: vec![CLIENT_ID.to_owned()],
                ..Cluster::default()
            },
            permits: usize::MAX,
            shows_events: true,
            shows_bodies: false,
            now,
            written: String::new(),
            requests: Vec::new(),
            requests_seen: 0,
            local_offsets: Vec::new(),
            calls: Vec::new(),
            calls_seen: 0,
            runs: Vec::new(),
            commits: Vec::new(),
        }
    }

    /// A topic of the cluster, and the retry topic of a group `G1` on its first broker.
    pub fn topic(&mut self, name: &str, queues: &[(&str, u32)]) {
        let queues = queues
            .iter()
            .map(|(broker, count)| ((*broker).to_owned(), *count));
        let queues: Vec<_> = queues.collect();
        let retry = (queues[0].0.clone(), 1);
        self.cluster.topics.insert(name.to_owned(), queues);
        self.cluster
            .topics
            .insert("%RETRY%G1".to_owned(), vec![retry]);
    }

    /// What was written so far.
    pub fn transcript(&self) -> &str {
        &self.written
    }

    /// What was written so far is not shown.
    pub fn forget_transcript(&mut self) {
        self.written.clear();
    }

    /// Adds what another one wrote.
    pub fn append(&mut self, other: &Self) {
        self.written.push_str(&other.written);
    }

    /// The time of the clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A line for people.
    pub fn comment(&mut self, text: &str) {
        self.written.push_str(&format!("\n# {text}\n"));
    }

    /// Takes a group in.
    ///
    /// # Panics
    /// When the client refuses it.
    pub fn subscribe(&mut self, config: GroupConfig) -> GroupId {
        self.input(&format!("subscribe {}", config.consumer_group()));
        let group = self.client.subscribe(config, self.now);
        self.drain();
        group.expect("a group that can be subscribed")
    }

    /// Any other input.
    pub fn does<R>(&mut self, what: &str, act: impl FnOnce(&mut Client, Instant) -> R) -> R {
        self.input(what);
        let result = act(&mut self.client, self.now);
        self.drain();
        result
    }

    /// A broker asks something of us; `what` is for people.
    pub fn asked(&mut self, what: &str, command: RemotingCommand) {
        let request = ServerRequest {
            id: ServerRequestId(0),
            from: Cluster::address("broker-a"),
            command,
        };
        self.does(what, |client, now| {
            client.handle_server_request(request, now);
        });
    }

    /// A broker says that a group's members changed.
    pub fn notify_members_changed(&mut self, group: &str) {
        let header = NotifyConsumerIdsChangedRequestHeader {
            consumer_group: group.to_owned(),
        };
        let command = RemotingCommand::request(40, header.encode()).oneway();
        self.asked(&format!("members of {group} changed"), command);
    }

    /// A broker passes an operator's reset on.
    pub fn reset_offsets(&mut self, group: &str, topic: &str, body: &str) {
        let header = ResetOffsetRequestHeader {
            topic: topic.to_owned(),
            group: group.to_owned(),
            timestamp: 0,
            is_force: Some(false),
            queue_id: Some(-1),
            offset: None,
        };
        let command = RemotingCommand::request(220, header.encode()).oneway();
        let command = command.with_body(body.to_owned());
        let what = format!("reset offsets of {group} in {topic}: {body}");
        self.asked(&what, command);
    }

    /// The oldest open work on local offsets is done as asked.
    ///
    /// # Panics
    /// When there is none.
    pub fn do_local_offsets(&mut self) {
        match self.local_offsets[0].work.clone() {
            LocalOffsetsWork::Load => {
                let offsets = self.cluster.local_offsets.clone();
                let source = if offsets.is_empty() {
                    LocalOffsetsSource::Nothing
                } else {
                    LocalOffsetsSource::Latest
                };
                self.load_local_offsets(Ok(LoadedOffsets { offsets, source }));
            }
            LocalOffsetsWork::Store(offsets) => {
                self.cluster.local_offsets = (*offsets).clone();
                self.store_local_offsets(Ok(()));
            }
        }
    }

    /// Local offsets were read, or not.
    ///
    /// # Panics
    /// When nobody asked.
    pub fn load_local_offsets(&mut self, result: Result<LoadedOffsets, LocalOffsetsError>) {
        let pending = self.local_offsets.remove(0);
        assert_eq!(pending.work, LocalOffsetsWork::Load);
        self.input(&match &result {
            Ok(loaded) => format!(
                "local offsets: {} ({})",
                describe::table(&loaded.offsets),
                loaded.source
            ),
            Err(error) => format!("local offsets: error: {error}"),
        });
        self.client
            .handle_local_offsets_loaded(pending.id, result, self.now);
        self.drain();
    }

    /// Local offsets were stored, or not.
    ///
    /// # Panics
    /// When nobody asked.
    pub fn store_local_offsets(&mut self, result: Result<(), LocalOffsetsError>) {
        let pending = self.local_offsets.remove(0);
        assert!(matches!(pending.work, LocalOffsetsWork::Store(_)));
        self.input(&match &result {
            Ok(()) => "local offsets stored".to_owned(),
            Err(error) => format!("local offsets not stored: {error}"),
        });
        self.client
            .handle_local_offsets_stored(pending.id, result, self.now);
        self.drain();
    }

    /// Sends one message.
    pub fn send(&mut self, topic: &str, body: &'static str) {
        self.input(&format!("send {body} to {topic}"));
        let message = OutgoingMessage {
            topic: topic.to_owned(),
            body: body.into(),
            ..OutgoingMessage::default()
        };
        let timeout = Duration::from_secs(3);
        let _ = self
            .client
            .send(vec![message], SendMode::Sync, timeout, self.now);
        self.drain();
    }

    /// Answers the oldest open request that `matches` a part of its line.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self, matches: &str, result: Result<Response, RequestError>) {
        let (number, pending) = self.take_request(matches);
        let shown = match &result {
            Ok(response) => describe::response(response),
            Err(error) => format!("error: {error}"),
        };
        self.input(&format!("answer #{number}: {shown}"));
        self.client.handle_response(pending.id, result, self.now);
        self.drain();
    }

    /// Answers a pull with these messages; the next offset is behind the last.
    pub fn answer_found(&mut self, matches: &str, messages: &[TestMessage]) {
        let next = messages.last().map_or(0, |last| last.queue_offset + 1);
        self.answer(matches, Ok(found(&batch(messages), next)));
    }

    /// Answers a pull with no messages.
    pub fn answer_pull(&mut self, matches: &str, status: PullStatus, next: u64) {
        let answer = PullAnswer {
            status,
            next_begin_offset: QueueOffset(next),
            min_offset: QueueOffset(0),
            max_offset: QueueOffset(next),
            suggest_which_broker_id: 0,
            remark: String::new(),
            batch: None,
            frame_bytes: 0,
        };
        self.answer(matches, Ok(Response::Pull(answer)));
    }

    /// Answers everything that is open as the cluster would, but pulls, and lets what is
    /// due happen, until nothing is left to answer. Requests whose line contains one of `but` stay open.
    pub fn settle_but(&mut self, but: &[&str]) {
        let mut skipped = 0;
        loop {
            if !self.local_offsets.is_empty() && !but.contains(&"local offsets") {
                self.do_local_offsets();
                continue;
            }
            let Some((number, pending)) = self.requests.get(skipped) else {
                if self.client.poll_timeout().is_none_or(|at| at > self.now) {
                    return;
                }
                self.wait(Duration::ZERO);
                continue;
            };
            let line = describe::request(*number, pending);
            let answer = if but.iter().any(|part| line.contains(part)) {
                None
            } else {
                self.cluster.answer(&pending.request)
            };
            let Some(result) = answer else {
                skipped += 1;
                continue;
            };
            self.answer(&format!("#{number} "), result);
            skipped = 0;
        }
    }

    /// [`Harness::settle_but`] nothing.
    pub fn settle(&mut self) {
        self.settle_but(&[]);
    }

    /// Lets time pass, timer by timer.
    pub fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(at) = self.client.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.input("time");
            self.client.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    /// Time passes without anybody looking at the timers.
    pub fn skip(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    /// The listener's answer to a call.
    ///
    /// # Panics
    /// When there is no such call under way.
    pub fn result(&mut self, call: usize, result: ConsumeResult) {
        let index = self.calls.iter().position(|(number, _)| *number == call);
        let (_, request) = self.calls.remove(index.expect("a call under way"));
        self.input(&format!("result of call {call}: {result:?}"));
        self.client
            .handle_consume_result(request.id, result, self.now);
        self.drain();
    }

    /// A run of a pull task asks something of its queue.
    ///
    /// # Panics
    /// When there is no such run under way.
    pub fn ask(&mut self, run: usize, request: PullerRequest) {
        let id = self.run(run).id;
        self.ask_as(id, run, request);
    }

    /// The same for a run that may have ended.
    pub fn ask_as(&mut self, id: PullTaskId, run: usize, request: PullerRequest) {
        self.input(&format!("run {run} asks: {request:?}"));
        self.client.ask_queue(id, request, self.now);
        self.drain();
    }

    /// What came of a run.
    ///
    /// # Panics
    /// When there is no such run under way.
    pub fn run_result(&mut self, run: usize, result: PullTaskResult) {
        let id = self.run(run).id;
        self.runs.retain(|(number, _)| *number != run);
        self.input(&format!("result of run {run}: {result:?}"));
        self.client.handle_pull_task_result(id, result, self.now);
        self.drain();
    }

    /// A run under way.
    ///
    /// # Panics
    /// When there is no such run.
    pub fn run(&self, run: usize) -> Arc<PullTaskRequest> {
        let found = self.runs.iter().find(|(number, _)| *number == run);
        Arc::clone(&found.expect("a run under way").1)
    }

    /// Runs under way, with their numbers.
    pub fn numbered_runs(&self) -> impl Iterator<Item = (usize, Arc<PullTaskRequest>)> {
        self.runs
            .iter()
            .map(|(number, request)| (*number, Arc::clone(request)))
    }

    /// Open requests as lines.
    pub fn open_requests(&self) -> Vec<String> {
        let lines = self.requests.iter();
        lines
            .map(|(number, pending)| describe::request(*number, pending))
            .collect()
    }

    /// An open request, by a part of its line.
    ///
    /// # Panics
    /// When none matches.
    pub fn request(&self, matches: &str) -> &PendingRequest {
        let found = self
            .requests
            .iter()
            .find(|(number, pending)| describe::request(*number, pending).contains(matches));
        &found.expect("an open request").1
    }

    /// Offsets that were told to brokers since the last look, pulls included.
    pub fn take_commits(&mut self) -> Vec<(MessageQueue, u64)> {
        std::mem::take(&mut self.commits)
    }

    /// Calls under way, with their numbers.
    pub fn numbered_calls(&self) -> impl Iterator<Item = (usize, Arc<ConsumeRequest>)> {
        self.calls
            .iter()
            .map(|(number, request)| (*number, Arc::clone(request)))
    }

    /// Calls under way.
    pub fn calls(&self) -> impl Iterator<Item = &Arc<ConsumeRequest>> {
        self.calls.iter().map(|(_, request)| request)
    }

    /// Takes an open request away: it is never answered.
    ///
    /// # Panics
    /// When none matches.
    pub fn take_request(&mut self, matches: &str) -> (usize, PendingRequest) {
        let index = self
            .requests
            .iter()
            .position(|(number, pending)| describe::request(*number, pending).contains(matches));
        let Some(index) = index else {
            panic!(
                "no open request matches \"{matches}\"; open are:\n{}\n\n{}",
                self.open_requests().join("\n"),
                self.written
            );
        };
        self.requests.remove(index)
    }

    fn input(&mut self, line: &str) {
        let at = self.now.since_origin().as_secs_f64();
        self.written.push_str(&format!("> {at:.3} {line}\n"));
    }

    fn drain(&mut self) {
        while let Some(pending) = self.client.poll_request() {
            self.requests_seen += 1;
            let line = describe::request(self.requests_seen, &pending);
            self.written.push_str(&format!("  {line}\n"));
            match &pending.request {
                Request::UpdateConsumerOffset {
                    queue,
                    commit_offset,
                    ..
                } => self.commits.push((queue.clone(), commit_offset.0)),
                Request::PullMessage(pull) if pull.commit => {
                    let offset = pull.commit_offset.map_or(0, |offset| offset.0);
                    self.commits.push((pull.queue.clone(), offset));
                }
                _ => {}
            }
            if !pending.oneway {
                self.requests.push((self.requests_seen, pending));
            }
        }
        while let Some(pending) = self.client.poll_local_offsets() {
            let line = describe::local_offsets(&pending);
            self.written.push_str(&format!("  {line}\n"));
            self.local_offsets.push(pending);
        }
        while self.calls.len() < self.permits {
            let Some(request) = self.client.poll_consume_request() else {
                break;
            };
            self.calls_seen += 1;
            let line = describe::call(self.calls_seen, &request);
            self.written.push_str(&format!("  {line}\n"));
            self.calls.push((self.calls_seen, request));
        }
        while self.calls.len() + self.runs.len() < self.permits {
            let Some(request) = self.client.poll_pull_task() else {
                break;
            };
            self.calls_seen += 1;
            let (number, queue) = (self.calls_seen, &request.message_queue);
            self.written.push_str(&format!("  run {number}: {queue}\n"));
            self.runs.push((number, request));
        }
        while let Some((_, answer)) = self.client.poll_puller_answer() {
            let answer = describe::puller_answer(&answer);
            self.written
                .push_str(&format!("  the run gets: {answer}\n"));
        }
        while let Some((_, result)) = self.client.poll_send_result() {
            self.written.push_str(&format!("  sent: {result:?}\n"));
        }
        while let Some((_, result)) = self.client.poll_seek_result() {
            self.written.push_str(&format!("  sought: {result:?}\n"));
        }
        while let Some(info) = self.client.poll_running_info() {
            let jstack = if info.jstack { " with stacks" } else { "" };
            let group = &info.consumer_group;
            self.written
                .push_str(&format!("  running info of {group}{jstack}\n"));
            if self.shows_bodies {
                let body = info.encode().body;
                let body = String::from_utf8_lossy(&body);
                self.written.push_str(&format!("    {body}\n"));
            }
        }
        while let Some((_, answer)) = self.client.poll_answer() {
            self.written.push_str(&format!("  answer: {answer:?}\n"));
            if self.shows_bodies && !answer.body.is_empty() {
                let body = String::from_utf8_lossy(&answer.body);
                self.written.push_str(&format!("    {body}\n"));
            }
        }
        while let Some(event) = self.client.poll_event() {
            if self.shows_events {
                self.written.push_str(&format!("  {event:?}\n"));
            }
        }
    }
}

/// A pull answer with messages.
pub fn found(batch: &Arc<MessageBatch>, next: u64) -> Response {
    Response::Pull(PullAnswer {
        status: PullStatus::Found,
        next_begin_offset: QueueOffset(next),
        min_offset: QueueOffset(0),
        max_offset: QueueOffset(next),
        suggest_which_broker_id: 0,
        remark: "FOUND".to_owned(),
        frame_bytes: batch.bytes() as u64,
        batch: Some(Arc::clone(batch)),
    })
}
