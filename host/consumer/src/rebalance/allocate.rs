//! Who of a group gets which queues of a topic. All members must use one strategy on
//! equal lists in equal order: nothing is negotiated.
//!
//! One file for each of RocketMQ's strategies. Each works on the lists in the order
//! given; sorting them as Java does, with [`java_order`], is the caller's part.
//!
//! RocketMQ: `AllocateMessageQueueStrategy` and its implementations.

mod averagely;
mod averagely_by_circle;
mod by_config;
mod consistent_hash;
mod machine_room;
mod machine_room_nearby;

pub use machine_room_nearby::MachineRoomResolver;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::{MessageQueue, topic};

/// How the queues of a topic are divided among the members of a group.
#[derive(Clone, Debug, Default)]
pub enum AllocateMessageQueueStrategy {
    /// `AVG`: neighbouring queues, equal shares.
    #[default]
    Averagely,
    /// `AVG_BY_CIRCLE`: queues dealt out in turn.
    AveragelyByCircle,
    /// `CONSISTENT_HASH`: few queues change hands when a member comes or goes.
    ConsistentHash {
        /// Places of each member on the ring. With 0 nobody gets anything.
        virtual_node_count: u32,
    },
    /// `MACHINE_ROOM`: queues of brokers named `room@name` in these rooms; the others are
    /// nobody's. RocketMQ: `consumeridcs`.
    MachineRoom {
        /// Names of the rooms.
        rooms: BTreeSet<String>,
    },
    /// `MACHINE_ROOM_NEARBY-<inner>`: queues go to members of their room, those of a room
    /// without members to all.
    MachineRoomNearby {
        /// Divides within a room.
        inner: Arc<AllocateMessageQueueStrategy>,
        /// Knows who stands where.
        resolver: Arc<dyn MachineRoomResolver>,
    },
    /// `CONFIG`: these queues, whoever else there is. Members see to it that every queue
    /// has one owner.
    Config {
        /// Of every topic of the group.
        message_queues: Vec<MessageQueue>,
    },
}

/// Why nothing can be allocated; what is held stays held.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocateError {
    /// We have no id.
    #[error("our own client id is empty")]
    NoClientId,
    /// The topic has no readable queue.
    #[error("the topic has no readable queue")]
    NoQueues,
    /// The group has no members.
    #[error("the group has no members")]
    NoMembers,
    /// The resolver does not know a member's room.
    #[error("the machine room of member \"{client_id}\" is not known; all members must have one")]
    MemberWithoutRoom {
        /// The member.
        client_id: String,
    },
    /// The resolver does not know a queue's room.
    #[error("the machine room of {queue} is not known; all brokers must have one")]
    QueueWithoutRoom {
        /// The queue.
        queue: MessageQueue,
    },
}

impl AllocateMessageQueueStrategy {
    /// RocketMQ's number of virtual nodes for `CONSISTENT_HASH`.
    pub const VIRTUAL_NODE_COUNT: u32 = 10;

    /// `CONSISTENT_HASH` as RocketMQ makes it unless told otherwise.
    pub fn consistent_hash() -> Self {
        Self::ConsistentHash {
            virtual_node_count: Self::VIRTUAL_NODE_COUNT,
        }
    }

