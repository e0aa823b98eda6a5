//! One run of a pull task: an instance, the guards, what is told of it. What the guest
//! asks of its queue meanwhile is `imports/pull_consumer.rs`.
//!
//! A run that fails (an error, a trap, a limit, its deadline, no instance) is a failed run
//! with a reason, and nothing more: what the guest pulled and where it set its offset
//! before stands, and the rules decide when the next run comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::listener::CancelSignal;
use consumer::pull_task::{PullTaskRequest, PullTaskResult, QueuePuller};

use super::Shared;
use super::call::{Finished, Unfinished, failed_messages, pause};
use crate::component::ListenerKind;
use crate::convert;
use crate::deadline::Budget;
use crate::event::Event;
use crate::failure::FailureRecord;
use crate::instance::NoInstance;
use crate::outcome;
use crate::store::RunningPullTask;

impl Shared {
    pub(super) async fn do_pull_task(
        &self,
        request: &Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskResult {
        let run = self.run_pull_task(request, puller, cancel);
        let ended = self.ending.cut(run).await;
        ended.unwrap_or(PullTaskResult::NotFinished)
    }

    async fn run_pull_task(
        &self,
        request: &Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskResult {
        let kind = self.plugin.config.listener;
        if kind != ListenerKind::ScheduledPull {
            // A mistake of the wiring.
            return PullTaskResult::Failed {
                reason: format!("the plugin is a {} listener, no pull task", kind.name()),
            };
        }
        let Some(_permit) = self.pool.permit().await else {
            return PullTaskResult::NotFinished;
        };
        if self.is_over(&cancel) {
            return PullTaskResult::NotFinished;
        }
        let _ticking = self.engine.ticking();
        let mut slot = self.engine.slots().slot(&self.plugin);
        let asked = Instant::now();
        slot.acquire().await;
        let mut instance = match self.pool.take(&mut slot).await {
            Ok(instance) => instance,
            Err(NoInstance::TenantMemory) => {
                self.tell_over_budget(0);
                pause(&mut slot).await;
                return PullTaskResult::NotFinished;
            }
            Err(no_instance) => {
                let record = self.no_instance(no_instance);
                return self.tell_pull_failed(request, None, record);
            }
        };
        let waited = asked.elapsed();
        let budget = Budget {
            compute: self.plugin.config.limits.compute_time,
            wall: request.consume_timeout,
        };
        let mut unfinished = Unfinished::new(&self.plugin, 0);
        let task = RunningPullTask {
            puller,
            cancel,
            questions: 0,
            pulled: 0,
            last_pull: Vec::new(),
        };
        let context = convert::pull_context(request);
        let (answer, task) = instance
            .do_pull_task(task, &context, budget, &mut slot)
            .await;
        match answer {
            Ok(answer) => {
                let mut answer = answer.map_err(|text| outcome::short(&text));
                if answer.is_ok()
                    && let Err(stuck) = instance.empty_outbox(&mut slot).await
                {
                    answer = Err(stuck.to_string());
                }
                unfinished.is_over = true;
                let finished = Finished {
                    message_queue: &request.message_queue,
                    messages: task.map_or(0, |task| task.pulled),
                    waited,
                    error: answer.as_ref().err().cloned(),
                };
                self.tell_finished(finished, &mut instance);
                self.pool.give_back(instance, &mut slot).await;
                match answer {
                    Ok(after) => PullTaskResult::NextRun {
                        after: after.map(|after| Duration::from_millis(after.into())),
                    },
                    Err(reason) => PullTaskResult::Failed { reason },
                }
            }
            Err(_) if instance.is_over_tenant_budget() => {
                unfinished.is_over = true;
                self.pool.drop_failed(instance);
                self.tell_over_budget(0);
                pause(&mut slot).await;
                PullTaskResult::NotFinished
            }
            Err(interruption) => {
                unfinished.is_over = true;
                let record = instance.record(interruption, budget);
                // Gone before anybody hears of it: the next run may come then.
                self.pool.drop_failed(instance);
                self.tell_pull_failed(request, task.as_ref(), record)
            }
        }
    }

    fn tell_pull_failed(
        &self,
        request: &PullTaskRequest,
        task: Option<&RunningPullTask>,
        record: FailureRecord,
    ) -> PullTaskResult {
        let last_pull = task.into_iter().flat_map(RunningPullTask::last_pull);
        let record = FailureRecord {
            message_queue: Some(request.message_queue.clone()),
            failed_messages: failed_messages(last_pull),
            messages: task.map_or(0, |task| task.pulled),
            ..record
        };
        let reason = record.kind.to_string();
        self.plugin.emit(&Event::CallFailed(Arc::new(record)));
        PullTaskResult::Failed { reason }
    }
}
