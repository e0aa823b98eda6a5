//! A queue goes on somewhere else, because somebody says so.
//!
//! The assignment ends, with everything that was fetched for it, and a new one begins at
//! the place: results of calls under way find no epoch and commit nothing. A place that
//! must be asked for is asked first; until the answer the queue goes on as it was.
//!
//! RocketMQ: `DefaultLitePullConsumer#seek`, `#seekToBegin`, `#seekToEnd`,
//! `#offsetForTimestamp`.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, GroupId, Purpose};
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy};
use crate::planted_bugs::PlantedBug;
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

/// What happens to messages between here and there that were not consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekForward {
    /// They are passed over, for good.
    Skips,
    /// The queue stays where it is.
    Refused,
}

/// Names one seek of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeekId(pub u64);

/// A queue goes on somewhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sought {
    /// Everything below was finished, if anything was begun.
    pub from: Option<QueueOffset>,
    /// Where it goes on.
    pub to: QueueOffset,
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
    /// Nobody knows yet how far it is, so that nobody can say what would be skipped.
    #[error("{queue} is still asking where the group begins; seek again when it consumes")]
    NotBegun {
        /// The queue.
        queue: MessageQueue,
    },
    /// [`SeekForward::Refused`], and messages would be passed over.
    #[error("going on at {to} skips {} messages of {queue}, which is at {from}", .to.0 - .from.0)]
    WouldSkip {
        /// The queue.
        queue: MessageQueue,
        /// Everything below is finished.
        from: QueueOffset,
        /// Where it would go on; more than `from`.
        to: QueueOffset,
    },
    /// The broker did not say where that is.
    #[error("the broker of {queue} does not say where that is: {error}; seek again")]
    Failed {
        /// The queue.
        queue: MessageQueue,
        /// Its words.
        error: RequestError,
    },
    /// The place was found out, and the queue had been given back or moved elsewhere.
    #[error(
        "{queue} was given back or moved elsewhere meanwhile; seek again where it is consumed now"
    )]
    Ended {
        /// The queue.
        queue: MessageQueue,
    },
}

/// Why the place that a queue was to go on at was not taken, as the event has it.
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

/// A seek whose place is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seeking {
    id: SeekId,
    group: Epoch,
    queue: MessageQueue,
    epoch: Epoch,
    forward: SeekForward,
}

/// What came of seeks.
#[derive(Debug, Default)]
pub(crate) struct Seeks {
    next: u64,
    results: VecDeque<(SeekId, Result<Sought, SeekError>)>,
}

impl Seeks {
    pub(crate) fn poll(&mut self) -> Option<(SeekId, Result<Sought, SeekError>)> {
        self.results.pop_front()
    }
}

impl Client {
    pub(crate) fn seek_queue(
        &mut self,
        group: GroupId,
        queue: &MessageQueue,
        to: SeekTo,
        forward: SeekForward,
        now: Instant,
    ) -> SeekId {
        let id = SeekId(self.seeks.next);
        self.seeks.next += 1;
        if let Err(error) = self.begin_seek(id, group, queue, to, forward, now) {
            self.seeks.results.push_back((id, Err(error)));
        }
        id
    }

    fn begin_seek(
        &mut self,
        id: SeekId,
        group: GroupId,
        queue: &MessageQueue,
        to: SeekTo,
        forward: SeekForward,
        now: Instant,
    ) -> Result<(), SeekError> {
        let seeking = Seeking {
            id,
            group: group.0,
            queue: queue.clone(),
            epoch: self.sought_queue(group.0, queue)?,
            forward,
        };
        let queue = queue.clone();
        let request = match to {
            SeekTo::Offset(offset) => {
                self.go_on_at(&seeking, offset, now);
                return Ok(());
            }
            SeekTo::MinOffset => Request::GetMinOffset { queue },
            SeekTo::MaxOffset => Request::GetMaxOffset { queue },
            SeekTo::Timestamp(timestamp_ms) => Request::SearchOffset {
                queue,
                timestamp_ms,
            },
        };
        let broker = self.routes.broker(&seeking.queue.broker_name);
        let replica = self.routes.master(broker);
        let replica = replica.ok_or_else(|| SeekError::NoBroker {
            queue: self.queue_without_namespace(&seeking.queue),
        })?;
        self.request(
            Purpose::Seek(Box::new(seeking)),
            Destination::Broker(replica.address),
            Some(replica.peer),
            request,
            timeout::QUEUE_OFFSET,
        );
        Ok(())
    }

