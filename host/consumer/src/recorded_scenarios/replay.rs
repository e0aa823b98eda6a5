//! Plays the broker of a recording to a client of ours.
//!
//! Questions about a state (routes, members, offsets) get what was last answered by that
//! time; pulls and send-backs get their answers in order, not before they were given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::code::{request_code, response_code};
use protocol::{Address, ExtFields, Instant, MessageQueue, QueueOffset, RemotingCommand};
use serde_json::Value;

use super::recording::{Place, Recording};
use super::{Act, Scenario};
use crate::SeekForward;
use crate::client::{Client, GroupId};
use crate::config::ClientConfig;
use crate::listener::{ConcurrentlyStatus, ConsumeRequestId, ConsumeResult};
use crate::local_offsets::{LoadedOffsets, LocalOffsetTable, LocalOffsetsSource, LocalOffsetsWork};
use crate::pull_task::{
    PullTaskId, PullTaskResult, PullerRequest, PullerRequestId, QueuePull, QueuePullerError,
};
use crate::request::{
    Destination, Expect, RequestError, RequestId, ServerRequest, ServerRequestId,
};

/// After its stop a client is given so long.
const PATIENCE: u64 = 40_000;
/// An answer that Java got so shortly after is what we would have got: we are quicker to ask.
const NEAR: u64 = 500;
/// Header fields that are not compared: one says what kind of client asks (`ReqT`), others
/// differ between any two runs, or carry a progress that is compared as a whole. `g` and
/// `i` are those of a send: its time, and its properties with ids of the client's own.
const NOT_COMPARED: [&str; 6] = ["ReqT", "subVersion", "commitOffset", "sysFlag", "g", "i"];

/// A request of either side.
#[derive(Debug)]
pub(super) struct Asked {
    at: u64,
    command: RemotingCommand,
}

impl Asked {
    pub(super) fn new(at: u64, command: RemotingCommand) -> Self {
        Self { at, command }
    }

    pub(super) fn code(&self) -> i32 {
        self.command.code
    }

    fn field(&self, name: &str) -> &str {
        self.command.ext_field(name).unwrap_or_default()
    }

    /// As texts, without what differs between any two runs: one for each queue of a
    /// request about locks, else one.
    pub(super) fn forms(&self) -> Vec<String> {
        let is_lock = matches!(
            self.code(),
            request_code::LOCK_BATCH_MQ | request_code::UNLOCK_BATCH_MQ
        );
        if !is_lock {
            return vec![self.form()];
        }
        let queues = locked_queues(&self.command);
        let queues = queues.as_array().expect("a list of queues").iter();
        let form =
            |queue: &Value| format!("{} {}:{}", self.code(), queue["topic"], queue["queueId"]);
        queues.map(form).collect()
    }

    fn form(&self) -> String {
        let code = self.code();
        if code == request_code::HEART_BEAT {
            return format!("heartbeat {}", heartbeat_form(&self.command));
        }
        let fields = self.command.ext_fields.iter().flat_map(ExtFields::iter);
        let fields: BTreeMap<&str, &str> = fields
            .filter_map(|(name, value)| Some((name, value?)))
            .filter(|(name, _)| !NOT_COMPARED.contains(name))
            .collect();
        let mut text: Vec<String> = fields
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if matches!(
            code,
            request_code::PULL_MESSAGE | request_code::LITE_PULL_MESSAGE
        ) {
            let flag: i32 = self.field("sysFlag").parse().unwrap_or_default();
            text.push(format!("sysFlag without commit={}", flag & !1));
        }
        let oneway = if self.command.is_oneway() {
            " oneway"
        } else {
            ""
        };
        format!("{code}{oneway} {}", text.join(" "))
    }

    /// The queue and offset that it commits.
    pub(super) fn commit(&self) -> Option<(String, String)> {
        let commits = match self.code() {
            request_code::UPDATE_CONSUMER_OFFSET => true,
            request_code::PULL_MESSAGE | request_code::LITE_PULL_MESSAGE => {
                let flag: i32 = self.field("sysFlag").parse().unwrap_or_default();
                flag & 1 == 1
            }
            _ => false,
        };
        commits.then(|| {
            let queue = format!("{}:{}", self.field("topic"), self.field("queueId"));
            (queue, self.field("commitOffset").to_owned())
        })
    }

