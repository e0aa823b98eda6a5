//! 309: an operator wants one message to be consumed now, and to know what comes of it.
//!
//! The message comes with the question. It is handed out like any other work, with a
//! permit and under the listener's own guards, but it belongs to no queue of ours: no
//! offset moves, nothing is sent back, and no attempt counts. Few are under way at once;
//! what found no permit before the broker gave up is not consumed at all.
//!
//! RocketMQ: `ConsumeMessageConcurrentlyService#consumeMessageDirectly`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use protocol::body::{CMResult, ConsumeMessageDirectlyResult};
use protocol::code::response_code;
use protocol::header::ConsumeMessageDirectlyResultRequestHeader;
use protocol::message::MessageBatch;
use protocol::message::batch::DecodeLimits;
use protocol::{Instant, MessageQueue, RemotingCommand};

use super::running_info::unknown_group;
use super::{decode, malformed};
use crate::client::Client;
use crate::epoch::{Epoch, EpochTable};
use crate::event::Event;
use crate::listener::{
    ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeRequestId, ConsumeResult,
    MessageOutcome, MessageRun, OrderlyStatus,
};
use crate::request::ServerRequestId;

/// Calls under way at once.
const UNDER_WAY_MAX: usize = 4;
/// Messages that wait for a permit; more are turned away.
const WAITING_MAX: usize = 16;
/// So long a broker waits for the answer. RocketMQ: `Broker2Client#callClient`.
const BROKER_WAITS: Duration = Duration::from_secs(10);
/// Ids of these calls, so that none is one of a queue's call: generations never come so
/// far.
const ID_BIT: u64 = 1 << 63;

/// What an operator wants to be consumed.
#[derive(Debug, Default)]
pub(crate) struct DirectCalls {
    waiting: VecDeque<Waiting>,
    under_way: EpochTable<UnderWay>,
}

#[derive(Debug)]
struct Waiting {
    question: Question,
    batch: Arc<MessageBatch>,
    topic: Arc<str>,
    queue: MessageQueue,
    asked_at: Instant,
}

#[derive(Debug)]
struct UnderWay {
    question: Question,
    handed_over: Instant,
}

#[derive(Debug)]
struct Question {
    id: ServerRequestId,
    group: Epoch,
    mode: ConsumeMode,
    /// The answer, but for its body.
    response: RemotingCommand,
}

impl Client {
    /// An answer at once only when nothing is consumed.
    pub(super) fn consume_directly(
        &mut self,
        id: ServerRequestId,
        command: &RemotingCommand,
        now: Instant,
    ) -> Option<RemotingCommand> {
        let header = match decode::<ConsumeMessageDirectlyResultRequestHeader>(command) {
            Ok(header) => header,
            Err(error) => return Some(malformed(command, &error)),
        };
        let found = self.group_names.get(header.consumer_group.as_str());
        let found = found.and_then(|&epoch| Some((epoch, self.groups.get(epoch)?)));
        let Some((epoch, group)) = found.filter(|(_, group)| group.life.stays()) else {
            return Some(unknown_group(command, &header.consumer_group));
        };
        let refuse = |code, remark: &str| {
            Some(RemotingCommand::response_to(command, code).with_remark(remark))
        };
        if group.config.pull_task_interval().is_some() {
            let remark = "the group's plugin pulls for itself, it consumes no single message";
            return refuse(response_code::SYSTEM_ERROR, remark);
        }
        let limits = DecodeLimits {
            body_bytes_max: usize::try_from(self.config.body_bytes_max).unwrap_or(usize::MAX),
            ..DecodeLimits::default()
        };
        let batch = Arc::new(MessageBatch::decode(command.body.clone(), &limits));
        if batch.len() != 1 || batch.unreadable().is_some() {
            let remark = "the body of the request is not one stored message";
            return refuse(response_code::SYSTEM_ERROR, remark);
        }
        let message = batch.message(0);
        if let Some(fault) = message.fault() {
            let remark = format!("the message cannot be consumed: {fault}");
            return refuse(response_code::SYSTEM_ERROR, &remark);
        }
        if self.direct_calls.waiting.len() >= WAITING_MAX {
            return refuse(
                response_code::SYSTEM_BUSY,
                "too many messages are to be consumed directly at once, ask again",
            );
        }
        let broker_name = header.broker_name.unwrap_or_default();
        let waiting = Waiting {
            question: Question {
                id,
                group: epoch,
                mode: group.config.mode(),
                response: RemotingCommand::response_to(command, response_code::SUCCESS),
            },
            topic: message.retry_topic().unwrap_or(message.topic()).into(),
            queue: MessageQueue::new(message.topic(), &broker_name, message.queue_id()),
            asked_at: now,
            batch,
        };
        self.direct_calls.waiting.push_back(waiting);
        None
    }

