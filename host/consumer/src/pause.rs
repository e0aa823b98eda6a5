//! Pauses and drains that somebody asked for: of a group, a topic of it, or a queue.
//!
//! A queue is held back while any of the three is paused. Held back means that nothing
//! more is fetched: an answer to a pull that comes later is thrown away and its offset
//! asked for again at the end. What was fetched before is still consumed, and offsets are
//! still committed. A drain is a pause whose end is told: everything fetched was finished
//! and the broker has confirmed the offsets.
//!
//! Pauses of groups and topics outlive rebalances; that of a queue ends when a
//! rebalance gives the queue away, since whoever has it next knows nothing of it. RocketMQ:
//! `DefaultMQPushConsumer#suspend`, for groups only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use protocol::{Instant, MessageQueue};

use crate::client::{Client, GroupId};
use crate::epoch::Epoch;
use crate::event::Event;
use crate::group::{ConsumerGroup, Phase};
use crate::pull::Pull;
use crate::pull_task::run::Task;
use crate::timers::Timer;

/// What is held back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PauseScope {
    /// All of a group, its retry topic included.
    Group,
    /// One topic of it. Its retries come from the retry topic, which is a topic of its own.
    Topic(Arc<str>),
    /// One queue that is ours.
    Queue(MessageQueue),
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group => f.write_str("the group"),
            Self::Topic(topic) => write!(f, "topic \"{topic}\""),
            Self::Queue(queue) => write!(f, "queue {queue}"),
        }
    }
}

/// Whether the end of what was fetched is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseKind {
    /// No more pulls.
    Pause,
    /// The same, and it is told when nothing is left and the offsets are stored.
    Drain,
}

/// Why a pause did not begin or end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PauseError {
    /// It has left, or is on its way.
    #[error("the group is leaving")]
    Leaving,
    /// The group does not read the topic.
    #[error("the group is not subscribed to topic \"{topic}\"")]
    NotSubscribed {
        /// The topic given.
        topic: Arc<str>,
    },
    /// Somebody else has the queue, or nobody.
    #[error("queue {queue} is not ours now")]
    NotHeld {
        /// The queue given.
        queue: MessageQueue,
    },
    /// There is nothing to be ended.
    #[error("{scope} is not paused")]
    NotPaused {
        /// What was to go on.
        scope: PauseScope,
    },
}

/// One pause.
#[derive(Clone, Debug)]
pub(crate) struct Pause {
    pub(crate) kind: PauseKind,
    /// Who asked, and why: for people.
    pub(crate) by: Arc<str>,
    pub(crate) since: Instant,
    /// A drain that is at its end.
    pub(crate) drained: bool,
}

/// The pauses of a group.
#[derive(Debug, Default)]
pub(crate) struct Pauses(BTreeMap<PauseScope, Pause>);

impl Pauses {
    /// What holds a queue back, the widest first.
    pub(crate) fn of(&self, queue: &MessageQueue) -> Option<(&PauseScope, &Pause)> {
        // Most groups have none, and this is asked with every pull.
        if self.0.is_empty() {
            return None;
        }
        // In the order of the scopes' kinds.
        self.0.iter().find(|(scope, _)| scope.covers(queue))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PauseScope, &Pause)> {
        self.0.iter()
    }

    pub(crate) fn get(&self, scope: &PauseScope) -> Option<&Pause> {
        self.0.get(scope)
    }

    fn drains(&self) -> impl Iterator<Item = &PauseScope> {
        let drains = self.0.iter();
        drains
            .filter(|(_, pause)| pause.kind == PauseKind::Drain && !pause.drained)
            .map(|(scope, _)| scope)
    }

    /// The queue is given back.
    pub(crate) fn forget_queue(&mut self, queue: &MessageQueue) -> Option<PauseScope> {
        if self.0.is_empty() {
            return None;
        }
        let scope = PauseScope::Queue(queue.clone());
        self.0.remove(&scope).map(|_| scope)
    }
}

impl PauseScope {
    fn covers(&self, queue: &MessageQueue) -> bool {
        match self {
            Self::Group => true,
            Self::Topic(topic) => *topic == queue.topic,
            Self::Queue(paused) => paused == queue,
        }
    }
}

