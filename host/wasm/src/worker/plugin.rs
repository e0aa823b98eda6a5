//! A worker that runs the instances of one plugin: the same engine, limits and deadlines
//! as in a host, in a process that has nothing but a socket to its host and that the
//! operating system confines before the first guest code runs.
//!
//! It is crash-only: a panic, a host that is gone, a frame that makes no sense end the
//! process, and the host deals with it.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use bytes::Bytes;
use consumer::listener::CancelSignal;
use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::frames::{
    self, Call, Failure, Frame, FromWorker, GuestAnswer, HOST_FRAME_BYTES_MAX, InstanceId, Load,
    LoadFailed, Reply, Taken, ToWorker, WORKER_FRAME_BYTES_MAX,
};
use super::host_link::{BucketsOfHost, HostLink};
use super::sandbox::{self, SystemLimits};
use crate::artefact::Artefact;
use crate::convert;
use crate::deadline::Budget;
use crate::engine::{Engine, EngineConfig};
use crate::error::LoadError;
use crate::event::{Event, Observer};
use crate::failure::FailureKind;
use crate::grants::Grants;
use crate::instance::{Instance, Maker, NoInstance};
use crate::limits::TenantMemoryUsedUp;
use crate::plugin::{Plugin, PluginConfig};
use crate::run_slots::RunSlot;
use crate::secrets::Secrets;
use crate::store::{CallInWorker, RunningCall};

/// The subcommand.
pub(crate) const ROLE: &str = "plugin-worker";
/// Frames that wait to be written; guests wait while there are so many.
const FRAMES_MAX: usize = 256;
/// What an instance is told while it is busy: that it is to go.
const COMMANDS_MAX: usize = 4;

/// The whole life of the process: call it before anything else has a thread.
///
/// # Errors
/// For people, when it ends otherwise than by the end of its host.
pub fn plugin_worker() -> Result<(), String> {
    run().map_err(|error| format!("the worker ends: {error}"))
}

fn run() -> io::Result<()> {
    // A panic leaves what nobody may use.
    std::panic::set_hook(Box::new(|panic| {
        let _unheard = writeln!(io::stderr(), "{panic}");
        std::process::abort();
    }));
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    // One thread until it is known how many there are to be.
    let load = runtime.block_on(async {
        let mut socket = UnixStream::from_std(socket.try_clone()?)?;
        frames::read::<ToWorker>(&mut socket, HOST_FRAME_BYTES_MAX).await
    })?;
    drop(runtime);
    let Some((ToWorker::Load(load), code)) = load else {
        return Err(io::Error::other("it was not told what to run"));
    };
    let limits = SystemLimits {
        memory: load.memory,
        cpu_time: None,
    };
    let limited = limits.apply();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(load.run_slots + 1)
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(async move {
        let socket = UnixStream::from_std(socket)?;
        let (frames, to_write) = mpsc::channel(FRAMES_MAX);
        let host = Arc::new(HostLink::new(frames));
        let loaded = limited
            .map_err(|error| LoadFailed::Sandbox(error.to_string()))
            .and_then(|()| Worker::load(*load, code, &host));
        let (worker, told) = match loaded {
            Ok(worker) => (Some(worker), Ok(())),
            Err(failed) => (None, Err(failed)),
        };
        host.tell(&FromWorker::Loaded(told)).await;
        let (from_host, to_host) = socket.into_split();
        let writing = write(to_host, to_write);
        let Some(worker) = worker else {
            drop(host);
            return writing.await;
        };
        // When one of them ends the host is gone.
        tokio::select! {
            ended = writing => ended,
            ended = worker.serve(from_host) => ended,
        }
    })
}

async fn write(
    mut socket: tokio::net::unix::OwnedWriteHalf,
    mut frames: mpsc::Receiver<Frame>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        frame.write(&mut socket).await?;
    }
    Ok(())
}

struct Worker {
    engine: Engine,
    plugin: Arc<Plugin>,
    maker: Maker,
    host: Arc<HostLink>,
}

/// An instance, as whoever reads the socket knows it.
struct Live {
    commands: mpsc::Sender<Command>,
    cancel: CancelSignal,
}

