//! Operators move offsets of groups back while they consume.
//!
//! The reset goes to every member over the connection of the queue's broker, like every
//! other word of a broker: late, or never. Whoever obeys begins again at the offset that
//! was asked for, and has it stored before the first pull.

use std::collections::BTreeMap;

use consumer::event::{Event, StartPolicy};
use embedded_broker::ConnectionId;
use protocol::body::ResetOffsetBody;
use protocol::code::request_code;
use protocol::header::{Header as _, ResetOffsetRequestHeader};
use protocol::{MessageQueue, RemotingCommand};

use crate::broadcast::{BROADCAST, BROADCAST_TOPIC};
use crate::cluster::{Cluster, GROUPS, TOPICS};
use crate::network::Server;

/// A reset that a member obeys, until its first pull.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Obeyed {
    to: u64,
    is_stored: bool,
}

impl Cluster {
    /// Moves the offsets of a group back, by up to all of what is committed.
    pub(crate) fn reset_some(&mut self) {
        let broadcast = self.broadcasts && self.random.u32(0..3) == 0;
        let (group, topic) = if broadcast {
            (BROADCAST, BROADCAST_TOPIC)
        } else {
            let (group, topics) = GROUPS[self.random.usize(..GROUPS.len())];
            (group, topics[self.random.usize(..topics.len())].0)
        };
        if self.auto_commit_of(group).is_some() {
            // Uncommitted messages have their own rules.
            return;
        }
        let broker = self.random.usize(..self.brokers.len());
        let mut table = BTreeMap::new();
        for queue in self.committed_queues(group, topic, broker) {
            let back = self.random.u64(0..=queue.1.min(20));
            let to = i64::try_from(queue.1 - back).unwrap_or(0);
            table.insert(queue.0, to);
        }
        self.history
            .add(self.now, || format!("FAULT reset of {group}: {table:?}"));
        let header = ResetOffsetRequestHeader {
            topic: topic.to_owned(),
            group: group.to_owned(),
            timestamp: 0,
            is_force: Some(false),
            queue_id: Some(-1),
            offset: None,
        };
        let body = ResetOffsetBody {
            offset_table: table,
        };
        let code = request_code::RESET_CONSUMER_CLIENT_OFFSET;
        let command = RemotingCommand::request(code, header.encode()).oneway();
        let command = command.with_body(body.encode());
        let connections = self.connections.iter();
        let connections = connections.filter(|(_, c)| c.server == Server::Broker(broker));
        let connections: Vec<ConnectionId> = connections.map(|(&id, _)| id).collect();
        for connection in connections {
            self.answer(connection, command.clone());
        }
    }

    fn committed_queues(
        &self,
        group: &str,
        topic: &str,
        broker: usize,
    ) -> Vec<(MessageQueue, u64)> {
        let node = &self.brokers[broker];
        if group == BROADCAST {
            let offsets = self.broadcast_offsets();
            return offsets
                .into_iter()
                .filter(|(queue, _)| *queue.broker_name == *node.name)
                .collect();
        }
        let queues = TOPICS.iter().find(|(name, _)| *name == topic);
        let queues = 0..queues.map_or(0, |(_, queues)| *queues);
        let committed = queues.filter_map(|id| {
            let offset = node.broker.committed_offset(group, topic, id)?;
            let offset = u64::try_from(offset).ok()?;
            Some((MessageQueue::new(topic, &node.name, id), offset))
        });
        committed.collect()
    }

    /// A member obeys, or begins after it did.
    pub(crate) fn check_reset_event(&mut self, member: usize, event: &Event) {
        match event {
            Event::OffsetReset {
                consumer_group,
                queue,
                to,
                ..
            } => {
                let key = (consumer_group.to_string(), queue.clone());
                self.members[member].assignments.remove(&key);
                let obeyed = Obeyed {
                    to: to.0,
                    is_stored: false,
                };
                self.members[member].resets.insert(key, obeyed);
            }
            Event::QueueStarted {
                consumer_group,
                queue,
                offset,
                policy: StartPolicy::Reset,
            } if **consumer_group != *BROADCAST => {
                let key = (consumer_group.to_string(), queue.clone());
                let obeyed = self.members[member].resets.remove(&key);
                if !obeyed.is_some_and(|obeyed| obeyed.is_stored && obeyed.to == offset.0) {
                    let name = &self.members[member].name;
                    let what = format!("{name} begins {queue} at {offset}, it obeyed {obeyed:?}");
                    self.violated("a reset is stored before its first pull", what);
                }
            }
            _ => {}
        }
    }

    /// A client asks a broker to store an offset while it has no assignment.
    pub(crate) fn note_stored_reset(
        &mut self,
        member: usize,
        key: &(String, MessageQueue),
        offset: u64,
    ) {
        if let Some(obeyed) = self.members[member].resets.get_mut(key) {
            obeyed.is_stored |= obeyed.to == offset;
        }
    }
}
