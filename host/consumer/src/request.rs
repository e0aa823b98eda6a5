//! Typed questions to name servers and brokers, their translation to and from
//! RemotingCommand, and requests that a broker makes of us.
//!
//! The rules say whom to ask ([`Destination`]) and what ([`Request`]). Whoever carries a
//! request keeps its [`Expect`], a small value that turns the answer into a [`Response`]
//! without the rules, so that messages are decoded off the task that owns them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::body::{ConsumerList, TopicRouteData};
use protocol::code::{request_code, response_code};
use protocol::header::{
    ConsumerSendMsgBackRequestHeader, GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader, GetRouteInfoRequestHeader, Header, PullMessageRequestHeader,
    PullMessageResponseHeader, QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader, SearchOffsetResponseHeader, SendMessageRequestHeader,
    SendMessageRequestHeaderV2, SendMessageResponseHeader, UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
};
use protocol::message::MessageBatch;
use protocol::message::batch::DecodeLimits;
use protocol::{Address, ExtFields, MessageQueue, QueueOffset, RemotingCommand};

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
    /// Version of the subscription; the broker must know at least this one.
    pub sub_version: i64,
    /// `TAG` or `SQL92`.
    pub expression_type: &'static str,
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

/// Suspends pulls at the broker. RocketMQ: `PullSysFlag`.
const PULL_SYS_FLAG_COMMIT_OFFSET: i32 = 1;
const PULL_SYS_FLAG_SUSPEND: i32 = 2;

