//! A group of pull tasks beside the others: its guests say themselves what is pulled and
//! where the offset of a queue stands. They are slow, fail, and keep their puller longer
//! than their queue now and then.
//!
//! What must hold: nothing is committed but what some guest has said, so that no commit
//! passes a message that no guest has had; runs of a queue come one after the other; a
//! pull leaves nothing out; a run whose queue is gone moves nothing; in the end every
//! message was had and everything is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consumer::config::AllocateMessageQueueStrategy;
use consumer::event::Event;
use consumer::pull_task::{
    PullTaskId, PullTaskRequest, PullTaskResult, PullerAnswer, PullerRequest, PullerRequestId,
    QueuePull, QueuePullResult, QueuePullerError,
};
use consumer::{Client, GroupConfig};
use protocol::subscription::SubscriptionData;
use protocol::{Instant, MessageQueue, QueueOffset};

use crate::cluster::{Cluster, Due};
use crate::faults::FAULTS_END;
use crate::ledger::{Id, id_of};
use crate::workload;

/// The group.
pub(crate) const TASKS: &str = "P1";
/// What it reads.
pub(crate) const TASKS_TOPIC: &str = "T1";
/// Pulls of one run, at most.
const PULLS_MAX: u32 = 4;
/// Runs of a member at once.
const RUNS_MAX: usize = 8;

/// What guests have had, on whichever member.
#[derive(Debug, Default)]
pub(crate) struct TaskLedger {
    had: BTreeMap<MessageQueue, BTreeSet<u64>>,
    done: BTreeSet<Id>,
    /// Everything below was looked at.
    checked: BTreeMap<MessageQueue, u64>,
}

/// The guests of one member.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    runs: BTreeMap<PullTaskId, Run>,
    asked: BTreeMap<PullerRequestId, PullTaskId>,
    /// Queues of the group that it has.
    held: BTreeSet<MessageQueue>,
}

/// A guest at work.
#[derive(Debug)]
struct Run {
    queue: MessageQueue,
    /// The queue was given back since the run began.
    is_stale: bool,
    asks: Ask,
    offset: QueueOffset,
    pulls: u32,
}

/// What a guest waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    ConsumeOffset,
    MinOffset,
    Pull,
    Update,
}

impl TaskLedger {
    pub(crate) fn has_had(&self, id: Id) -> bool {
        self.done.contains(&id)
    }
}

/// As every member has it.
fn config(strategy: AllocateMessageQueueStrategy) -> GroupConfig {
    GroupConfig::builder(TASKS)
        .allocate_message_queue_strategy(strategy)
        .pull_task_interval(GroupConfig::PULL_TASK_INTERVAL)
        .consume_thread_max(6)
        .subscription(SubscriptionData::all(TASKS_TOPIC))
        .build()
        .expect("a valid group")
}

impl Cluster {
    /// A new process has tasks, too.
    pub(crate) fn joins_tasks(&mut self, member: usize) {
        if !self.has_tasks {
            return;
        }
        let now = self.now;
        let strategy = self.configs[0].allocate_message_queue_strategy().clone();
        if let Some(client) = &mut self.members[member].client {
            let id = client.subscribe(config(strategy), now);
            assert!(id.is_ok(), "{id:?}");
        }
        self.drain(member);
    }

    /// The next run of a member, if there is one. False when there is none.
    pub(crate) fn begins_run(&mut self, member: usize) -> bool {
        if self.members[member].guests.runs.len() >= RUNS_MAX {
            return false;
        }
        let client = self.members[member].client.as_mut();
        let Some(request) = client.and_then(Client::poll_pull_task) else {
            return false;
        };
        self.begin_run(member, &request);
        true
    }

    fn begin_run(&mut self, member: usize, request: &PullTaskRequest) {
        let queue = request.message_queue.clone();
        let name = self.members[member].name.clone();
        self.history
            .add(self.now, || format!("{name} runs the task of {queue}"));
        let guests = &mut self.members[member].guests;
        let beside = guests.runs.values().any(|run| run.queue == queue);
        let is_held = guests.held.contains(&queue);
        let run = Run {
            queue: queue.clone(),
            is_stale: false,
            asks: Ask::ConsumeOffset,
            offset: QueueOffset(0),
            pulls: 0,
        };
        guests.runs.insert(request.id, run);
        if beside {
            let what = format!("{name} runs the task of {queue} beside another run of it");
            self.violated("runs of a queue come one after the other", what);
        }
        if !is_held {
            let what = format!("{name} runs the task of {queue}");
            self.violated("only what is assigned is run", what);
        }
        self.ask(member, request.id, PullerRequest::FetchConsumeOffset);
    }