enum Command {
    Call(Box<Call>, Bytes, CancelSignal),
    ShutDown,
}

impl Worker {
    /// Loads the code; when this returns the process is confined.
    fn load(load: Load, code: Bytes, host: &Arc<HostLink>) -> Result<Arc<Self>, LoadFailed> {
        let config = EngineConfig {
            // A pool's worth of addresses for one plugin is no use.
            instances_max: 0,
            run_slots: load.run_slots,
            ..EngineConfig::default()
        };
        let unheard: Observer = Arc::new(|_: &Event| {});
        let engine = Engine::new(&config, &unheard)
            .map_err(|error| LoadFailed::Sandbox(error.to_string()))?;
        let log = Arc::clone(host);
        let observer: Observer = Arc::new(move |event: &Event| {
            // Everything else the host tells itself.
            if let Event::LogLine { line, .. } = event {
                log.try_tell(&FromWorker::Log(line.clone()));
            }
        });
        let config = PluginConfig {
            listener: load.listener,
            limits: load.limits,
            grants: Grants {
                buckets: load.buckets,
                config: load.config,
                clock: load.clock,
                ..Grants::default()
            },
            settings: load.settings,
            secrets: Secrets::new(load.secrets),
            key_value: Some(Arc::new(BucketsOfHost(Arc::clone(host)))),
            consume_thread_max: load.consume_thread_max,
            ..PluginConfig::new(&load.plugin, &load.revision)
        };
        let mut plugin = Plugin::new(config, Arc::new(NoProducer), observer);
        plugin.host = Some(Arc::clone(host));
        let plugin = Arc::new(plugin);
        let maker =
            Maker::new(&engine, &Artefact::trusted(code), &plugin).map_err(
                |error| match error {
                    LoadError::NoSuchListener(_) => LoadFailed::NoSuchListener,
                    LoadError::Link { reason } => LoadFailed::Link(reason),
                    other => LoadFailed::Artefact(other.to_string()),
                },
            )?;
        sandbox::confine().map_err(|error| LoadFailed::Sandbox(error.to_string()))?;
        Ok(Arc::new(Self {
            engine,
            plugin,
            maker,
            host: Arc::clone(host),
        }))
    }

    /// Does what it is told, up to the end of the host.
    async fn serve(self: Arc<Self>, mut socket: tokio::net::unix::OwnedReadHalf) -> io::Result<()> {
        let mut instances: BTreeMap<InstanceId, Live> = BTreeMap::new();
        let mut tasks = tokio::task::JoinSet::new();
        while let Some((told, bytes)) = frames::read(&mut socket, HOST_FRAME_BYTES_MAX).await? {
            while tasks.try_join_next().is_some() {}
            match told {
                ToWorker::Load(_) => return Err(io::Error::other("it runs something already")),
                ToWorker::Make(id) => {
                    let (commands, received) = mpsc::channel(COMMANDS_MAX);
                    let cancel = CancelSignal::default();
                    instances.insert(id, Live { commands, cancel });
                    tasks.spawn(Arc::clone(&self).live(id, received));
                }
                ToWorker::Call(id, call) => {
                    if let Some(live) = instances.get_mut(&id) {
                        live.cancel = CancelSignal::default();
                        let command = Command::Call(call, bytes, live.cancel.clone());
                        let _gone = live.commands.send(command).await;
                    }
                }
                ToWorker::Cancel(id) => {
                    if let Some(live) = instances.get(&id) {
                        live.cancel.cancel();
                    }
                }
                ToWorker::ShutDown(id) => {
                    // The last that it is told.
                    if let Some(live) = instances.remove(&id) {
                        let _gone = live.commands.send(Command::ShutDown).await;
                    }
                }
                // Its task hears of it by the end of the channel.
                ToWorker::Drop(id) => drop(instances.remove(&id)),
                ToWorker::Answer(id, answer) => self.host.answered(id, answer, bytes),
            }
        }
        Ok(())
    }