    /// What makes two requests the same question.
    fn question(&self) -> (i32, String) {
        let code = match self.code() {
            // The same question under another code.
            request_code::LITE_PULL_MESSAGE => request_code::PULL_MESSAGE,
            code => code,
        };
        let names: &[&str] = match code {
            request_code::PULL_MESSAGE => &["topic", "queueId", "queueOffset"],
            request_code::CONSUMER_SEND_MSG_BACK => &["offset"],
            request_code::SEARCH_OFFSET_BY_TIMESTAMP => &["topic", "queueId", "timestamp"],
            request_code::HEART_BEAT | request_code::UNREGISTER_CLIENT => &[],
            _ => &["topic", "queueId", "consumerGroup"],
        };
        let values: Vec<&str> = names.iter().map(|name| self.field(name)).collect();
        (code, values.join(" "))
    }
}

/// The queues that a request about locks names.
fn locked_queues(command: &RemotingCommand) -> Value {
    let body: Value = serde_json::from_slice(&command.body).expect("a request of locks is JSON");
    body["mqSet"].clone()
}

/// Groups, subscriptions and senders, versions left out.
fn heartbeat_form(command: &RemotingCommand) -> String {
    let mut body: Value = serde_json::from_slice(&command.body).expect("a heartbeat is JSON");
    for group in body["consumerDataSet"].as_array_mut().into_iter().flatten() {
        let subscriptions = group["subscriptionDataSet"].as_array_mut().expect("a list");
        for subscription in subscriptions.iter_mut() {
            let members = subscription.as_object_mut().expect("an object");
            members.remove("subVersion");
            for set in ["tagsSet", "codeSet"] {
                let set = members.get_mut(set).and_then(Value::as_array_mut);
                set.expect("a list").sort_by_key(Value::to_string);
            }
        }
        subscriptions.sort_by_key(|subscription| subscription["topic"].to_string());
    }
    body.to_string()
}

/// What is to happen to our client.
enum Happening {
    Answer(RequestId, Result<RemotingCommand, RequestError>, Expect),
    Told(RemotingCommand),
    Result(ConsumeRequestId, ConsumeResult),
    Act(Act),
    Stop,
}

struct Player<'a> {
    recording: &'a Recording,
    client: Client,
    now: u64,
    agenda: BTreeMap<(u64, usize), Happening>,
    happenings: usize,
    asked: Vec<Asked>,
    /// What a broadcasting group has on its disk.
    stored: BTreeMap<MessageQueue, u64>,
    /// Recorded answers that were given: pulls and send-backs have each one once.
    given: BTreeSet<usize>,
    returned: BTreeMap<Place, usize>,
    group: GroupId,
    /// What is left for the guest of each queue to ask.
    guests: BTreeMap<u32, VecDeque<PullerRequest>>,
    runs: BTreeMap<PullTaskId, u32>,
    asked_by: BTreeMap<PullerRequestId, PullTaskId>,
}

/// Everything that our client asks.
pub(super) fn replay(scenario: &Scenario, recording: &Recording) -> Vec<Asked> {
    let namesrv: Address = recording.namesrv.parse().expect("an address");
    let config = ClientConfig::new(scenario.client_id, vec![namesrv]);
    let mut client = Client::new(
        config,
        1,
        Instant::ORIGIN,
        Duration::from_secs(1_796_035_335),
    );
    let start = recording.asked[0].at;
    let now = Instant::after_origin(Duration::from_millis(start));
    let group = client.subscribe(recording.group.clone(), now);
    let mut player = Player {
        recording,
        client,
        now: start,
        agenda: BTreeMap::new(),
        happenings: 0,
        asked: Vec::new(),
        stored: BTreeMap::new(),
        given: BTreeSet::new(),
        returned: BTreeMap::new(),
        group: group.expect("a group that can be subscribed"),
        guests: guests(recording),
        runs: BTreeMap::new(),
        asked_by: BTreeMap::new(),
    };
    for (at, act) in scenario.acts {
        player.plan(*at, Happening::Act(*act));
    }
    for (at, command) in &recording.told {
        player.plan(*at, Happening::Told(command.clone()));
    }
    player.plan(scenario.stop_at, Happening::Stop);
    player.play(scenario.stop_at + PATIENCE);
    assert!(player.client.is_stopped(), "{} stops", scenario.file);
    assert_eq!(
        player.stored, recording.stored,
        "{}: offsets of a broadcasting group",
        scenario.file
    );
    player.asked
}