impl ConsumerGroup {
    /// Whether there is such a thing here; `given` is how its user calls it.
    fn check_scope(&self, scope: &PauseScope, given: &PauseScope) -> Result<(), PauseError> {
        let mut topics = self.topics.iter();
        let is_here = match scope {
            PauseScope::Group => true,
            PauseScope::Topic(name) => topics.any(|topic| topic.name == *name),
            PauseScope::Queue(queue) => topics.any(|topic| topic.held.contains_key(queue)),
        };
        match given {
            _ if is_here => Ok(()),
            PauseScope::Group => Ok(()),
            PauseScope::Topic(topic) => Err(PauseError::NotSubscribed {
                topic: Arc::clone(topic),
            }),
            PauseScope::Queue(queue) => Err(PauseError::NotHeld {
                queue: queue.clone(),
            }),
        }
    }

    fn held_in(&self, scope: &PauseScope) -> Vec<Epoch> {
        let topics = self.topics.iter();
        let held = topics.flat_map(|topic| &topic.held);
        held.filter(|(queue, _)| scope.covers(queue))
            .map(|(_, &epoch)| epoch)
            .collect()
    }
}

impl Client {
    /// Nothing more is fetched of a group, topic or queue until [`Client::resume`]; see the
    /// module. Asked again, the newest kind and author count.
    ///
    /// # Errors
    /// There is no such group, topic or queue here.
    pub fn pause(
        &mut self,
        group: GroupId,
        scope: &PauseScope,
        kind: PauseKind,
        by: &Arc<str>,
        now: Instant,
    ) -> Result<(), PauseError> {
        let given = scope;
        let scope = &self.scope_in_namespace(scope);
        let group_epoch = group.0;
        let Some(group) = self.groups.get_mut(group_epoch) else {
            return Err(PauseError::Leaving);
        };
        if !group.life.stays() {
            return Err(PauseError::Leaving);
        }
        group.check_scope(scope, given)?;
        let before = group.pauses.get(scope);
        let pause = Pause {
            kind,
            by: Arc::clone(by),
            since: before.map_or(now, |before| before.since),
            drained: false,
        };
        group.pauses.0.insert(scope.clone(), pause);
        self.events.push_back(Event::Paused {
            consumer_group: Arc::clone(&group.name),
            scope: scope.clone(),
            kind,
            by: Arc::clone(by),
        });
        for epoch in group.held_in(scope) {
            let Some(queue) = self.queues.get_mut(epoch) else {
                continue;
            };
            match &mut queue.phase {
                // What is under way ends by itself.
                Phase::Pulling(Pull::InFlight { .. }) | Phase::Task(Task::Running) => continue,
                Phase::Pulling(pull) => *pull = Pull::Paused,
                Phase::Task(task) => *task = Task::Paused,
                Phase::Locking(_) | Phase::Starting(_) => continue,
            }
            self.timers.cancel(Timer::Queue(epoch));
        }
        if kind == PauseKind::Drain {
            self.draining_groups.insert(group_epoch);
        }
        self.settle(now);
        Ok(())
    }

    /// Ends a pause or drain. What a wider or narrower one still holds back stays so.
    ///
    /// # Errors
    /// There is none of exactly this scope.
    pub fn resume(
        &mut self,
        group: GroupId,
        scope: &PauseScope,
        now: Instant,
    ) -> Result<(), PauseError> {
        let given = scope;
        let scope = &self.scope_in_namespace(scope);
        let Some(group) = self.groups.get_mut(group.0) else {
            return Err(PauseError::Leaving);
        };
        if group.pauses.0.remove(scope).is_none() {
            let scope = given.clone();
            return Err(PauseError::NotPaused { scope });
        }
        self.events.push_back(Event::Resumed {
            consumer_group: Arc::clone(&group.name),
            scope: scope.clone(),
        });
        let mut held = group.held_in(scope);
        held.retain(|&epoch| {
            let queue = self.queues.get(epoch);
            queue.is_some_and(|queue| group.pauses.of(&queue.queue).is_none())
        });
        for queue in held {
            self.resume_pull(queue, now);
        }
        self.settle(now);
        Ok(())
    }

