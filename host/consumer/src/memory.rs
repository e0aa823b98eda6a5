//! Bytes of fetched messages: what the client may hold, what each group may, and who is
//! pulled when some are given back.
//!
//! A client is a tenant's, and a group is a plugin's. Half of the client's `buffer_bytes`
//! is divided among its groups: the share that nobody takes from them. The other half is
//! for whoever needs more. So a group that hoards, because its listener hangs or is paused,
//! fills the common half and its own share, and the others go on with theirs. A group has
//! a bound of its own beside that, if it was given one.
//!
//! All is counted when an answer arrives, by the size of its frame; pulls under way reserve
//! nothing, since most are held by the broker with nothing to say. An answer that does not
//! fit is thrown away and asked for again. A group that holds nothing may take an answer
//! that is larger than its bounds; one at a time is held beyond the client's. So whatever
//! the sizes, somebody makes progress.

use std::collections::{BTreeSet, VecDeque};

use protocol::Instant;

use crate::client::Client;
use crate::epoch::{Epoch, EpochTable};
use crate::group::{AssignedQueue, ConsumerGroup, Phase};
use crate::pull::Pull;
use crate::status::FlowControl;
use crate::timers::{PULL_DELAY_WHEN_CACHE_FLOW_CONTROL, Timer};

/// What all groups of a client hold.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The client's `buffer_bytes`.
    bytes_max: u64,
    held_bytes: u64,
    /// Of these, what groups hold beyond their shares.
    common_bytes: u64,
    /// What is each group's own.
    share_bytes: u64,
    /// Bound of `common_bytes`.
    common_bytes_max: u64,
    /// Since the last input was settled.
    overdraft_ended: bool,
    /// Groups with queues that wait, in turn.
    waiting: VecDeque<Epoch>,
    /// Groups that have given some back since the last input was settled.
    given_back: Vec<Epoch>,
}

impl Memory {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    #[cfg(test)]
    pub(crate) fn is_anybody_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nothing more may be asked for by this group, which gives so many bytes back
    /// when the answer comes.
    pub(crate) fn is_full_for(&self, group: &ConsumerGroup, replaced: u64) -> Option<FlowControl> {
        let held = group.memory.held_bytes - replaced;
        let common = self.common_bytes
            - (self.beyond_share(group.memory.held_bytes) - self.beyond_share(held));
        if group.config.buffer_bytes().is_some_and(|max| held >= max) {
            Some(FlowControl::GroupBuffer)
        } else if held >= self.share_bytes && common >= self.common_bytes_max {
            Some(FlowControl::Buffer)
        } else {
            None
        }
    }

    /// Whether an answer of this size is more than this group may have now.
    pub(crate) fn is_too_much_for(&self, group: &ConsumerGroup, bytes: u64) -> Option<FlowControl> {
        let before = group.memory.held_bytes;
        let after = before + bytes;
        let holds_nothing = before == 0;
        if group.config.buffer_bytes().is_some_and(|max| after > max) && !holds_nothing {
            return Some(FlowControl::GroupBuffer);
        }
        let common = self.common_bytes + self.beyond_share(after) - self.beyond_share(before);
        let fits = self.beyond_share(after) == 0 || common <= self.common_bytes_max;
        let is_first = holds_nothing && !self.is_overdrawn();
        (!fits && !is_first).then_some(FlowControl::Buffer)
    }

    /// A group has more than fits.
    fn is_overdrawn(&self) -> bool {
        self.common_bytes > self.common_bytes_max
    }

    /// What of so many bytes of a group is not in its share.
    fn beyond_share(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.share_bytes)
    }
}

/// What one group holds, and which of its queues wait for more.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory {
    held_bytes: u64,
    /// Queues that are not pulled until there is room, longest first. Some may have gone.
    waiting: VecDeque<Epoch>,
    /// It stands in the client's list.
    is_waiting: bool,
}

