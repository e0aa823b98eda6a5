//! Offsets of broadcasting groups: kept by this host, since brokers keep none for them.
//!
//! The rules do no I/O: what is to be read or stored comes out as [`PendingLocalOffsets`],
//! one piece of work a group at a time, and what came of it goes back in. A group starts
//! no queue before its offsets were read. "Nothing is stored" and "could not read" are
//! different answers: the second is asked again. What could not be stored is stored again
//! with the next round, and consuming goes on meanwhile.
//!
//! RocketMQ: `LocalFileOffsetStore`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::{Instant, MessageQueue, QueueOffset};

use crate::client::{Client, GroupId};
use crate::epoch::Epoch;
use crate::event::{Event, StartPolicy, Step};
use crate::group::{ConsumerGroup, Life, Phase};
use crate::listener::MessageModel;
use crate::offset::StartStep;
use crate::planted_bugs::PlantedBug;
use crate::timers::{LOCAL_OFFSETS_RETRY, PERSIST_OFFSETS, Timer};

/// The offsets of one group: the next offset wanted of each queue.
pub type LocalOffsetTable = BTreeMap<MessageQueue, QueueOffset>;

/// Names one piece of work of one client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalOffsetsId {
    pub(crate) group: Epoch,
    pub(crate) number: u64,
}

/// Something to be read or stored.
#[derive(Clone, Debug)]
pub struct PendingLocalOffsets {
    /// Comes back with the result.
    pub id: LocalOffsetsId,
    /// The group's name in the client.
    pub group: GroupId,
    /// Whose offsets.
    pub consumer_group: Arc<str>,
    /// What is to be done.
    pub work: LocalOffsetsWork,
}

/// What is to be done with stored offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalOffsetsWork {
    /// Read what is stored.
    Load,
    /// Store all of it in place of what is there.
    Store(Arc<LocalOffsetTable>),
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedOffsets {
    /// Empty when nothing usable is stored.
    pub offsets: LocalOffsetTable,
    /// Where it comes from.
    pub source: LocalOffsetsSource,
}

/// Which copy was read, and what is wrong with the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalOffsetsSource {
    /// Nothing was ever stored.
    Nothing,
    /// The latest.
    Latest,
    /// The one before; the latest cannot be used.
    Previous {
        /// Why not.
        problem: String,
    },
    /// None: the start policy decides again.
    Lost {
        /// Why none can be used.
        problem: String,
    },
}

/// The work could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct LocalOffsetsError {
    /// What failed, why, and what to do.
    pub reason: String,
}

/// What a broadcasting group knows of its offsets.
#[derive(Debug, Default)]
pub(crate) struct LocalOffsets {
    /// Also of queues that are not there at the moment.
    offsets: LocalOffsetTable,
    is_loaded: bool,
    job: Option<(u64, Job)>,
    next_number: u64,
    /// There are changes that are not in what was last given out to be stored.
    is_changed: bool,
    /// Queues whose choice of a start is to be stored before their first pull.
    starting: Vec<Epoch>,
    /// The last attempt failed.
    problem: Option<String>,
}

#[derive(Debug)]
enum Job {
    Load,
    Store {
        offsets: Arc<LocalOffsetTable>,
        starting: Vec<Epoch>,
    },
}

impl LocalOffsets {
    /// What keeps offsets from being read or stored.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(crate) fn offset(&self, queue: &MessageQueue) -> Option<QueueOffset> {
        self.offsets.get(queue).copied()
    }

    /// The group has begun with this topic before.
    pub(crate) fn knows_topic(&self, topic: &str) -> bool {
        self.offsets.keys().any(|queue| *queue.topic == *topic)
    }

    fn is_storing(&self) -> bool {
        matches!(self.job, Some((_, Job::Store { .. })))
    }

    /// Nothing is left to be stored.
    pub(crate) fn is_stored(&self) -> bool {
        !self.is_storing() && !self.is_changed
    }
}

