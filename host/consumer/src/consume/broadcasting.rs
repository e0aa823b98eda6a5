//! What becomes of a failed message of a broadcasting group: there is no retry topic and
//! there are no dead letters, for a message that failed here went well elsewhere.
//!
//! It is dropped, or, when the group asks for it, tried again here after a while, so many
//! times. A message that waits keeps the offset of its queue where it is; other messages
//! of the queue, and other queues, go on.
//!
//! RocketMQ: `ConsumeMessageConcurrentlyService#processConsumeResult`, which drops.

use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;
use protocol::delay_level::DelayLevels;

use crate::client::Client;
use crate::config::BroadcastRetry;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::planted_bugs::PlantedBug;
use crate::process_queue::FailedMessage;
use crate::retry::Verdict;
use crate::timers::{BROADCAST_RETRY, BROADCAST_RETRY_MAX, Timer};

/// What is done about it.
enum Fate {
    Dropped(Arc<str>),
    Waits(Duration),
}

impl Client {
    /// A listener could not consume a message, or nobody can: back to the broker, or what
    /// broadcasting does in its place.
    pub(crate) fn message_failed(
        &mut self,
        epoch: Epoch,
        message: FailedMessage,
        verdict: Verdict,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        if group.is_orderly() {
            queue.orderly.dead_letter_begins();
        }
        if group.is_broadcasting() {
            self.failed_in_broadcast(epoch, &message, &verdict, now);
        } else {
            self.send_back(epoch, message, verdict);
        }
    }

    fn failed_in_broadcast(
        &mut self,
        epoch: Epoch,
        message: &FailedMessage,
        verdict: &Verdict,
        now: Instant,
    ) {
        let forgets_retry = self.has_bug(PlantedBug::DropBroadcastRetry);
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return;
        };
        let tried = message.local_reconsume_times;
        let retry = group.config.broadcast_retry();
        match fate(retry, tried, group.config.max_reconsume_times(), verdict) {
            Fate::Waits(after) if !forgets_retry => {
                let at = now + after;
                queue.retry_at(at, message.offset);
                self.timers.set_earliest(Timer::LocalRetry(epoch), at);
                self.events.push_back(Event::RetriedHere {
                    consumer_group: Arc::clone(&group.name),
                    queue: queue.queue.clone(),
                    offset: message.offset,
                    after,
                });
            }
            fate => {
                self.events.push_back(Event::MessageDropped {
                    consumer_group: Arc::clone(&group.name),
                    queue: queue.queue.clone(),
                    offset: message.offset,
                    reason: match fate {
                        Fate::Dropped(reason) => reason,
                        Fate::Waits(_) => "".into(),
                    },
                });
                let before = queue.process_queue.held_bytes();
                let removed = queue.process_queue.remove_failed(message.offset);
                debug_assert!(removed, "a failed message is gone");
                let held = before - queue.process_queue.held_bytes();
                let group = queue.group;
                self.give_memory_back(group, held);
                self.orderly_dead_letter_ended(epoch, now);
            }
        }
    }
}

fn fate(retry: BroadcastRetry, tried: u32, max: Option<u32>, verdict: &Verdict) -> Fate {
    let delay_level = match verdict {
        Verdict::DeadLetter { reason } => return Fate::Dropped(Arc::clone(reason.text())),
        Verdict::Later { delay_level, .. } => *delay_level,
    };
    let Ok(level) = u32::try_from(delay_level) else {
        return Fate::Dropped("answered with delay level -1, no further attempt".into());
    };
    if retry == BroadcastRetry::Drop {
        return Fate::Dropped("the listener failed, and broadcast_retry = \"drop\"".into());
    }
    if let Some(max) = max.filter(|&max| tried >= max) {
        return Fate::Dropped(format!("max_reconsume_times = {max} is reached").into());
    }
    let asked_for = DelayLevels::default().delay(level);
    let by_itself = BROADCAST_RETRY.saturating_mul(1 << tried.min(16));
    Fate::Waits(asked_for.unwrap_or(by_itself).min(BROADCAST_RETRY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(delay_level: i32) -> Verdict {
        Verdict::later(delay_level)
    }

    #[test]
    fn waits_double_up_to_their_bound_and_end_with_the_attempts() {
        let waits = |tried, level| match fate(BroadcastRetry::Local, tried, Some(16), &later(level))
        {
            Fate::Waits(after) => after.as_secs(),
            Fate::Dropped(reason) => panic!("{reason}"),
        };
        let by_itself: Vec<u64> = (0..7).map(|tried| waits(tried, 0)).collect();
        assert_eq!(by_itself, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!((waits(0, 2), waits(0, 18)), (5, 30));
        for (retry, tried, verdict) in [
            (BroadcastRetry::Local, 16, later(0)),
            (BroadcastRetry::Local, 0, later(-1)),
            (BroadcastRetry::Drop, 0, later(3)),
        ] {
            let fate = fate(retry, tried, Some(16), &verdict);
            assert!(matches!(fate, Fate::Dropped(_)));
        }
    }
}
