//! An instance, wherever it lives: in this process, or in its plugin's worker
//! (`isolation = "process"`). Who calls it need not know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::listener::ConsumeMode;

use crate::artefact::Artefact;
use crate::bindings::mqlet::listener::types::BatchContext;
use crate::bindings::scheduled_pull::mqlet::listener::types as pulled;
use crate::component::ListenerKind;
use crate::convert;
use crate::deadline::{Budget, Interruption};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::failure::FailureRecord;
use crate::instance::{self, NoInstance, PullAnswer};
use crate::limits::Isolation;
use crate::log_lines::CallLines;
use crate::outbox::Stuck;
use crate::outcome::{self, Answer};
use crate::plugin::Plugin;
use crate::run_slots::RunSlot;
use crate::store::{RunningCall, RunningMessages, RunningPullTask};
use crate::worker::host::Workers;
use crate::worker::instance::{Broken, RemoteInstance};

/// Makes the instances of one revision.
pub(crate) enum Maker {
    Here(Box<instance::Maker>),
    InWorker(Arc<Plugin>, Workers),
}

/// A running copy.
pub(crate) struct Instance {
    place: Place,
    plugin: Arc<Plugin>,
    pub(crate) created: Instant,
    pub(crate) calls: u64,
}

enum Place {
    Here(Box<instance::Instance>),
    InWorker(Box<RemoteInstance>),
}

/// Why a call has no answer.
pub(crate) enum Failed {
    Here(Interruption),
    InWorker(Broken),
}

/// What a call took, whatever came of it.
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    pub(crate) computed: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) lines: CallLines,
}

impl Maker {
    pub(crate) fn new(
        engine: &Engine,
        artefact: &Artefact,
        plugin: &Arc<Plugin>,
    ) -> Result<Self, LoadError> {
        let config = &plugin.config;
        if config.limits.isolation != Isolation::Process {
            let maker = instance::Maker::new(engine, artefact, plugin)?;
            return Ok(Self::Here(Box::new(maker)));
        }
        for (is_asked, what) in [
            (config.listener == ListenerKind::ScheduledPull, "pull tasks"),
            (config.grants.http.is_some(), "grants.http"),
            (config.grants.folder.is_some(), "grants.folder"),
        ] {
            if is_asked {
                return Err(LoadError::NotInWorker(what));
            }
        }
        let program = engine.worker_program().ok_or(LoadError::NoWorker)?;
        let code = artefact.bytes().clone();
        let workers = Workers::new(program.clone(), plugin, code, engine.run_slots());
        Ok(Self::InWorker(Arc::clone(plugin), workers))
    }

    /// Makes an instance and runs its `init`, both within `init_time`.
    pub(crate) async fn make(&self, slot: &mut RunSlot) -> Result<Instance, NoInstance> {
        let (plugin, place) = match self {
            Self::Here(maker) => (
                Arc::clone(maker.plugin()),
                Place::Here(Box::new(maker.make(slot).await?)),
            ),
            Self::InWorker(plugin, workers) => (
                Arc::clone(plugin),
                Place::InWorker(Box::new(workers.make(plugin, slot).await?)),
            ),
        };
        Ok(Instance {
            place,
            plugin,
            created: Instant::now(),
            calls: 0,
        })
    }
}

impl Instance {
    /// Calls `consume-message`.
    pub(crate) async fn consume_message(
        &mut self,
        call: RunningMessages,
        messages: &convert::Messages<'_>,
        context: BatchContext<'_>,
        budget: Budget,
        slot: &mut RunSlot,
    ) -> Result<Answer, Failed> {
        self.calls += 1;
        let auto_commit = call.request.mode == ConsumeMode::Orderly { auto_commit: true };
        let said = match &mut self.place {
            Place::Here(instance) => instance
                .consume_message(RunningCall::Messages(call), messages, context, budget, slot)
                .await
                .map_err(Failed::Here)?,
            Place::InWorker(instance) => instance
                .consume_message(call, messages, context, budget, slot)
                .await
                .map_err(Failed::InWorker)?,
        };
        let said_by = &self.plugin.dead_letter_properties;
        Ok(outcome::understood(
            said,
            messages.records.len(),
            auto_commit,
            said_by,
        ))
    }

    /// Calls `do-pull-task`; with it comes what the run did with its queue.
    pub(crate) async fn do_pull_task(
        &mut self,
        task: RunningPullTask,
        context: &pulled::BatchContext,
        budget: Budget,
        slot: &mut RunSlot,
    ) -> (Result<PullAnswer, Failed>, Option<RunningPullTask>) {
        self.calls += 1;
        match &mut self.place {
            Place::Here(instance) => {
                let (answer, task) = instance.do_pull_task(task, context, budget, slot).await;
                (answer.map_err(Failed::Here), task)
            }
            // None is loaded.
            Place::InWorker(_) => (
                Ok(Err("pull tasks do not run in a worker".to_owned())),
                Some(task),
            ),
        }
    }

    /// Sends what the call that just ended has left in its outbox, within the time it has
    /// left.
    pub(crate) async fn empty_outbox(&mut self, slot: &mut RunSlot) -> Result<(), Stuck> {
        match &mut self.place {
            Place::Here(instance) => instance.empty_outbox(slot).await,
            Place::InWorker(instance) => instance.empty_outbox().await,
        }
    }

    /// What the call that just ended took.
    pub(crate) fn taken(&mut self) -> Taken {
        match &mut self.place {
            Place::Here(instance) => instance.taken(),
            Place::InWorker(instance) => {
                let taken = instance.taken();
                Taken {
                    wall: taken.wall,
                    computed: taken.computed,
                    memory_bytes: taken.memory_bytes,
                    lines: CallLines::counted(taken.log_lines, taken.log_lines_dropped),
                }
            }
        }
    }

    /// The record of the call that just failed.
    pub(crate) fn record(&mut self, failed: Failed, budget: Budget) -> FailureRecord {
        match (&mut self.place, failed) {
            (Place::Here(instance), Failed::Here(interruption)) => {
                instance.record(interruption, budget)
            }
            (Place::InWorker(instance), Failed::InWorker(broken)) => {
                instance.record(broken, budget)
            }
            // A failure belongs to the instance that it came from.
            (Place::Here(_), Failed::InWorker(_)) | (Place::InWorker(_), Failed::Here(_)) => {
                let kind = crate::failure::FailureKind::NoInstance("it is another one".to_owned());
                outcome::no_instance(&self.plugin, kind, Duration::ZERO)
            }
        }
    }

    /// Whether the call that just failed was ended because the tenant has no memory left.
    pub(crate) fn is_over_tenant_budget(&self) -> bool {
        match &self.place {
            Place::Here(instance) => instance.is_over_tenant_budget(),
            // Its call had an end of its own, which counts.
            Place::InWorker(_) => false,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.place {
            Place::Here(instance) => instance.memory_bytes(),
            Place::InWorker(instance) => instance.memory_bytes(),
        }
    }

    /// It cannot serve again, whatever its last call came to.
    pub(crate) fn is_spent(&self) -> bool {
        match &self.place {
            Place::Here(_) => false,
            Place::InWorker(instance) => instance.is_spent(),
        }
    }

    /// Its last call, best effort; then it is gone.
    pub(crate) async fn shut_down(self, slot: &mut RunSlot) {
        match self.place {
            Place::Here(instance) => {
                let _told = instance.shut_down(slot).await;
            }
            Place::InWorker(instance) => instance.shut_down(slot).await,
        }
    }
}
