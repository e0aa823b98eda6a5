//! `AVG_BY_CIRCLE`: queues dealt out in turn.
//! RocketMQ: `AllocateMessageQueueAveragelyByCircle`.

use protocol::MessageQueue;

use super::Share;

pub(super) fn allocate(of: Share<'_>) -> Vec<MessageQueue> {
    let dealt = of.queues.iter().skip(of.index).step_by(of.members.len());
    dealt.cloned().collect()
}
