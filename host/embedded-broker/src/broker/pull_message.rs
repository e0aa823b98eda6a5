//! PULL_MESSAGE and LITE_PULL_MESSAGE: checks, reading, and waiting for a message.
//!
//! A pull that found nothing may wait; when it wakes it runs again from the start, but
//! commits nothing and waits no more. RocketMQ: `PullMessageProcessor`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::code::response_code;
use protocol::header::{Header, PullMessageRequestHeader, PullMessageResponseHeader};
use protocol::subscription::{ExpressionType, SubscriptionData};
use protocol::sys_flag::PullSysFlag;
use protocol::{ExtFields, Instant, RemotingCommand};

use super::{Broker, FAQ, Refusal, header, queue_id};
use crate::connection_id::ConnectionId;
use crate::event::Event;
use crate::long_poll::HeldPull;
use crate::message_store::{ReadLimits, ReadResult, ReadStatus};
use crate::offsets::Commit;

/// What a pull may still do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// Commit, and wait.
    First,
    /// Neither: it waited already.
    Woken,
}

/// A pull that passed its checks.
struct Checked {
    header: PullMessageRequestHeader,
    queue_id: u32,
    filter: Arc<SubscriptionData>,
}

impl Broker {
    pub(super) fn pull_message(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        now: Instant,
    ) {
        self.pull(connection, request, Attempt::First, now);
    }

    /// Runs the pulls again that wait for what was just stored. That stores nothing.
    pub(super) fn wake_arrived_pulls(&mut self, now: Instant) {
        for arrival in std::mem::take(&mut self.arrivals) {
            let woken = self.long_poll.take_arrived(
                &arrival.topic,
                arrival.queue_id,
                arrival.queue_offset + 1,
                arrival.tags_code,
            );
            for pull in woken {
                self.pull(pull.connection, pull.request, Attempt::Woken, now);
            }
        }
    }

    /// Runs the pulls again whose time is up, or whose filter kept them asleep.
    pub(super) fn wake_due_pulls(&mut self, now: Instant) {
        let store = &self.store;
        let woken = self
            .long_poll
            .take_due(now, |topic, queue_id| store.max_offset(topic, queue_id));
        for pull in woken {
            self.pull(pull.connection, pull.request, Attempt::Woken, now);
        }
    }

    fn pull(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        attempt: Attempt,
        now: Instant,
    ) {
        let checked = match self.check_pull(connection, &request) {
            Ok(checked) => checked,
            Err(refusal) => {
                let response = refusal
                    .response(&request)
                    .with_ext_fields(ExtFields::default());
                self.respond(connection, &request, response);
                return;
            }
        };
        let Checked {
            header, queue_id, ..
        } = &checked;
        let flag = PullSysFlag(header.sys_flag);
        let reset = self
            .offsets
            .take_reset(&header.consumer_group, &header.topic, *queue_id);
        let limits = ReadLimits {
            messages: u32::try_from(header.max_msg_nums)
                .unwrap_or(0)
                .min(self.config.pull_messages_max),
            bytes: self.config.pull_bytes_max,
        };
        let result = self.store.read(
            &header.topic,
            *queue_id,
            header.queue_offset,
            limits,
            |tags_code| checked.filter.matches_code(tags_code),
        );
        let code = match reset {
            Some(_) => response_code::PULL_OFFSET_MOVED,
            None => code_of(result.status, header.queue_offset),
        };
        let may_wait = code == response_code::PULL_NOT_FOUND
            && attempt == Attempt::First
            && flag.contains(PullSysFlag::SUSPEND)
            && !request.is_oneway();
        if attempt == Attempt::First && flag.contains(PullSysFlag::COMMIT_OFFSET) {
            self.commit_offset(
                &header.consumer_group,
                &header.topic,
                *queue_id,
                header.commit_offset,
            );
        }
        if may_wait && !self.is_long_poll_full() {
            self.hold(connection, request, checked, now);
            return;
        }
        let response = pull_response(&request, code, result, reset);
        self.respond(connection, &request, response);
    }

