//! When the next run of a queue's task is due, who gets the next free call, and what came
//! of a run.
//!
//! A queue's runs come one after the other; the next one is set when the last has ended,
//! however it ended, later when the broker does not let us pull. A queue that is given back
//! loses its task between two runs: a run under way ends in its own time, finds its puller
//! dead and is followed by none. Should the queue come back meanwhile, its new task waits
//! for that end.
//!
//! RocketMQ: `MQPullConsumerScheduleService#PullTaskImpl`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue};

use super::puller::PullerRequests;
use super::{PullTaskId, PullTaskRequest, PullTaskResult};
use crate::access;
use crate::client::Client;
use crate::epoch::{Epoch, EpochTable};
use crate::event::{Event, Step};
use crate::group::{Life, Phase};
use crate::planted_bugs::PlantedBug;
use crate::request::RequestError;
use crate::timers::{PULL_TASK_DELAY_WHEN_FAILED, PULL_TASK_PAUSE_WHEN_IDLE, Timer};

/// Where the task of a queue stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Waits for a free call, or for the end of a run of an earlier assignment.
    Due,
    Running,
    /// The timer makes it due.
    Waiting,
    /// The same, after a run that failed.
    Failed,
    /// By request; its end makes it due.
    Paused,
    /// The group leaves.
    Stopped,
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) group: Epoch,
    pub(crate) queue: Epoch,
    message_queue: MessageQueue,
    began: Instant,
    /// Messages that it has pulled.
    pub(crate) messages: u32,
    /// Memory of its last pull: the guest has its own copy of those before.
    pub(crate) held_bytes: u64,
}

/// The runs of all groups, and what they ask.
#[derive(Debug, Default)]
pub(crate) struct PullTasks {
    /// Groups with tasks that are due and calls to spare, in turn.
    pub(crate) ready_groups: VecDeque<Epoch>,
    pub(crate) runs: EpochTable<Run>,
    /// Queues of the runs, whatever has become of their assignments.
    running: BTreeSet<(Epoch, MessageQueue)>,
    pub(crate) requests: PullerRequests,
}

impl PullTasks {
    /// A run of one of these queues of a group is under way.
    pub(crate) fn is_running(&self, group: Epoch, of: impl Fn(&MessageQueue) -> bool) -> bool {
        let mut running = self.running.iter();
        running.any(|(of_group, queue)| *of_group == group && of(queue))
    }
}

impl Client {
    /// A queue of a group of pull tasks is ours.
    pub(crate) fn begin_task(&mut self, epoch: Epoch) {
        if let Some(queue) = self.queues.get_mut(epoch) {
            queue.phase = Phase::Task(Task::Due);
        }
        self.task_due(epoch);
    }

