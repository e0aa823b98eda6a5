//! An instance that lives in its plugin's worker, as the host sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::frames::{Call, Failure, InstanceId, Reply, Taken, ToWorker};
use super::host::{Died, Link, StartError, Workers};
use super::questions::CallAtHost;
use crate::bindings::mqlet::listener::types::BatchContext;
use crate::convert;
use crate::deadline::Budget;
use crate::event::Event;
use crate::failure::{FailureKind, FailureRecord, Phase};
use crate::instance::{NoInstance, SHUTDOWN_TIME, Said};
use crate::outbox::{self, Outbox, Stuck};
use crate::outcome;
use crate::plugin::Plugin;
use crate::run_slots::RunSlot;
use crate::store::RunningMessages;

/// Beyond twice its own time a worker has this much to answer: its guests wait for a core
/// there, which nobody bills.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// How often a call that runs is told that nobody waits for it.
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// An instance elsewhere.
pub(crate) struct RemoteInstance {
    link: Arc<Link>,
    plugin: Arc<Plugin>,
    id: InstanceId,
    memory: HeldMemory,
    /// Of the last call.
    taken: Taken,
    outbox: Outbox,
    deadline: Instant,
}

/// Why a call has no answer.
pub(crate) enum Broken {
    Failed(Box<Failure>),
    Died(Died),
}

/// What an instance holds, on its tenant's account. A worker tells it after each call: in
/// between it may hold more, up to its own limits.
struct HeldMemory {
    plugin: Arc<Plugin>,
    bytes: usize,
    is_over_budget: bool,
}

