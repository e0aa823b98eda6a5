//! [`Step`]: what happens again and again when all goes well, before and after. Told only
//! when [`ClientConfig::tells_steps`](crate::ClientConfig) says so, so that it costs
//! nothing when nobody listens; then one event for each pull, call and stored offset,
//! never one for a message.

use std::sync::Arc;

use protocol::{MessageQueue, QueueOffset};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::Event;

/// Something that a queue of ours does all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The broker is asked for messages.
    PullSent {
        /// The first one wanted.
        offset: QueueOffset,
    },
    /// It has answered a pull of ours.
    PullAnswered {
        /// Messages in the answer.
        messages: u32,
    },
    /// Messages are about to reach a listener; `Event::Consumed` is the end.
    CallBegun {
        /// The first message.
        first_offset: QueueOffset,
        /// How many.
        messages: u32,
    },
    /// A run of the queue's pull task is about to begin; `Event::PullTaskRan` is the end.
    PullTaskBegun,
    /// The broker, or the disk of a broadcasting group, has the offset.
    OffsetStored {
        /// Everything below is finished.
        offset: QueueOffset,
    },
}

impl Client {
    /// Tells of a step of a queue, if anybody listens.
    pub(crate) fn tell_step(&mut self, epoch: Epoch, step: Step) {
        if self.config.tells_steps
            && let Some(queue) = self.queues.get(epoch)
        {
            let (group, queue) = (queue.group, queue.queue.clone());
            self.push_step(group, queue, step);
        }
    }

    /// The same of a queue that is no longer ours.
    pub(crate) fn tell_last_step(&mut self, group: Epoch, queue: &MessageQueue, step: Step) {
        if self.config.tells_steps {
            self.push_step(group, queue.clone(), step);
        }
    }

    fn push_step(&mut self, group: Epoch, queue: MessageQueue, step: Step) {
        if let Some(group) = self.groups.get(group) {
            self.events.push_back(Event::Step {
                consumer_group: Arc::clone(&group.name),
                queue,
                step,
            });
        }
    }
}
