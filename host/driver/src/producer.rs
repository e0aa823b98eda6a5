//! Sending through a client: the port of guests and of `mqlet send`.
//!
//! The rules choose queue, broker and retry; here is only the way to them and back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consumer::publish::{
    MessageProducer, OutgoingMessage, Preparer, SendError, SendFuture, SendMode, SendResult,
};
use tokio::sync::{mpsc, oneshot};

use crate::client_task::Command;

/// RocketMQ: `DefaultMQProducer#sendMsgTimeout`. A one-way send only has to find a route.
const ONEWAY_TIMEOUT: Duration = Duration::from_secs(3);

/// A [`MessageProducer`] over a client task. It outlives the driver; then nothing is sent.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    commands: mpsc::Sender<Command>,
    /// Held for as long as a few messages are looked at.
    preparer: Arc<Mutex<Preparer>>,
}

impl Producer {
    pub(crate) fn new(commands: mpsc::Sender<Command>, preparer: Preparer) -> Self {
        Self {
            commands,
            preparer: Arc::new(Mutex::new(preparer)),
        }
    }

    fn ask(&self, messages: Vec<OutgoingMessage>, mode: SendMode, timeout: Duration) -> SendFuture {
        let commands = self.commands.clone();
        Box::pin(async move {
            let (reply, result) = oneshot::channel();
            let command = Command::Send {
                messages,
                mode,
                timeout,
                reply,
            };
            // Waiting for room is waiting for the broker, as far as the caller knows.
            match tokio::time::timeout(timeout, commands.send(command)).await {
                Ok(Ok(())) => result.await.unwrap_or(Err(SendError::Stopped)),
                Ok(Err(_)) => Err(SendError::Stopped),
                Err(_) => Err(SendError::Timeout { timeout }),
            }
        })
    }
}

impl MessageProducer for Producer {
    fn prepare(&self, messages: &mut [OutgoingMessage]) -> Result<(), SendError> {
        let unix_now = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = unix_now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let mut preparer = self.preparer.lock().unwrap_or_else(PoisonError::into_inner);
        preparer.prepare(messages, unix_ms)
    }

    fn send(&self, messages: Vec<OutgoingMessage>, timeout: Duration) -> SendFuture {
        self.ask(messages, SendMode::Sync, timeout)
    }

    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture {
        self.ask(vec![message], SendMode::Oneway, ONEWAY_TIMEOUT)
    }
}

/// What a send comes to.
pub(crate) type SendOutcome = Result<Vec<SendResult>, SendError>;