/// What Java's application asked of each queue, in order, as far as a guest can ask it.
fn guests(recording: &Recording) -> BTreeMap<u32, VecDeque<PullerRequest>> {
    let mut guests: BTreeMap<u32, VecDeque<PullerRequest>> = BTreeMap::new();
    if recording.group.pull_task_interval().is_none() {
        return guests;
    }
    for asked in &recording.asked {
        let number = |name: &str| asked.field(name).parse::<u64>().unwrap_or_default();
        let offset = |name: &str| QueueOffset(number(name));
        let request = match asked.code() {
            request_code::QUERY_CONSUMER_OFFSET => PullerRequest::FetchConsumeOffset,
            request_code::GET_MIN_OFFSET => PullerRequest::MinOffset,
            request_code::GET_MAX_OFFSET => PullerRequest::MaxOffset,
            request_code::SEARCH_OFFSET_BY_TIMESTAMP => PullerRequest::SearchOffset {
                timestamp_ms: number("timestamp"),
            },
            request_code::PULL_MESSAGE => PullerRequest::Pull(QueuePull {
                sub_expression: asked.field("subscription").to_owned(),
                offset: offset("queueOffset"),
                max_messages: u32::try_from(number("maxMsgNums")).unwrap_or(1),
            }),
            request_code::UPDATE_CONSUMER_OFFSET => {
                PullerRequest::UpdateConsumeOffset(offset("commitOffset"))
            }
            _ => continue,
        };
        let is_offered = asked.code() != request_code::PULL_MESSAGE
            || asked.field("expressionType") == "TAG"
                && asked.field("topic") == "T_pull"
                && number("sysFlag") & 2 == 0;
        let queue = u32::try_from(number("queueId")).unwrap_or_default();
        if is_offered && queue < 2 {
            guests.entry(queue).or_default().push_back(request);
        }
    }
    guests
}

