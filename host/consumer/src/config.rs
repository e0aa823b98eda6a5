//! What a client and its groups are told: RocketMQ's words, RocketMQ's defaults unless
//! the field says why not. A [`GroupConfig`] with an invalid value cannot be built.
//!
//! Plain values from whoever starts the client; files, units and environment are read
//! elsewhere.

mod group;

pub use group::{GroupConfig, GroupConfigBuilder, GroupConfigError, GroupConfigProblem};

use std::net::IpAddr;
use std::net::Ipv4Addr;

use protocol::Address;

pub use crate::rebalance::allocate::{
    AllocateError, AllocateMessageQueueStrategy, MachineRoomResolver,
};

/// What the groups of one client share. RocketMQ: `ClientConfig`.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Unique in the cluster: `IP@PID#random`. Two clients with one id each consume the
    /// share of one.
    pub client_id: String,
    /// Asked in turn until one answers; not empty.
    pub namesrv_addr: Vec<Address>,
    /// Around every name of a group and topic that goes to a cluster; empty for none.
    /// Listeners and senders do not see it. RocketMQ: `ClientConfig#namespace`.
    pub namespace: String,
    /// Part of the ids of messages that are sent.
    pub ip: IpAddr,
    /// Part of the ids of messages that are sent.
    pub pid: u32,
    /// Bytes of pull answers that may be held; one answer more when it is the first of its
    /// group. Half is divided among the groups, each of which has its share for itself.
    pub buffer_bytes: u64,
    /// A larger body, decompressed, is a fault of its message.
    pub body_bytes_max: u32,
    /// A larger body is not sent. RocketMQ: `maxMessageSize`.
    pub max_message_size: u32,
    /// Send-backs and dead letters under way; more wait in their queue.
    pub send_backs_max: usize,
    /// Sends of guests and users under way; more are refused.
    pub sends_max: usize,
    /// Queues that a topic gets when sending creates it. RocketMQ: `defaultTopicQueueNums`.
    pub default_topic_queue_nums: u32,
    /// Tells also of what happens all the time when all goes well: `Event::Step`.
    pub tells_steps: bool,
}

impl ClientConfig {
    /// Defaults for everything but identity and name servers.
    pub fn new(client_id: impl Into<String>, namesrv_addr: Vec<Address>) -> Self {
        Self {
            client_id: client_id.into(),
            namesrv_addr,
            namespace: String::new(),
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pid: 1,
            buffer_bytes: 1 << 30,
            body_bytes_max: 32 << 20,
            max_message_size: 4 << 20,
            send_backs_max: 256,
            sends_max: 1024,
            default_topic_queue_nums: 4,
            tells_steps: false,
        }
    }
}

/// Where a group without a committed offset begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsumeFromWhere {
    /// At the end of each queue. Queues that appear later start at their beginning.
    #[default]
    LastOffset,
    /// At the oldest message of each queue.
    FirstOffset,
    /// At the first message stored at this time or later, Unix milliseconds.
    Timestamp(u64),
}

/// What a broadcasting group does with a message that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BroadcastRetry {
    /// It does not come again, as in RocketMQ.
    #[default]
    Drop,
    /// It is tried again here after a while, `max_reconsume_times` times.
    Local,
}

/// Where to go on when the offset of a group is beyond the end of its queue: the broker
/// lost messages, or the topic was made anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OffsetBeyondEnd {
    /// Where the broker says, as in RocketMQ: 5.x says the end.
    #[default]
    Broker,
    /// At the oldest message.
    MinOffset,
    /// At the end.
    MaxOffset,
}
