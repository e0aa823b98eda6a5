//! One line for each input and output.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use protocol::MessageQueue;

use crate::listener::{ConsumeRequest, MessageRun};
use crate::local_offsets::{LocalOffsetTable, LocalOffsetsWork, PendingLocalOffsets};
use crate::pull_task::{PullerAnswer, QueuePullerError};
use crate::request::{PendingRequest, Request, Response};

/// `#4 -> 10.0.0.1:10911 PullMessage …`
pub(super) fn request(number: usize, pending: &PendingRequest) -> String {
    let oneway = if pending.oneway { " oneway" } else { "" };
    let what = match &pending.request {
        Request::GetRouteInfo { topic } => format!("GetRouteInfo {topic}"),
        Request::HeartBeat { body } => {
            let text = String::from_utf8_lossy(body);
            let groups = text.matches("\"groupName\"").count() - 1;
            format!("HeartBeat of {groups} group(s)")
        }
        Request::CheckClientConfig {
            consumer_group,
            subscription,
            ..
        } => format!(
            "CheckClientConfig {consumer_group}: {} of {}",
            subscription.sub_string, subscription.topic
        ),
        Request::UnregisterClient {
            consumer_group,
            producer_group,
            ..
        } => format!(
            "UnregisterClient {}{}",
            consumer_group.as_deref().unwrap_or("-"),
            if producer_group.is_some() {
                " and producer"
            } else {
                ""
            }
        ),
        Request::GetConsumerListByGroup { consumer_group } => {
            format!("GetConsumerListByGroup {consumer_group}")
        }
        Request::GetConsumerRunningInfo {
            consumer_group,
            client_id,
        } => format!("GetConsumerRunningInfo {consumer_group} of {client_id}"),
        Request::QueryConsumerOffset { queue, .. } => format!("QueryConsumerOffset {queue}"),
        Request::UpdateConsumerOffset {
            queue,
            commit_offset,
            ..
        } => format!("UpdateConsumerOffset {queue} to {commit_offset}"),
        Request::PullMessage(pull) => {
            let commit = match pull.commit_offset {
                Some(offset) if pull.commit => format!(", commits {offset}"),
                _ => String::new(),
            };
            let wanted = match &pull.subscription {
                Some(expression) => format!(", of {expression}"),
                None => String::new(),
            };
            format!(
                "PullMessage {} from {}, at most {}{wanted}{commit}",
                pull.queue, pull.queue_offset, pull.max_msg_nums
            )
        }
        Request::GetMaxOffset { queue } => format!("GetMaxOffset {queue}"),
        Request::GetMinOffset { queue } => format!("GetMinOffset {queue}"),
        Request::SearchOffset {
            queue,
            timestamp_ms,
        } => format!("SearchOffset {queue} at {timestamp_ms} ms"),
        Request::LockBatch { queues, .. } => format!("LockBatch {}", listed(queues)),
        Request::UnlockBatch { queues, .. } => format!("UnlockBatch {}", listed(queues)),
        Request::SendMessageBack(back) => format!(
            "SendMessageBack {} of {} at {}, level {}, at most {}",
            back.message_id,
            back.origin_topic,
            back.commit_log_offset,
            back.delay_level,
            back.max_reconsume_times
        ),
        Request::SendMessage(send) => {
            let header = &send.header;
            let properties = header.properties.as_deref().unwrap_or_default();
            let properties = properties.replace('\u{1}', "=").replace('\u{2}', " ");
            format!(
                "SendMessage {} queue {} of {}, {} bytes, attempt {} of {}, {}",
                header.topic,
                header.queue_id,
                header.broker_name.as_deref().unwrap_or("-"),
                send.body.len(),
                header.reconsume_times.unwrap_or(-1),
                header.max_reconsume_times.unwrap_or(-1),
                properties.trim_end()
            )
        }
    };
    let address = pending.destination.address();
    format!("#{number} -> {address}{oneway} {what}")
}

/// `call 1: T1 0..=31 of T1@broker-a:0`
pub(super) fn call(number: usize, request: &ConsumeRequest) -> String {
    let mut line = format!(
        "call {number}: {} messages of {} from {}:",
        request.len(),
        request.topic,
        request.message_queue
    );
    line.push_str(&runs(&request.runs));
    line
}

fn runs(runs: &[MessageRun]) -> String {
    let mut line = String::new();
    for run in runs {
        let first = run.batch.message(run.range.start).queue_offset();
        let last = run.batch.message(run.range.end - 1).queue_offset();
        let local = match run.local_reconsume_times {
            0 => String::new(),
            times => format!(" (tried {times} more)"),
        };
        if first == last {
            let _ = write!(line, " {first}{local}");
        } else {
            let _ = write!(line, " {first}-{last}{local}");
        }
    }
    line
}

pub(super) fn puller_answer(answer: &Result<PullerAnswer, QueuePullerError>) -> String {
    match answer {
        Ok(PullerAnswer::Pulled(result)) => format!(
            "{:?}, next {}, queue {} to {}, messages:{}",
            result.status,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            runs(&result.runs)
        ),
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("error: {error}"),
    }
}

pub(super) fn response(response: &Response) -> String {
    match response {
        Response::Route(route) => {
            let queues = route
                .queue_datas
                .iter()
                .map(|queue| format!("{} x {}", queue.broker_name, queue.read_queue_nums));
            format!("route {}", queues.collect::<Vec<_>>().join(", "))
        }
        Response::Done => "done".to_owned(),
        Response::ConsumerList(members) => format!("members {}", members.join(", ")),
        Response::Subscriptions(all) => {
            let each = all
                .iter()
                .map(|s| format!("{} of {}", s.sub_string, s.topic));
            format!("reads {}", each.collect::<Vec<_>>().join(", "))
        }
        Response::ConsumerOffset(None) => "no offset".to_owned(),
        Response::ConsumerOffset(Some(offset)) | Response::Offset(offset) => {
            format!("offset {offset}")
        }
        Response::Locked(queues) => format!("locked {}", listed(queues)),
        Response::Pull(answer) => format!(
            "{:?}, {} messages, next {}",
            answer.status,
            answer.batch.as_ref().map_or(0, |batch| batch.len()),
            answer.next_begin_offset
        ),
        Response::Sent(sent) => format!("sent to queue {} at {}", sent.queue_id, sent.queue_offset),
    }
}

fn listed(queues: &BTreeSet<MessageQueue>) -> String {
    let queues: Vec<String> = queues.iter().map(MessageQueue::to_string).collect();
    if queues.is_empty() {
        "nothing".to_owned()
    } else {
        queues.join(", ")
    }
}

/// `store local offsets of G1: T1@broker-a:0 = 5`
pub(super) fn local_offsets(pending: &PendingLocalOffsets) -> String {
    let group = &pending.consumer_group;
    match &pending.work {
        LocalOffsetsWork::Load => format!("load local offsets of {group}"),
        LocalOffsetsWork::Store(offsets) => {
            format!("store local offsets of {group}: {}", table(offsets))
        }
    }
}

pub(super) fn table(offsets: &LocalOffsetTable) -> String {
    let entries = offsets.iter();
    let entries: Vec<String> = entries
        .map(|(q, offset)| format!("{q} = {offset}"))
        .collect();
    if entries.is_empty() {
        "none".to_owned()
    } else {
        entries.join(", ")
    }
}
