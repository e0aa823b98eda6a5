//! Queues given to a group by hand, in place of its share of a rebalance.
//!
//! No member is asked for and none is waited for: whoever gives a queue to two members of
//! a group has it consumed twice. Everything else is as with a share: the route says
//! which of the queues exist, each has its epoch, offsets are committed to the group.
//!
//! RocketMQ: `DefaultLitePullConsumer#assign`.

use std::sync::Arc;

use protocol::{Instant, MessageQueue};

use crate::client::{Client, GroupId};

/// Queues of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSelector {
    /// One that the group subscribes to.
    pub topic: Arc<str>,
    /// `None`: of every broker.
    pub broker_name: Option<Arc<str>>,
    /// `None`: every one.
    pub queue_id: Option<u32>,
}

impl QueueSelector {
    /// Every queue of a topic.
    pub fn topic(topic: impl Into<Arc<str>>) -> Self {
        Self {
            topic: topic.into(),
            broker_name: None,
            queue_id: None,
        }
    }

    /// Whether the queue is one of them.
    pub fn selects(&self, queue: &MessageQueue) -> bool {
        let broker_name = self.broker_name.as_ref();
        self.topic == queue.topic
            && broker_name.is_none_or(|name| *name == queue.broker_name)
            && self.queue_id.is_none_or(|id| id == queue.queue_id)
    }
}

/// Why a group was not given other queues.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssignError {
    /// The group's queues are its share among its members.
    #[error(
        "consumer group \"{consumer_group}\" divides the queues among its members; only a group that was made with assign can be given others"
    )]
    Divided {
        /// The group.
        consumer_group: Arc<str>,
    },
    /// The group does not read the topic.
    #[error("consumer group \"{consumer_group}\" has no subscription for topic \"{topic}\"")]
    NotSubscribed {
        /// The group.
        consumer_group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
    },
    /// The group is not there, or leaves.
    #[error("the group is leaving")]
    Leaving,
}

impl AssignError {
    /// With the names that the group's user knows.
    pub(crate) fn without_namespace(self, client: &Client) -> Self {
        match self {
            Self::Divided { consumer_group } => Self::Divided {
                consumer_group: client.without_namespace(&consumer_group),
            },
            Self::NotSubscribed {
                consumer_group,
                topic,
            } => Self::NotSubscribed {
                consumer_group: client.without_namespace(&consumer_group),
                topic: client.without_namespace(&topic),
            },
            Self::Leaving => Self::Leaving,
        }
    }
}

impl Client {
    pub(crate) fn change_assignment(
        &mut self,
        group: GroupId,
        queues: Vec<QueueSelector>,
        now: Instant,
    ) -> Result<(), AssignError> {
        let epoch = group.0;
        let group = self.groups.get_mut(epoch);
        let group = group.filter(|group| group.life.stays());
        let group = group.ok_or(AssignError::Leaving)?;
        let consumer_group = Arc::clone(&group.name);
        if group.assigned.is_none() {
            return Err(AssignError::Divided { consumer_group });
        }
        let topics = &group.topics;
        let unread = |queue: &&QueueSelector| topics.iter().all(|topic| topic.name != queue.topic);
        if let Some(queue) = queues.iter().find(unread) {
            return Err(AssignError::NotSubscribed {
                consumer_group,
                topic: Arc::clone(&queue.topic),
            });
        }
        group.assigned = Some(queues);
        self.rebalance(epoch, now);
        Ok(())
    }
}

/// Those of the queues that are given.
pub(crate) fn select(given: &[QueueSelector], queues: &[MessageQueue]) -> Vec<MessageQueue> {
    let is_given = |queue: &&MessageQueue| given.iter().any(|all| all.selects(queue));
    queues.iter().filter(is_given).cloned().collect()
}
