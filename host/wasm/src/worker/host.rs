//! The host's side of a plugin's worker: starts it, hands frames to and fro, and notices
//! its end, for whatever reason. The next one is started when an instance is wanted, after
//! a pause that grows while workers keep dying.
//!
//! A worker is not believed: what it asks is checked as if it came from a guest
//! (`questions.rs`), and one that breaks the protocol, or does not answer long after its
//! own deadline, is killed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::WorkerProgram;
use super::frames::{
    self, Answer, Frame, FromWorker, InstanceId, Load, LoadFailed, QuestionId, Reply, ToWorker,
    WORKER_FRAME_BYTES_MAX,
};
use super::plugin::ROLE;
use super::questions::{self, CallAtHost};
use crate::error::LoadError;
use crate::event::{Event, LogLine};
use crate::outcome;
use crate::plugin::Plugin;

/// From its start until its code is loaded.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// After a worker that died the next one waits: as long after the first, twice as long
/// after each of the following, and never longer than the second.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A worker that lived so long died by chance.
const LIVED_LONG: Duration = Duration::from_secs(60);
/// Frames that wait to be written.
const FRAMES_MAX: usize = 1024;
/// Of what a worker says before it dies.
const LAST_WORDS_BYTES: usize = 4096;
/// What a process needs beside its guests: the engine, threads, code.
const MEMORY_BASE: u64 = 256 << 20;
/// Stacks and tables of an instance.
const MEMORY_EACH: u64 = 8 << 20;

/// The workers of one revision, one at a time.
pub(crate) struct Workers {
    program: WorkerProgram,
    plugin: Arc<Plugin>,
    code: Bytes,
    run_slots: usize,
    /// Held while a worker starts: nobody starts a second one.
    latest: tokio::sync::Mutex<Latest>,
    next_instance: AtomicU64,
}

#[derive(Default)]
struct Latest {
    link: Option<Arc<Link>>,
    started: Option<Instant>,
    died_in_a_row: u32,
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("no worker process can be started: {0}")]
    System(#[from] io::Error),
    #[error("the worker process ended before it was ready: {0}")]
    Ended(String),
    #[error("the worker process was not ready within {START_TIMEOUT:?}")]
    Timeout,
    #[error("the worker process cannot confine itself: {0}")]
    Sandbox(String),
    #[error("{0}")]
    Load(LoadError),
}

impl Workers {
    pub(crate) fn new(
        program: WorkerProgram,
        plugin: &Arc<Plugin>,
        code: Bytes,
        run_slots: usize,
    ) -> Self {
        Self {
            program,
            plugin: Arc::clone(plugin),
            code,
            run_slots,
            latest: tokio::sync::Mutex::default(),
            next_instance: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_instance(&self) -> InstanceId {
        self.next_instance.fetch_add(1, Ordering::Relaxed)
    }

    /// The worker that lives, or a new one.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, StartError> {
        let mut latest = self.latest.lock().await;
        if let Some(link) = latest.link.as_ref().filter(|link| link.death().is_none()) {
            return Ok(Arc::clone(link));
        }
        if let Some(started) = latest.started {
            if latest.link.take().is_some() && started.elapsed() >= LIVED_LONG {
                latest.died_in_a_row = 0;
            }
            sleep(restart_pause(latest.died_in_a_row)).await;
            latest.died_in_a_row = latest.died_in_a_row.saturating_add(1);
        }
        latest.started = Some(Instant::now());
        let started = timeout(START_TIMEOUT, self.start()).await;
        let link = Arc::new(started.map_err(|_| StartError::Timeout)??);
        latest.link = Some(Arc::clone(&link));
        Ok(link)
    }

    async fn start(&self) -> Result<Link, StartError> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut child = self
            .program
            .command(ROLE, &[])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        let last_words = LastWords::of(child.stderr.take());
        let mut socket = UnixStream::from_std(ours)?;
        let load = Frame::new(&ToWorker::Load(Box::new(self.load())), self.code.clone());
        let loaded = async {
            load.write(&mut socket).await?;
            frames::read::<FromWorker>(&mut socket, WORKER_FRAME_BYTES_MAX).await
        };
        match loaded.await {
            Ok(Some((FromWorker::Loaded(Ok(())), _))) => {
                Ok(Link::new(&self.plugin, child, socket, last_words))
            }
            Ok(Some((FromWorker::Loaded(Err(failed)), _))) => Err(self.not_loaded(failed)),
            Ok(_) | Err(_) => Err(StartError::Ended(post_mortem(child, last_words).await)),
        }
    }

    fn not_loaded(&self, failed: LoadFailed) -> StartError {
        StartError::Load(match failed {
            LoadFailed::Sandbox(reason) => return StartError::Sandbox(outcome::short(&reason)),
            LoadFailed::Link(reason) => LoadError::Link { reason },
            LoadFailed::Artefact(reason) => LoadError::Artefact { reason },
            LoadFailed::NoSuchListener => LoadError::NoSuchListener(self.plugin.config.listener),
        })
    }

