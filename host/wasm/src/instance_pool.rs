//! The instances of one revision: `shared` keeps them warm between calls, `batch` makes
//! one for each. An instance belongs to one call at a time; a failed one never comes
//! back here.
//!
//! One is made at load, more on demand up to `consume_thread_max`, and those that had
//! nothing to do for a minute go; at once, when half of the host's instances idle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Engine;
use crate::event::{Event, RecycleReason};
use crate::instance::NoInstance;
use crate::limits::Isolation;
use crate::plugin::Plugin;
use crate::run_slots::RunSlot;
use crate::serving::{Instance, Maker};

/// An instance without a call for so long is dropped.
const IDLE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct InstancePool {
    engine: Engine,
    plugin: Arc<Plugin>,
    maker: Maker,
    permits: Semaphore,
    idle: Mutex<Idle>,
}

struct Idle {
    /// The last one used is last, and used first: the others get old.
    instances: Vec<(Instance, Instant)>,
    reaper: Option<AbortOnDropHandle<()>>,
    reaping: bool,
    /// All of them go, however long they were idle.
    reclaiming: bool,
    closed: bool,
}

impl InstancePool {
    pub(crate) fn new(engine: &Engine, plugin: &Arc<Plugin>, maker: Maker) -> Self {
        let instances_max = plugin.config.consume_thread_max.max(1);
        Self {
            engine: engine.clone(),
            plugin: Arc::clone(plugin),
            maker,
            permits: Semaphore::new(instances_max as usize),
            idle: Mutex::new(Idle {
                instances: Vec::new(),
                reaper: None,
                reaping: false,
                reclaiming: false,
                closed: false,
            }),
        }
    }

    /// Leave to use one instance. `None` never happens: nobody closes the semaphore.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// A warm instance where the isolation allows it, else a fresh one.
    pub(crate) async fn take(&self, slot: &mut RunSlot) -> Result<Instance, NoInstance> {
        loop {
            let Some((instance, _)) = self.idle().instances.pop() else {
                return self.maker.make(slot).await;
            };
            self.engine.not_idle(1);
            if instance.is_spent() {
                self.recycle(instance, RecycleReason::Failed, slot).await;
                continue;
            }
            if instance.created.elapsed() >= self.plugin.config.limits.recycle_after_age {
                self.recycle(instance, RecycleReason::Age, slot).await;
                continue;
            }
            return Ok(instance);
        }
    }

    /// A fresh instance in any case.
    pub(crate) async fn make(&self, slot: &mut RunSlot) -> Result<Instance, NoInstance> {
        self.maker.make(slot).await
    }

    /// Takes back an instance whose call came back.
    pub(crate) async fn give_back(self: &Arc<Self>, instance: Instance, slot: &mut RunSlot) {
        if self.plugin.config.limits.isolation == Isolation::Batch {
            instance.shut_down(slot).await;
            return;
        }
        let reason = match self.recycle_reason(&instance) {
            Some(reason) => reason,
            None => {
                let mut idle = self.idle();
                if idle.closed {
                    RecycleReason::Closed
                } else if self.engine.try_idle() {
                    idle.instances.push((instance, Instant::now()));
                    self.start_reaper(&mut idle);
                    return;
                } else {
                    RecycleReason::Idle
                }
            }
        };
        self.recycle(instance, reason, slot).await;
    }

    /// Notes that an instance failed; it is dropped with this.
    pub(crate) fn drop_failed(&self, instance: Instance) {
        self.emit_recycled(&instance, RecycleReason::Failed);
        drop(instance);
    }

    /// Ends the idle instances; those that are in a call end when they come back.
    pub(crate) async fn close(&self) {
        let instances = {
            let mut idle = self.idle();
            idle.closed = true;
            idle.reaper = None;
            std::mem::take(&mut idle.instances)
        };
        self.engine.not_idle(instances.len());
        let _ticking = self.engine.ticking();
        for (instance, _) in instances {
            let mut slot = self.engine.slots().slot(&self.plugin);
            self.recycle(instance, RecycleReason::Closed, &mut slot)
                .await;
        }
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.idle().instances.len()
    }

    fn recycle_reason(&self, instance: &Instance) -> Option<RecycleReason> {
        let limits = &self.plugin.config.limits;
        if instance.is_spent() {
            Some(RecycleReason::Failed)
        } else if instance.calls >= limits.recycle_after_calls {
            Some(RecycleReason::Calls)
        } else if instance.memory_bytes() > limits.memory_mark() {
            Some(RecycleReason::Memory)
        } else if instance.created.elapsed() >= limits.recycle_after_age {
            Some(RecycleReason::Age)
        } else {
            None
        }
    }

    async fn recycle(&self, instance: Instance, reason: RecycleReason, slot: &mut RunSlot) {
        self.emit_recycled(&instance, reason);
        instance.shut_down(slot).await;
    }

    fn emit_recycled(&self, instance: &Instance, reason: RecycleReason) {
        self.plugin.emit(&Event::InstanceRecycled {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            reason,
            calls: instance.calls,
        });
    }

    /// Gives the idle instances back now: somebody else needs their memory.
    pub(crate) fn reclaim(self: &Arc<Self>) {
        let mut idle = self.idle();
        // One whose end is under way is not told twice.
        if idle.instances.is_empty() || idle.reclaiming {
            return;
        }
        idle.reclaiming = true;
        let pool = Arc::downgrade(self);
        idle.reaper = Some(AbortOnDropHandle::new(tokio::spawn(reap(pool))));
        idle.reaping = true;
    }

    fn start_reaper(self: &Arc<Self>, idle: &mut Idle) {
        if !idle.reaping {
            idle.reaping = true;
            let pool = Arc::downgrade(self);
            idle.reaper = Some(AbortOnDropHandle::new(tokio::spawn(reap(pool))));
        }
    }

    /// Takes out what has been idle for too long; else when to look again. `None`:
    /// nothing is idle, and the reaper may end.
    fn take_idle(&self) -> Option<Result<Instance, Instant>> {
        let mut idle = self.idle();
        let Some((_, since)) = idle.instances.first() else {
            idle.reaping = false;
            idle.reclaiming = false;
            return None;
        };
        let due = *since + IDLE_MAX;
        if !idle.reclaiming && Instant::now() < due {
            return Some(Err(due));
        }
        self.engine.not_idle(1);
        Some(Ok(idle.instances.remove(0).0))
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Nothing under this lock panics, and what it guards stays well-formed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was not ended in order ends here.
impl Drop for InstancePool {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.engine.not_idle(idle.instances.len());
    }
}

/// One task while anything is idle; it belongs to its pool and ends with it.
async fn reap(pool: Weak<InstancePool>) {
    loop {
        let due = {
            let Some(pool) = pool.upgrade() else { return };
            match pool.take_idle() {
                None => return,
                Some(Ok(instance)) => {
                    let _ticking = pool.engine.ticking();
                    let mut slot = pool.engine.slots().slot(&pool.plugin);
                    pool.recycle(instance, RecycleReason::Idle, &mut slot).await;
                    continue;
                }
                Some(Err(due)) => due,
            }
        };
        tokio::time::sleep_until(due).await;
    }
}
