//! `MACHINE_ROOM_NEARBY-<inner>`: queues stay in their room while it has members; the
//! inner strategy divides. RocketMQ: `AllocateMachineRoomNearby`.

use std::collections::BTreeMap;
use std::fmt;

use protocol::MessageQueue;

use super::{AllocateError, AllocateMessageQueueStrategy, Share, java_order};

/// Knows which room something stands in. Must not change its mind, and must be the same
/// in all members. RocketMQ: `MachineRoomResolver`.
pub trait MachineRoomResolver: fmt::Debug + Send + Sync {
    /// The room of a queue's broker; `None` or empty: not known.
    fn broker_deploy_in(&self, queue: &MessageQueue) -> Option<String>;
    /// The room of a member; `None` or empty: not known.
    fn consumer_deploy_in(&self, client_id: &str) -> Option<String>;
}

pub(super) fn allocate(
    of: Share<'_>,
    inner: &AllocateMessageQueueStrategy,
    resolver: &dyn MachineRoomResolver,
) -> Result<Vec<MessageQueue>, AllocateError> {
    let known = |room: Option<String>| room.filter(|room| !room.is_empty());
    let mut queues: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
    for queue in of.queues {
        let room = known(resolver.broker_deploy_in(queue)).ok_or_else(|| {
            AllocateError::QueueWithoutRoom {
                queue: queue.clone(),
            }
        })?;
        queues.entry(room).or_default().push(queue.clone());
    }
    let room_of = |client_id: &str| {
        known(resolver.consumer_deploy_in(client_id)).ok_or_else(|| {
            AllocateError::MemberWithoutRoom {
                client_id: client_id.to_owned(),
            }
        })
    };
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for member in of.members {
        let room = room_of(member)?;
        members.entry(room).or_default().push(member.clone());
    }

    let mut share = Vec::new();
    let here = room_of(of.current)?;
    if let (Some(queues), Some(members)) = (queues.remove(&here), members.get(&here)) {
        share.extend(inner.allocate(of.current, &queues, members)?);
    }
    let mut deserted: Vec<_> = queues
        .into_iter()
        .filter(|(room, _)| !members.contains_key(room))
        .collect();
    deserted.sort_by(|(a, _), (b, _)| java_order(a, b));
    for (_, queues) in deserted {
        share.extend(inner.allocate(of.current, &queues, of.members)?);
    }
    Ok(share)
}
