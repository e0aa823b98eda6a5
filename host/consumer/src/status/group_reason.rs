//! What is wrong with a whole topic or group, and why a queue is not ours.

use protocol::MessageQueue;

use super::cause::Cause;
use super::reason::{Reason, stopping, within};
use super::{GroupState, GroupStatus, HoldStatus, OtherQueue, RouteStatus, TopicStatus};
use crate::listener::MessageModel;

impl TopicStatus {
    /// What is wrong with the whole topic.
    pub(super) fn find_reason(&self, not_allocated: Option<&str>) -> Option<Reason> {
        let topic = &self.topic;
        let asked = format!("it is asked for again {}", within(self.route_in));
        match &self.route {
            // It exists as soon as the group is known to a broker.
            RouteStatus::Missing | RouteStatus::Unknown { .. } if self.is_retry => None,
            RouteStatus::Missing => Some(Reason::new(
                Cause::TopicMissing,
                format!("topic \"{topic}\" does not exist yet"),
                asked,
                "create it, send the first message to it, or correct its name in the manifest",
            )),
            RouteStatus::Unknown { last_error } => Some(Reason::new(
                Cause::RouteUnknown,
                format!(
                    "the route of topic \"{topic}\" is not known: {}",
                    last_error
                        .as_deref()
                        .unwrap_or("no name server has answered yet")
                ),
                asked,
                "look at the name servers and the network to them, or correct namesrv_addr",
            )),
            RouteStatus::Known { read_queues: 0, .. } => Some(Reason::new(
                Cause::NoReadableQueue,
                format!("topic \"{topic}\" has no queue that may be read"),
                asked,
                "look at the topic's permissions, and whether its brokers are up",
            )),
            RouteStatus::Known { .. } => not_allocated.map(|error| {
                Reason::new(
                    Cause::QueuesNotAllocated,
                    format!("the queues of topic \"{topic}\" cannot be divided: {error}"),
                    "what is held stays held; it is tried again with the next rebalance",
                    "give all members of the group the same allocation strategy",
                )
            }),
        }
    }
}

impl HoldStatus {
    pub(super) fn to_reason(&self) -> Reason {
        Reason::new(
            Cause::ListenerFailing,
            format!(
                "its listener keeps failing and is not called, so that its messages do not \
                 become dead letters: {}",
                self.reason
            ),
            match self.probe_in {
                Some(time) => format!("one message is tried {}", within(Some(time))),
                None => "one message is tried, and when that goes well all are".to_owned(),
            },
            "look at mqlet failures, and repair the plugin or what it needs",
        )
    }
}

impl GroupStatus {
    /// What keeps the whole group from consuming, or is wrong with it.
    pub(super) fn find_reasons(&self, obstacle: Option<&str>, clash: Option<&str>) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        if self.state == GroupState::Stopping || self.state == GroupState::Leaving {
            reasons.push(stopping(self));
        }
        reasons.extend(self.hold.as_ref().map(HoldStatus::to_reason));
        reasons.extend(self.topics.iter().filter_map(|topic| topic.reason.clone()));
        if let Some(obstacle) = obstacle {
            reasons.push(Reason::new(
                Cause::MembersUnknown,
                format!("the members are not known: {obstacle}"),
                format!(
                    "its queues stay as they are; it is asked again {}",
                    within(self.rebalance_in)
                ),
                "look whether the brokers of its topics are up and reachable",
            ));
        }
        if let Some(client_id) = clash {
            reasons.push(Reason::new(
                Cause::ClientIdClash,
                format!(
                    "our id {client_id} stands twice in the group: another client has it, and \
                     both consume the same queues, or a connection that we have lost"
                ),
                "a lost connection is forgotten by the broker after two minutes",
                "if it stays, start one of the two clients again: every start makes an id of \
                 its own",
            ));
        }
        let held = self.topics.iter().any(|topic| !topic.queues.is_empty());
        if reasons.is_empty() && !held && !self.members.is_empty() {
            reasons.push(self.no_queue_left());
        }
        reasons
    }

    fn no_queue_left(&self) -> Reason {
        let queues = self.topics.iter().map(|topic| topic.others.len());
        Reason::new(
            Cause::MoreMembersThanQueues,
            format!(
                "no queue is left for us: the group has {} members, its topics have {} queues",
                self.members.len(),
                queues.sum::<usize>()
            ),
            format!("queues are divided again {}", within(self.rebalance_in)),
            "give the topic more queues, or run fewer members",
        )
    }

    /// Why a queue is as it is, whether it is ours or not. `None` when the group does not
    /// read its topic.
    pub fn explain(&self, queue: &MessageQueue) -> Option<Reason> {
        let topic = self
            .topics
            .iter()
            .find(|topic| topic.topic == queue.topic)?;
        if let Some(held) = topic.queues.iter().find(|held| held.queue == *queue) {
            return Some(held.reason.clone());
        }
        if matches!(self.state, GroupState::Stopping | GroupState::Leaving) {
            return Some(stopping(self));
        }
        if let Some(reason) = &topic.reason {
            return Some(reason.clone());
        }
        let Some(other) = topic.others.iter().find(|other| other.queue == *queue) else {
            return Some(Reason::new(
                Cause::NoSuchQueue,
                format!(
                    "topic \"{}\" has no queue {queue} that may be read",
                    topic.topic
                ),
                format!("the route is asked for again {}", within(topic.route_in)),
                "list the queues with mqlet queues",
            ));
        };
        Some(self.not_ours(other))
    }

    fn not_ours(&self, other: &OtherQueue) -> Reason {
        let divided = format!("queues are divided again {}", within(self.rebalance_in));
        if other.releasing {
            return Reason::new(
                Cause::LastCommit,
                "it was given back, and our last call or commit of it is under way",
                "it may be taken again when the broker has answered",
                "",
            );
        }
        if let Some(owner) = &other.owner {
            return Reason::new(
                Cause::OtherMember,
                format!(
                    "member {owner} has it, one of {} of the group",
                    self.members.len()
                ),
                divided,
                "look there",
            );
        }
        let members = self.reasons.iter();
        let mut of_members = members.filter(|reason| reason.cause == Cause::MembersUnknown);
        match of_members.next() {
            Some(reason) => reason.clone(),
            None if self.members.is_empty() && self.message_model == MessageModel::Clustering => {
                Reason::new(
                    Cause::MembersUnknown,
                    "the members of the group have not been asked for yet",
                    divided,
                    "look whether the brokers of its topics are up and reachable",
                )
            }
            None => Reason::new(Cause::Assigning, "nobody is known to have it", divided, ""),
        }
    }
}