impl ConsumerGroup {
    /// Every member consumes every queue.
    pub(crate) fn is_broadcasting(&self) -> bool {
        self.config.message_model() == MessageModel::Broadcasting
    }
}

impl Client {
    /// The next piece of work with stored offsets of broadcasting groups.
    pub fn poll_local_offsets(&mut self) -> Option<PendingLocalOffsets> {
        self.local_offsets_work.pop_front()
    }

    /// What is stored of a group, or why it could not be read: it is tried again.
    pub fn handle_local_offsets_loaded(
        &mut self,
        id: LocalOffsetsId,
        result: Result<LoadedOffsets, LocalOffsetsError>,
        now: Instant,
    ) {
        self.local_offsets_loaded(id, result, now);
        self.settle(now);
    }

    /// Offsets were stored, or why not: newer ones are stored later.
    pub fn handle_local_offsets_stored(
        &mut self,
        id: LocalOffsetsId,
        result: Result<(), LocalOffsetsError>,
        now: Instant,
    ) {
        self.local_offsets_stored(id, result, now);
        self.settle(now);
    }

    /// Asks for what is stored of a broadcasting group.
    pub(crate) fn load_local_offsets(&mut self, epoch: Epoch) {
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        if !group.is_broadcasting() || group.local.is_loaded || group.local.job.is_some() {
            return;
        }
        let work = LocalOffsetsWork::Load;
        let pending = group.local_work(epoch, Job::Load, work);
        self.local_offsets_work.push_back(pending);
    }

    fn local_offsets_loaded(
        &mut self,
        id: LocalOffsetsId,
        result: Result<LoadedOffsets, LocalOffsetsError>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(id.group) else {
            return;
        };
        if !matches!(group.local.job, Some((number, Job::Load)) if number == id.number) {
            return;
        }
        group.local.job = None;
        match result {
            Ok(loaded) => {
                self.events.push_back(Event::LocalOffsetsLoaded {
                    consumer_group: Arc::clone(&group.name),
                    queues: loaded.offsets.len(),
                    source: loaded.source,
                });
                // What was noted meanwhile is newer: an operator's word, given at the end.
                let noted = std::mem::replace(&mut group.local.offsets, loaded.offsets);
                group.local.offsets.extend(noted);
                group.local.is_loaded = true;
                group.local.problem = None;
                let held: Vec<Epoch> = group.held().collect();
                if group.local.is_changed {
                    self.local_offsets_due.insert(id.group);
                }
                for queue in held {
                    self.go_on_starting(queue, now);
                }
            }
            Err(error) => {
                let leaves = !group.life.stays();
                if leaves {
                    // Nobody tries again for a group that leaves.
                    group.local.is_changed = false;
                }
                self.tell_local_problem(id.group, error.reason, leaves);
                let at = now + LOCAL_OFFSETS_RETRY;
                self.timers.set(Timer::LocalOffsets(id.group), at);
                self.leave_further(id.group);
            }
        }
    }

    /// Notes an offset of a queue; it is stored with the next round.
    pub(crate) fn note_local_offset(
        &mut self,
        epoch: Epoch,
        queue: MessageQueue,
        offset: QueueOffset,
    ) {
        if let Some(group) = self.groups.get_mut(epoch)
            && group.local.offsets.insert(queue, offset) != Some(offset)
        {
            group.local.is_changed = true;
        }
    }

    /// The last offset of a queue that is no longer ours.
    pub(crate) fn keep_local_offset(
        &mut self,
        epoch: Epoch,
        queue: MessageQueue,
        unconfirmed: Option<QueueOffset>,
    ) {
        if let Some(group) = self.groups.get_mut(epoch) {
            group.releasing.remove(&queue);
        }
        if let Some(offset) = unconfirmed {
            self.note_local_offset(epoch, queue, offset);
            self.store_local_offsets_soon(epoch);
        }
    }