impl Request {
    /// As it goes over the wire, without opaque.
    pub fn to_command(&self) -> RemotingCommand {
        let broker_name = |queue: &MessageQueue| Some(queue.broker_name.to_string());
        let (code, fields) = match self {
            Self::GetRouteInfo { topic } => (
                request_code::GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader {
                    topic: topic.to_string(),
                    accept_standard_json_only: None,
                }
                .encode(),
            ),
            Self::HeartBeat { body } => {
                return RemotingCommand::request(request_code::HEART_BEAT, ExtFields::default())
                    .with_body(body.clone());
            }
            Self::UnregisterClient {
                client_id,
                consumer_group,
                producer_group,
            } => (
                request_code::UNREGISTER_CLIENT,
                UnregisterClientRequestHeader {
                    client_id: client_id.to_string(),
                    producer_group: producer_group.as_deref().map(str::to_owned),
                    consumer_group: consumer_group.as_deref().map(str::to_owned),
                }
                .encode(),
            ),
            Self::GetConsumerListByGroup { consumer_group } => (
                request_code::GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroupRequestHeader {
                    consumer_group: consumer_group.to_string(),
                }
                .encode(),
            ),
            Self::QueryConsumerOffset {
                consumer_group,
                queue,
            } => (
                request_code::QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader {
                    consumer_group: consumer_group.to_string(),
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    set_zero_if_not_found: Some(false),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::UpdateConsumerOffset {
                consumer_group,
                queue,
                commit_offset,
            } => (
                request_code::UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffsetRequestHeader {
                    consumer_group: consumer_group.to_string(),
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    commit_offset: commit_offset.to_wire(),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::PullMessage(pull) => (request_code::PULL_MESSAGE, pull.header().encode()),
            Self::GetMaxOffset { queue } => (
                request_code::GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    committed: None,
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::GetMinOffset { queue } => (
                request_code::GET_MIN_OFFSET,
                GetMinOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::SearchOffset {
                queue,
                timestamp_ms,
            } => (
                request_code::SEARCH_OFFSET_BY_TIMESTAMP,
                SearchOffsetRequestHeader {
                    topic: queue.topic.to_string(),
                    queue_id: to_i32(queue.queue_id),
                    timestamp: i64::try_from(*timestamp_ms).unwrap_or(i64::MAX),
                    boundary_type: None,
                    bname: broker_name(queue),
                }
                .encode(),
            ),
            Self::SendMessageBack(back) => (
                request_code::CONSUMER_SEND_MSG_BACK,
                ConsumerSendMsgBackRequestHeader {
                    offset: i64::try_from(back.commit_log_offset).unwrap_or(i64::MAX),
                    group: back.consumer_group.to_string(),
                    delay_level: back.delay_level,
                    origin_msg_id: Some(back.message_id.clone()),
                    origin_topic: Some(back.origin_topic.to_string()),
                    unit_mode: Some(false),
                    max_reconsume_times: Some(back.max_reconsume_times),
                    bname: Some(back.broker_name.to_string()),
                }
                .encode(),
            ),
            Self::SendMessage(send) => {
                let code = if send.header.batch == Some(true) {
                    request_code::SEND_BATCH_MESSAGE
                } else {
                    request_code::SEND_MESSAGE_V2
                };
                let fields = SendMessageRequestHeaderV2(send.header.clone()).encode();
                return RemotingCommand::request(code, fields).with_body(send.body.clone());
            }
        };
        RemotingCommand::request(code, fields)
    }

    /// How to read the answer.
    pub fn expect(&self) -> Expect {
        Expect(match self {
            Self::GetRouteInfo { .. } => Answer::Route,
            Self::HeartBeat { .. }
            | Self::UnregisterClient { .. }
            | Self::UpdateConsumerOffset { .. }
            | Self::SendMessageBack(_) => Answer::Done,
            Self::GetConsumerListByGroup { .. } => Answer::ConsumerList,
            Self::QueryConsumerOffset { .. } => Answer::ConsumerOffset,
            Self::PullMessage(pull) => Answer::Pull {
                body_bytes_max: pull.body_bytes_max,
            },
            Self::GetMaxOffset { .. } => Answer::MaxOffset,
            Self::GetMinOffset { .. } => Answer::MinOffset,
            Self::SearchOffset { .. } => Answer::SearchOffset,
            Self::SendMessage(_) => Answer::Sent,
        })
    }
}

impl PullMessage {
    fn header(&self) -> PullMessageRequestHeader {
        let mut sys_flag = 0;
        if self.commit {
            sys_flag |= PULL_SYS_FLAG_COMMIT_OFFSET;
        }
        if !self.suspend.is_zero() {
            sys_flag |= PULL_SYS_FLAG_SUSPEND;
        }
        PullMessageRequestHeader {
            consumer_group: self.consumer_group.to_string(),
            topic: self.queue.topic.to_string(),
            queue_id: to_i32(self.queue.queue_id),
            queue_offset: self.queue_offset.to_wire(),
            max_msg_nums: to_i32(self.max_msg_nums),
            sys_flag,
            commit_offset: self.commit_offset.map_or(-1, QueueOffset::to_wire),
            suspend_timeout_millis: i64::try_from(self.suspend.as_millis()).unwrap_or(i64::MAX),
            subscription: None,
            sub_version: self.sub_version,
            expression_type: Some(self.expression_type.to_owned()),
            max_msg_bytes: Some(to_i32(self.max_msg_bytes)),
            request_source: None,
            proxy_froward_client_id: None,
            bname: Some(self.queue.broker_name.to_string()),
        }
    }
}

fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Which answer a request gets; kept by whoever waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expect(Answer);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Route,
    Done,
    ConsumerList,
    ConsumerOffset,
    Pull { body_bytes_max: u32 },
    MaxOffset,
    MinOffset,
    SearchOffset,
    Sent,
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
    /// What the group committed; `None` when it never did.
    ConsumerOffset(Option<QueueOffset>),
    /// Messages, or why there are none.
    Pull(PullAnswer),
    /// An end of a queue, or a point in time.
    Offset(QueueOffset),
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
    /// The code of a refusal.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl Expect {
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
            Answer::Route => TopicRouteData::decode(&command.body)
                .map(|route| Response::Route(Box::new(route)))
                .map_err(malformed),
            Answer::ConsumerList => ConsumerList::decode(&command.body)
                .map(|list| Response::ConsumerList(list.consumer_ids))
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
