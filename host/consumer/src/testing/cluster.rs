//! The other side as it should be: a cluster that answers what a healthy one would.

use std::collections::{BTreeMap, BTreeSet};

use protocol::body::{BrokerData, QueueData, TopicRouteData};
use protocol::code::response_code;
use protocol::{Address, MessageQueue, QueueOffset};

use crate::local_offsets::LocalOffsetTable;
use crate::request::{Request, RequestError, Response, SentMessage};

/// What a healthy cluster would answer.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Queues of each topic, by broker name. A topic that is not here does not exist.
    pub topics: BTreeMap<String, Vec<(String, u32)>>,
    /// Permissions of topics that may not be read and written (6).
    pub perms: BTreeMap<String, i32>,
    /// Client ids that brokers list for every group.
    pub members: Vec<String>,
    /// What groups committed.
    pub committed: BTreeMap<MessageQueue, u64>,
    /// Addresses of slaves by broker name; their id is 1.
    pub slaves: BTreeMap<String, Address>,
    /// Brokers whose masters are gone from the routes.
    pub masters_gone: BTreeSet<String>,
    /// Queues that another client has locked.
    pub locked_by_others: BTreeSet<MessageQueue>,
    /// What is stored of broadcasting groups on our own disk.
    pub local_offsets: LocalOffsetTable,
    /// Oldest and next offset of queues that are not empty.
    pub offsets: BTreeMap<MessageQueue, (u64, u64)>,
}

impl Cluster {
    /// Address of a broker: `broker-a` is 10.0.0.1, and so on.
    pub fn address(broker_name: &str) -> Address {
        let last = broker_name.bytes().last().unwrap_or(b'a');
        Address::new(&format!("10.0.0.{}", last.saturating_sub(b'a') + 1), 10911)
    }

    /// The answer to anything but a pull.
    ///
    /// # Panics
    /// When asked to serve a pull.
    pub fn healthy(&mut self, request: &Request) -> Result<Response, RequestError> {
        match request {
            Request::GetConsumerRunningInfo { .. } => Err(refused(
                response_code::SYSTEM_ERROR,
                "the member is not online",
            )),
            _ => self.answer(request).expect("not a pull"),
        }
    }

    /// The same; `None` to a pull.
    pub(super) fn answer(&mut self, request: &Request) -> Option<Result<Response, RequestError>> {
        let offsets = |queue| self.offsets.get(queue).copied().unwrap_or_default();
        let offset = |value| Some(Ok(Response::Offset(QueueOffset(value))));
        match request {
            Request::GetRouteInfo { topic } => Some(match self.topics.get(&**topic) {
                Some(queues) => {
                    let perm = self.perms.get(&**topic).copied().unwrap_or(6);
                    Ok(route(queues, perm, &self.slaves, &self.masters_gone))
                }
                None => Err(refused(response_code::TOPIC_NOT_EXIST, "no route")),
            }),
            Request::HeartBeat { .. }
            | Request::CheckClientConfig { .. }
            | Request::UnregisterClient { .. } => Some(Ok(Response::Done)),
            Request::GetConsumerListByGroup { .. } => {
                Some(Ok(Response::ConsumerList(self.members.clone())))
            }
            Request::QueryConsumerOffset { queue, .. } => {
                let offset = self.committed.get(queue).copied().map(QueueOffset);
                Some(Ok(Response::ConsumerOffset(offset)))
            }
            Request::UpdateConsumerOffset {
                queue,
                commit_offset,
                ..
            } => {
                self.committed.insert(queue.clone(), commit_offset.0);
                Some(Ok(Response::Done))
            }
            Request::GetMinOffset { queue } | Request::SearchOffset { queue, .. } => {
                offset(offsets(queue).0)
            }
            Request::GetMaxOffset { queue } => offset(offsets(queue).1),
            Request::LockBatch { queues, .. } => {
                let free = queues.difference(&self.locked_by_others);
                Some(Ok(Response::Locked(free.cloned().collect())))
            }
            Request::UnlockBatch { .. } | Request::SendMessageBack(_) => Some(Ok(Response::Done)),
            Request::SendMessage(send) => Some(Ok(Response::Sent(SentMessage {
                msg_id: "OFFSETID".to_owned(),
                queue_id: u32::try_from(send.header.queue_id).unwrap_or(0),
                queue_offset: QueueOffset(7),
            }))),
            Request::PullMessage(_) | Request::GetConsumerRunningInfo { .. } => None,
        }
    }
}

/// A refusal with this code.
pub fn refused(code: i32, remark: &str) -> RequestError {
    RequestError::Refused {
        code,
        remark: remark.to_owned(),
    }
}

/// A route over these brokers.
fn route(
    queues: &[(String, u32)],
    perm: i32,
    slaves: &BTreeMap<String, Address>,
    masters_gone: &BTreeSet<String>,
) -> Response {
    let queue_datas = queues.iter().map(|(broker_name, count)| QueueData {
        broker_name: broker_name.clone(),
        perm,
        read_queue_nums: *count,
        write_queue_nums: *count,
        topic_sys_flag: 0,
    });
    let broker_datas = queues.iter().map(|(broker_name, _)| BrokerData {
        broker_name: broker_name.clone(),
        broker_addrs: [
            (
                0,
                (!masters_gone.contains(broker_name)).then(|| Cluster::address(broker_name)),
            ),
            (1, slaves.get(broker_name).cloned()),
        ]
        .into_iter()
        .filter_map(|(id, address)| Some((id, address?)))
        .collect(),
        ..BrokerData::default()
    });
    Response::Route(Box::new(TopicRouteData {
        queue_datas: queue_datas.collect(),
        broker_datas: broker_datas.collect(),
        ..TopicRouteData::default()
    }))
}
