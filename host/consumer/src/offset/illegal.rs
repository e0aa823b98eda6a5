//! What to do when the broker says that an offset is not in its queue.
//!
//! Forward (the oldest messages expired while we were behind): go on at what the broker
//! says, and keep what was fetched, since the broker no longer has it. Back, or a reset
//! by an operator: what was fetched belongs to another history; the assignment ends, and
//! a new one begins at the corrected offset, committed before its first pull. This is
//! the one way in which a committed offset goes back.
//!
//! RocketMQ: `DefaultMQPushConsumerImpl#pullMessage`, `OFFSET_ILLEGAL`.

use std::sync::Arc;

use protocol::{Instant, QueueOffset};

use crate::client::Client;
use crate::config::OffsetBeyondEnd;
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::pull::Pull;
use crate::request::PullAnswer;
use crate::timers::PULL_DELAY_WHEN_ERROR;

/// The broker's word for "an operator moved the offset".
const OFFSET_RESET: &str = "OFFSET_RESET";

impl Client {
    pub(crate) fn offset_illegal(&mut self, epoch: Epoch, answer: PullAnswer, now: Instant) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let from = queue.next_offset;
        let corrected = correction(&answer, from, group.config.offset_beyond_end());
        let reason = answer.remark;
        let keep = corrected > from && reason != OFFSET_RESET;
        self.events.push_back(Event::OffsetCorrected {
            consumer_group: Arc::clone(&group.name),
            queue: queue.queue.clone(),
            from,
            to: corrected,
            reason,
        });
        queue.fruitless += 1;
        let fruitless = queue.fruitless;
        if keep {
            queue.next_offset = corrected;
            queue.bad_record = None;
            self.finished(epoch, now);
            if fruitless > 1 {
                // It does not help: no loop at full speed.
                self.pull_later(epoch, Pull::Failed, now + PULL_DELAY_WHEN_ERROR);
            } else {
                self.pull(epoch, now);
            }
            return;
        }
        // It did not help before: no loop at full speed.
        let not_before = (fruitless > 1).then(|| now + PULL_DELAY_WHEN_ERROR);
        let new = self.begin_again(epoch, corrected, StartPolicy::Corrected, not_before, now);
        if let Some(queue) = new.and_then(|new| self.queues.get_mut(new)) {
            queue.fruitless = fruitless;
        }
    }
}

/// Where to go on. RocketMQ believes the broker; 4.x brokers send a group whose offset is
/// beyond the end of a queue that starts at 0 back to 0, 5.x ones to the end.
fn correction(answer: &PullAnswer, from: QueueOffset, policy: OffsetBeyondEnd) -> QueueOffset {
    let told = answer.next_begin_offset;
    if answer.remark == OFFSET_RESET || from <= answer.max_offset {
        return told;
    }
    match policy {
        OffsetBeyondEnd::Broker => told,
        OffsetBeyondEnd::MinOffset => answer.min_offset,
        OffsetBeyondEnd::MaxOffset => answer.max_offset,
    }
}
