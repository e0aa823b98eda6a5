//! What brokers ask of us. Served: 40 (members changed), 220 (offsets
//! reset), 221 (offsets in memory), 307 (how is a group doing), 309 (consume this message now); 326 (the reply to a request that we
//! never make) is taken and dropped; all else is refused in the words of the protocol.

pub(crate) mod direct;
pub(crate) mod running_info;

pub use running_info::RunningInfo;

use protocol::body::GetConsumerStatusBody;
use protocol::code::{request_code, response_code};
use protocol::header::{
    GetConsumerStatusRequestHeader, Header, HeaderError, NotifyConsumerIdsChangedRequestHeader,
};
use protocol::{ExtFields, Instant, QueueOffset, RemotingCommand};

use crate::client::Client;
use crate::event::Event;
use crate::request::ServerRequest;

impl Client {
    pub(crate) fn serve(&mut self, request: ServerRequest, now: Instant) {
        let ServerRequest { id, from, command } = request;
        let answer = match command.code {
            request_code::RESET_CONSUMER_CLIENT_OFFSET => {
                self.reset_offsets(&command, now);
                Some(RemotingCommand::response_to(
                    &command,
                    response_code::SUCCESS,
                ))
            }
            request_code::NOTIFY_CONSUMER_IDS_CHANGED => Some(self.members_changed(&command, now)),
            request_code::GET_CONSUMER_STATUS_FROM_CLIENT => Some(self.consumer_status(&command)),
            request_code::GET_CONSUMER_RUNNING_INFO => self.running_info(id, &command, now),
            request_code::CONSUME_MESSAGE_DIRECTLY => self.consume_directly(id, &command, now),
            request_code::PUSH_REPLY_MESSAGE_TO_CLIENT => {
                let taken = RemotingCommand::response_to(&command, response_code::SUCCESS);
                Some(taken)
            }
            code => {
                self.events
                    .push_back(Event::ServerRequestRefused { from, code });
                let refused = response_code::REQUEST_CODE_NOT_SUPPORTED;
                let refused = RemotingCommand::response_to(&command, refused);
                Some(refused.with_remark(format!("request type {code} not supported")))
            }
        };
        if let Some(answer) = answer
            && !command.is_oneway()
        {
            self.answers.push_back((id, answer));
        }
    }

    /// RocketMQ: `ClientRemotingProcessor#notifyConsumerIdsChanged`. Only the group that
    /// is named need ask again.
    fn members_changed(&mut self, command: &RemotingCommand, now: Instant) -> RemotingCommand {
        match decode::<NotifyConsumerIdsChangedRequestHeader>(command) {
            Ok(header) => {
                if let Some(&group) = self.group_names.get(header.consumer_group.as_str()) {
                    self.rebalance_soon(group, now);
                }
                RemotingCommand::response_to(command, response_code::SUCCESS)
            }
            Err(error) => malformed(command, &error),
        }
    }

    /// RocketMQ: `ClientRemotingProcessor#getConsumeStatus`.
    fn consumer_status(&mut self, command: &RemotingCommand) -> RemotingCommand {
        let header = match decode::<GetConsumerStatusRequestHeader>(command) {
            Ok(header) => header,
            Err(error) => return malformed(command, &error),
        };
        let mut body = GetConsumerStatusBody::default();
        let group = self.group_names.get(header.group.as_str());
        if let Some(group) = group.and_then(|&group| self.groups.get(group)) {
            let topic = group
                .topics
                .iter()
                .find(|topic| *topic.name == header.topic);
            for (queue, &epoch) in topic.into_iter().flat_map(|topic| &topic.held) {
                let held = self.queues.get(epoch);
                if let Some(offset) = held.and_then(|held| held.commit.finished()) {
                    let offset = QueueOffset::to_wire(offset);
                    body.message_queue_table.insert(queue.clone(), offset);
                }
            }
        }
        RemotingCommand::response_to(command, response_code::SUCCESS).with_body(body.encode())
    }
}

fn decode<T: Header>(command: &RemotingCommand) -> Result<T, HeaderError> {
    let none = ExtFields::default();
    T::decode(command.ext_fields.as_ref().unwrap_or(&none))
}

fn malformed(command: &RemotingCommand, error: &HeaderError) -> RemotingCommand {
    RemotingCommand::response_to(command, response_code::SYSTEM_ERROR)
        .with_remark(error.to_string())
}