    fn check_pull(
        &mut self,
        connection: ConnectionId,
        request: &RemotingCommand,
    ) -> Result<Checked, Refusal> {
        let header: PullMessageRequestHeader = header(request)?;
        if self.groups.find_config(&header.consumer_group).is_none() {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_GROUP_NOT_EXIST,
                format!(
                    "subscription group [{}] does not exist, {FAQ}",
                    header.consumer_group
                ),
            ));
        }
        let Some(topic) = self.topics.get(&header.topic) else {
            return Err(Refusal::new(
                response_code::TOPIC_NOT_EXIST,
                format!(
                    "topic[{}] not exist, apply first please! {FAQ}",
                    header.topic
                ),
            ));
        };
        if !topic.perm.is_readable() {
            return Err(Refusal::new(
                response_code::NO_PERMISSION,
                format!("the topic[{}] pulling message is forbidden", header.topic),
            ));
        }
        let Some(queue_id) =
            queue_id(header.queue_id).filter(|queue_id| *queue_id < topic.read_queue_nums)
        else {
            return Err(Refusal::new(
                response_code::INVALID_PARAMETER,
                format!(
                    "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[/{}]",
                    header.queue_id,
                    header.topic,
                    topic.read_queue_nums,
                    self.peer(connection)
                ),
            ));
        };
        let filter = self.pull_filter(&header)?;
        refuse_non_tag(&filter.expression_type)?;
        Ok(Checked {
            header,
            queue_id,
            filter,
        })
    }

    /// The subscription of the request or, without one, the group's.
    fn pull_filter(
        &self,
        header: &PullMessageRequestHeader,
    ) -> Result<Arc<SubscriptionData>, Refusal> {
        if PullSysFlag(header.sys_flag).contains(PullSysFlag::SUBSCRIPTION) {
            let expression_type = header.expression_type.as_deref().unwrap_or_default();
            let expression = header.subscription.as_deref().unwrap_or_default();
            let built = SubscriptionData::build(
                &header.topic,
                expression,
                expression_type_of(expression_type),
            );
            return built.map(Arc::new).map_err(|_| {
                Refusal::new(
                    response_code::SUBSCRIPTION_PARSE_FAILED,
                    "parse the consumer's subscription failed",
                )
            });
        }
        let group = &header.consumer_group;
        if !self.groups.is_online(group) {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_NOT_EXIST,
                format!("the consumer's group info not exist{FAQ}"),
            ));
        }
        let Some(subscription) = self.groups.subscription(group, &header.topic) else {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_NOT_EXIST,
                format!("the consumer's subscription not exist{FAQ}"),
            ));
        };
        if subscription.sub_version < header.sub_version {
            return Err(Refusal::new(
                response_code::SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
            ));
        }
        Ok(Arc::clone(subscription))
    }

    /// Stores an offset as it comes; says so when there is no room for it.
    pub(crate) fn commit_offset(
        &mut self,
        group: &str,
        topic: &str,
        queue_id: u32,
        offset: i64,
    ) -> Commit {
        let commit = self.offsets.commit(group, topic, queue_id, offset);
        if commit == Commit::Full {
            self.event(Event::LimitReached {
                setting: "offsets_max",
            });
        }
        commit
    }

    fn is_long_poll_full(&mut self) -> bool {
        let is_full = self.long_poll.is_full();
        if is_full {
            self.event(Event::LimitReached {
                setting: "held_pulls_max",
            });
        }
        is_full
    }

    fn hold(
        &mut self,
        connection: ConnectionId,
        request: RemotingCommand,
        checked: Checked,
        now: Instant,
    ) {
        let timeout = u64::try_from(checked.header.suspend_timeout_millis).unwrap_or(0);
        self.long_poll.hold(
            HeldPull {
                connection,
                request,
                header: checked.header,
                queue_id: checked.queue_id,
                filter: checked.filter,
                deadline: now + Duration::from_millis(timeout),
            },
            now,
        );
    }
}

/// Java writes nothing or nothing but an empty text for tags.
pub(super) fn expression_type_of(text: &str) -> ExpressionType {
    if text.is_empty() {
        ExpressionType::Tag
    } else {
        ExpressionType::from(text)
    }
}

/// This broker filters by tag only, as a stock one with its defaults.
pub(super) fn refuse_non_tag(expression_type: &ExpressionType) -> Result<(), Refusal> {
    if *expression_type == ExpressionType::Tag {
        return Ok(());
    }
    Err(Refusal::new(
        response_code::SYSTEM_ERROR,
        format!(
            "The broker does not support consumer to filter message by {}",
            expression_type.as_str()
        ),
    ))
}

/// RocketMQ: `PullMessageProcessor#composeResponseHeader`.
fn code_of(status: ReadStatus, requested_offset: i64) -> i32 {
    match status {
        ReadStatus::Found => response_code::SUCCESS,
        ReadStatus::NoMatchedMessage => response_code::PULL_RETRY_IMMEDIATELY,
        ReadStatus::NoMessageInQueue if requested_offset != 0 => response_code::PULL_OFFSET_MOVED,
        ReadStatus::NoMessageInQueue | ReadStatus::OffsetOverflowOne => {
            response_code::PULL_NOT_FOUND
        }
        ReadStatus::OffsetTooSmall | ReadStatus::OffsetOverflowBadly => {
            response_code::PULL_OFFSET_MOVED
        }
    }
}

fn pull_response(
    request: &RemotingCommand,
    code: i32,
    result: ReadResult,
    reset: Option<i64>,
) -> RemotingCommand {
    let wire = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: 0,
        next_begin_offset: reset.unwrap_or(wire(result.next_begin_offset)),
        min_offset: wire(result.min_offset),
        max_offset: wire(result.max_offset),
        topic_sys_flag: Some(0),
        group_sys_flag: Some(0),
        ..PullMessageResponseHeader::default()
    };
    let (remark, body) = match reset {
        Some(_) => ("OFFSET_RESET", Bytes::new()),
        None => (result.status.name(), result.body),
    };
    RemotingCommand::response_to(request, code)
        .with_remark(remark)
        .with_ext_fields(header.encode())
        .with_body(body)
}
