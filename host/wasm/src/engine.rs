//! The engine: wasmtime's settings, the instance pool beside an on-demand engine, the
//! linkers, the epoch ticker, the run slots. One for the whole process.
//!
//! Both engines come from one settings function and differ only in how they allocate
//! instances, which is not part of the compatibility key: one compiled artefact serves
//! both. A component goes to the pool when its slots hold it, and to the on-demand
//! engine when they do not, or when the pool is full.

mod compile;
mod ticker;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wasmtime::component::Linker;
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::artefact::Artefact;
use crate::component::CheckedComponent;
use crate::error::{EngineError, LoadError};
use crate::event::{Event, Observer};
use crate::imports;
use crate::run_slots::RunSlots;
use crate::shared_code::SharedCode;
use crate::store::State;
use crate::worker::WorkerProgram;
use compile::Compiler;
pub use compile::{CompileLimits, Compiling};
use ticker::Ticker;
pub(crate) use ticker::Ticking;

/// Stack of the guest's own code; more is a trap.
pub const WASM_STACK_BYTES: usize = 512 * 1024;
/// Stack of the fibre a guest runs on: the rest is for host functions it calls.
const FIBRE_STACK_BYTES: usize = 2 * 1024 * 1024;
/// Ceiling of one linear memory in the pool; a plugin with a higher limit is made on
/// demand.
pub const POOL_MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Ceiling of one table in the pool.
const POOL_TABLE_ELEMENTS: usize = 100_000;
/// Core instances and tables in the pool for each component instance: the mean of
/// ordinary components with room to spare.
const POOL_CORE_INSTANCES_EACH: u32 = 4;
/// componentize-py makes 38.
const POOL_CORE_INSTANCES_PER_COMPONENT: u32 = 40;

/// Instances that may idle in any case.
const IDLE_MIN: usize = 8;

/// What the host decides about the engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Slots of the instance pool; 0 makes every instance on demand.
    pub instances_max: u32,
    /// Guests that compute at once: the cores.
    pub run_slots: usize,
    /// Who compiles.
    pub compiling: Compiling,
    /// Runs the instances of plugins with `isolation = "process"`; `None`: they are not
    /// loaded.
    pub worker: Option<WorkerProgram>,
    /// On, but for the benchmark that measures what they cost.
    pub guards: Guards,
}

/// Whether limits and deadlines are attached at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guards {
    /// Always.
    #[default]
    On,
    /// No limit, no deadline, no metering: a guest can do whatever it likes. Here so
    /// that a benchmark can show what guarding costs.
    OffForBenchmarks,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            instances_max: 1000,
            run_slots: std::thread::available_parallelism().map_or(1, usize::from),
            compiling: Compiling::Here,
            worker: None,
            guards: Guards::On,
        }
    }
}

/// The engine. Clones share it.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Option<Allocator>,
    on_demand: Allocator,
    compiler: Compiler,
    slots: Arc<RunSlots>,
    run_slots: usize,
    worker: Option<WorkerProgram>,
    ticker: Ticker,
    guards: Guards,
    /// Warm instances without a call, of all plugins.
    idle: AtomicUsize,
    idle_max: usize,
}

