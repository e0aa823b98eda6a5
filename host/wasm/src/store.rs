//! What one instance owns on the host's side, and the one way to make its store.

use std::sync::Arc;

use consumer::listener::{CancelSignal, ConsumeMessage, ConsumeRequest};
use wasmtime::Store;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::deadline::CallClock;
use crate::engine::Guards;
use crate::event::LogSource;
use crate::imports::stdio::GuestOutput;
use crate::limits::{self, MemoryLimiter, RANDOM_BYTES_MAX};
use crate::log_lines::LogLines;
use crate::plugin::Plugin;

/// The host's side of one instance.
pub(crate) struct State {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) clock: Arc<CallClock>,
    pub(crate) memory: MemoryLimiter,
    pub(crate) table: ResourceTable,
    pub(crate) lines: Arc<LogLines>,
    /// Set while `consume-message` runs.
    pub(crate) call: Option<RunningCall>,
    wasi: WasiCtx,
}

/// What `mqlet:listener/call` may be asked about.
pub(crate) struct RunningCall {
    pub(crate) request: Arc<ConsumeRequest>,
    pub(crate) cancel: CancelSignal,
    /// Where the call begins in its request.
    pub(crate) first: usize,
    /// Messages of the call.
    pub(crate) messages: usize,
}

impl RunningCall {
    /// The message at this position of the call.
    pub(crate) fn message(&self, index: usize) -> Option<ConsumeMessage<'_>> {
        (index < self.messages)
            .then(|| self.request.iter().nth(self.first + index))
            .flatten()
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

/// A store with every limit attached. The engine decides whether its instances come
/// from the pool.
pub(crate) fn new(engine: &wasmtime::Engine, plugin: &Arc<Plugin>, guards: Guards) -> Store<State> {
    let lines = Arc::new(LogLines::new());
    let state = State {
        plugin: Arc::clone(plugin),
        clock: Arc::new(CallClock::new(guards)),
        memory: MemoryLimiter::new(&plugin.config.limits),
        table: ResourceTable::new(),
        wasi: sealed_wasi(plugin, &lines),
        lines,
        call: None,
    };
    let mut store = Store::new(engine, state);
    limits::attach(&mut store, &plugin.config.limits, guards);
    store
}

/// WASI without arguments, environment, folders, addresses or input: what its builder
/// gives when it is told nothing. Clocks and random numbers work.
fn sealed_wasi(plugin: &Arc<Plugin>, lines: &Arc<LogLines>) -> WasiCtx {
    WasiCtxBuilder::new()
        .stdout(GuestOutput::new(plugin, lines, LogSource::Stdout))
        .stderr(GuestOutput::new(plugin, lines, LogSource::Stderr))
        .max_random_size(RANDOM_BYTES_MAX)
        .build()
}