    /// The timer of a queue's task, or the end of what held it back.
    pub(crate) fn task_due(&mut self, epoch: Epoch) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get_mut(queue.group) else {
            return;
        };
        let Phase::Task(task) = &mut queue.phase else {
            return;
        };
        if *task == Task::Running {
            return;
        }
        *task = match group.life {
            Life::Running if group.pauses.of(&queue.queue).is_some() => Task::Paused,
            Life::Running => Task::Due,
            Life::Draining | Life::Committing | Life::Silent { .. } | Life::Unregistering => {
                Task::Stopped
            }
        };
        if *task == Task::Due && !queue.is_ready {
            queue.is_ready = true;
            group.ready.push_back(epoch, false);
            let group = queue.group;
            self.group_ready(group);
        }
    }

    pub(crate) fn next_pull_task(&mut self, now: Instant) -> Option<Arc<PullTaskRequest>> {
        while let Some(epoch) = self.pull_tasks.ready_groups.pop_front() {
            let Some(group) = self.groups.get_mut(epoch) else {
                continue;
            };
            group.is_ready = false;
            if !group.may_call() {
                continue;
            }
            while let Some(queue_epoch) = group.next_ready() {
                // Queues that were given back stay in the list.
                let Some(queue) = self.queues.get_mut(queue_epoch) else {
                    continue;
                };
                queue.is_ready = false;
                if !matches!(queue.phase, Phase::Task(Task::Due)) {
                    continue;
                }
                if group.pauses.of(&queue.queue).is_some() {
                    queue.phase = Phase::Task(Task::Paused);
                    continue;
                }
                let key = (epoch, queue.queue.clone());
                if !self.pull_tasks.running.insert(key) {
                    // The end of that run makes it due.
                    continue;
                }
                queue.phase = Phase::Task(Task::Running);
                group.calls += 1;
                let run = self.pull_tasks.runs.insert(Run {
                    group: epoch,
                    queue: queue_epoch,
                    message_queue: queue.queue.clone(),
                    began: now,
                    messages: 0,
                    held_bytes: 0,
                });
                let mut request = PullTaskRequest {
                    id: PullTaskId(run.to_u64()),
                    consumer_group: Arc::clone(&group.name),
                    message_queue: queue.queue.clone(),
                    message_model: group.config.message_model(),
                    consume_timeout: group.config.consume_timeout(),
                };
                self.group_ready(epoch);
                self.tell_step(queue_epoch, Step::PullTaskBegun);
                request.consumer_group = self.without_namespace(&request.consumer_group);
                let topic = self.without_namespace(&request.message_queue.topic);
                request.message_queue.topic = topic;
                return Some(Arc::new(request));
            }
        }
        None
    }

    pub(crate) fn pull_task_result(
        &mut self,
        id: PullTaskId,
        result: PullTaskResult,
        now: Instant,
    ) {
        let Some(run) = self.pull_tasks.runs.remove(Epoch::from_u64(id.0)) else {
            self.events.push_back(Event::StaleConsumeResult {
                consumer_group: None,
            });
            return;
        };
        self.give_memory_back(run.group, run.held_bytes);
        let key = (run.group, run.message_queue.clone());
        self.pull_tasks.running.remove(&key);
        if let Some(group) = self.groups.get_mut(run.group) {
            debug_assert!(group.calls > 0, "a run that nobody counted");
            group.calls -= 1;
        }
        if self.queues.contains(run.queue) {
            self.run_ended(&run, result, now);
        } else {
            let group = self.groups.get(run.group);
            self.events.push_back(Event::StaleConsumeResult {
                consumer_group: group.map(|group| Arc::clone(&group.name)),
            });
            let mut topics = group.into_iter().flat_map(|group| &group.topics);
            let again = topics.find_map(|topic| topic.held.get(&run.message_queue).copied());
            if let Some(queue) = again {
                self.task_due(queue);
            }
        }
        self.group_ready(run.group);
        self.leave_further(run.group);
    }

    /// Sets the next run, whatever came of this one.
    fn run_ended(&mut self, run: &Run, result: PullTaskResult, now: Instant) {
        let dies = self.has_bug(PlantedBug::FailedTaskDies);
        let Some(queue) = self.queues.get_mut(run.queue) else {
            return;
        };
        let Some(group) = self.groups.get(run.group) else {
            return;
        };
        let interval = group.config.pull_task_interval().unwrap_or_default();
        let floor = match run.messages {
            0 => PULL_TASK_PAUSE_WHEN_IDLE,
            _ => Duration::ZERO,
        };
        let (task, after, failure) = match result {
            PullTaskResult::NextRun { after } => {
                (Task::Waiting, after.unwrap_or(interval).max(floor), None)
            }
            PullTaskResult::NotFinished => (Task::Waiting, interval.max(floor), None),
            PullTaskResult::Failed { reason } => {
                let after = interval.max(PULL_TASK_DELAY_WHEN_FAILED);
                (Task::Failed, after, Some(reason))
            }
        };
        let is_refused = queue.last_error.as_ref();
        let after = if is_refused.is_some_and(RequestError::is_access_refused) {
            after.max(access::pause(queue.failures))
        } else {
            after
        };
        queue.consumed_at = Some(now);
        queue.task_error.clone_from(&failure);
        queue.phase = Phase::Task(task);
        self.events.push_back(Event::PullTaskRan {
            consumer_group: Arc::clone(&group.name),
            queue: queue.queue.clone(),
            messages: run.messages,
            elapsed: now - run.began,
            // What it may no longer do when its group leaves is no failure.
            failure: failure.filter(|_| group.life.stays()),
        });
        if !group.life.stays() {
            queue.phase = Phase::Task(Task::Stopped);
        } else if task == Task::Failed && dies {
        } else if after == Duration::ZERO {
            self.task_due(run.queue);
        } else {
            self.timers.set(Timer::Queue(run.queue), now + after);
        }
    }
}