    fn load(&self) -> Load {
        let config = &self.plugin.config;
        let limits = &config.limits;
        let instances = u64::from(config.consume_thread_max) + 1;
        let each = limits
            .memory
            .saturating_add(limits.host_memory as u64)
            .saturating_add(MEMORY_EACH);
        Load {
            plugin: config.plugin.to_string(),
            revision: config.revision.to_string(),
            listener: config.listener,
            limits: limits.clone(),
            consume_thread_max: config.consume_thread_max,
            settings: config.settings.clone(),
            secrets: config.secrets.entries().to_vec(),
            buckets: config.grants.buckets.clone(),
            config: config.grants.config,
            clock: config.grants.clock,
            run_slots: self.run_slots,
            memory: each
                .saturating_mul(instances)
                .saturating_add(4 * self.code.len() as u64)
                .saturating_add(MEMORY_BASE),
        }
    }
}

fn restart_pause(died_in_a_row: u32) -> Duration {
    let doubled = RESTART_PAUSE_MIN.saturating_mul(1 << died_in_a_row.min(10));
    doubled.min(RESTART_PAUSE_MAX)
}

/// One worker. It is killed when nobody holds this any longer.
pub(crate) struct Link {
    shared: Arc<Shared>,
    _supervisor: AbortOnDropHandle<()>,
}

pub(crate) struct Shared {
    pub(crate) plugin: Arc<Plugin>,
    frames: mpsc::Sender<Frame>,
    state: Mutex<State>,
    condemned: Notify,
}

/// Held for a few steps, never across a wait.
#[derive(Default)]
struct State {
    replies: BTreeMap<InstanceId, oneshot::Sender<Reply>>,
    calls: BTreeMap<InstanceId, CallAtHost>,
    /// Why it is to die.
    condemned: Option<String>,
    /// Why it died.
    death: Option<Arc<str>>,
}

/// The worker died; why.
#[derive(Clone, Debug)]
pub(crate) struct Died(pub(crate) Arc<str>);

impl Link {
    fn new(plugin: &Arc<Plugin>, child: Child, socket: UnixStream, last_words: LastWords) -> Self {
        let (frames, to_write) = mpsc::channel(FRAMES_MAX);
        let shared = Arc::new(Shared {
            plugin: Arc::clone(plugin),
            frames,
            state: Mutex::default(),
            condemned: Notify::new(),
        });
        let supervisor = supervise(Arc::clone(&shared), child, socket, to_write, last_words);
        Self {
            shared,
            _supervisor: AbortOnDropHandle::new(tokio::spawn(supervisor)),
        }
    }

    pub(crate) fn death(&self) -> Option<Died> {
        self.shared.death()
    }

    /// Tells an instance something and waits for its reply, at most so long: a worker that
    /// says nothing by then is killed.
    pub(crate) async fn ask(
        &self,
        id: InstanceId,
        told: &ToWorker,
        bytes: Bytes,
        bound: Duration,
    ) -> Result<Reply, Died> {
        let (reply, replied) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if let Some(death) = &state.death {
                return Err(Died(Arc::clone(death)));
            }
            state.replies.insert(id, reply);
        }
        // A worker that is gone says so by the end of its replies.
        let _gone = self.shared.frames.send(Frame::new(told, bytes)).await;
        let mut replied = replied;
        let reply = match timeout(bound, &mut replied).await {
            Ok(reply) => reply,
            Err(_) => {
                self.shared
                    .condemn(format!("it gave no answer within {bound:?}"));
                replied.await
            }
        };
        reply.map_err(|_| self.death().unwrap_or_else(|| Died("it ended".into())))
    }

    /// Tells an instance something that has no reply. One that cannot be told is beyond
    /// hope.
    pub(crate) fn tell(&self, told: &ToWorker) {
        let frame = Frame::new(told, Bytes::new());
        if let Err(mpsc::error::TrySendError::Full(_)) = self.shared.frames.try_send(frame) {
            self.shared.condemn("it reads nothing".to_owned());
        }
    }

    pub(crate) fn begin_call(&self, id: InstanceId, call: CallAtHost) {
        self.shared.state().calls.insert(id, call);
    }

    pub(crate) fn end_call(&self, id: InstanceId) -> Option<CallAtHost> {
        self.shared.state().calls.remove(&id)
    }

    /// Nobody waits for it any longer.
    pub(crate) fn forget(&self, id: InstanceId) {
        let mut state = self.shared.state();
        state.replies.remove(&id);
        state.calls.remove(&id);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics, and what it guards stays well-formed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn death(&self) -> Option<Died> {
        self.state().death.clone().map(Died)
    }

    fn condemn(&self, reason: String) {
        self.state().condemned.get_or_insert(reason);
        self.condemned.notify_one();
    }

    /// What a call that runs has at the host.
    pub(crate) fn with_call<T>(
        &self,
        id: InstanceId,
        with: impl FnOnce(&mut CallAtHost) -> T,
    ) -> Option<T> {
        self.state().calls.get_mut(&id).map(with)
    }

    pub(crate) async fn answer(&self, id: QuestionId, answer: Answer, bytes: Bytes) {
        let frame = Frame::new(&ToWorker::Answer(id, answer), bytes);
        let _gone = self.frames.send(frame).await;
    }

    /// Takes what the worker says, up to its end or a breach of the protocol.
    async fn listen(self: Arc<Self>, mut socket: OwnedReadHalf) -> String {
        let asked_at_once = self.plugin.config.consume_thread_max as usize + 1;
        let mut questions = JoinSet::new();
        loop {
            let frame = frames::read(&mut socket, WORKER_FRAME_BYTES_MAX).await;
            let (told, bytes) = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return String::new(),
                Err(error) => return format!("it broke the protocol: {error}"),
            };
            while questions.try_join_next().is_some() {}
            match told {
                FromWorker::Reply(id, reply) => {
                    let waiting = self.state().replies.remove(&id);
                    if let Some(waiting) = waiting {
                        // An instance that was dropped meanwhile.
                        let _unwanted = waiting.send(*reply);
                    }
                }
                FromWorker::Log(line) => self.log(line),
                FromWorker::Ask(..) if questions.len() >= asked_at_once => {
                    return "it broke the protocol: it asks more than its instances can".to_owned();
                }
                FromWorker::Ask(id, question) => {
                    let shared = Arc::clone(&self);
                    questions.spawn(questions::answer(shared, id, question, bytes));
                }
                FromWorker::Loaded(_) => {
                    return "it broke the protocol: it is loaded already".to_owned();
                }
            }
        }
    }

    fn log(&self, mut line: LogLine) {
        let plugin = &self.plugin;
        if plugin.line_rate.take(1, std::time::Instant::now())
            && plugin.config.tenant.take_log_line()
        {
            line.bound();
            plugin.emit(&Event::LogLine {
                plugin: plugin.name(),
                revision: plugin.revision(),
                line,
            });
        }
    }
}

