//! `CONSISTENT_HASH`: members stand at several places of a ring of hashes; a queue goes
//! to the next place from its own hash on. Bit for bit as in Java, since members of both
//! kinds share a group.
//!
//! RocketMQ: `AllocateMessageQueueConsistentHash`, `ConsistentHashRouter`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use md5::{Digest, Md5};
use protocol::MessageQueue;

use super::Share;

pub(super) fn allocate(of: Share<'_>, virtual_node_count: u32) -> Vec<MessageQueue> {
    let ring = Ring::new(of.members, virtual_node_count);
    let mut key = String::new();
    let mut mine = |queue: &MessageQueue| {
        key.clear();
        // How Java writes a queue.
        let _ = write!(
            key,
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            queue.topic, queue.broker_name, queue.queue_id
        );
        ring.owner(hash(&key)) == Some(of.current)
    };
    let queues = of.queues.iter();
    queues.filter(|queue| mine(queue)).cloned().collect()
}

struct Ring<'a> {
    places: BTreeMap<u32, &'a str>,
}

impl<'a> Ring<'a> {
    /// Later places take those with an equal hash. A member that is listed twice has its
    /// places twice.
    fn new(members: &'a [String], virtual_node_count: u32) -> Self {
        let mut places = BTreeMap::new();
        let mut placed: BTreeMap<&str, u64> = BTreeMap::new();
        let mut key = String::new();
        for member in members {
            let next = placed.entry(member).or_default();
            for _ in 0..virtual_node_count {
                key.clear();
                let _ = write!(key, "{member}-{next}");
                places.insert(hash(&key), &**member);
                *next += 1;
            }
        }
        Self { places }
    }

    fn owner(&self, hash: u32) -> Option<&'a str> {
        let next = self.places.range(hash..).next();
        let place = next.or_else(|| self.places.first_key_value());
        place.map(|(_, &member)| member)
    }
}

/// The first four bytes of the MD5, the highest first. RocketMQ:
/// `ConsistentHashRouter.MD5Hash`.
fn hash(text: &str) -> u32 {
    let digest = Md5::digest(text.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        assert_eq!(hash("10.0.0.1@100#1-0"), 2_104_484_402);
        let queue = "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]";
        assert_eq!(hash(queue), 1_987_926_524);
    }
}
