//! `AVG`: neighbouring queues in equal shares, the first members one more.
//! RocketMQ: `AllocateMessageQueueAveragely`.

use protocol::MessageQueue;

use super::Share;

pub(super) fn allocate(of: Share<'_>) -> Vec<MessageQueue> {
    let members = of.members.len();
    let (share, left_over) = (of.queues.len() / members, of.queues.len() % members);
    let size = share + usize::from(of.index < left_over);
    let start = of.index * share + of.index.min(left_over);
    of.queues[start..start + size].to_vec()
}
