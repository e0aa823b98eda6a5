//! What one instance owns on the host's side, and the one way to make its store.

use std::path::PathBuf;
use std::sync::Arc;

use consumer::listener::{CancelSignal, ConsumeMessage, ConsumeRequest, MessageRun};
use consumer::pull_task::QueuePuller;
use wasmtime::Store;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::clocks::Clocks;
use crate::deadline::CallClock;
use crate::engine::Guards;
use crate::event::LogSource;
use crate::imports::http::Http;
use crate::imports::stdio::GuestOutput;
use crate::limits::{self, MemoryLimiter, RANDOM_BYTES_MAX};
use crate::log_lines::LogLines;
use crate::outbox::Outbox;
use crate::plugin::Plugin;
use crate::worker::frames::{Details, InstanceId};

/// The host's side of one instance.
pub(crate) struct State {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) clock: Arc<CallClock>,
    pub(crate) memory: MemoryLimiter,
    pub(crate) table: ResourceTable,
    pub(crate) lines: Arc<LogLines>,
    /// Set while `consume-message` or `do-pull-task` runs.
    pub(crate) call: Option<RunningCall>,
    /// What the call has sent.
    pub(crate) outbox: Outbox,
    pub(crate) clocks: Clocks,
    pub(crate) http: Http,
    wasi: WasiCtx,
}

/// What `mqlet:listener/call` may be asked about.
pub(crate) enum RunningCall {
    Messages(RunningMessages),
    PullTask(RunningPullTask),
    InWorker(CallInWorker),
}

impl RunningCall {
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::Messages(call) => call.cancel.is_cancelled(),
            Self::PullTask(task) => task.cancel.is_cancelled(),
            Self::InWorker(call) => call.cancel.is_cancelled(),
        }
    }

    /// The message at this position of the call; of a pull task, of its last pull. In a
    /// worker there is none, only what was told of it.
    pub(crate) fn message(&self, index: usize) -> Option<ConsumeMessage<'_>> {
        match self {
            Self::Messages(call) => call.message(index),
            Self::PullTask(task) => task.last_pull().nth(index),
            Self::InWorker(_) => None,
        }
    }
}

/// Some messages of a request.
pub(crate) struct RunningMessages {
    pub(crate) request: Arc<ConsumeRequest>,
    pub(crate) cancel: CancelSignal,
    /// Where the call begins in its request.
    pub(crate) first: usize,
    /// Messages of the call.
    pub(crate) messages: usize,
}

impl RunningMessages {
    pub(crate) fn message(&self, index: usize) -> Option<ConsumeMessage<'_>> {
        (index < self.messages)
            .then(|| self.request.iter().nth(self.first + index))
            .flatten()
    }
}

/// A call in a plugin's worker process: what its host told of it.
pub(crate) struct CallInWorker {
    pub(crate) instance: InstanceId,
    pub(crate) cancel: CancelSignal,
    /// One a message.
    pub(crate) details: Vec<Details>,
}

/// One run of a pull task.
pub(crate) struct RunningPullTask {
    pub(crate) puller: Arc<dyn QueuePuller>,
    pub(crate) cancel: CancelSignal,
    /// What was asked of the queue so far.
    pub(crate) questions: u32,
    /// Messages of all pulls.
    pub(crate) pulled: u32,
    /// Those of the last one that the guest got.
    pub(crate) last_pull: Vec<MessageRun>,
}

impl RunningPullTask {
    pub(crate) fn last_pull(&self) -> impl Iterator<Item = ConsumeMessage<'_>> {
        self.last_pull.iter().flat_map(MessageRun::iter)
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
///
/// # Errors
/// A folder that the plugin may read is not there any more.
pub(crate) fn new(
    engine: &wasmtime::Engine,
    plugin: &Arc<Plugin>,
    guards: Guards,
) -> Result<Store<State>, FolderGone> {
    let lines = Arc::new(LogLines::new());
    let clock = Arc::new(CallClock::new(guards));
    let clocks = Clocks::new(plugin.config.grants.clock, &clock);
    let state = State {
        plugin: Arc::clone(plugin),
        memory: MemoryLimiter::new(plugin),
        table: ResourceTable::new(),
        wasi: sealed_wasi(plugin, &lines, &clocks)?,
        lines,
        call: None,
        outbox: Outbox::default(),
        clocks,
        http: Http::new(plugin, &clock),
        clock,
    };
    let mut store = Store::new(engine, state);
    limits::attach(&mut store, &plugin.config.limits, guards);
    Ok(store)
}

/// No instance without its folder: it would find nothing there, and go on.
#[derive(Debug, thiserror::Error)]
#[error("the granted folder {} cannot be opened: {reason}; put it back, or correct grants.folder", .folder.display())]
pub(crate) struct FolderGone {
    folder: PathBuf,
    reason: String,
}

/// WASI without arguments, environment, addresses or input, and without folders but the
/// granted one: what its builder gives when it is told nothing. Random numbers work.
fn sealed_wasi(
    plugin: &Arc<Plugin>,
    lines: &Arc<LogLines>,
    clocks: &Clocks,
) -> Result<WasiCtx, FolderGone> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.stdout(GuestOutput::new(plugin, lines, LogSource::Stdout))
        .stderr(GuestOutput::new(plugin, lines, LogSource::Stderr))
        .max_random_size(RANDOM_BYTES_MAX);
    clocks.attach(&mut wasi);
    if let Some(folder) = &plugin.config.grants.folder {
        let opened = wasi.preopened_dir(folder, "/", FsPerms::ReadOnly);
        opened.map_err(|error| FolderGone {
            folder: folder.clone(),
            reason: error.to_string(),
        })?;
    }
    Ok(wasi.build())
}
