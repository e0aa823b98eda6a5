//! Answers as they come over the wire. Runs off the task that owns the rules.

use std::sync::Arc;

use protocol::body::{ConsumerList, ConsumerRunningInfo, LockBatchResponseBody, TopicRouteData};
use protocol::code::response_code;
use protocol::header::{
    GetMaxOffsetResponseHeader, GetMinOffsetResponseHeader, Header, PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader, SearchOffsetResponseHeader, SendMessageResponseHeader,
};
use protocol::message::MessageBatch;
use protocol::message::batch::DecodeLimits;
use protocol::{ExtFields, QueueOffset, RemotingCommand};

use super::{PullAnswer, PullStatus, RequestError, Response, SentMessage};

/// Brokers of one topic that are believed.
const BROKERS_PER_TOPIC_MAX: usize = 4_096;

/// Which answer a request gets; kept by whoever waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expect(Answer);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Route,
    Done,
    ConsumerList,
    Subscriptions,
    ConsumerOffset,
    Pull { body_bytes_max: u32 },
    MaxOffset,
    MinOffset,
    SearchOffset,
    Locked,
    Sent,
}

impl Expect {
    pub(super) fn new(answer: Answer) -> Self {
        Self(answer)
    }

    /// Reads an answer. Costs as much as decoding the messages of a pull.
    ///
    /// # Errors
    /// The peer refused, or the answer is not what it should be.
    pub fn decode(self, command: RemotingCommand) -> Result<Response, RequestError> {
        let accepted = match self.0 {
            Answer::ConsumerOffset if command.code == response_code::QUERY_NOT_FOUND => {
                return Ok(Response::ConsumerOffset(None));
            }
            Answer::Pull { .. } => pull_status(command.code).is_some(),
            // Stored, though not flushed or copied in time.
            Answer::Sent => matches!(
                command.code,
                response_code::SUCCESS
                    | response_code::FLUSH_DISK_TIMEOUT
                    | response_code::SLAVE_NOT_AVAILABLE
                    | response_code::FLUSH_SLAVE_TIMEOUT
            ),
            _ => command.code == response_code::SUCCESS,
        };
        if !accepted {
            return Err(RequestError::Refused {
                code: command.code,
                remark: command.remark.unwrap_or_default(),
            });
        }
        match self.0 {
            Answer::Done => Ok(Response::Done),
            Answer::Route => route(&command),
            Answer::ConsumerList => ConsumerList::decode(&command.body)
                .map(|list| Response::ConsumerList(list.consumer_ids))
                .map_err(malformed),
            Answer::Subscriptions => ConsumerRunningInfo::decode(&command.body)
                .map(|info| Response::Subscriptions(info.subscription_set))
                .map_err(malformed),
            Answer::ConsumerOffset => {
                let header = header::<QueryConsumerOffsetResponseHeader>(&command)?;
                // Java's −1 is "none", whatever the code says.
                Ok(Response::ConsumerOffset(QueueOffset::from_wire(
                    header.offset,
                )))
            }
            Answer::MaxOffset => offset(header::<GetMaxOffsetResponseHeader>(&command)?.offset),
            Answer::MinOffset => offset(header::<GetMinOffsetResponseHeader>(&command)?.offset),
            Answer::SearchOffset => offset(header::<SearchOffsetResponseHeader>(&command)?.offset),
            Answer::Locked => LockBatchResponseBody::decode(&command.body)
                .map(|body| Response::Locked(body.lock_ok_mq_set))
                .map_err(malformed),
            Answer::Pull { body_bytes_max } => decode_pull(command, body_bytes_max),
            Answer::Sent => {
                let header = header::<SendMessageResponseHeader>(&command)?;
                Ok(Response::Sent(SentMessage {
                    queue_id: u32::try_from(header.queue_id)
                        .map_err(|_| negative("queueId", header.queue_id.into()))?,
                    queue_offset: required_offset("queueOffset", header.queue_offset)?,
                    msg_id: header.msg_id,
                }))
            }
        }
    }
}

/// A name server that knows a topic names brokers and queues.
/// RocketMQ: `RouteInfoManager#pickupTopicRouteData`.
fn route(command: &RemotingCommand) -> Result<Response, RequestError> {
    let route = TopicRouteData::decode(&command.body).map_err(malformed)?;
    let (brokers, queues) = (route.broker_datas.len(), route.queue_datas.len());
    if brokers == 0 || queues == 0 {
        return Err(malformed("the route has no broker"));
    }
    if brokers > BROKERS_PER_TOPIC_MAX || queues > BROKERS_PER_TOPIC_MAX {
        return Err(malformed(format_args!(
            "the route has {} brokers, more than {BROKERS_PER_TOPIC_MAX}",
            brokers.max(queues)
        )));
    }
    Ok(Response::Route(Box::new(route)))
}

fn decode_pull(command: RemotingCommand, body_bytes_max: u32) -> Result<Response, RequestError> {
    let Some(status) = pull_status(command.code) else {
        return Err(RequestError::Refused {
            code: command.code,
            remark: command.remark.unwrap_or_default(),
        });
    };
    let header = header::<PullMessageResponseHeader>(&command)?;
    let batch = (status == PullStatus::Found).then(|| {
        let limits = DecodeLimits {
            body_bytes_max: body_bytes_max as usize,
            ..DecodeLimits::default()
        };
        Arc::new(MessageBatch::decode(command.body, &limits))
    });
    let frame_bytes = batch.as_ref().map_or(0, |batch| batch.bytes() as u64);
    Ok(Response::Pull(PullAnswer {
        status,
        next_begin_offset: required_offset("nextBeginOffset", header.next_begin_offset)?,
        min_offset: QueueOffset::from_wire(header.min_offset).unwrap_or_default(),
        max_offset: QueueOffset::from_wire(header.max_offset).unwrap_or_default(),
        suggest_which_broker_id: u64::try_from(header.suggest_which_broker_id).unwrap_or(0),
        remark: command.remark.unwrap_or_default(),
        batch,
        frame_bytes,
    }))
}

fn pull_status(code: i32) -> Option<PullStatus> {
    match code {
        response_code::SUCCESS => Some(PullStatus::Found),
        response_code::PULL_NOT_FOUND => Some(PullStatus::NoNewMessage),
        response_code::PULL_RETRY_IMMEDIATELY => Some(PullStatus::NoMatchedMessage),
        response_code::PULL_OFFSET_MOVED => Some(PullStatus::OffsetIllegal),
        _ => None,
    }
}

fn header<T: Header>(command: &RemotingCommand) -> Result<T, RequestError> {
    let empty = ExtFields::default();
    T::decode(command.ext_fields.as_ref().unwrap_or(&empty)).map_err(malformed)
}

fn offset(value: i64) -> Result<Response, RequestError> {
    required_offset("offset", value).map(Response::Offset)
}

fn required_offset(field: &str, value: i64) -> Result<QueueOffset, RequestError> {
    QueueOffset::from_wire(value).ok_or_else(|| negative(field, value))
}

fn negative(field: &str, value: i64) -> RequestError {
    RequestError::Malformed {
        reason: format!("{field} is {value}"),
    }
}

// By value, as `map_err` wants it.
fn malformed(error: impl std::fmt::Display) -> RequestError {
    RequestError::Malformed {
        reason: error.to_string(),
    }
}
