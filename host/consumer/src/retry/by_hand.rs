//! Failed messages of a group whose queues are given by hand.
//!
//! Nobody knows which member should read the group's retry topic, so a message that comes
//! again waits here, with its attempts counted; it keeps the offset of its queue where it
//! is meanwhile. The last attempt makes a dead letter, as ever.

use std::sync::Arc;

use protocol::Instant;
use protocol::delay_level::DelayLevels;

use super::{Verdict, Way};
use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::timers::{LOCAL_RETRY, Timer};

impl Client {
    pub(super) fn is_assigned_by_hand(&self, group: Epoch) -> bool {
        let group = self.groups.get(group);
        group.is_some_and(|group| group.assigned.is_some())
    }

    /// Keeps a message for another attempt, or gives it up.
    pub(super) fn keep_for_retry(&mut self, epoch: Epoch, now: Instant) {
        let Some(back) = self.send_backs.table.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(back.group) else {
            return;
        };
        if let Some(reason) = back.dead_letter(group.config.max_reconsume_times()) {
            let reason = reason.into();
            back.verdict = Verdict::DeadLetter { reason };
            back.way = Way::Publish;
            self.try_way(epoch, now);
            return;
        }
        let level = match back.verdict {
            Verdict::Later { delay_level, .. } => u32::try_from(delay_level).unwrap_or(0),
            Verdict::DeadLetter { .. } => 0,
        };
        let after = DelayLevels::default().delay(level).unwrap_or(LOCAL_RETRY);
        let Some(back) = self.end_send_back(epoch) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(back.queue) {
            let at = now + after;
            queue.retry_at(at, back.message.offset);
            self.timers.set_earliest(Timer::LocalRetry(back.queue), at);
            if let Some(group) = self.groups.get(back.group) {
                self.events.push_back(Event::RetriedHere {
                    consumer_group: Arc::clone(&group.name),
                    queue: queue.queue.clone(),
                    offset: back.message.offset,
                    after,
                });
            }
        }
        self.leave_further(back.group);
    }
}