    fn scope_in_namespace(&self, scope: &PauseScope) -> PauseScope {
        match scope {
            PauseScope::Group => PauseScope::Group,
            PauseScope::Topic(topic) => PauseScope::Topic(self.in_namespace(topic)),
            PauseScope::Queue(queue) => PauseScope::Queue(self.queue_in_namespace(queue)),
        }
    }

    /// As people know it.
    pub(crate) fn scope_without_namespace(&self, scope: &PauseScope) -> PauseScope {
        match scope {
            PauseScope::Group => PauseScope::Group,
            PauseScope::Topic(topic) => PauseScope::Topic(self.without_namespace(topic)),
            PauseScope::Queue(queue) => PauseScope::Queue(self.queue_without_namespace(queue)),
        }
    }

    /// The queue was given back: whoever has it next knows nothing of its pause.
    pub(crate) fn end_pause_of(&mut self, group: Epoch, queue: &MessageQueue) {
        if let Some(group) = self.groups.get_mut(group)
            && let Some(scope) = group.pauses.forget_queue(queue)
        {
            self.events.push_back(Event::Resumed {
                consumer_group: Arc::clone(&group.name),
                scope,
            });
        }
    }

    /// Goes on with drains, and tells of those at their end.
    pub(crate) fn drain_further(&mut self, now: Instant) {
        if self.draining_groups.is_empty() {
            return;
        }
        for epoch in std::mem::take(&mut self.draining_groups) {
            let Some(group) = self.groups.get(epoch) else {
                continue;
            };
            let drains: Vec<PauseScope> = group.pauses.drains().cloned().collect();
            for scope in drains {
                if !self.drain_scope(epoch, scope, now) {
                    self.draining_groups.insert(epoch);
                }
            }
        }
    }

    /// True when it is at its end, which is told.
    fn drain_scope(&mut self, epoch: Epoch, scope: PauseScope, now: Instant) -> bool {
        let Some(group) = self.groups.get(epoch) else {
            return true;
        };
        let mut is_drained = !self.leaves_something(epoch, group, &scope);
        for queue in group.held_in(&scope) {
            is_drained &= self.is_queue_drained(queue, now);
        }
        if is_drained
            && let Some(group) = self.groups.get_mut(epoch)
            && let Some(pause) = group.pauses.0.get_mut(&scope)
        {
            pause.drained = true;
            self.events.push_back(Event::Drained {
                consumer_group: Arc::clone(&group.name),
                scope,
            });
        }
        is_drained
    }

    /// Queues that were given back, or begun anew, are not at their end while a call, a
    /// message on its way back, the last commit or the lock of theirs is not. Whose calls
    /// of ended assignments are is not remembered: any of the group counts.
    fn leaves_something(&self, epoch: Epoch, group: &ConsumerGroup, scope: &PauseScope) -> bool {
        let is_of_another = |queue: Epoch| !self.queues.contains(queue);
        let all = *scope == PauseScope::Group && (group.calls > 0 || group.send_backs > 0);
        let mut calls = self.calls.iter();
        all || group.releasing.iter().any(|queue| scope.covers(queue))
            || self
                .pull_tasks
                .is_running(epoch, |queue| scope.covers(queue))
            || calls.any(|(_, call)| call.group == epoch && is_of_another(call.queue))
    }

    /// Nothing fetched, nothing to be committed. What is to be committed is, at once.
    fn is_queue_drained(&mut self, epoch: Epoch, now: Instant) -> bool {
        let Some(queue) = self.queues.get(epoch) else {
            return true;
        };
        let is_idle = match queue.phase {
            Phase::Pulling(_) => queue.process_queue.messages() == 0,
            Phase::Task(task) => task != Task::Running,
            // Nothing was fetched; what somebody set is to be stored.
            Phase::Locking(_) | Phase::Starting(_) => queue.unstored_reset().is_none(),
        };
        is_idle && queue.awaits_commit.is_none() && self.commit_at_once(epoch, now)
    }
}