impl GroupMemory {
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

/// How full a bound may be for a pull that waits. Not before a quarter is free, or answers
/// would be asked for only to be thrown away.
fn low(bound: u64) -> u64 {
    bound - bound / 4
}

impl Client {
    /// Groups came or went: divides anew.
    pub(crate) fn divide_memory(&mut self) {
        let groups = self.groups.len() as u64;
        let memory = &mut self.memory;
        memory.share_bytes = memory.bytes_max / 2 / groups.max(1);
        memory.common_bytes_max = memory.bytes_max - memory.share_bytes * groups;
        let held = self.groups.iter().map(|(_, group)| group.memory.held_bytes);
        memory.common_bytes = held.map(|bytes| memory.beyond_share(bytes)).sum();
        // Whoever waits may have room now, though nobody has given anything back.
        if let Some(&group) = memory.waiting.front() {
            memory.overdraft_ended = true;
            memory.given_back.push(group);
        }
    }

    /// An answer is held from now on.
    pub(crate) fn hold_memory(&mut self, group: Epoch, bytes: u64) {
        self.memory.held_bytes += bytes;
        if let Some(group) = self.groups.get_mut(group) {
            let before = group.memory.held_bytes;
            group.memory.held_bytes += bytes;
            let after = group.memory.held_bytes;
            self.memory.common_bytes +=
                self.memory.beyond_share(after) - self.memory.beyond_share(before);
        }
    }

    /// Answers were finished to their last message.
    pub(crate) fn give_memory_back(&mut self, epoch: Epoch, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.memory.held_bytes -= bytes;
        if let Some(group) = self.groups.get_mut(epoch) {
            let before = group.memory.held_bytes;
            group.memory.held_bytes -= bytes;
            let after = group.memory.held_bytes;
            let was_overdrawn = self.memory.is_overdrawn();
            self.memory.common_bytes -=
                self.memory.beyond_share(before) - self.memory.beyond_share(after);
            self.memory.overdraft_ended |= was_overdrawn && !self.memory.is_overdrawn();
        }
        if !self.memory.waiting.is_empty() && self.memory.given_back.last() != Some(&epoch) {
            self.memory.given_back.push(epoch);
        }
    }

    /// A queue is not pulled until there is room.
    pub(crate) fn wait_for_memory(&mut self, epoch: Epoch, bound: FlowControl) {
        if let Some(waiting) = self.begin_to_wait(epoch, bound) {
            waiting.push_back(epoch);
        }
    }

    /// The same for a queue whose answer was thrown away: it is the first to be pulled
    /// again, or it might always come second.
    pub(crate) fn wait_first_for_memory(&mut self, epoch: Epoch, bound: FlowControl) {
        if let Some(waiting) = self.begin_to_wait(epoch, bound) {
            waiting.push_front(epoch);
        }
    }

    /// Where the queue is to be put.
    fn begin_to_wait(&mut self, epoch: Epoch, bound: FlowControl) -> Option<&mut VecDeque<Epoch>> {
        let queue = self.queues.get_mut(epoch)?;
        queue.phase = Phase::Pulling(Pull::FlowControl(bound));
        let group_epoch = queue.group;
        let group = self.groups.get_mut(group_epoch)?;
        if !std::mem::replace(&mut group.memory.is_waiting, true) {
            self.memory.waiting.push_back(group_epoch);
        }
        let held: usize = group.topics.iter().map(|topic| topic.held.len()).sum();
        let waiting = &mut group.memory.waiting;
        if waiting.len() > 2 * held {
            waiting.retain(|&queue| is_waiting(&self.queues, queue));
        }
        Some(waiting)
    }

    /// A group is gone, and its share with it.
    pub(crate) fn forget_memory_of(&mut self, group: Epoch) {
        self.memory.waiting.retain(|&waiting| waiting != group);
        self.divide_memory();
    }

    /// Memory may have been given back.
    pub(crate) fn wake_who_waits_for_memory(&mut self, now: Instant) {
        if self.memory.given_back.is_empty() {
            return;
        }
        let mut given_back = std::mem::take(&mut self.memory.given_back);
        let overdraft_ended = std::mem::take(&mut self.memory.overdraft_ended);
        if overdraft_ended || self.memory.common_bytes <= low(self.memory.common_bytes_max) {
            self.pull_who_waits_for_memory(now);
        } else {
            // Only their own shares and bounds can have room.
            for &group in &given_back {
                self.take_turns(&[group], now);
            }
        }
        given_back.clear();
        self.memory.given_back = given_back;
    }

