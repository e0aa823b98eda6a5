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
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::offset::StartStep;
use crate::pull::Pull;
use crate::timers::PULL_DELAY_WHEN_ERROR;

/// The broker's word for "an operator moved the offset".
const OFFSET_RESET: &str = "OFFSET_RESET";

impl Client {
    pub(crate) fn offset_illegal(
        &mut self,
        epoch: Epoch,
        corrected: QueueOffset,
        reason: String,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let from = queue.next_offset;
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
        let (group, topic_index) = (queue.group, queue.topic_index);
        if let Some(old) = self.forget_queue(epoch) {
            let step = StartStep::Commit(corrected, StartPolicy::Corrected);
            let new = self.assign(group, topic_index, old.queue, step, now);
            if let Some(queue) = self.queues.get_mut(new) {
                queue.fruitless = fruitless;
            }
            if fruitless > 1 {
                let timer = crate::timers::Timer::Queue(new);
                self.timers.set(timer, now + PULL_DELAY_WHEN_ERROR);
            } else {
                self.go_on_starting(new, now);
            }
        }
    }
}
