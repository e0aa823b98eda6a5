//! The shell around the consumer rules: runs one [`consumer::Client`], sends its
//! requests, calls the listeners, keeps its time, and stops it in order.
//!
//! It holds no policy. What to pull, commit or retry is decided in `consumer`; who the
//! listeners are is decided above. One task owns the client and waits for nobody;
//! everything that takes time happens beside it and reports back.
//!
//! Reading order: this file ([`Driver`]), `client_task` (the owner's loop), `mailbox`
//! (what is reported to it), `requests` (out to the brokers and back), `consume_pool`
//! (out to the listeners and back), `local_offsets` and `offset_file` (offsets of
//! broadcasting groups), [`producer`], `puller`, [`shutdown`], [`event`].
//!
//! ```text
//!            commands (bounded)            poll_request ──► requests ──► RemotingClient
//!  Driver ───────────────────► client task                     │ decodes on the reader task
//!                                  ▲  │                        │
//!                       mailbox ───┘  └► poll_consume_request ─┼─► consume pool ─► listener
//!                          ▲                                   │        │
//!                          └───────────────────────────────────┴────────┘
//! ```

mod call_gate;
mod client_task;
mod consume_pool;
pub mod event;
mod local_offsets;
mod mailbox;
mod offset_file;
pub mod producer;
mod puller;
mod requests;
pub mod shutdown;

pub use call_gate::{ASKED_AGAIN_MIN, CallGate, Closed};
pub use consume_pool::HostPermits;
pub use event::Event;
pub use shutdown::StopReport;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consumer::assignment::{AssignError, QueueSelector};
use consumer::listener::MessageListener;
use consumer::publish::{MessageProducer, Preparer};
use consumer::pull_task::PullTaskCallback;
use consumer::subscriptions::ChangeSubscriptionError;
use consumer::{
    ClientConfig, ClientStatus, GroupConfig, PauseError, PauseKind, PauseScope, SeekError,
    SeekForward, SeekTo, Sought, SubscribeError,
};
use protocol::MessageQueue;
use protocol::subscription::SubscriptionData;
use remoting::{RemotingConfig, RemotingStats};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use client_task::{Command, Worker};
use producer::Producer;

/// Commands that may wait for the client task. Senders wait for room.
const COMMANDS_MAX: usize = 256;

/// Hears every event of a client and of its shell; called on the tasks where they
/// happen. Must not block.
pub type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a driver needs to know.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// The rules' own.
    pub client: ClientConfig,
    /// Connections.
    pub remoting: RemotingConfig,
    /// Calls under way in the whole process.
    pub permits: HostPermits,
    /// Calls under way of this client (its tenant).
    pub calls_max: usize,
    /// Keeps calls back while their tenant is over a budget. `None`: never.
    pub gate: Option<Arc<dyn CallGate>>,
    /// How long the calls of a group that leaves may still run before they are killed.
    pub drain_timeout: Duration,
    /// Folder for the offsets of broadcasting groups, made when it is needed. `None`:
    /// they are forgotten with the client.
    pub local_offsets: Option<PathBuf>,
}

impl DriverConfig {
    /// 256 calls at once, 30 s to drain, local offsets forgotten.
    pub fn new(client: ClientConfig) -> Self {
        Self {
            client,
            remoting: RemotingConfig::default(),
            permits: HostPermits::new(256),
            calls_max: 256,
            gate: None,
            drain_timeout: Duration::from_secs(30),
            local_offsets: None,
        }
    }
}

/// Why the driver did not do as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DriverError {
    /// The rules refused the group.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The rules did not pause or resume.
    #[error(transparent)]
    Pause(#[from] PauseError),
    /// The rules gave the group no other queues.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The queue stays where it is.
    #[error(transparent)]
    Seek(#[from] SeekError),
    /// A listener for a group of pull tasks, or the other way round.
    #[error(
        "consumer group \"{consumer_group}\": a group with a pull_task_interval is worked by pull tasks, any other one by a listener"
    )]
    WrongKind {
        /// The group.
        consumer_group: String,
    },
    /// The rules refused another filter.
    #[error(transparent)]
    ChangeSubscription(#[from] ChangeSubscriptionError),
    /// No such group.
    #[error("consumer group \"{consumer_group}\" is not subscribed")]
    UnknownGroup {
        /// The name given.
        consumer_group: String,
    },
    /// The driver has stopped, or its task ended by a bug (see [`Driver::failed`]).
    #[error("the client has stopped")]
    Stopped,
}