    /// The start that was chosen for a queue is stored before its first pull, so that a
    /// crash does not choose again.
    pub(crate) fn store_start(&mut self, epoch: Epoch, offset: QueueOffset) {
        let Some(queue) = self.queues.get(epoch) else {
            return;
        };
        let (group_epoch, queue) = (queue.group, queue.queue.clone());
        if let Some(group) = self.groups.get_mut(group_epoch)
            && !group.local.is_waited_for(epoch)
        {
            group.local.offsets.insert(queue, offset);
            group.local.is_changed = true;
            group.local.starting.push(epoch);
            self.local_offsets_due.insert(group_epoch);
        }
    }

    /// What of a group is not stored yet is stored as soon as possible.
    pub(crate) fn store_local_offsets_soon(&mut self, epoch: Epoch) {
        self.local_offsets_due.insert(epoch);
    }

    /// What could not be stored is tried again, also when no queue has moved since.
    pub(crate) fn store_unstored_local_offsets(&mut self) {
        let groups = self.groups.iter();
        let unstored = groups.filter(|(_, group)| group.local.is_changed);
        self.local_offsets_due
            .extend(unstored.map(|(epoch, _)| epoch));
    }

    /// Gives out what is due, once for all changes of one input.
    pub(crate) fn store_due_local_offsets(&mut self) {
        let only_held = self.has_bug(PlantedBug::StoreOnlyHeldQueues);
        while let Some(epoch) = self.local_offsets_due.pop_first() {
            // Before all of them are known, some would take the place of all.
            if let Some(group) = self.groups.get_mut(epoch)
                && group.local.is_loaded
                && group.local.is_changed
                && group.local.job.is_none()
            {
                group.local.is_changed = false;
                let mut offsets = group.local.offsets.clone();
                if only_held {
                    let topics = &group.topics;
                    offsets.retain(|queue, _| topics.iter().any(|t| t.held.contains_key(queue)));
                }
                let offsets = Arc::new(offsets);
                let work = LocalOffsetsWork::Store(Arc::clone(&offsets));
                let starting = std::mem::take(&mut group.local.starting);
                let pending = group.local_work(epoch, Job::Store { offsets, starting }, work);
                self.local_offsets_work.push_back(pending);
            }
        }
    }

    fn local_offsets_stored(
        &mut self,
        id: LocalOffsetsId,
        result: Result<(), LocalOffsetsError>,
        now: Instant,
    ) {
        let Some(group) = self.groups.get_mut(id.group) else {
            return;
        };
        let is_ours =
            matches!(group.local.job, Some((number, Job::Store { .. })) if number == id.number);
        let Some((_, Job::Store { offsets, starting })) = group.local.job.take_if(|_| is_ours)
        else {
            return;
        };
        match result {
            Ok(()) => {
                let held: Vec<Epoch> = group.held().collect();
                if group.local.problem.take().is_some() {
                    self.events.push_back(Event::LocalOffsetsRecovered {
                        consumer_group: Arc::clone(&group.name),
                    });
                }
                for epoch in held {
                    if let Some(queue) = self.queues.get_mut(epoch)
                        && queue.commit.finished().is_some()
                        && let Some(&offset) = offsets.get(&queue.queue)
                    {
                        queue.commit.confirm(offset);
                        self.tell_step(epoch, Step::OffsetStored { offset });
                    }
                }
            }
            Err(error) => {
                let leaves = !group.life.stays();
                // Nobody tries again for a group that leaves, unless there is news.
                group.local.is_changed |= !leaves;
                self.tell_local_problem(id.group, error.reason, leaves);
                self.timers
                    .set_earliest(Timer::PersistOffsets, now + PERSIST_OFFSETS);
            }
        }
        for queue in starting {
            self.start_was_stored(queue, now);
        }
        let Some(group) = self.groups.get(id.group) else {
            return;
        };
        if !group.local.starting.is_empty() || (!group.life.stays() && group.local.is_changed) {
            self.local_offsets_due.insert(id.group);
        } else if group.local.is_changed {
            self.timers
                .set_earliest(Timer::PersistOffsets, now + PERSIST_OFFSETS);
        }
        self.leave_further(id.group);
    }

