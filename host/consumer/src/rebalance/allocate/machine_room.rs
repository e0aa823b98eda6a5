//! `MACHINE_ROOM`: brokers are named `room@name`, and only those of the given rooms are
//! divided. RocketMQ: `AllocateMessageQueueByMachineRoom`.

use std::collections::BTreeSet;

use protocol::MessageQueue;

use super::Share;

pub(super) fn allocate(of: Share<'_>, rooms: &BTreeSet<String>) -> Vec<MessageQueue> {
    let kept: Vec<&MessageQueue> = of
        .queues
        .iter()
        .filter(|queue| room(&queue.broker_name).is_some_and(|room| rooms.contains(room)))
        .collect();
    let members = of.members.len();
    let (share, left_over) = (kept.len() / members, kept.len() % members);
    let block = share * of.index..share * (of.index + 1);
    let extra = (of.index < left_over).then(|| kept[of.index + share * members]);
    kept[block].iter().copied().chain(extra).cloned().collect()
}

/// The part before the only `@`; Java's `split` does not see those at the end.
fn room(broker_name: &str) -> Option<&str> {
    let (room, name) = broker_name.trim_end_matches('@').split_once('@')?;
    (!name.contains('@')).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_what_java_splits_off() {
        assert_eq!(room("hz@broker"), Some("hz"));
        assert_eq!(room("@broker"), Some(""));
        assert_eq!(room("hz@broker@@"), Some("hz"));
        for none in ["broker", "hz@", "@", "", "a@b@c", "a@@b"] {
            assert_eq!(room(none), None, "{none}");
        }
    }
}
