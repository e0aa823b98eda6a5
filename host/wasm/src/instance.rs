//! One running copy of a component: making it, calling it, ending it. Whoever owns it
//! is the only one to call it, and after a failed call there is nothing to do but drop
//! it: wasmtime lets nobody enter it again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wasmtime::Store;
use wasmtime::component::Instance as GuestInstance;

use crate::artefact::Artefact;
use crate::bindings::exports::mqlet::listener::{concurrent, lifecycle, orderly};
use crate::bindings::mqlet::listener::types::BatchContext;
use crate::bindings::scheduled_pull::exports::mqlet::listener::pull_task;
use crate::bindings::scheduled_pull::mqlet::listener::types as pulled;
use crate::component::ListenerKind;
use crate::convert;
use crate::deadline::{Budget, CallClock, Interruption, guarded};
use crate::engine::{Allocator, Engine, POOL_MEMORY_BYTES_MAX};
use crate::error::LoadError;
use crate::event::Event;
use crate::failure::{FailureKind, FailureRecord, Phase};
use crate::linked::Linked;
use crate::outbox::{self, Outbox, Stuck};
use crate::outcome;
use crate::plugin::Plugin;
use crate::run_slots::RunSlot;
use crate::serving::Taken;
use crate::store::{self, RunningCall, RunningPullTask, State};

/// What `shutdown` may take: it is best effort, and somebody waits for it.
pub(crate) const SHUTDOWN_TIME: Duration = Duration::from_secs(1);

/// Makes the instances of one revision.
pub(crate) struct Maker {
    engine: Engine,
    plugin: Arc<Plugin>,
    pooled: Option<Linked>,
    /// Filled at load when the pool cannot hold the component, else when the pool is
    /// full for the first time.
    on_demand: OnceLock<Linked>,
}

/// Why there is no instance.
pub(crate) enum NoInstance {
    /// It trapped, ran out of time or memory, or `init` said no.
    Failed(Box<FailureRecord>),
    /// Its exports have other types than the contract.
    Contract(String),
    /// Its tenant has no memory left: no fault of the plugin's.
    TenantMemory,
}

/// A running copy.
pub(crate) struct Instance {
    store: Store<State>,
    listener: Listener,
    lifecycle: Option<lifecycle::Guest>,
}

/// The export that is called.
enum Listener {
    Concurrent(concurrent::Guest),
    Orderly(orderly::Guest),
    PullTask(pull_task::Guest),
}

/// What `do-pull-task` returned.
pub(crate) type PullAnswer = Result<Option<u32>, String>;

/// What `consume-message` returned.
pub(crate) enum Said {
    Concurrent(Result<concurrent::ConsumeStatus, String>),
    Orderly(Result<orderly::ConsumeStatus, String>),
}

impl Maker {
    pub(crate) fn new(
        engine: &Engine,
        artefact: &Artefact,
        plugin: &Arc<Plugin>,
    ) -> Result<Self, LoadError> {
        let fits_the_pool = plugin.config.limits.memory <= POOL_MEMORY_BYTES_MAX;
        // Whatever is wrong with it, the on-demand engine says it, too.
        let pooled = engine
            .pool()
            .filter(|_| fits_the_pool)
            .and_then(|pool| pool.link(artefact).ok());
        let on_demand = OnceLock::new();
        if pooled.is_none() {
            let _first = on_demand.set(engine.on_demand().link(artefact)?);
        }
        let linked = pooled.as_ref().or_else(|| on_demand.get());
        let kind = plugin.config.listener;
        if !linked.is_some_and(|linked| linked.exports(kind)) {
            return Err(LoadError::NoSuchListener(kind));
        }
        Ok(Self {
            engine: engine.clone(),
            plugin: Arc::clone(plugin),
            pooled,
            on_demand,
        })
    }

    /// Makes an instance and runs its `init`, both within `init_time`.
    pub(crate) async fn make(&self, slot: &mut RunSlot) -> Result<Instance, NoInstance> {
        if let (Some(linked), Some(pool)) = (&self.pooled, self.engine.pool())
            && let Some(made) = self.make_in(pool, linked, false, slot).await
        {
            return made;
        }
        let linked = self.on_demand().map_err(|error| {
            let kind = FailureKind::NoInstance(error.to_string());
            let budget = self.budget();
            NoInstance::Failed(Box::new(outcome::no_instance(
                &self.plugin,
                kind,
                budget.wall,
            )))
        })?;
        match self
            .make_in(self.engine.on_demand(), linked, true, slot)
            .await
        {
            Some(made) => made,
            None => {
                let kind = FailureKind::NoInstance("the on-demand engine is full".into());
                Err(NoInstance::Failed(Box::new(outcome::no_instance(
                    &self.plugin,
                    kind,
                    Duration::ZERO,
                ))))
            }
        }
    }