    /// Pulls what waits for memory, as many queues as there may be room for.
    pub(crate) fn pull_who_waits_for_memory(&mut self, now: Instant) {
        let mut groups = Vec::from(std::mem::take(&mut self.memory.waiting));
        let served = self.take_turns(&groups, now);
        groups.retain(|&epoch| {
            let group = self.groups.get_mut(epoch);
            group.is_some_and(|group| {
                group.memory.is_waiting = !group.memory.waiting.is_empty();
                group.memory.is_waiting
            })
        });
        // Those that had no turn come first the next time.
        groups.sort_by_key(|group| served.contains(group));
        self.memory.waiting = groups.into();
    }

    /// Groups take turns, and so do the queues of a group. Those that are pulled may have
    /// nothing to be pulled: if there is still room in a moment, others have their turn.
    /// Returns the groups that had one.
    fn take_turns(&mut self, groups: &[Epoch], now: Instant) -> BTreeSet<Epoch> {
        let mut served = BTreeSet::new();
        let mut common_asked = 0;
        let mut turns: VecDeque<Turn> = groups
            .iter()
            .filter_map(|&group| {
                let queues = self.groups.get(group)?.memory.waiting.len();
                let asked = 0;
                Some(Turn {
                    group,
                    queues,
                    asked,
                })
            })
            .collect();
        while let Some(mut turn) = turns.pop_front() {
            let Some(group) = self.groups.get(turn.group) else {
                continue;
            };
            if !self.has_room(group, turn.asked, common_asked) {
                continue;
            }
            let bytes = u64::from(group.config.pull_batch_size_in_bytes());
            let before = group.memory.held_bytes + turn.asked;
            let Some(queue) = self.next_waiting_queue(&mut turn) else {
                continue;
            };
            served.insert(turn.group);
            common_asked +=
                self.memory.beyond_share(before + bytes) - self.memory.beyond_share(before);
            turn.asked += bytes;
            self.pull(queue, now);
            turns.push_back(turn);
        }
        let mut groups = groups.iter().filter_map(|&group| self.groups.get(group));
        if !served.is_empty() && groups.any(|group| !group.memory.waiting.is_empty()) {
            let at = now + PULL_DELAY_WHEN_CACHE_FLOW_CONTROL;
            self.timers.set_earliest(Timer::Buffer, at);
        }
        served
    }

    /// Whether a group that waits may pull once more, with so much asked for already.
    fn has_room(&self, group: &ConsumerGroup, asked: u64, common_asked: u64) -> bool {
        let below = |bytes, asked, bound| match asked {
            0 => bytes < bound && bytes <= low(bound),
            _ => bytes + asked < bound,
        };
        let memory = &self.memory;
        let held = group.memory.held_bytes;
        let after = held + asked + u64::from(group.config.pull_batch_size_in_bytes());
        let may_be_first = held + asked == 0 && !memory.is_overdrawn();
        let max = group.config.buffer_bytes();
        max.is_none_or(|max| held + asked == 0 || below(held, asked, max))
            && (may_be_first
                || after <= memory.share_bytes
                || below(memory.common_bytes, common_asked, memory.common_bytes_max))
    }

    /// The queue of the group that has waited longest; each comes once in a turn.
    fn next_waiting_queue(&mut self, turn: &mut Turn) -> Option<Epoch> {
        let group = self.groups.get_mut(turn.group)?;
        while turn.queues > 0 {
            turn.queues -= 1;
            let queue = group.memory.waiting.pop_front()?;
            if is_waiting(&self.queues, queue) {
                return Some(queue);
            }
        }
        None
    }
}

/// A group that waits, and what it has been given.
struct Turn {
    group: Epoch,
    /// Queues that have not had their turn.
    queues: usize,
    /// What its pulls may bring.
    asked: u64,
}

fn is_waiting(queues: &EpochTable<AssignedQueue>, epoch: Epoch) -> bool {
    match queues.get(epoch).map(|queue| &queue.phase) {
        Some(Phase::Pulling(Pull::FlowControl(bound))) => bound.is_of_memory(),
        _ => false,
    }
}
