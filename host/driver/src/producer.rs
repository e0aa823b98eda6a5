//! Sending through a client: the port of guests and of `mqlet send`.
//!
//! The rules choose queue, broker and retry; here is only the way to them and back.

use std::time::Duration;

use consumer::publish::{
    MessageProducer, OutgoingMessage, SendError, SendFuture, SendMode, SendResult,
};
use tokio::sync::{mpsc, oneshot};

use crate::client_task::Command;

/// RocketMQ: `DefaultMQProducer#sendMsgTimeout`. A one-way send only has to find a route.
const ONEWAY_TIMEOUT: Duration = Duration::from_secs(3);

/// A [`MessageProducer`] over a client task. It outlives the driver; then nothing is sent.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    commands: mpsc::Sender<Command>,
}

impl Producer {
    pub(crate) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
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
    fn send(&self, messages: Vec<OutgoingMessage>, timeout: Duration) -> SendFuture {
        self.ask(messages, SendMode::Sync, timeout)
    }

    fn send_oneway(&self, message: OutgoingMessage) -> SendFuture {
        self.ask(vec![message], SendMode::Oneway, ONEWAY_TIMEOUT)
    }
}

/// What a send comes to.
pub(crate) type SendOutcome = Result<Vec<SendResult>, SendError>;