    /// `None`: the pool is full.
    async fn make_in(
        &self,
        allocator: &Allocator,
        linked: &Linked,
        on_demand: bool,
        slot: &mut RunSlot,
    ) -> Option<Result<Instance, NoInstance>> {
        let store = store::new(&allocator.engine, &self.plugin, self.engine.guards());
        let mut store = match store {
            Ok(store) => store,
            Err(gone) => {
                let kind = FailureKind::NoInstance(gone.to_string());
                return Some(Err(NoInstance::Failed(Box::new(outcome::no_instance(
                    &self.plugin,
                    kind,
                    Duration::ZERO,
                )))));
            }
        };
        let clock = Arc::clone(&store.data().clock);
        clock.arm(self.budget());
        let instantiated = guarded(slot, &clock, linked.pre.instantiate_async(&mut store)).await;
        let instance = match instantiated {
            Ok(instance) => instance,
            Err(Interruption::Guest(error))
                if error.is::<wasmtime::PoolConcurrencyLimitError>() =>
            {
                return None;
            }
            Err(interruption) => {
                return Some(Err(self.failed(
                    &mut store,
                    Phase::Instantiate,
                    interruption,
                )));
            }
        };
        let mut instance = match Instance::new(store, &instance, linked) {
            Ok(instance) => instance,
            Err(error) => return Some(Err(NoInstance::Contract(format!("{error:#}")))),
        };
        if let Err(failed) = self.init(&mut instance, &clock, slot).await {
            return Some(Err(failed));
        }
        let store = &mut instance.store;
        store.data().lines.finish_call(&self.plugin);
        self.plugin.emit(&Event::InstanceCreated {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            on_demand,
            wall: clock.wall(),
            memory_bytes: store.data().memory.memory_bytes(),
        });
        Some(Ok(instance))
    }

    async fn init(
        &self,
        instance: &mut Instance,
        clock: &CallClock,
        slot: &mut RunSlot,
    ) -> Result<(), NoInstance> {
        let Some(lifecycle) = &instance.lifecycle else {
            return Ok(());
        };
        let store = &mut instance.store;
        let settings: Vec<(&str, &str)> = self
            .plugin
            .config
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        store.set_epoch_deadline(1);
        let answer = guarded(slot, clock, lifecycle.call_init(&mut *store, &settings)).await;
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(text)) => {
                let kind = FailureKind::InitError(outcome::short(&text));
                Err(NoInstance::Failed(Box::new(outcome::failure(
                    store.data_mut(),
                    Phase::Init,
                    kind,
                    Vec::new(),
                    self.budget(),
                ))))
            }
            Err(interruption) => Err(self.failed(store, Phase::Init, interruption)),
        }
    }

    fn failed(
        &self,
        store: &mut Store<State>,
        phase: Phase,
        interruption: Interruption,
    ) -> NoInstance {
        if store.data().memory.is_over_tenant_budget() {
            return NoInstance::TenantMemory;
        }
        let budget = self.budget();
        NoInstance::Failed(Box::new(outcome::interrupted(
            store.data_mut(),
            phase,
            interruption,
            budget,
        )))
    }

    fn on_demand(&self) -> Result<&Linked, LoadError> {
        if let Some(linked) = self.on_demand.get() {
            return Ok(linked);
        }
        let artefact = match &self.pooled {
            Some(pooled) => pooled.artefact()?,
            None => {
                return Err(LoadError::Artefact {
                    reason: "it was not loaded".into(),
                });
            }
        };
        let linked = self.engine.on_demand().link(&artefact)?;
        Ok(self.on_demand.get_or_init(|| linked))
    }

    pub(crate) fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    fn budget(&self) -> Budget {
        Budget {
            compute: self.plugin.init_time(),
            wall: self.plugin.init_time(),
        }
    }
}

impl Listener {
    fn load(
        store: &mut Store<State>,
        instance: &GuestInstance,
        linked: &Linked,
    ) -> wasmtime::Result<Self> {
        let kind = store.data().plugin.config.listener;
        let missing = || wasmtime::format_err!("no {} is exported", kind.name());
        Ok(match kind {
            ListenerKind::Concurrent => {
                let indices = linked.concurrent.as_ref().ok_or_else(missing)?;
                Self::Concurrent(indices.load(store, instance)?)
            }
            ListenerKind::Orderly => {
                let indices = linked.orderly.as_ref().ok_or_else(missing)?;
                Self::Orderly(indices.load(store, instance)?)
            }
            ListenerKind::ScheduledPull => {
                let indices = linked.pull_task.as_ref().ok_or_else(missing)?;
                Self::PullTask(indices.load(store, instance)?)
            }
        })
    }
}

impl Instance {
    fn new(
        mut store: Store<State>,
        instance: &GuestInstance,
        linked: &Linked,
    ) -> wasmtime::Result<Self> {
        let listener = Listener::load(&mut store, instance, linked)?;
        let lifecycle = match &linked.lifecycle {
            Some(indices) => Some(indices.load(&mut store, instance)?),
            None => None,
        };
        Ok(Self {
            store,
            listener,
            lifecycle,
        })
    }

