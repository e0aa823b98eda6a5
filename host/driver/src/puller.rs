//! The queue of one run of a pull task: the port of guests that pull for themselves.
//!
//! What may be asked, and of whom, is the rules' business; here is only the way to them
//! and back. A puller that learns that its queue is gone raises the run's cancel signal.

use std::sync::Arc;
use std::time::Duration;

use consumer::RequestError;
use consumer::listener::CancelSignal;
use consumer::pull_task::{
    PullTaskId, PullerAnswer, PullerRequest, QueuePull, QueuePullResult, QueuePuller,
    QueuePullerError, QueuePullerFuture,
};
use protocol::QueueOffset;
use tokio::sync::oneshot;

use crate::mailbox::{Input, Mailbox};

/// Longer than any request of the rules takes. An answer that is not there by then does
/// not come: the client has ended.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Where the answer goes.
pub(crate) type PullerReply = oneshot::Sender<Result<PullerAnswer, QueuePullerError>>;

/// A [`QueuePuller`] over a client task.
pub(crate) struct Puller {
    run: PullTaskId,
    cancel: CancelSignal,
    mailbox: Arc<Mailbox>,
}

impl Puller {
    pub(crate) fn new(run: PullTaskId, cancel: CancelSignal, mailbox: Arc<Mailbox>) -> Self {
        Self {
            run,
            cancel,
            mailbox,
        }
    }

    fn ask<T: 'static>(
        &self,
        request: PullerRequest,
        read: fn(PullerAnswer) -> Option<T>,
    ) -> QueuePullerFuture<T> {
        let (run, mailbox) = (self.run, Arc::clone(&self.mailbox));
        let cancel = self.cancel.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            mailbox.push(Input::QueueAsked(run, request, reply));
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) | Err(_) => Err(QueuePullerError::Released),
            };
            if matches!(answer, Err(QueuePullerError::Released)) {
                cancel.cancel();
            }
            read(answer?).ok_or_else(|| {
                QueuePullerError::Broker(RequestError::Malformed {
                    reason: "an answer to another question".to_owned(),
                })
            })
        })
    }
}

impl QueuePuller for Puller {
    fn pull(&self, pull: QueuePull) -> QueuePullerFuture<QueuePullResult> {
        self.ask(PullerRequest::Pull(pull), |answer| match answer {
            PullerAnswer::Pulled(result) => Some(result),
            _ => None,
        })
    }

    fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>> {
        self.ask(PullerRequest::FetchConsumeOffset, |answer| match answer {
            PullerAnswer::ConsumeOffset(offset) => Some(offset),
            _ => None,
        })
    }

    fn update_consume_offset(&self, offset: QueueOffset) -> QueuePullerFuture<()> {
        self.ask(PullerRequest::UpdateConsumeOffset(offset), |answer| {
            matches!(answer, PullerAnswer::Updated).then_some(())
        })
    }

    fn min_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.ask(PullerRequest::MinOffset, offset)
    }

    fn max_offset(&self) -> QueuePullerFuture<QueueOffset> {
        self.ask(PullerRequest::MaxOffset, offset)
    }

    fn search_offset(&self, timestamp_ms: u64) -> QueuePullerFuture<QueueOffset> {
        self.ask(PullerRequest::SearchOffset { timestamp_ms }, offset)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as the others take it")]
fn offset(answer: PullerAnswer) -> Option<QueueOffset> {
    match answer {
        PullerAnswer::Offset(offset) => Some(offset),
        _ => None,
    }
}
