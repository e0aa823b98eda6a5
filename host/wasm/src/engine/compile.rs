//! Compiling: a few components at a time, at the lowest priority. Live traffic keeps the
//! cores.
//!
//! A component may be made to compile for minutes or to take all memory. So a host compiles
//! in a process that it can kill (`compile/child.rs`); a program that runs one component
//! and ends may as well do it itself, in rayon's global pool, whose threads are nice.

mod child;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::LoadError;
use crate::worker::WorkerProgram;

/// Who compiles.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Compiling {
    /// This process, one component at a time. It cannot be stopped.
    #[default]
    Here,
    /// A process for each component, within limits.
    InWorker(WorkerProgram, CompileLimits),
}

/// What compiling one component may take; `[compile]` of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileLimits {
    /// CPU time of all threads together.
    pub cpu_time: Duration,
    /// By the wall clock: on a busy machine the lowest priority gets little CPU time.
    pub timeout: Duration,
    /// Bytes.
    pub memory: u64,
    /// Components at once.
    pub at_once: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            // The largest sample (an interpreter of 18 MB) takes a quarter of a minute.
            cpu_time: Duration::from_secs(120),
            timeout: Duration::from_secs(600),
            memory: 2 << 30,
            at_once: 1,
        }
    }
}

/// Lowest priority that Linux has.
const NICE: i32 = 19;

pub(super) struct Compiler {
    compiling: Compiling,
    turn: Arc<Semaphore>,
}

impl Compiler {
    pub(super) fn new(compiling: Compiling) -> Self {
        let at_once = match &compiling {
            Compiling::Here => 1,
            Compiling::InWorker(_, limits) => limits.at_once.max(1),
        };
        Self {
            compiling,
            turn: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Machine code of a component for this engine, when it is its turn. Dropping the
    /// future ends a worker; it does not stop what compiles in this process.
    pub(super) async fn compile(
        &self,
        engine: &wasmtime::Engine,
        component: &Bytes,
    ) -> Result<Vec<u8>, LoadError> {
        let turn = Arc::clone(&self.turn);
        let turn = turn.acquire_owned().await.map_err(|_| no_result())?;
        match &self.compiling {
            Compiling::Here => {
                let (engine, component) = (engine.clone(), component.clone());
                Self::compile_here(turn, move || {
                    engine.precompile_component(&component).map_err(|error| {
                        let reason = format!("{error:#}");
                        LoadError::Compile { reason }
                    })
                })
                .await
            }
            Compiling::InWorker(program, limits) => {
                let key = super::compatibility_key(engine);
                child::compile(program, limits, component, &key).await
            }
        }
    }

    async fn compile_here<T: Send + 'static>(
        turn: OwnedSemaphorePermit,
        compile: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        be_nice();
        let (result, received) = oneshot::channel();
        rayon::spawn(move || {
            // A panic would end the process: rayon's pool is not ours to lose.
            let compiled = catch_unwind(AssertUnwindSafe(compile));
            drop(turn);
            // The caller may be gone.
            let _unwanted = result.send(compiled);
        });
        match received.await {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(_panic)) => Err(LoadError::Compile {
                reason: "the compiler panicked on this component".into(),
            }),
            Err(_) => Err(no_result()),
        }
    }
}

fn no_result() -> LoadError {
    LoadError::Compile {
        reason: "the compiler stopped without a result".into(),
    }
}

fn be_nice() {
    static POOL: Once = Once::new();
    POOL.call_once(|| {
        let built = rayon::ThreadPoolBuilder::new()
            .thread_name(|index| format!("compile-{index}"))
            .start_handler(|_| {
                // Linux keeps priorities by thread. Refused where a sandbox forbids
                // it: compiling then competes with the guests.
                let _refused = rustix::process::nice(NICE);
            })
            .build_global();
        // Somebody built it before us: their priorities, then.
        let _built_before = built;
    });
}
