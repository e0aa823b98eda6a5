//! `ComponentListener`: the consumer's ports for one revision of one plugin.
//!
//! What becomes of a request depends on the kind of listener: `concurrently.rs`,
//! `orderly.rs`; runs of a pull task are `pull_task.rs`. Every call is made in an instance of its own for as long as it runs
//! (`call.rs`). Dropping a future of the port kills the call and drops the instance.

mod call;
mod concurrently;
mod orderly;
mod pull_task;

pub use call::CALL_BYTES_MAX;

use std::sync::Arc;

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeMode, ConsumeRequest, ConsumeResult, MessageListener,
};
use consumer::publish::MessageProducer;
use consumer::pull_task::{PullTaskCallback, PullTaskFuture, PullTaskRequest, QueuePuller};

use crate::artefact::Artefact;
use crate::component::ListenerKind;
use crate::ending::Ending;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::event::{Event, Observer};
use crate::instance::NoInstance;
use crate::instance_pool::InstancePool;
use crate::plugin::{Plugin, PluginConfig};
use crate::serving::Maker;

/// A loaded plugin.
pub struct ComponentListener {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    plugin: Arc<Plugin>,
    pool: Arc<InstancePool>,
    ending: Ending,
}

impl std::fmt::Debug for ComponentListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComponentListener")
            .field("plugin", &self.shared.plugin.config.plugin)
            .field("revision", &self.shared.plugin.config.revision)
            .finish_non_exhaustive()
    }
}

impl ComponentListener {
    /// Links compiled code and makes the first instance, `init` included.
    ///
    /// # Errors
    /// When the code does not fit this engine or the contract, or the first instance
    /// fails; its failure record is then told as an event, too.
    pub async fn load(
        engine: &Engine,
        artefact: &Artefact,
        config: PluginConfig,
        producer: Arc<dyn MessageProducer>,
        observer: Observer,
    ) -> Result<Self, LoadError> {
        let plugin = Arc::new(Plugin::new(config, producer, observer));
        let maker = Maker::new(engine, artefact, &plugin)?;
        let pool = Arc::new(InstancePool::new(engine, &plugin, maker));
        plugin.config.tenant.add_pool(&pool);
        {
            let _ticking = engine.ticking();
            let mut slot = engine.slots().slot(&plugin);
            slot.acquire().await;
            match pool.make(&mut slot).await {
                Ok(instance) => pool.give_back(instance, &mut slot).await,
                Err(NoInstance::TenantMemory) => return Err(LoadError::TenantMemory),
                Err(NoInstance::Contract(reason)) => return Err(LoadError::Contract { reason }),
                Err(NoInstance::Failed(record)) => {
                    plugin.emit(&Event::CallFailed(Arc::new((*record).clone())));
                    return Err(LoadError::FirstInstance(record));
                }
            }
        }
        Ok(Self {
            shared: Arc::new(Shared {
                engine: engine.clone(),
                plugin,
                pool,
                ending: Ending::default(),
            }),
        })
    }

    /// Requests under way end with the call that runs now, and those that come later are
    /// not begun; what was not reached is not finished, and goes to whoever serves next.
    pub fn drain(&self) {
        self.shared.ending.drain();
    }

    /// As [`ComponentListener::drain`], and the calls that run now are dropped with their
    /// instances; what the calls before them came to stands.
    pub fn kill(&self) {
        self.shared.ending.kill();
    }

    /// The same revision with the same instances, as if nobody had drained or killed it:
    /// what was taken back, and serves once more.
    #[must_use]
    pub fn again(&self) -> Self {
        let Shared {
            engine,
            plugin,
            pool,
            ending: _,
        } = &*self.shared;
        Self {
            shared: Arc::new(Shared {
                engine: engine.clone(),
                plugin: Arc::clone(plugin),
                pool: Arc::clone(pool),
                ending: Ending::default(),
            }),
        }
    }

    /// Whether one is the other [`ComponentListener::again`]: closing one closes both.
    pub fn shares_instances_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared.pool, &other.shared.pool)
    }

    /// Ends the revision: idle instances shut down now, those in a call when it is done.
    /// Calls that come later still work, each in a fresh instance.
    pub async fn close(&self) {
        self.shared.pool.close().await;
    }

    /// Warm instances without a call.
    pub fn idle_instances(&self) -> usize {
        self.shared.pool.idle_count()
    }

    /// What it was loaded with.
    pub fn config(&self) -> &PluginConfig {
        &self.shared.plugin.config
    }
}

impl MessageListener for ComponentListener {
    fn consume_message(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match (shared.plugin.config.listener, request.mode) {
                (ListenerKind::Concurrent, ConsumeMode::Concurrently) => {
                    shared.consume_concurrently(&request, &cancel).await
                }
                (ListenerKind::Orderly, ConsumeMode::Orderly { .. }) => {
                    shared.consume_orderly(&request, &cancel).await
                }
                (_, ConsumeMode::Concurrently | ConsumeMode::Orderly { .. }) => {
                    shared.refuse(&request).await
                }
            }
        })
    }
}

impl Shared {
    /// No further call is made for a request.
    fn is_over(&self, cancel: &CancelSignal) -> bool {
        cancel.is_cancelled() || self.ending.is_draining()
    }

    /// The same after its first call: whoever keeps failing is not tried message by
    /// message.
    fn is_over_early(&self, cancel: &CancelSignal) -> bool {
        self.is_over(cancel) || self.plugin.config.is_held.now()
    }

    /// A request for a listener of another kind, which is a mistake of the wiring: its
    /// messages are not at fault and lose no attempt, and somebody hears of it.
    async fn refuse(&self, request: &ConsumeRequest) -> ConsumeResult {
        self.plugin.emit(&Event::RequestOfAnotherKind {
            plugin: self.plugin.name(),
            revision: self.plugin.revision(),
            message_queue: request.message_queue.clone(),
            listener: self.plugin.config.listener,
        });
        // It comes again at once otherwise.
        let _killed = self
            .ending
            .cut(tokio::time::sleep(call::NOT_BEGUN_PAUSE))
            .await;
        ConsumeResult::NotFinished
    }
}

impl PullTaskCallback for ComponentListener {
    fn do_pull_task(
        &self,
        request: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.do_pull_task(&request, puller, cancel).await })
    }
}