    fn ask(&mut self, member: usize, id: PullTaskId, request: PullerRequest) {
        let now = self.now;
        if let Some(client) = &mut self.members[member].client {
            let asked = client.ask_queue(id, request, now);
            self.members[member].guests.asked.insert(asked, id);
        }
    }

    /// An answer for a guest, if there is one: it goes on in its own time.
    pub(crate) fn answers_guest(&mut self, member: usize) -> bool {
        let client = self.members[member].client.as_mut();
        let Some((asked, answer)) = client.and_then(Client::poll_puller_answer) else {
            return false;
        };
        if let Some(id) = self.members[member].guests.asked.remove(&asked) {
            let run = self.members[member].guests.runs.get(&id);
            let moves = answer.is_ok() && run.is_none_or(|run| run.asks == Ask::Update);
            if moves && run.is_none_or(|run| run.is_stale) {
                let what = format!("{}, run {id:?}", self.members[member].name);
                self.violated("a run whose queue is gone moves nothing", what);
            }
            let mut after = workload::call_time(self.mood(), &mut self.random);
            if !self.healed {
                // Guests are slow no more when all is healed.
                let healed_at = Instant::ORIGIN + FAULTS_END + Duration::from_millis(40);
                after = after.min(healed_at - self.now);
            }
            let goes_on = Due::GuestGoesOn { member, id, answer };
            self.agenda.at(self.now + after, goes_on);
        }
        true
    }

    /// A guest has its answer.
    pub(crate) fn guest_goes_on(
        &mut self,
        member: usize,
        id: PullTaskId,
        answer: Result<PullerAnswer, QueuePullerError>,
    ) {
        let stalled_until = self.members[member].stalled_until;
        if stalled_until > self.now {
            let goes_on = Due::GuestGoesOn { member, id, answer };
            self.agenda.at(stalled_until, goes_on);
            return;
        }
        let next = match answer {
            Ok(answer) => self.next_step(member, id, answer),
            Err(error) => Err(error.to_string()),
        };
        match next {
            Ok(Some(request)) => {
                self.ask(member, id, request);
                self.drain(member);
            }
            Ok(None) => {
                let after = [None, Some(Duration::ZERO), Some(Duration::from_millis(700))]
                    [self.random.usize(..3)];
                self.end_run(member, id, PullTaskResult::NextRun { after });
            }
            Err(reason) => {
                let result = match self.random.u32(0..4) {
                    0 => PullTaskResult::NotFinished,
                    _ => PullTaskResult::Failed { reason },
                };
                self.end_run(member, id, result);
            }
        }
    }

    /// What the guest asks next; `None`: it returns.
    fn next_step(
        &mut self,
        member: usize,
        id: PullTaskId,
        answer: PullerAnswer,
    ) -> Result<Option<PullerRequest>, String> {
        let fails = self.random.u32(0..100) < self.mood().failing;
        let Some(run) = self.members[member].guests.runs.get_mut(&id) else {
            return Ok(None);
        };
        if fails {
            return Err("trap".to_owned());
        }
        match answer {
            PullerAnswer::ConsumeOffset(None) => {
                run.asks = Ask::MinOffset;
                Ok(Some(PullerRequest::MinOffset))
            }
            PullerAnswer::ConsumeOffset(Some(offset)) | PullerAnswer::Offset(offset) => {
                run.offset = offset;
                Ok(Some(pull(run, 1 + self.random.u32(0..32))))
            }
            PullerAnswer::Pulled(result) => {
                let (queue, from) = (run.queue.clone(), run.offset);
                run.asks = Ask::Update;
                run.offset = result.next_begin_offset;
                self.guest_has(&queue, from, &result);
                Ok(Some(PullerRequest::UpdateConsumeOffset(
                    result.next_begin_offset,
                )))
            }
            PullerAnswer::Updated if run.pulls < PULLS_MAX && self.random.bool() => {
                Ok(Some(pull(run, 1 + self.random.u32(0..32))))
            }
            PullerAnswer::Updated => Ok(None),
        }
    }