impl Player<'_> {
    fn instant(&self) -> Instant {
        Instant::after_origin(Duration::from_millis(self.now))
    }

    fn plan(&mut self, at: u64, happening: Happening) {
        self.happenings += 1;
        self.agenda.insert((at, self.happenings), happening);
    }

    fn play(&mut self, end: u64) {
        self.drain();
        while !self.client.is_stopped() {
            let planned = self.agenda.keys().next().map(|&(at, _)| at);
            let timer = self.client.poll_timeout().map(|at| {
                // Rounded up: a timer is never looked at too early.
                let micros = at.since_origin().as_micros();
                u64::try_from(micros.div_ceil(1000)).expect("a short time")
            });
            let Some(next) = planned.into_iter().chain(timer).min() else {
                return;
            };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            let now = self.instant();
            if planned == Some(next) {
                let (_, happening) = self.agenda.pop_first().expect("looked at above");
                self.happen(happening, now);
            } else {
                self.client.handle_timeout(now);
            }
            self.drain();
        }
    }

    fn happen(&mut self, happening: Happening, now: Instant) {
        match happening {
            Happening::Answer(id, answer, expect) => {
                let result = answer.and_then(|command| expect.decode(command));
                self.client.handle_response(id, result, now);
            }
            Happening::Told(command) => {
                let request = ServerRequest {
                    id: ServerRequestId(0),
                    from: self.recording.broker.parse().expect("an address"),
                    command,
                };
                self.client.handle_server_request(request, now);
            }
            Happening::Result(id, result) => self.client.handle_consume_result(id, result, now),
            Happening::Act(Act::Seek {
                topic,
                queue_id,
                to,
            }) => {
                let queue = MessageQueue::new(topic, "broker-a", queue_id);
                let group = self.group;
                self.client.seek(group, &queue, to, SeekForward::Skips, now);
            }
            Happening::Stop => self.client.stop(now),
        }
    }

    fn drain(&mut self) {
        while let Some(pending) = self.client.poll_request() {
            let mut command = pending.request.to_command();
            if pending.oneway {
                command = command.oneway();
            }
            let asked = Asked::new(self.now, command);
            if !pending.oneway {
                let (at, answer) = self.answer(&asked, &pending.destination, pending.timeout);
                let answer = Happening::Answer(pending.id, answer, pending.request.expect());
                self.plan(at, answer);
            }
            self.asked.push(asked);
        }
        while let Some(request) = self.client.poll_consume_request() {
            let first = request.iter().next().expect("a call has messages");
            let place = (
                request.message_queue.topic.to_string(),
                request.message_queue.queue_id,
                first.message.queue_offset().0,
            );
            let result = self.result(&place);
            self.plan(self.now + 1, Happening::Result(request.id, result));
        }
        while let Some(request) = self.client.poll_pull_task() {
            let queue = request.message_queue.queue_id;
            self.runs.insert(request.id, queue);
            self.guest_goes_on(request.id);
        }
        while let Some((asked, answer)) = self.client.poll_puller_answer() {
            assert!(
                !matches!(answer, Err(QueuePullerError::Released)),
                "a guest is asked of a queue of ours"
            );
            let run = self.asked_by.remove(&asked).expect("a run that asked");
            self.guest_goes_on(run);
        }
        self.do_local_offsets();
        while self.client.poll_event().is_some() {}
        while self.client.poll_answer().is_some() {}
    }

    /// The guest asks the next thing that Java's application asked, or returns.
    fn guest_goes_on(&mut self, run: PullTaskId) {
        let now = self.instant();
        let left = self.guests.get_mut(&self.runs[&run]);
        if let Some(request) = left.and_then(VecDeque::pop_front) {
            let asked = self.client.ask_queue(run, request, now);
            self.asked_by.insert(asked, run);
        } else {
            let after = Some(Duration::from_secs(60));
            let result = PullTaskResult::NextRun { after };
            self.client.handle_pull_task_result(run, result, now);
        }
        self.drain();
    }

    /// A disk that nobody has used before.
    fn do_local_offsets(&mut self) {
        let now = self.instant();
        while let Some(pending) = self.client.poll_local_offsets() {
            match pending.work {
                LocalOffsetsWork::Load => {
                    let nothing = LoadedOffsets {
                        offsets: LocalOffsetTable::default(),
                        source: LocalOffsetsSource::Nothing,
                    };
                    self.client
                        .handle_local_offsets_loaded(pending.id, Ok(nothing), now);
                }
                LocalOffsetsWork::Store(offsets) => {
                    self.stored = offsets.iter().map(|(q, o)| (q.clone(), o.0)).collect();
                    self.client
                        .handle_local_offsets_stored(pending.id, Ok(()), now);
                }
            }
            self.drain();
        }
    }

    /// What the recorded listener returned; whatever Java never delivered is done.
    fn result(&mut self, place: &Place) -> ConsumeResult {
        let times = self.returned.entry(place.clone()).or_default();
        let results = self.recording.returns.get(place);
        let result = results.and_then(|results| results.get(*times));
        *times += 1;
        result.cloned().unwrap_or(ConsumeResult::Concurrently(
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None },
        ))
    }

    /// When and how a request is answered.
    fn answer(
        &mut self,
        asked: &Asked,
        destination: &Destination,
        timeout: Duration,
    ) -> (u64, Result<RemotingCommand, RequestError>) {
        let question = asked.question();
        if asked.code() == request_code::LOCK_BATCH_MQ {
            // Java asks queue by queue, and got each.
            let body = format!("{{\"lockOKMQSet\":{}}}", locked_queues(&asked.command));
            let answer = RemotingCommand::response_to(&asked.command, 0).with_body(body);
            return (self.now + 1, Ok(answer));
        }
        let recorded = &self.recording;
        let same = recorded.answers.keys().copied().filter(|&index| {
            let java = &recorded.asked[index];
            java.question() == question
        });
        let soon = self.now + 1;
        let has_turn = matches!(
            asked.code(),
            request_code::PULL_MESSAGE | request_code::CONSUMER_SEND_MSG_BACK
        );
        let chosen = if has_turn {
            same.into_iter().find(|index| !self.given.contains(index))
        } else {
            let all: Vec<usize> = same.collect();
            let known = soon + NEAR;
            let by_now = all.iter().rev().find(|&&i| recorded.answers[&i].0 <= known);
            by_now.or(all.first()).copied()
        };
        if let Some(index) = chosen {
            let (at, command) = &recorded.answers[&index];
            self.given.insert(index);
            let at = if asked.code() == request_code::PULL_MESSAGE {
                soon.max(*at)
            } else {
                soon
            };
            return (at, Ok(command.clone()));
        }
        // Java did not ask, or not to be answered.
        let fields = |name: &str, value: &str| {
            let mut fields = ExtFields::default();
            fields.set(name, Some(value));
            fields
        };
        let success = RemotingCommand::response_to(&asked.command, 0);
        match asked.code() {
            request_code::UPDATE_CONSUMER_OFFSET | request_code::UNLOCK_BATCH_MQ => {
                (soon, Ok(success))
            }
            request_code::GET_MIN_OFFSET => {
                (soon, Ok(success.with_ext_fields(fields("offset", "0"))))
            }
            request_code::GET_ROUTEINFO_BY_TOPIC if asked.field("topic").starts_with('%') => {
                let none = response_code::TOPIC_NOT_EXIST;
                (soon, Ok(RemotingCommand::response_to(&asked.command, none)))
            }
            request_code::GET_CONSUMER_RUNNING_INFO => {
                let offline = response_code::SYSTEM_ERROR;
                (
                    soon,
                    Ok(RemotingCommand::response_to(&asked.command, offline)),
                )
            }
            request_code::PULL_MESSAGE => {
                let timeout = u64::try_from(timeout.as_millis()).expect("a short time");
                (self.now + timeout, Err(RequestError::Timeout))
            }
            code => panic!(
                "{destination:?} was never asked {code} {:?} by Java: say in replay.rs what it answers",
                asked.command.ext_fields
            ),
        }
    }
}