/// One of the two engines and its linker.
pub(crate) struct Allocator {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) code: SharedCode,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("has_pool", &self.has_pool())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the engine. Where the address space is too small for the pool, every
    /// instance is made on demand and [`Event::PoolRefused`] says so.
    ///
    /// # Errors
    /// When wasmtime does not work on this machine at all.
    pub fn new(config: &EngineConfig, observer: &Observer) -> Result<Self, EngineError> {
        let on_demand = Allocator::new(&settings(config.guards))?;
        let pool = match config.instances_max {
            0 => None,
            instances_max => {
                let settings = pooled(settings(config.guards), instances_max);
                match Allocator::new(&settings) {
                    Ok(pool) => Some(pool),
                    Err(error) => {
                        observer(&Event::PoolRefused {
                            reason: error.to_string(),
                        });
                        None
                    }
                }
            }
        };
        let mut engines = vec![on_demand.engine.clone()];
        engines.extend(pool.as_ref().map(|pool| pool.engine.clone()));
        Ok(Self {
            shared: Arc::new(Shared {
                pool,
                on_demand,
                compiler: Compiler::new(config.compiling.clone()),
                slots: Arc::new(RunSlots::new(config.run_slots)),
                run_slots: config.run_slots.max(1),
                worker: config.worker.clone(),
                ticker: Ticker::start(engines)?,
                guards: config.guards,
                idle: AtomicUsize::new(0),
                idle_max: idle_max(config.instances_max),
            }),
        })
    }

    /// Compiles a component, at low priority and as [`EngineConfig::compiling`] says. Also
    /// checks that the host can link it.
    ///
    /// # Errors
    /// [`LoadError::Compile`], [`LoadError::CompileStopped`], or [`LoadError::Link`] when
    /// an import's type does not fit.
    pub async fn compile(&self, component: &CheckedComponent) -> Result<Artefact, LoadError> {
        let on_demand = &self.shared.on_demand.engine;
        let compiled = self.shared.compiler.compile(on_demand, component.bytes());
        let artefact = Artefact::trusted(compiled.await?);
        let engine = self.clone();
        let linked = tokio::task::spawn_blocking(move || {
            engine.shared.on_demand.link(&artefact)?;
            Ok(artefact)
        });
        linked.await.unwrap_or_else(|panic| {
            Err(LoadError::Compile {
                reason: format!("its code could not be loaded: {panic}"),
            })
        })
    }

    /// Names everything a compiled artefact depends on beside the component: wasmtime's
    /// version, settings, the machine. Artefacts with another key are not loaded.
    pub fn compatibility_key(&self) -> String {
        compatibility_key(&self.shared.on_demand.engine)
    }

    /// Whether instances come from a pool.
    pub fn has_pool(&self) -> bool {
        self.shared.pool.is_some()
    }

    pub(crate) fn pool(&self) -> Option<&Allocator> {
        self.shared.pool.as_ref()
    }

    pub(crate) fn on_demand(&self) -> &Allocator {
        &self.shared.on_demand
    }

    pub(crate) fn guards(&self) -> Guards {
        self.shared.guards
    }

    /// An instance idles from now on. False: enough do already, and it is to go.
    pub(crate) fn try_idle(&self) -> bool {
        let shared = &self.shared;
        let is_one_more = |idle: usize| (idle < shared.idle_max).then_some(idle + 1);
        let idles = shared
            .idle
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one_more);
        idles.is_ok()
    }

    /// So many instances idle no longer.
    pub(crate) fn not_idle(&self, instances: usize) {
        self.shared.idle.fetch_sub(instances, Ordering::Relaxed);
    }

    pub(crate) fn worker_program(&self) -> Option<&WorkerProgram> {
        self.shared.worker.as_ref()
    }

    /// Guests that compute at once.
    pub(crate) fn run_slots(&self) -> usize {
        self.shared.run_slots
    }

    pub(crate) fn slots(&self) -> &Arc<RunSlots> {
        &self.shared.slots
    }

    /// Keeps the epoch ticking while it lives: held by everything that runs a guest.
    pub(crate) fn ticking(&self) -> Ticking<'_> {
        self.shared.ticker.ticking()
    }
}

impl Allocator {
    fn new(config: &Config) -> Result<Self, EngineError> {
        let refused = |error: wasmtime::Error| EngineError::Wasmtime {
            reason: format!("{error:#}"),
        };
        let engine = wasmtime::Engine::new(config).map_err(refused)?;
        let linker = imports::linker(&engine).map_err(refused)?;
        Ok(Self {
            engine,
            linker,
            code: SharedCode::default(),
        })
    }
}

/// What a worker compiles with: the settings of every engine of ours.
pub(crate) fn compiling() -> Result<wasmtime::Engine, EngineError> {
    wasmtime::Engine::new(&settings(Guards::On)).map_err(|error| EngineError::Wasmtime {
        reason: format!("{error:#}"),
    })
}

/// See [`Engine::compatibility_key`].
pub(crate) fn compatibility_key(engine: &wasmtime::Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Half of the pool: the rest is for plugins whose messages come.
fn idle_max(instances_max: u32) -> usize {
    let half = usize::try_from(instances_max / 2).unwrap_or(usize::MAX);
    half.max(IDLE_MIN)
}

/// Everything that decides how code is compiled and run, for both engines.
fn settings(guards: Guards) -> Config {
    let mut config = Config::new();
    config
        // With it plain calls cost two to five times as much; guests that need it are
        // refused (`component.rs`).
        .concurrency_support(false)
        .epoch_interruption(guards == Guards::On)
        .memory_init_cow(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBRE_STACK_BYTES)
        // Function names are enough, and reading a hostile plugin's debug information
        // is work that no limit covers.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}

fn pooled(mut config: Config, instances_max: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    let core_instances = instances_max.saturating_mul(POOL_CORE_INSTANCES_EACH);
    pool.total_component_instances(instances_max)
        .total_core_instances(core_instances)
        .total_tables(core_instances)
        .total_memories(instances_max)
        .total_stacks(instances_max)
        .max_core_instances_per_component(POOL_CORE_INSTANCES_PER_COMPONENT)
        .max_tables_per_component(POOL_CORE_INSTANCES_PER_COMPONENT)
        .max_tables_per_module(8)
        .table_elements(POOL_TABLE_ELEMENTS)
        .max_memory_size(usize::try_from(POOL_MEMORY_BYTES_MAX).unwrap_or(usize::MAX));
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_artefact_serves_both_engines() {
        let engine = Engine::new(
            &EngineConfig::default(),
            &(Arc::new(|_: &Event| {}) as Observer),
        )
        .unwrap();
        let pool = engine.pool().expect("this machine has room for a pool");
        let key = engine.compatibility_key();
        assert_eq!(compatibility_key(&pool.engine), key);
        assert_eq!(compatibility_key(&compiling().unwrap()), key);
    }
}