    /// A guest has had what it pulled.
    fn guest_has(&mut self, queue: &MessageQueue, from: QueueOffset, result: &QueuePullResult) {
        let had = self.tasks.had.entry(queue.clone()).or_default();
        let mut expected = from.0;
        let mut left_out = None;
        for run in &result.runs {
            for index in run.range.clone() {
                let message = run.batch.message(index);
                let offset = message.queue_offset().0;
                if offset != expected {
                    left_out.get_or_insert(expected);
                }
                expected = offset + 1;
                had.insert(offset);
                self.tasks.done.extend(id_of(message.body()));
            }
        }
        let next = result.next_begin_offset.0;
        if !result.runs.is_empty() && next != expected {
            left_out.get_or_insert(expected);
        }
        if let Some(left_out) = left_out {
            let what = format!("of {queue} from {from} to {next} without {left_out}");
            self.violated("a pull leaves nothing out", what);
        }
    }

    fn end_run(&mut self, member: usize, id: PullTaskId, result: PullTaskResult) {
        let Some(run) = self.members[member].guests.runs.remove(&id) else {
            return;
        };
        self.kinds.pull_task_runs += 1;
        self.history.add(self.now, || {
            format!(
                "{} the task of {} ends: {result:?}",
                self.members[member].name, run.queue
            )
        });
        let again = self.random.u32(0..50) == 0;
        self.give(member, |client, now| {
            client.handle_pull_task_result(id, result.clone(), now);
            if again {
                client.handle_pull_task_result(id, result, now);
            }
        });
        if self.random.u32(0..10) == 0 {
            // It kept its puller, and is told that it is nobody's.
            let late = PullerRequest::UpdateConsumeOffset(QueueOffset(run.offset.0 + 1000));
            self.ask(member, id, late);
            self.drain(member);
        }
    }

    /// Which queues a member has.
    pub(crate) fn note_task_event(&mut self, member: usize, event: &Event) {
        match event {
            Event::Rebalanced {
                consumer_group,
                taken,
                released,
                ..
            } if **consumer_group == *TASKS => {
                let guests = &mut self.members[member].guests;
                for queue in released {
                    guests.held.remove(queue);
                    for run in guests.runs.values_mut().filter(|run| run.queue == *queue) {
                        run.is_stale = true;
                    }
                }
                guests.held.extend(taken.iter().cloned());
            }
            _ => {}
        }
    }

    /// A broker has stored an offset of the group.
    pub(crate) fn check_task_commit(&mut self, group: &str, queue: &MessageQueue, offset: i64) {
        if group != TASKS {
            return;
        }
        let to = u64::try_from(offset).unwrap_or(0);
        let had = self.tasks.had.get(queue);
        let checked = self.tasks.checked.entry(queue.clone()).or_default();
        let missing = (*checked..to).find(|offset| !had.is_some_and(|had| had.contains(offset)));
        *checked = to.max(*checked);
        if let Some(missing) = missing {
            let what = format!("{group} committed {offset} of {queue}, nobody has had {missing}");
            self.violated("no commit passes a message that no guest has had", what);
        }
    }

    /// What keeps the tasks from having settled.
    pub(crate) fn unsettled_tasks(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.has_tasks {
            return reasons;
        }
        let open = self.ledger.sent.iter().filter(|(id, sent)| {
            sent.acknowledged && sent.topic == TASKS_TOPIC && !self.tasks.done.contains(id)
        });
        reasons.extend(
            open.take(3)
                .map(|(id, _)| format!("{TASKS} has not had m{id}")),
        );
        reasons
    }
}

fn pull(run: &mut Run, max_messages: u32) -> PullerRequest {
    run.asks = Ask::Pull;
    run.pulls += 1;
    PullerRequest::Pull(QueuePull {
        sub_expression: "*".to_owned(),
        offset: run.offset,
        max_messages,
    })
}