/// A snapshot for people.
#[derive(Clone, Debug)]
pub struct DriverStatus {
    /// What the rules hold.
    pub client: ClientStatus,
    /// Connections and requests in flight.
    pub remoting: RemotingStats,
    /// Listener calls under way.
    pub calls: usize,
    /// At so many no more are made.
    pub calls_max: usize,
    /// Whether work waits because the whole process is at its bound of calls.
    pub waits_for_host_permit: bool,
    /// Why the gate is closed, if it is.
    pub gate_closed: Option<String>,
}

/// How the client task ended.
#[derive(Clone, Debug)]
enum End {
    Stopped(StopReport),
    Panicked(String),
}

/// A running client. Dropping it kills what is under way; [`Driver::stop`] is the
/// orderly end.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    producer: Producer,
    dispatch_changed: DispatchChanged,
    end: watch::Receiver<Option<End>>,
}

/// For whoever knows that a listener may answer [`MessageListener::dispatch`] otherwise
/// than after its last call: its plugin was replaced.
#[derive(Clone, Debug, Default)]
pub struct DispatchChanged(Arc<Notify>);

impl DispatchChanged {
    /// Every listener is asked again, soon. Never waits.
    pub fn tell(&self) {
        self.0.notify_one();
    }
}

impl Driver {
    /// Starts a client without groups. Needs a tokio runtime around it; connects to
    /// nobody before there is a reason.
    pub fn start(config: DriverConfig, observer: Observer) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let client = &config.client;
        let preparer = Preparer::new(
            client.ip,
            client.pid,
            fastrand::u32(..),
            client.max_message_size,
        );
        let producer = Producer::new(commands.clone(), preparer);
        let (ended, end) = watch::channel(None);
        let dispatch_changed = DispatchChanged::default();
        let task = tokio::spawn(client_task::run(
            config,
            Arc::clone(&observer),
            receiver,
            Arc::clone(&dispatch_changed.0),
        ));
        // Watches the owner: a panic there is a bug that nothing can be built on.
        tokio::spawn(async move {
            ended.send_replace(Some(match task.await {
                Ok(report) => End::Stopped(report),
                Err(error) => {
                    // Nobody aborts it; only a runtime that ends does.
                    let message = match error.try_into_panic() {
                        Ok(payload) => panic_message(payload.as_ref()),
                        Err(_) => "the runtime has ended".to_owned(),
                    };
                    observer(&Event::ClientTaskPanicked {
                        message: message.clone(),
                    });
                    End::Panicked(message)
                }
            }));
        });
        Self {
            commands,
            producer,
            dispatch_changed,
            end,
        }
    }

    /// Takes a group in; its listener is called as messages come.
    ///
    /// # Errors
    /// The group is there already, or the driver stops.
    pub async fn subscribe(
        &self,
        group: GroupConfig,
        listener: Arc<dyn MessageListener>,
    ) -> Result<(), DriverError> {
        self.ask(|reply| Command::Subscribe {
            group: Box::new(group),
            worker: Worker::Listener(listener),
            reply,
        })
        .await?
    }

    /// Takes a group of pull tasks in; its callback is called for each of its queues,
    /// again and again.
    ///
    /// # Errors
    /// As [`Driver::subscribe`]; or the group has no `pull_task_interval`.
    pub async fn subscribe_pull_tasks(
        &self,
        group: GroupConfig,
        callback: Arc<dyn PullTaskCallback>,
    ) -> Result<(), DriverError> {
        self.ask(|reply| Command::Subscribe {
            group: Box::new(group),
            worker: Worker::PullTasks(callback),
            reply,
        })
        .await?
    }

    /// The group leaves in order; returns when it has left. Calls that still run after
    /// the `drain_timeout` are killed.
    ///
    /// # Errors
    /// No such group, or the driver stopped meanwhile.
    pub async fn unsubscribe(&self, consumer_group: &str) -> Result<StopReport, DriverError> {
        self.ask(|reply| Command::Unsubscribe {
            consumer_group: consumer_group.into(),
            reply,
        })
        .await?
    }

    /// Another filter for a topic that the group reads; see
    /// [`consumer::Client::change_subscription`].
    ///
    /// # Errors
    /// No such group or topic, or the group or the driver stops.
    pub async fn change_subscription(
        &self,
        consumer_group: &str,
        subscription: SubscriptionData,
    ) -> Result<(), DriverError> {
        self.ask(|reply| Command::ChangeSubscription {
            consumer_group: consumer_group.into(),
            subscription: Box::new(subscription),
            reply,
        })
        .await?
    }

    /// Nothing more is fetched of a group, topic or queue; what was fetched is still
    /// consumed. The end of a drain is an event, and stands in the status.
    ///
    /// # Errors
    /// No such group, topic or queue, or the driver stopped.
    pub async fn pause(
        &self,
        consumer_group: &str,
        scope: PauseScope,
        kind: PauseKind,
        by: Arc<str>,
    ) -> Result<(), DriverError> {
        self.ask(|reply| Command::Pause {
            consumer_group: consumer_group.into(),
            scope,
            kind,
            by,
            reply,
        })
        .await?
    }

    /// Ends a pause or drain of exactly this scope.
    ///
    /// # Errors
    /// No such group, nothing to be ended, or the driver stopped.
    pub async fn resume(&self, consumer_group: &str, scope: PauseScope) -> Result<(), DriverError> {
        self.ask(|reply| Command::Resume {
            consumer_group: consumer_group.into(),
            scope,
            reply,
        })
        .await?
    }

    /// Gives a group other queues; it was made with [`GroupConfig::assign`].
    ///
    /// # Errors
    /// No such group, it divides its queues, or a topic is not subscribed.
    pub async fn assign(
        &self,
        consumer_group: &str,
        queues: Vec<QueueSelector>,
    ) -> Result<(), DriverError> {
        self.ask(|reply| Command::Assign {
            consumer_group: consumer_group.into(),
            queues,
            reply,
        })
        .await?
    }

    /// A queue of ours goes on somewhere else: what was fetched is dropped, and calls
    /// under way commit nothing. Returns when that has begun; an end of the queue or a
    /// time in it is asked of the broker first.
    ///
    /// # Errors
    /// No such group, the queue is not ours, the broker does not say where that is, or
    /// messages would be skipped that may not be.
    pub async fn seek(
        &self,
        consumer_group: &str,
        queue: MessageQueue,
        to: SeekTo,
        forward: SeekForward,
    ) -> Result<Sought, DriverError> {
        self.ask(|reply| Command::Seek {
            consumer_group: consumer_group.into(),
            queue,
            to,
            forward,
            reply,
        })
        .await?
    }

    /// Sends through this client.
    pub fn producer(&self) -> Arc<dyn MessageProducer> {
        Arc::new(self.producer.clone())
    }

    /// Tells this client that its listeners are to be asked again.
    pub fn dispatch_changed(&self) -> DispatchChanged {
        self.dispatch_changed.clone()
    }

    /// A snapshot.
    ///
    /// # Errors
    /// The driver stopped.
    pub async fn status(&self) -> Result<DriverStatus, DriverError> {
        self.ask(Command::Status).await
    }

    /// Stops in order: no more pulls, no more calls, wait for those under way, kill the
    /// rest after `drain_timeout`, commit, unregister, close the connections. A second
    /// stop can only shorten the wait.
    pub async fn stop(&self, drain_timeout: Duration) -> StopReport {
        let asked = self.ask(|reply| Command::Stop {
            drain_timeout,
            reply,
        });
        match asked.await {
            Ok(report) => report,
            // It has stopped before, or ended by a bug.
            Err(_) => match self.ended().await {
                Some(End::Stopped(report)) => report,
                Some(End::Panicked(_)) | None => StopReport::default(),
            },
        }
    }

    /// Returns if the client task ends by a bug, with what it said: the process should
    /// not go on. Pends for ever otherwise.
    pub async fn failed(&self) -> String {
        match self.ended().await {
            Some(End::Panicked(message)) => message,
            Some(End::Stopped(_)) | None => std::future::pending().await,
        }
    }

    async fn ended(&self) -> Option<End> {
        let mut end = self.end.clone();
        let end = end.wait_for(Option::is_some).await.ok()?;
        end.clone()
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, DriverError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| DriverError::Stopped)?;
        answer.await.map_err(|_| DriverError::Stopped)
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
