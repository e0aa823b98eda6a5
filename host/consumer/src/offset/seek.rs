//! A queue goes on somewhere else, because somebody says so.
//!
//! The assignment ends, with everything that was fetched for it, and a new one begins at
//! the place: results of calls under way find no epoch and commit nothing. A place that
//! must be asked for is asked first; until the answer the queue goes on as it was.
//!
//! RocketMQ: `DefaultLitePullConsumer#seek`, `#seekToBegin`, `#seekToEnd`,
//! `#offsetForTimestamp`.

use std::sync::Arc;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, GroupId, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::request::{Destination, Request, RequestError, Response};
use crate::timers::timeout;

/// Where to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Here.
    Offset(QueueOffset),
    /// At the oldest message.
    MinOffset,
    /// At the end.
    MaxOffset,
    /// At the first message stored at this time or later, Unix milliseconds.
    Timestamp(u64),
}

/// Why a queue stays where it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SeekError {
    /// It belongs to another member, or to nobody.
    #[error("{queue} is not ours; seek where its owner runs")]
    NotHeld {
        /// The queue.
        queue: MessageQueue,
    },
    /// No address of its broker is known.
    #[error("no address of the broker of {queue} is known")]
    NoBroker {
        /// The queue.
        queue: MessageQueue,
    },
    /// The group is not there, or leaves.
    #[error("the group is leaving")]
    Leaving,
}

/// Why the place that a queue was to go on at was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SeekFailure {
    /// The queue was given back, or moved to another place, before the broker had answered.
    #[error(
        "the queue was given back or moved elsewhere meanwhile; seek again where it is consumed now"
    )]
    Ended,
    /// The broker did not say, or not in time.
    #[error("the broker: {0}")]
    Broker(RequestError),
}

impl Client {
    pub(crate) fn seek_queue(
        &mut self,
        group: GroupId,
        queue: &MessageQueue,
        to: SeekTo,
        now: Instant,
    ) -> Result<(), SeekError> {
        let group_epoch = group.0;
        let group = self.groups.get(group_epoch);
        let group = group.filter(|group| group.life.stays());
        let group = group.ok_or(SeekError::Leaving)?;
        let mut topics = group.topics.iter();
        let held = topics.find_map(|topic| topic.held.get(queue).copied());
        let epoch = held.ok_or_else(|| SeekError::NotHeld {
            queue: self.queue_without_namespace(queue),
        })?;
        let request = match to {
            SeekTo::Offset(offset) => {
                self.go_on_at(epoch, offset, now);
                return Ok(());
            }
            SeekTo::MinOffset => Request::GetMinOffset {
                queue: queue.clone(),
            },
            SeekTo::MaxOffset => Request::GetMaxOffset {
                queue: queue.clone(),
            },
            SeekTo::Timestamp(timestamp_ms) => Request::SearchOffset {
                queue: queue.clone(),
                timestamp_ms,
            },
        };
        let broker = self.routes.broker(&queue.broker_name);
        let replica = self.routes.master(broker);
        let replica = replica.ok_or_else(|| SeekError::NoBroker {
            queue: self.queue_without_namespace(queue),
        })?;
        self.request(
            Purpose::Seek {
                group: group_epoch,
                assignment: epoch,
                queue: queue.clone(),
            },
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::QUEUE_OFFSET,
        );
        Ok(())
    }

    /// The place is known, or not. It is for the assignment that was asked about: one that
    /// has ended since was given back, or moved by somebody else.
    pub(crate) fn handle_seek(
        &mut self,
        group: Epoch,
        assignment: Epoch,
        queue: MessageQueue,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let error = match result {
            Ok(Response::Offset(offset)) if self.go_on_at(assignment, offset, now) => return,
            Ok(Response::Offset(_)) => SeekFailure::Ended,
            Ok(_) => SeekFailure::Broker(RequestError::Malformed {
                reason: "an answer to another question".to_owned(),
            }),
            Err(error) => SeekFailure::Broker(error),
        };
        if let Some(group) = self.groups.get(group) {
            self.events.push_back(Event::SeekFailed {
                consumer_group: Arc::clone(&group.name),
                queue,
                error,
            });
        }
    }

    /// False when the queue is not ours any more, or is about to be somebody else's.
    fn go_on_at(&mut self, epoch: Epoch, to: QueueOffset, now: Instant) -> bool {
        let queue = self.queues.get(epoch);
        let Some(queue) = queue.filter(|queue| !queue.is_leaving()) else {
            return false;
        };
        let group = self.groups.get(queue.group);
        let Some(group) = group.filter(|group| group.life.stays()) else {
            return false;
        };
        self.events.push_back(Event::Sought {
            consumer_group: Arc::clone(&group.name),
            queue: queue.queue.clone(),
            from: queue.commit.finished(),
            to,
        });
        self.begin_again(epoch, to, StartPolicy::Sought, None, now);
        true
    }
}