    /// Calls `consume-message`.
    pub(crate) async fn consume_message(
        &mut self,
        call: RunningCall,
        messages: &convert::Messages<'_>,
        context: BatchContext<'_>,
        budget: Budget,
        slot: &mut RunSlot,
    ) -> Result<Said, Interruption> {
        let clock = self.begin(call, budget);
        let (records, data) = (&messages.records, &*messages.data);
        let store = &mut self.store;
        let answer = match &self.listener {
            Listener::Concurrent(guest) => {
                let guest = guest.call_consume_message(store, records, data, context);
                guarded(slot, &clock, guest).await.map(Said::Concurrent)
            }
            Listener::Orderly(guest) => {
                let guest = guest.call_consume_message(store, records, data, context);
                guarded(slot, &clock, guest).await.map(Said::Orderly)
            }
            Listener::PullTask(_) => Err(Interruption::Guest(wasmtime::format_err!(
                "a pull task consumes no messages"
            ))),
        };
        self.store.data_mut().call = None;
        answer
    }

    /// Calls `do-pull-task`; with it comes what the run did with its queue.
    pub(crate) async fn do_pull_task(
        &mut self,
        task: RunningPullTask,
        context: &pulled::BatchContext,
        budget: Budget,
        slot: &mut RunSlot,
    ) -> (Result<PullAnswer, Interruption>, Option<RunningPullTask>) {
        let clock = self.begin(RunningCall::PullTask(task), budget);
        let store = &mut self.store;
        let answer = match &self.listener {
            Listener::PullTask(guest) => {
                guarded(slot, &clock, guest.call_do_pull_task(store, context)).await
            }
            Listener::Concurrent(_) | Listener::Orderly(_) => Err(Interruption::Guest(
                wasmtime::format_err!("a listener runs no pull task"),
            )),
        };
        let task = match self.store.data_mut().call.take() {
            Some(RunningCall::PullTask(task)) => Some(task),
            Some(RunningCall::Messages(_) | RunningCall::InWorker(_)) | None => None,
        };
        (answer, task)
    }

    fn begin(&mut self, call: RunningCall, budget: Budget) -> Arc<CallClock> {
        let state = self.store.data_mut();
        state.call = Some(call);
        state.outbox = Outbox::default();
        let clock = Arc::clone(&state.clock);
        self.store.set_epoch_deadline(1);
        clock.arm(budget);
        clock
    }

    /// Sends what the call that just ended has left in its outbox, within the time it has
    /// left.
    pub(crate) async fn empty_outbox(&mut self, slot: &mut RunSlot) -> Result<(), Stuck> {
        let state = self.store.data_mut();
        if state.outbox.is_empty() {
            return Ok(());
        }
        slot.release();
        let parcels = state.outbox.take_waiting();
        let remaining = state.clock.remaining();
        outbox::leave(parcels, &state.plugin, remaining).await
    }

    /// What the call that just ended took.
    pub(crate) fn taken(&mut self) -> Taken {
        let state = self.store.data_mut();
        // Of a call that finished nothing.
        drop(state.outbox.take_waiting());
        // A growth that was refused and survived is nobody's business.
        let _survived = state.memory.take_denied();
        Taken {
            wall: state.clock.wall(),
            computed: state.clock.computed(),
            memory_bytes: state.memory.memory_bytes(),
            lines: state.lines.finish_call(&state.plugin),
        }
    }

    /// The record of the call that just failed.
    pub(crate) fn record(&mut self, interruption: Interruption, budget: Budget) -> FailureRecord {
        let phase = match self.listener {
            Listener::Concurrent(_) | Listener::Orderly(_) => Phase::Call,
            Listener::PullTask(_) => Phase::PullTask,
        };
        outcome::interrupted(self.store.data_mut(), phase, interruption, budget)
    }

    /// Whether the call that just failed was ended because the tenant has no memory left.
    pub(crate) fn is_over_tenant_budget(&self) -> bool {
        self.store.data().memory.is_over_tenant_budget()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.store.data().memory.memory_bytes()
    }

    /// Its last call, best effort; then it is gone. Returns the record of what went wrong,
    /// which was told.
    pub(crate) async fn shut_down(mut self, slot: &mut RunSlot) -> Option<Arc<FailureRecord>> {
        let lifecycle = self.lifecycle.as_ref()?;
        let budget = Budget {
            compute: SHUTDOWN_TIME,
            wall: SHUTDOWN_TIME,
        };
        let clock = Arc::clone(&self.store.data().clock);
        self.store.set_epoch_deadline(1);
        clock.arm(budget);
        let answer = guarded(slot, &clock, lifecycle.call_shutdown(&mut self.store)).await;
        let state = self.store.data_mut();
        if let Err(interruption) = answer {
            let record = outcome::interrupted(state, Phase::Shutdown, interruption, budget);
            let record = Arc::new(record);
            state.plugin.emit(&Event::CallFailed(Arc::clone(&record)));
            Some(record)
        } else {
            state.lines.finish_call(&state.plugin);
            None
        }
    }
}