async fn supervise(
    shared: Arc<Shared>,
    mut child: Child,
    socket: UnixStream,
    to_write: mpsc::Receiver<Frame>,
    last_words: LastWords,
) {
    let (from_worker, to_worker) = socket.into_split();
    let breach = tokio::select! {
        breach = Arc::clone(&shared).listen(from_worker) => breach,
        () = write(to_worker, to_write) => String::new(),
        () = shared.condemned.notified() => String::new(),
    };
    let condemned = shared.state().condemned.take();
    let killed = condemned.or((!breach.is_empty()).then_some(breach));
    let reason: Arc<str> = match killed {
        Some(reason) => {
            let _dead_already = child.kill().await;
            format!("{reason}; it was killed").into()
        }
        None => post_mortem(child, last_words).await.into(),
    };
    let waiting = {
        let mut state = shared.state();
        state.death = Some(Arc::clone(&reason));
        std::mem::take(&mut state.replies)
    };
    let plugin = &shared.plugin;
    plugin.emit(&Event::WorkerEnded {
        plugin: plugin.name(),
        revision: plugin.revision(),
        reason,
    });
    drop(waiting);
}

async fn write(mut socket: OwnedWriteHalf, mut frames: mpsc::Receiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        if frame.write(&mut socket).await.is_err() {
            return;
        }
    }
}

/// Kills what is left of a worker whose socket ended, and says how it ended.
async fn post_mortem(mut child: Child, last_words: LastWords) -> String {
    /// Between the end of its socket and its own.
    const DYING: Duration = Duration::from_secs(1);
    let status = match timeout(DYING, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            let _dead_already = child.start_kill();
            child.wait().await
        }
    };
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    match last_words.take().await {
        Some(words) => format!("{status}: {}", outcome::short(&words)),
        None => status,
    }
}

/// The end of what a worker writes to its standard error.
struct LastWords(Option<AbortOnDropHandle<Vec<u8>>>);

impl LastWords {
    fn of(stderr: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        Self(stderr.map(|stderr| AbortOnDropHandle::new(tokio::spawn(read_tail(stderr)))))
    }

    /// Its last line, when it has ended.
    async fn take(self) -> Option<String> {
        let tail = self.0?.await.ok()?;
        let text = String::from_utf8_lossy(&tail);
        let line = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(line.to_owned())
    }
}

async fn read_tail(mut stderr: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut tail = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.extend_from_slice(&buffer[..read]);
        let over = tail.len().saturating_sub(LAST_WORDS_BYTES);
        tail.drain(..over);
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_keep_dying_are_started_at_growing_pauses() {
        let pauses: Vec<_> = [0, 1, 2, 6, 7, 1000].map(restart_pause).into();
        let milliseconds = [100, 200, 400, 6_400, 10_000, 10_000].map(Duration::from_millis);
        assert_eq!(pauses, milliseconds);
    }
}