    /// Also when it could not be stored: a full disk stops nobody.
    fn start_was_stored(&mut self, epoch: Epoch, now: Instant) {
        if let Some(queue) = self.queues.get(epoch)
            && let Phase::Starting(start) = &queue.phase
            && let StartStep::Commit(offset, policy) = start.step
            && self.groups.get(queue.group).is_some_and(|g| g.life.stays())
        {
            self.start_pulling(epoch, offset, policy, now);
        }
    }

    /// Once for each row of failures with the same reason.
    fn tell_local_problem(&mut self, epoch: Epoch, reason: String, last: bool) {
        if let Some(group) = self.groups.get_mut(epoch) {
            let told = group.local.problem.as_ref() == Some(&reason);
            group.local.problem = Some(reason.clone());
            if !told || last {
                self.events.push_back(Event::LocalOffsetsFailed {
                    consumer_group: Arc::clone(&group.name),
                    is_loaded: group.local.is_loaded,
                    last,
                    reason,
                });
            }
        }
    }

    /// Where a queue of a broadcasting group begins, as far as this host knows. True when
    /// no broker need be asked for this step.
    pub(crate) fn goes_on_starting_here(
        &mut self,
        epoch: Epoch,
        step: StartStep,
        now: Instant,
    ) -> bool {
        let Some(queue) = self.queues.get(epoch) else {
            return true;
        };
        let Some(group) = self.groups.get(queue.group) else {
            return true;
        };
        match step {
            StartStep::Chosen(_) => false,
            _ if !group.local.is_loaded() => true,
            StartStep::Commit(offset, _) => {
                self.store_start(epoch, offset);
                true
            }
            StartStep::Committed => {
                let mut stored = group.local.offset(&queue.queue);
                if self.has_bug(PlantedBug::ForgetLocalOffsets) {
                    stored = None;
                }
                if group.is_pull_task() {
                    // Where nothing is stored its guest chooses.
                    if let (Some(offset), Some(queue)) = (stored, self.queues.get_mut(epoch)) {
                        queue.commit.begin(offset);
                    }
                    self.begin_task(epoch);
                    return true;
                }
                match stored {
                    Some(offset) => self.start_pulling(epoch, offset, StartPolicy::Committed, now),
                    None => self.choose_start(epoch, now),
                }
                true
            }
        }
    }
}

impl LocalOffsets {
    fn is_waited_for(&self, queue: Epoch) -> bool {
        let storing = match &self.job {
            Some((_, Job::Store { starting, .. })) => &starting[..],
            _ => &[],
        };
        self.starting.contains(&queue) || storing.contains(&queue)
    }
}

impl ConsumerGroup {
    fn local_work(
        &mut self,
        epoch: Epoch,
        job: Job,
        work: LocalOffsetsWork,
    ) -> PendingLocalOffsets {
        let number = self.local.next_number;
        self.local.next_number += 1;
        self.local.job = Some((number, job));
        PendingLocalOffsets {
            id: LocalOffsetsId {
                group: epoch,
                number,
            },
            group: GroupId(epoch),
            consumer_group: Arc::clone(&self.name),
            work,
        }
    }

    /// Its offsets are where they will be found again, or nobody tries any more.
    pub(crate) fn has_stored_offsets(&self) -> bool {
        debug_assert!(!matches!(self.life, Life::Unregistering));
        self.releasing.is_empty() && self.local.is_stored()
    }
}

impl fmt::Display for LocalOffsetsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing is stored yet"),
            Self::Latest => f.write_str("the latest ones"),
            Self::Previous { problem } => write!(f, "the ones before the latest: {problem}"),
            Self::Lost { problem } => write!(f, "none: {problem}"),
        }
    }
}
