//! Requests of the rules, out to name servers and brokers, and their answers back.
//!
//! The answer is decoded where it arrives, on the connection's reader task; the client
//! task gets a finished [`Response`]. Answers that have to be decompressed get a task
//! of their own, so that the other answers on the connection do not wait.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use consumer::{Expect, PendingRequest, RequestError, RequestId, Response};
use protocol::RemotingCommand;
use protocol::message::MessageBatch;
use remoting::{InvokeError, RemotingClient};
use tokio_util::task::TaskTracker;

use crate::event::Event;
use crate::mailbox::{Input, Mailbox};

/// Answers with compressed messages below this are decoded where they arrive: a task
/// would cost as much.
const DECODE_TASK_BYTES_MIN: usize = 4 * 1024;

/// Sends what the rules ask for.
#[derive(Debug)]
pub(crate) struct Requests {
    remoting: RemotingClient,
    mailbox: Arc<Mailbox>,
    decoding: TaskTracker,
}

impl Requests {
    pub(crate) fn new(remoting: RemotingClient, mailbox: Arc<Mailbox>) -> Self {
        Self {
            remoting,
            mailbox,
            decoding: TaskTracker::new(),
        }
    }

    /// Never waits. An event if a one-way request could not be sent; everything else
    /// comes to the mailbox, exactly once.
    pub(crate) fn send(&self, pending: &PendingRequest) -> Option<Event> {
        let command = pending.request.to_command();
        let address = pending.destination.address();
        if pending.oneway {
            return self
                .remoting
                .invoke_oneway(address, command)
                .err()
                .map(|error| Event::OnewayNotSent {
                    address: address.clone(),
                    reason: with_causes(&error),
                });
        }
        let reply = Reply::new(Arc::clone(&self.mailbox), pending.id);
        let expect = pending.request.expect();
        let decoding = self.decoding.clone();
        self.remoting.invoke_with(
            address,
            command,
            pending.timeout,
            Box::new(move |result| match result {
                Ok(command) => decode(command, expect, reply, &decoding),
                Err(error) => reply.send(Err(request_error(&error))),
            }),
        );
        None
    }

    /// The connections, to look at.
    pub(crate) fn remoting(&self) -> &RemotingClient {
        &self.remoting
    }

    /// Writes what is queued, ends the connections and waits for all tasks.
    pub(crate) async fn close(&self) {
        self.remoting.close().await;
        self.decoding.close();
        self.decoding.wait().await;
    }
}

fn decode(command: RemotingCommand, expect: Expect, reply: Reply, decoding: &TaskTracker) {
    if command.body.len() >= DECODE_TASK_BYTES_MIN && MessageBatch::begins_compressed(&command.body)
    {
        decoding.spawn(async move { reply.send(expect.decode(command)) });
    } else {
        reply.send(expect.decode(command));
    }
}

/// The one answer that a request owes to the rules, whatever happens to its carrier.
#[derive(Debug)]
struct Reply {
    mailbox: Arc<Mailbox>,
    id: RequestId,
    is_owed: bool,
}

impl Reply {
    fn new(mailbox: Arc<Mailbox>, id: RequestId) -> Self {
        Self {
            mailbox,
            id,
            is_owed: true,
        }
    }

    fn send(mut self, result: Result<Response, RequestError>) {
        self.is_owed = false;
        self.mailbox.push(Input::Response(self.id, result));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_owed {
            let reason = "decoding it panicked; this is a bug of mqlet".to_owned();
            self.mailbox.push(Input::Response(
                self.id,
                Err(RequestError::Malformed { reason }),
            ));
        }
    }
}

fn request_error(error: &InvokeError) -> RequestError {
    if matches!(error, InvokeError::Timeout { .. }) {
        return RequestError::Timeout;
    }
    let reason = with_causes(error);
    if error.is_unsent() {
        RequestError::Unreachable { reason }
    } else {
        RequestError::Disconnected { reason }
    }
}

/// The error and what caused it, in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
