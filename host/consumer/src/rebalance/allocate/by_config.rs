//! `CONFIG`: a list that somebody wrote. The strategy itself gives it as it is
//! (RocketMQ: `AllocateMessageQueueByConfig`); what can be taken of it is said here.

use std::collections::BTreeSet;

use protocol::MessageQueue;

/// Those of the configured queues that exist, each once, in the order written.
pub(super) fn existing(configured: &[MessageQueue], queues: &[MessageQueue]) -> Vec<MessageQueue> {
    let mut left: BTreeSet<&MessageQueue> = queues.iter().collect();
    let taken = configured.iter().filter(|queue| left.remove(queue));
    taken.cloned().collect()
}
