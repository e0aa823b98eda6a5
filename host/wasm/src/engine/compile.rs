//! Compiling: one component at a time, in rayon's global pool, whose threads are nice.
//! Live traffic keeps the cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use tokio::sync::{Semaphore, oneshot};

use crate::error::LoadError;

/// Lowest priority that Linux has.
const NICE: i32 = 19;

pub(super) struct Compiler {
    turn: Arc<Semaphore>,
}

impl Compiler {
    pub(super) fn new() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs a compilation when it is its turn. Dropping the future does not stop one
    /// that has begun; the next still waits for its end.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        compile: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        let stopped = || LoadError::Compile {
            reason: "the compiler stopped without a result".into(),
        };
        let turn = Arc::clone(&self.turn);
        let turn = turn.acquire_owned().await.map_err(|_| stopped())?;
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
            Err(_) => Err(stopped()),
        }
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
