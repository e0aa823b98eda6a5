//! The epoch ticker: a thread of its own, because guests may hold every worker of the
//! runtime. It ticks every millisecond and is parked while no guest runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::EngineError;

const TICK: Duration = Duration::from_millis(1);
/// Ticks without a guest before the thread is parked: waking it costs more than a tick.
const IDLE_TICKS_MAX: u32 = 20;

pub(super) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    running: AtomicUsize,
    parked: AtomicBool,
    stopping: AtomicBool,
}

/// Something that runs a guest.
pub(crate) struct Ticking<'a> {
    state: &'a State,
}

impl Ticker {
    pub(super) fn start(engines: Vec<wasmtime::Engine>) -> Result<Self, EngineError> {
        let state = Arc::new(State {
            running: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("wasm-epoch".into())
            .spawn(move || shared.run(&engines))
            .map_err(|source| EngineError::Thread { source })?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    pub(super) fn ticking(&self) -> Ticking<'_> {
        self.state.running.fetch_add(1, Ordering::SeqCst);
        if self.state.parked.load(Ordering::SeqCst) {
            self.unpark();
        }
        Ticking { state: &self.state }
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl State {
    fn run(&self, engines: &[wasmtime::Engine]) {
        let mut idle_ticks = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            if self.running.load(Ordering::SeqCst) > 0 {
                idle_ticks = 0;
            } else if idle_ticks < IDLE_TICKS_MAX {
                idle_ticks += 1;
            } else {
                // Said before it looks again: either it sees the new guest, or the
                // guest sees that it must be woken.
                self.parked.store(true, Ordering::SeqCst);
                let must_run =
                    self.running.load(Ordering::SeqCst) > 0 || self.stopping.load(Ordering::SeqCst);
                if !must_run {
                    thread::park();
                }
                self.parked.store(false, Ordering::SeqCst);
                idle_ticks = 0;
                continue;
            }
            thread::sleep(TICK);
            for engine in engines {
                engine.increment_epoch();
            }
        }
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.state.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            // It never panics; if it did, there is nothing left to tell.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_parked_while_no_guest_runs() {
        let ticker = Ticker::start(Vec::new()).unwrap();
        until(|| ticker.state.parked.load(Ordering::SeqCst));

        let ticking = ticker.ticking();
        until(|| !ticker.state.parked.load(Ordering::SeqCst));

        drop(ticking);
        until(|| ticker.state.parked.load(Ordering::SeqCst));
    }

    fn until(is_so: impl Fn() -> bool) {
        let started = std::time::Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(30));
            thread::yield_now();
        }
    }
}