    /// RocketMQ's name. RocketMQ: `AllocateMessageQueueStrategy#getName`.
    pub fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Averagely => "AVG",
            Self::AveragelyByCircle => "AVG_BY_CIRCLE",
            Self::ConsistentHash { .. } => "CONSISTENT_HASH",
            Self::MachineRoom { .. } => "MACHINE_ROOM",
            Self::MachineRoomNearby { inner, .. } => {
                return Cow::Owned(format!("MACHINE_ROOM_NEARBY-{}", inner.name()));
            }
            Self::Config { .. } => "CONFIG",
        })
    }

    /// The same with queues as the brokers of this namespace know them.
    pub(crate) fn in_namespace(self, namespace: &str) -> Self {
        match self {
            Self::Config { mut message_queues } => {
                for queue in &mut message_queues {
                    queue.topic = topic::wrap_namespace(namespace, &queue.topic).into();
                }
                Self::Config { message_queues }
            }
            Self::MachineRoomNearby { inner, resolver } => Self::MachineRoomNearby {
                inner: Arc::new(Arc::unwrap_or_clone(inner).in_namespace(namespace)),
                resolver,
            },
            other => other,
        }
    }

    /// The share of `current` among `members`, in the order RocketMQ gives it; empty when
    /// it is no member. Both lists are worked on in the order given.
    ///
    /// # Errors
    /// A list or `current` is empty, or a room is not known.
    pub fn allocate(
        &self,
        current: &str,
        queues: &[MessageQueue],
        members: &[String],
    ) -> Result<Vec<MessageQueue>, AllocateError> {
        if let Self::Config { message_queues } = self {
            return Ok(message_queues.clone());
        }
        let Some(index) = index_of(current, queues, members)? else {
            return Ok(Vec::new());
        };
        let of = Share {
            index,
            current,
            queues,
            members,
        };
        match self {
            Self::Averagely => Ok(averagely::allocate(of)),
            Self::AveragelyByCircle => Ok(averagely_by_circle::allocate(of)),
            Self::ConsistentHash { virtual_node_count } => {
                Ok(consistent_hash::allocate(of, *virtual_node_count))
            }
            Self::MachineRoom { rooms } => Ok(machine_room::allocate(of, rooms)),
            Self::MachineRoomNearby { inner, resolver } => {
                machine_room_nearby::allocate(of, inner, &**resolver)
            }
            Self::Config { message_queues } => Ok(message_queues.clone()),
        }
    }

    /// As [`Self::allocate`] within one topic of a group, sorted lists given: what a
    /// configuration says of other topics or of queues that do not exist is left out. A
    /// retry topic that it does not speak of is divided by `AVG`, where RocketMQ leaves it
    /// to nobody.
    pub(crate) fn allocate_topic(
        &self,
        current: &str,
        queues: &[MessageQueue],
        members: &[String],
        is_retry: bool,
    ) -> Result<Vec<MessageQueue>, AllocateError> {
        let Self::Config { message_queues } = self else {
            return self.allocate(current, queues, members);
        };
        let Some(first) = queues.first() else {
            return Err(AllocateError::NoQueues);
        };
        if is_retry && message_queues.iter().all(|q| q.topic != first.topic) {
            return Self::Averagely.allocate(current, queues, members);
        }
        Ok(by_config::existing(message_queues, queues))
    }
}

/// Whose share, of what, among whom. Nothing is empty, and `current` is
/// `members[index]`.
#[derive(Clone, Copy)]
struct Share<'a> {
    index: usize,
    current: &'a str,
    queues: &'a [MessageQueue],
    members: &'a [String],
}

/// The first place of `current`. RocketMQ: `AbstractAllocateMessageQueueStrategy#check`.
fn index_of(
    current: &str,
    queues: &[MessageQueue],
    members: &[String],
) -> Result<Option<usize>, AllocateError> {
    if current.is_empty() {
        return Err(AllocateError::NoClientId);
    }
    if queues.is_empty() {
        return Err(AllocateError::NoQueues);
    }
    if members.is_empty() {
        return Err(AllocateError::NoMembers);
    }
    Ok(members.iter().position(|id| id == current))
}

/// How Java orders texts: by UTF-16 units. Differs from Rust's order beyond U+FFFF.
pub(crate) fn java_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// How Java orders queues before it allocates them. RocketMQ: `MessageQueue#compareTo`.
pub(crate) fn java_queue_order(a: &MessageQueue, b: &MessageQueue) -> Ordering {
    java_order(&a.topic, &b.topic)
        .then_with(|| java_order(&a.broker_name, &b.broker_name))
        .then_with(|| a.queue_id.cmp(&b.queue_id))
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ordered_by_their_utf16_units() {
        // U+1F600 is a pair of surrogates, below U+FF5E in UTF-16 and above it in UTF-8.
        assert_eq!(java_order("\u{1F600}", "\u{FF5E}"), Ordering::Less);
        assert_eq!("\u{1F600}".cmp("\u{FF5E}"), Ordering::Greater);
    }

    #[test]
    fn configured_queues_are_taken_where_they_exist_and_retries_go_to_somebody() {
        let queue = |topic, id| MessageQueue::new(topic, "a", id);
        let config = AllocateMessageQueueStrategy::Config {
            message_queues: vec![queue("T", 1), queue("T", 1), queue("T", 9), queue("U", 0)],
        };
        let allocate = |queues: &[MessageQueue], is_retry| {
            let members = ["m".to_owned(), "n".to_owned()];
            config.allocate_topic("m", queues, &members, is_retry)
        };
        let topic = [queue("T", 0), queue("T", 1)];
        assert_eq!(allocate(&topic, false), Ok(vec![queue("T", 1)]));
        assert_eq!(allocate(&[queue("V", 0)], false), Ok(vec![]));
        let retry = [queue("%RETRY%G", 0)];
        assert_eq!(allocate(&retry, true), Ok(retry.to_vec()));
        assert_eq!(allocate(&[], true), Err(AllocateError::NoQueues));
    }
}
