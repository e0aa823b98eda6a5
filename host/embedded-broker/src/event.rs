//! Facts worth a log line: changes of state, never single messages.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::ConnectionId;

/// What happened inside the broker.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client connected.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The client's side.
        peer: SocketAddr,
    },
    /// A connection ended.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
    },
    /// A topic came into being.
    TopicCreated {
        /// Its name.
        topic: Arc<str>,
        /// Its queues for writing.
        write_queue_nums: u32,
    },
    /// A consumer joined its group.
    MemberJoined {
        /// The group.
        group: Arc<str>,
        /// The consumer.
        client_id: Arc<str>,
        /// Members now.
        members: usize,
    },
    /// A consumer left its group, or its connection was lost.
    MemberLeft {
        /// The group.
        group: Arc<str>,
        /// Members now.
        members: usize,
    },
    /// A client was not heard of for too long; its connection is closed.
    ClientExpired {
        /// The connection.
        connection: ConnectionId,
    },
    /// A message failed too often, or was given up: it is a dead letter now.
    MessageDeadLettered {
        /// The group that could not consume it.
        group: Arc<str>,
        /// The dead-letter topic.
        topic: Arc<str>,
        /// Attempts so far.
        reconsume_times: i32,
    },
    /// The store was full and forgot its oldest messages.
    MessagesDropped {
        /// How many.
        messages: u64,
    },
    /// Delayed messages were forgotten by the store before their time came.
    DelayedMessagesLost {
        /// Their level.
        level: u32,
        /// How many.
        messages: u64,
    },
    /// Messages with a time of their own were forgotten by the store before it came.
    TimerMessagesLost {
        /// How many.
        messages: u64,
    },
    /// A request that this broker does not serve was refused.
    RequestNotSupported {
        /// Its code.
        code: i32,
    },
    /// A table is full; what did not fit was refused.
    LimitReached {
        /// The setting of `BrokerConfig` that bounds it.
        setting: &'static str,
    },
}