    /// The next of these calls; before those of queues, since somebody waits for it.
    pub(crate) fn next_direct_request(&mut self, now: Instant) -> Option<Arc<ConsumeRequest>> {
        while self.direct_calls.under_way.len() < UNDER_WAY_MAX {
            let waiting = self.direct_calls.waiting.pop_front()?;
            let question = waiting.question;
            let Some(group) = self.groups.get_mut(question.group) else {
                continue;
            };
            if now - waiting.asked_at >= BROKER_WAITS {
                self.answer_without_result(question, "no permit for a call was free in time");
                continue;
            }
            // The group's end waits for it.
            group.calls += 1;
            let (mode, consumer_group) = (question.mode, Arc::clone(&group.name));
            let message_model = group.config.message_model();
            let consume_timeout = group.config.consume_timeout();
            let epoch = self.direct_calls.under_way.insert(UnderWay {
                question,
                handed_over: now,
            });
            let request = ConsumeRequest {
                id: ConsumeRequestId(epoch.to_u64() | ID_BIT),
                consumer_group,
                message_queue: waiting.queue,
                topic: waiting.topic,
                message_model,
                mode,
                runs: vec![MessageRun {
                    batch: waiting.batch,
                    range: 0..1,
                    local_reconsume_times: 0,
                }],
                messages_per_call: 1,
                consume_timeout,
            };
            return Some(Arc::new(self.as_listeners_see_it(request)));
        }
        None
    }

    /// What came of it. False when the id is not of such a call.
    pub(crate) fn consumed_directly(
        &mut self,
        id: ConsumeRequestId,
        result: &ConsumeResult,
        now: Instant,
    ) -> bool {
        if id.0 & ID_BIT == 0 {
            return false;
        }
        let call = self
            .direct_calls
            .under_way
            .remove(Epoch::from_u64(id.0 & !ID_BIT));
        let Some(UnderWay {
            question,
            handed_over,
        }) = call
        else {
            self.events.push_back(Event::StaleConsumeResult {
                consumer_group: None,
            });
            return true;
        };
        let elapsed = now - handed_over;
        let (outcome, remark) = outcome(result);
        let group = question.group;
        if let Some(group) = self.groups.get_mut(group) {
            group.calls -= 1;
            self.events.push_back(Event::ConsumedDirectly {
                consumer_group: Arc::clone(&group.name),
                result: outcome.as_str(),
                elapsed,
            });
        }
        let body = ConsumeMessageDirectlyResult {
            auto_commit: match question.mode {
                ConsumeMode::Concurrently => true,
                ConsumeMode::Orderly { auto_commit } => auto_commit,
            },
            consume_result: Some(outcome),
            order: question.mode != ConsumeMode::Concurrently,
            remark,
            spent_time_mills: i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX),
        };
        let answer = question.response.with_body(body.encode());
        self.answers.push_back((question.id, answer));
        self.group_ready(group);
        self.leave_further(group);
        true
    }

    /// The group leaves: what waits is not consumed.
    pub(crate) fn forget_direct_calls(&mut self, group: Epoch) {
        let waiting = std::mem::take(&mut self.direct_calls.waiting);
        for one in waiting {
            if one.question.group == group {
                self.answer_without_result(one.question, "the group is leaving");
            } else {
                self.direct_calls.waiting.push_back(one);
            }
        }
    }

    fn answer_without_result(&mut self, question: Question, remark: &str) {
        let mut answer = question.response;
        answer.code = response_code::SYSTEM_ERROR;
        self.answers
            .push_back((question.id, answer.with_remark(remark)));
    }
}

/// RocketMQ's word for what the listener said, and more in plain words.
fn outcome(result: &ConsumeResult) -> (CMResult, Option<String>) {
    let later = |delay_level: Option<i32>| match delay_level {
        Some(level) if level < 0 => (CMResult::Later, Some("no further attempt".to_owned())),
        Some(level) if level > 0 => (CMResult::Later, Some(format!("delay level {level}"))),
        _ => (CMResult::Later, None),
    };
    let not_finished = || {
        let remark = "the call was killed before it ended";
        (CMResult::ThrowException, Some(remark.to_owned()))
    };
    match result {
        ConsumeResult::NotFinished => not_finished(),
        ConsumeResult::Failed { reason } => (CMResult::ThrowException, Some(reason.to_string())),
        ConsumeResult::Concurrently(status) => match status {
            ConcurrentlyStatus::ConsumeSuccess { ack_index } if ack_index.unwrap_or(0) >= 0 => {
                (CMResult::Success, None)
            }
            ConcurrentlyStatus::ConsumeSuccess { .. } => later(None),
            ConcurrentlyStatus::ReconsumeLater { delay_level } => later(*delay_level),
            ConcurrentlyStatus::Each(outcomes) => match outcomes.first() {
                Some(MessageOutcome::Done) => (CMResult::Success, None),
                Some(MessageOutcome::ReconsumeLater { delay_level }) => later(*delay_level),
                Some(MessageOutcome::DeadLetter { reason }) => {
                    (CMResult::Later, Some(format!("dead letter: {reason}")))
                }
                Some(MessageOutcome::Failed { reason }) => {
                    (CMResult::ThrowException, Some(reason.to_string()))
                }
                Some(MessageOutcome::NotFinished) => not_finished(),
                None => (CMResult::ReturnNull, None),
            },
        },
        ConsumeResult::Orderly(status) => orderly(status),
        ConsumeResult::OrderlyCalls(calls) => match calls.first() {
            Some(call) => orderly(&call.status),
            None => not_finished(),
        },
    }
}

fn orderly(status: &OrderlyStatus) -> (CMResult, Option<String>) {
    match status {
        OrderlyStatus::Success => (CMResult::Success, None),
        OrderlyStatus::Commit => (CMResult::Commit, None),
        OrderlyStatus::Rollback => (CMResult::Rollback, None),
        OrderlyStatus::SuspendCurrentQueueAMoment { .. } => (CMResult::Later, None),
    }
}