fn bound(wall: Duration) -> Duration {
    wall.saturating_mul(2).saturating_add(ANSWER_GRACE)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Workers {
    /// Makes an instance and runs its `init`, in the worker.
    pub(crate) async fn make(
        &self,
        plugin: &Arc<Plugin>,
        slot: &mut RunSlot,
    ) -> Result<RemoteInstance, NoInstance> {
        // The worker computes by itself.
        slot.release();
        let init_time = plugin.init_time();
        let failed =
            |kind, wall| NoInstance::Failed(Box::new(outcome::no_instance(plugin, kind, wall)));
        let link = match self.link().await {
            Ok(link) => link,
            Err(StartError::Load(error)) => return Err(NoInstance::Contract(error.to_string())),
            Err(error) => {
                let kind = FailureKind::NoInstance(error.to_string());
                return Err(failed(kind, Duration::ZERO));
            }
        };
        let mut instance = RemoteInstance {
            plugin: Arc::clone(plugin),
            id: self.next_instance(),
            memory: HeldMemory::new(plugin),
            taken: Taken::default(),
            outbox: Outbox::default(),
            deadline: Instant::now(),
            link,
        };
        let id = instance.id;
        let asked = Instant::now();
        let told = ToWorker::Make(id);
        let asking = instance.link.ask(id, &told, Bytes::new(), bound(init_time));
        match asking.await {
            Ok(Reply::Made { taken }) => {
                slot.charge(nanoseconds(taken.computed));
                instance.memory.hold(taken.memory_bytes);
                if instance.memory.is_over_budget {
                    return Err(NoInstance::TenantMemory);
                }
                plugin.emit(&Event::InstanceCreated {
                    plugin: plugin.name(),
                    revision: plugin.revision(),
                    on_demand: true,
                    wall: taken.wall,
                    memory_bytes: taken.memory_bytes,
                });
                Ok(instance)
            }
            Ok(Reply::Failed(failure)) => {
                slot.charge(nanoseconds(failure.taken.computed));
                let record = instance.failed(failure.bounded(), init_time);
                Err(NoInstance::Failed(Box::new(record)))
            }
            Ok(Reply::Contract(reason)) => Err(NoInstance::Contract(outcome::short(&reason))),
            Ok(Reply::Answered { .. } | Reply::ShutDown(_)) => {
                let kind = FailureKind::WorkerDied("it answered something else".to_owned());
                Err(failed(kind, asked.elapsed()))
            }
            Err(Died(reason)) => {
                let kind = FailureKind::WorkerDied(reason.to_string());
                Err(failed(kind, asked.elapsed()))
            }
        }
    }
}

impl RemoteInstance {
    pub(crate) async fn consume_message(
        &mut self,
        call: RunningMessages,
        messages: &convert::Messages<'_>,
        context: BatchContext<'_>,
        budget: Budget,
        slot: &mut RunSlot,
    ) -> Result<Said, Broken> {
        slot.release();
        self.taken = Taken::default();
        self.deadline = Instant::now() + budget.wall;
        self.link.begin_call(
            self.id,
            CallAtHost {
                outbox: Outbox::default(),
                deadline: self.deadline,
            },
        );
        let frame = Call {
            records: messages.records.iter().map(Into::into).collect(),
            details: (0..call.messages)
                .filter_map(|index| call.message(index).as_ref().map(Into::into))
                .collect(),
            context: context.into(),
            compute: budget.compute,
            wall: budget.wall,
        };
        let told = ToWorker::Call(self.id, Box::new(frame));
        let data = Bytes::copy_from_slice(&messages.data);
        let (link, id) = (&self.link, self.id);
        let asking = link.ask(id, &told, data, bound(budget.wall));
        let telling = async {
            // A guest asks now and then whether it is cancelled.
            while !call.cancel.is_cancelled() {
                tokio::time::sleep(CANCEL_LOOK).await;
            }
            link.tell(&ToWorker::Cancel(id));
            std::future::pending::<()>().await;
        };
        let asked = Instant::now();
        let replied = tokio::select! {
            replied = asking => replied,
            () = telling => return Err(Broken::Died(Died("nobody waits".into()))),
        };
        let at_host = self.link.end_call(self.id);
        self.outbox = at_host.map(|call| call.outbox).unwrap_or_default();
        match replied {
            Ok(Reply::Answered { answer, taken }) => {
                slot.charge(nanoseconds(taken.computed));
                self.memory.hold(taken.memory_bytes);
                self.taken = taken;
                Ok(answer.into())
            }
            Ok(Reply::Failed(failure)) => {
                slot.charge(nanoseconds(failure.taken.computed));
                Err(Broken::Failed(Box::new(failure.bounded())))
            }
            Ok(Reply::Made { .. } | Reply::Contract(_) | Reply::ShutDown(_)) => {
                Err(Broken::Died(Died("it answered something else".into())))
            }
            Err(died) => {
                self.taken.wall = asked.elapsed();
                Err(Broken::Died(died))
            }
        }
    }

    pub(crate) async fn empty_outbox(&mut self) -> Result<(), Stuck> {
        let parcels = self.outbox.take_waiting();
        let left = self.deadline.saturating_duration_since(Instant::now());
        outbox::leave(parcels, &self.plugin, left).await
    }

    pub(crate) fn taken(&mut self) -> Taken {
        drop(self.outbox.take_waiting());
        self.taken.clone()
    }

    /// The record of the call that just failed.
    pub(crate) fn record(&mut self, broken: Broken, budget: Budget) -> FailureRecord {
        match broken {
            Broken::Failed(failure) => self.failed(*failure, budget.wall),
            Broken::Died(Died(reason)) => FailureRecord {
                phase: Phase::Call,
                wall: self.taken.wall,
                wall_max: budget.wall,
                ..outcome::no_instance(
                    &self.plugin,
                    FailureKind::WorkerDied(reason.to_string()),
                    Duration::ZERO,
                )
            },
        }
    }

    fn failed(&self, failure: Failure, wall_max: Duration) -> FailureRecord {
        FailureRecord {
            phase: failure.phase,
            backtrace: failure.backtrace,
            last_log_lines: failure.last_log_lines,
            log_lines_dropped: failure.taken.log_lines_dropped,
            computed: failure.taken.computed,
            memory_bytes: failure.taken.memory_bytes,
            wall_max,
            ..outcome::no_instance(&self.plugin, failure.kind, failure.taken.wall)
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.bytes as u64
    }

    /// It is of no use: its worker died, or its tenant has no memory for it.
    pub(crate) fn is_spent(&self) -> bool {
        self.memory.is_over_budget || self.link.death().is_some()
    }

    pub(crate) async fn shut_down(self, slot: &mut RunSlot) {
        slot.release();
        if self.link.death().is_some() {
            return;
        }
        let told = ToWorker::ShutDown(self.id);
        let asking = self
            .link
            .ask(self.id, &told, Bytes::new(), bound(SHUTDOWN_TIME));
        if let Ok(Reply::ShutDown(Some(failure))) = asking.await {
            let record = self.failed(failure.bounded(), SHUTDOWN_TIME);
            self.plugin.emit(&Event::CallFailed(Arc::new(record)));
        }
    }
}

/// Whatever it does there, it is to end.
impl Drop for RemoteInstance {
    fn drop(&mut self) {
        self.link.forget(self.id);
        if self.link.death().is_none() {
            self.link.tell(&ToWorker::Drop(self.id));
        }
    }
}

impl HeldMemory {
    fn new(plugin: &Arc<Plugin>) -> Self {
        Self {
            plugin: Arc::clone(plugin),
            bytes: 0,
            is_over_budget: false,
        }
    }

    fn hold(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let growing = bytes.saturating_sub(self.bytes);
        let tenant = &self.plugin.config.tenant;
        if growing == 0 {
            return;
        }
        if tenant.try_take_memory(growing) {
            self.plugin.usage.add_memory(growing);
            self.bytes += growing;
        } else {
            self.is_over_budget = true;
            tenant.reclaim();
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.plugin.usage.remove_memory(self.bytes);
        self.plugin.config.tenant.give_memory_back(self.bytes);
    }
}
