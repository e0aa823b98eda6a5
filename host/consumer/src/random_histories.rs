//! Random histories: errors, late answers, members that come and go, pauses, failing
//! listeners. In every one of them no offset is committed below which a message is
//! unfinished, none goes back, and when the weather clears every message gets finished.
//!
//! One client here; many clients and brokers are the simulation's business. A failure
//! names its seed: put it into `SEEDS` of the test to run it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::subscription::SubscriptionData;
use protocol::{MessageQueue, QueueOffset};

use crate::client::GroupId;
use crate::config::{ConsumeFromWhere, GroupConfig};
use crate::listener::{ConcurrentlyStatus, ConsumeRequest, ConsumeResult, MessageOutcome};
use crate::pause::{PauseKind, PauseScope};
use crate::request::{PullMessage, PullStatus, Request, RequestError, Response};
use crate::testing::{CLIENT_ID, Cluster, Harness, TestMessage, batch, found, refused};

#[test]
fn no_history_commits_beyond_an_unfinished_message_or_loses_one() {
    for seed in 0..300 {
        World::new(seed).run();
    }
}

struct World {
    seed: u64,
    t: Harness,
    random: fastrand::Rng,
    group: GroupId,
    /// Messages of each queue.
    log: BTreeMap<MessageQueue, u64>,
    /// Those that a listener or the broker took over.
    finished: BTreeMap<MessageQueue, BTreeSet<u64>>,
    paused: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut t = Harness::new(|config| {
            config.buffer_bytes = 2_000;
            config.send_backs_max = 3;
        });
        t.topic("T1", &[("broker-a", 2), ("broker-b", 1)]);
        let config = GroupConfig::builder("G1")
            .subscription(SubscriptionData::all("T1"))
            .consume_from_where(ConsumeFromWhere::FirstOffset)
            .consume_message_batch_max_size(random.u32(1..6))
            .consume_thread_max(random.u32(1..5))
            .pull_batch_size(random.u32(1..9))
            .pull_threshold_for_queue(random.u32(3..20))
            .build();
        let group = t.subscribe(config.expect("a valid group"));
        Self {
            seed,
            t,
            random,
            group,
            log: BTreeMap::new(),
            finished: BTreeMap::new(),
            paused: false,
        }
    }

    fn run(mut self) {
        for _ in 0..150 {
            self.step();
            self.check_commits();
        }
        self.clear_up();
        let now_stops = "stop";
        self.t.does(now_stops, |client, now| client.stop(now));
        for _ in 0..20 {
            self.answer_all();
        }
        let stopped = self.t.client.is_stopped();
        self.claim(stopped, "the client did not stop");
    }

    fn step(&mut self) {
        match self.random.u32(0..20) {
            0..=7 => self.answer_one(false),
            8..=11 => self.end_call(false),
            12..=13 => {
                let millis = self.random.u64(0..1500);
                self.t.wait(Duration::from_millis(millis));
            }
            14..=15 => {
                let ids = [("broker-a", 0), ("broker-a", 1), ("broker-b", 0)];
                let (broker, id) = ids[self.random.usize(..3)];
                *self
                    .log
                    .entry(MessageQueue::new("T1", broker, id))
                    .or_default() += self.random.u64(1..6);
            }
            16 => {
                let others = ["10.0.0.1@1#a", "zz"];
                let count = self.random.usize(..3);
                let mut members: Vec<String> =
                    others[..count].iter().map(|&id| id.to_owned()).collect();
                if self.random.u32(0..8) > 0 {
                    members.push(CLIENT_ID.to_owned());
                }
                self.t.cluster.members = members;
                self.t.notify_members_changed("G1");
            }
            17 => {
                let broker = Cluster::address(["broker-a", "broker-b"][self.random.usize(..2)]);
                if self.random.bool() {
                    self.t.does("disconnected", |client, now| {
                        client.handle_disconnected(&broker, now);
                    });
                } else {
                    self.t.does("connected", |client, now| {
                        client.handle_connected(&broker, now);
                    });
                }
            }
            18 => {
                let group = self.group;
                self.paused = !self.paused;
                let paused = self.paused;
                self.t.does("pause or resume", |client, now| {
                    if paused {
                        let by = "somebody".into();
                        client.pause(group, &PauseScope::Group, PauseKind::Pause, &by, now)
                    } else {
                        client.resume(group, &PauseScope::Group, now)
                    }
                    .expect("a group that is there");
                });
            }
            _ => self.t.permits = self.random.usize(1..8),
        }
    }

    /// From here on everything goes well.
    fn clear_up(&mut self) {
        self.t.cluster.members = vec![CLIENT_ID.to_owned()];
        self.t.permits = usize::MAX;
        let group = self.group;
        self.t.does("resume", |client, now| {
            // Not paused is as good.
            client.resume(group, &PauseScope::Group, now).ok()
        });
        self.t.notify_members_changed("G1");
        for _ in 0..400 {
            self.answer_all();
            while self.t.calls().next().is_some() {
                self.end_call(true);
            }
            self.check_commits();
            let done = self.log.iter().all(|(queue, end)| {
                let finished = self.finished.get(queue);
                finished.map_or(0, BTreeSet::len) as u64 == *end
                    && self.t.cluster.committed.get(queue).copied().unwrap_or(0) == *end
            });
            if done {
                return;
            }
            self.t.wait(Duration::from_millis(500));
        }
        self.claim(false, "not every message was finished and committed");
    }

    fn answer_all(&mut self) {
        for _ in 0..self.t.open_requests().len() {
            self.answer_one(true);
        }
    }

    /// Answers an open request, well or badly.
    fn answer_one(&mut self, well: bool) {
        let open = self.t.open_requests();
        if open.is_empty() {
            return;
        }
        let index = if well {
            0
        } else {
            self.random.usize(..open.len())
        };
        let number = open[index].split_once(' ').expect("a number").0.to_owned() + " ";
        let request = self.t.request(&number).request.clone();
        if !well && self.random.u32(0..4) == 0 {
            let error = self.error();
            self.t.answer(&number, Err(error));
            return;
        }
        let answer = match &request {
            Request::PullMessage(pull) => self.serve_pull(pull),
            Request::SendMessageBack(back) => {
                self.finish_by_id(&back.message_id);
                Ok(Response::Done)
            }
            Request::SendMessage(send) => {
                let properties = send.header.properties.clone().unwrap_or_default();
                self.finish_by_id(&properties);
                self.t.cluster.healthy(&request)
            }
            other => self.t.cluster.healthy(other),
        };
        self.t.answer(&number, answer);
    }

    fn error(&mut self) -> RequestError {
        let codes = [1, 2, 13, 16, 17, 24, 25, 26, 215, 1500];
        match self.random.u32(0..4) {
            0 => RequestError::Timeout,
            1 => RequestError::Unreachable {
                reason: "down".to_owned(),
            },
            2 => RequestError::Disconnected {
                reason: "reset".to_owned(),
            },
            _ => refused(codes[self.random.usize(..codes.len())], "no"),
        }
    }

    fn serve_pull(&mut self, pull: &PullMessage) -> Result<Response, RequestError> {
        let end = self.log.get(&pull.queue).copied().unwrap_or(0);
        let from = pull.queue_offset.0;
        self.claim(from <= end, "pulled beyond the end");
        let until = end.min(from + self.random.u64(1..=u64::from(pull.max_msg_nums)));
        let mut answer = found(&batch(&[]), from);
        if let Response::Pull(answer) = &mut answer {
            answer.next_begin_offset = QueueOffset(until);
            if from == until {
                answer.status = PullStatus::NoNewMessage;
                answer.batch = None;
            } else {
                let id = |offset| format!("{}/{offset}", pull.queue);
                let messages: Vec<_> = (from..until)
                    .map(|offset| {
                        let mut message = TestMessage::new(&pull.queue.topic, offset);
                        message.properties[0].1 = id(offset);
                        message
                    })
                    .collect();
                let batch = batch(&messages);
                answer.frame_bytes = batch.bytes() as u64;
                answer.batch = Some(batch);
            }
        }
        Ok(answer)
    }

    /// The listener's answer to some call.
    fn end_call(&mut self, well: bool) {
        let calls: Vec<_> = self.t.numbered_calls().collect();
        if calls.is_empty() {
            return;
        }
        let (number, request) = &calls[self.random.usize(..calls.len())];
        let count = request.len();
        let result = if well {
            ConcurrentlyStatus::ConsumeSuccess { ack_index: None }
        } else {
            match self.random.u32(0..6) {
                0 => ConcurrentlyStatus::ReconsumeLater { delay_level: None },
                1 => ConcurrentlyStatus::ConsumeSuccess {
                    ack_index: Some(self.random.i32(-2..8)),
                },
                2 => ConcurrentlyStatus::Each((0..count).map(|_| self.outcome()).collect()),
                _ => ConcurrentlyStatus::ConsumeSuccess { ack_index: None },
            }
        };
        // What the listener says is done, is.
        for (index, message) in request.iter().enumerate() {
            let done = match &result {
                ConcurrentlyStatus::ConsumeSuccess { ack_index } => {
                    ack_index.is_none_or(|ack| i64::from(ack) >= index as i64)
                }
                ConcurrentlyStatus::ReconsumeLater { .. } => false,
                ConcurrentlyStatus::Each(outcomes) => outcomes[index] == MessageOutcome::Done,
            };
            if done {
                let offset = message.message.queue_offset().0;
                let queue = request.message_queue.clone();
                self.finished.entry(queue).or_default().insert(offset);
            }
        }
        let result = if !well && self.random.u32(0..10) == 0 && !is_done(request, &self.finished) {
            ConsumeResult::NotFinished
        } else {
            ConsumeResult::Concurrently(result)
        };
        self.t.result(*number, result);
    }

    fn outcome(&mut self) -> MessageOutcome {
        match self.random.u32(0..5) {
            0 => MessageOutcome::ReconsumeLater { delay_level: None },
            1 => MessageOutcome::DeadLetter {
                reason: "bad".into(),
            },
            2 => MessageOutcome::NotFinished,
            _ => MessageOutcome::Done,
        }
    }

    /// Message ids name queue and offset.
    fn finish_by_id(&mut self, text: &str) {
        for (queue, &end) in &self.log {
            for offset in 0..end {
                let id = format!("{queue}/{offset}");
                if text == id || text.contains(&format!("{id}\u{2}")) {
                    let finished = self.finished.entry(queue.clone()).or_default();
                    finished.insert(offset);
                }
            }
        }
    }

    /// Looks at every commit that was put out since the last look.
    fn check_commits(&mut self) {
        for (queue, offset) in self.t.take_commits() {
            let finished = self.finished.get(&queue);
            let below = (0..offset).all(|o| finished.is_some_and(|f| f.contains(&o)));
            self.claim(below, &format!("{queue} committed {offset} too early"));
            let before = self.t.cluster.committed.get(&queue).copied().unwrap_or(0);
            self.claim(
                offset >= before,
                &format!("{queue} went back from {before} to {offset}"),
            );
            self.t.cluster.committed.insert(queue, offset);
        }
    }

    fn claim(&self, holds: bool, what: &str) {
        assert!(holds, "seed {}: {what}\n{}", self.seed, self.t.transcript());
    }
}

fn is_done(request: &ConsumeRequest, finished: &BTreeMap<MessageQueue, BTreeSet<u64>>) -> bool {
    let finished = finished.get(&request.message_queue);
    request
        .iter()
        .any(|message| finished.is_some_and(|f| f.contains(&message.message.queue_offset().0)))
}