    /// The assignment of a queue that the group has and keeps.
    fn sought_queue(&self, group: Epoch, queue: &MessageQueue) -> Result<Epoch, SeekError> {
        let group = self.groups.get(group);
        let group = group.filter(|group| group.life.stays());
        let group = group.ok_or(SeekError::Leaving)?;
        let mut topics = group.topics.iter();
        let held = topics.find_map(|topic| topic.held.get(queue).copied());
        held.ok_or_else(|| SeekError::NotHeld {
            queue: self.queue_without_namespace(queue),
        })
    }

    /// The place is known, or not. It is for the assignment that was asked about: one that
    /// has ended since was given back, or moved by somebody else.
    pub(crate) fn handle_seek(
        &mut self,
        seeking: &Seeking,
        result: Result<Response, RequestError>,
        now: Instant,
    ) {
        let error = match result {
            Ok(Response::Offset(offset)) => {
                let is_ended = self.go_on_at(seeking, offset, now);
                if is_ended {
                    self.seek_failed(seeking, SeekFailure::Ended);
                }
                return;
            }
            Ok(_) => RequestError::Malformed {
                reason: "an answer to another question".to_owned(),
            },
            Err(error) => error,
        };
        let queue = self.queue_without_namespace(&seeking.queue);
        let failed = SeekError::Failed {
            queue,
            error: error.clone(),
        };
        self.seeks.results.push_back((seeking.id, Err(failed)));
        self.seek_failed(seeking, SeekFailure::Broker(error));
    }

    fn seek_failed(&mut self, seeking: &Seeking, error: SeekFailure) {
        if let Some(group) = self.groups.get(seeking.group) {
            self.events.push_back(Event::SeekFailed {
                consumer_group: Arc::clone(&group.name),
                queue: seeking.queue.clone(),
                error,
            });
        }
    }

    /// True when the queue is not ours any more, or about to be somebody else's.
    fn go_on_at(&mut self, seeking: &Seeking, to: QueueOffset, now: Instant) -> bool {
        let result = self.try_to_go_on_at(seeking, to, now);
        let is_ended = matches!(result, Err(SeekError::Ended { .. }));
        self.seeks.results.push_back((seeking.id, result));
        is_ended
    }

    fn try_to_go_on_at(
        &mut self,
        seeking: &Seeking,
        to: QueueOffset,
        now: Instant,
    ) -> Result<Sought, SeekError> {
        let queue = self.queue_without_namespace(&seeking.queue);
        let held = self.sought_queue(seeking.group, &seeking.queue);
        let held = held.ok().filter(|&held| held == seeking.epoch);
        let assigned = held.and_then(|held| self.queues.get(held));
        let Some(assigned) = assigned.filter(|assigned| !assigned.is_leaving()) else {
            return Err(SeekError::Ended { queue });
        };
        let from = assigned.commit.finished();
        if seeking.forward == SeekForward::Refused {
            match from {
                None => return Err(SeekError::NotBegun { queue }),
                Some(from) if to > from => return Err(SeekError::WouldSkip { queue, from, to }),
                Some(_) => {}
            }
        }
        if let Some(group) = self.groups.get(seeking.group) {
            self.events.push_back(Event::Sought {
                consumer_group: Arc::clone(&group.name),
                queue: seeking.queue.clone(),
                from,
                to,
            });
        }
        if self.has_bug(PlantedBug::SeekKeepsCalls)
            && let Some(queue) = self.queues.get_mut(seeking.epoch)
            && from.is_some()
        {
            queue.next_offset = to;
            queue.commit.force(to);
            return Ok(Sought { from, to });
        }
        self.begin_again(seeking.epoch, to, StartPolicy::Sought, None, now);
        Ok(Sought { from, to })
    }
}