    /// One instance, from its making to its end.
    async fn live(self: Arc<Self>, id: InstanceId, mut commands: mpsc::Receiver<Command>) {
        let mut slot = self.engine.slots().slot(&self.plugin);
        let made = {
            let _ticking = self.engine.ticking();
            slot.acquire().await;
            tokio::select! {
                made = self.maker.make(&mut slot) => made,
                // Nothing is told before it is made: it is to go.
                _ = commands.recv() => return,
            }
        };
        slot.release();
        let mut instance = match made {
            Ok(instance) => instance,
            Err(NoInstance::Failed(record)) => {
                return self.reply(id, Reply::Failed((*record).into())).await;
            }
            Err(NoInstance::Contract(reason)) => {
                return self.reply(id, Reply::Contract(reason)).await;
            }
            Err(NoInstance::TenantMemory) => {
                // A worker's tenant has no bound.
                let reason = TenantMemoryUsedUp.to_string();
                return self.reply(id, Reply::Contract(reason)).await;
            }
        };
        let taken = taken(&mut instance);
        self.reply(id, Reply::Made { taken }).await;
        while let Some(command) = commands.recv().await {
            let _ticking = self.engine.ticking();
            match command {
                Command::Call(call, bytes, cancel) => {
                    let reply = tokio::select! {
                        reply = self.call(id, &mut instance, &call, &bytes, cancel, &mut slot) => reply,
                        _ = commands.recv() => return,
                    };
                    slot.release();
                    let failed = matches!(reply, Reply::Failed(_));
                    self.reply(id, reply).await;
                    if failed {
                        return;
                    }
                }
                Command::ShutDown => {
                    let failed = instance.shut_down(&mut slot).await;
                    let failed = failed.map(|record| Failure::from((*record).clone()));
                    return self.reply(id, Reply::ShutDown(failed)).await;
                }
            }
        }
    }

    async fn call(
        &self,
        id: InstanceId,
        instance: &mut Instance,
        call: &Call,
        bytes: &[u8],
        cancel: CancelSignal,
        slot: &mut RunSlot,
    ) -> Reply {
        let budget = Budget {
            compute: call.compute,
            wall: call.wall,
        };
        let messages = convert::Messages {
            records: call.records.iter().map(Into::into).collect(),
            data: bytes.into(),
        };
        let running = RunningCall::InWorker(CallInWorker {
            instance: id,
            cancel,
            details: call.details.clone(),
        });
        let said = instance
            .consume_message(running, &messages, call.context.as_wit(), budget, slot)
            .await;
        match said {
            Ok(said) => Reply::Answered {
                answer: GuestAnswer::from(said),
                taken: taken(instance),
            },
            Err(interruption) => Reply::Failed(instance.record(interruption, budget).into()),
        }
    }

    async fn reply(&self, id: InstanceId, reply: Reply) {
        let told = FromWorker::Reply(id, Box::new(reply));
        if Frame::new(&told, Bytes::new()).size() <= WORKER_FRAME_BYTES_MAX {
            return self.host.tell(&told).await;
        }
        let kind = FailureKind::HostLimit(format!(
            "an answer of more than {WORKER_FRAME_BYTES_MAX} bytes does not leave its process"
        ));
        let failure = Failure {
            phase: crate::failure::Phase::Call,
            kind,
            backtrace: Vec::new(),
            last_log_lines: Vec::new(),
            taken: Taken::default(),
        };
        let told = FromWorker::Reply(id, Box::new(Reply::Failed(failure)));
        self.host.tell(&told).await;
    }
}

fn taken(instance: &mut Instance) -> Taken {
    let taken = instance.taken();
    Taken {
        wall: taken.wall,
        computed: taken.computed,
        memory_bytes: taken.memory_bytes,
        log_lines: taken.lines.lines,
        log_lines_dropped: taken.lines.dropped,
    }
}

/// Whoever sends in a worker asks its host.
struct NoProducer;

impl MessageProducer for NoProducer {
    fn prepare(&self, _: &mut [OutgoingMessage]) -> Result<(), SendError> {
        Err(SendError::Stopped)
    }

    fn send(&self, _: Vec<OutgoingMessage>, _: std::time::Duration) -> SendFuture {
        Box::pin(async { Err(SendError::Stopped) })
    }

    fn send_oneway(&self, _: OutgoingMessage) -> SendFuture {
        Box::pin(async { Err(SendError::Stopped) })
    }
}
