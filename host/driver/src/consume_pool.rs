//! Calls to listeners: started only with a permit, reported exactly once, killed by
//! dropping.
//!
//! A call is a whole consume request (a run of messages), or a run of a pull task: one
//! task, one report, however many messages it has. The permit of the host is held until the result was taken.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeRequest, ConsumeRequestId, ConsumeResult, MessageListener,
};
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskId, PullTaskRequest, PullTaskResult, QueuePuller,
};
use protocol::MessageQueue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use crate::mailbox::{CallEnd, Input, Mailbox};
use crate::panic_message;
use crate::puller::Puller;

/// Bounds the calls under way in the whole process, all clients together. Clones share
/// the permits. Whoever waits longest gets the next one.
#[derive(Clone, Debug)]
pub struct HostPermits(Arc<Semaphore>);

impl HostPermits {
    /// At most so many calls at once (and at most tokio's 2⁶¹).
    pub fn new(calls_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(
            calls_max.min(Semaphore::MAX_PERMITS),
        )))
    }

    /// Calls that could start now.
    pub fn available(&self) -> usize {
        self.0.available_permits()
    }
}

/// The calls of one client.
pub(crate) struct ConsumePool {
    calls: BTreeMap<CallId, Call>,
    calls_max: usize,
    host: HostPermits,
    /// Got for work that may have gone meanwhile.
    spare: Option<OwnedSemaphorePermit>,
    /// Set while the process is at its bound: a place in the queue for a permit.
    waiting: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
    tasks: TaskTracker,
    mailbox: Arc<Mailbox>,
}

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CallId {
    Consume(ConsumeRequestId),
    PullTask(PullTaskId),
}

/// What a call is for.
#[derive(Clone, Debug)]
pub(crate) enum CallRequest {
    Consume(Arc<ConsumeRequest>),
    PullTask(Arc<PullTaskRequest>),
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum CallResult {
    Consumed(ConsumeResult),
    Ran(PullTaskResult),
}

impl CallRequest {
    pub(crate) fn consumer_group(&self) -> &Arc<str> {
        match self {
            Self::Consume(request) => &request.consumer_group,
            Self::PullTask(request) => &request.consumer_group,
        }
    }

    pub(crate) fn message_queue(&self) -> &MessageQueue {
        match self {
            Self::Consume(request) => &request.message_queue,
            Self::PullTask(request) => &request.message_queue,
        }
    }

    pub(crate) fn consume_timeout(&self) -> Duration {
        match self {
            Self::Consume(request) => request.consume_timeout,
            Self::PullTask(request) => request.consume_timeout,
        }
    }
}

/// A call under way.
pub(crate) struct Call {
    pub(crate) request: CallRequest,
    began: tokio::time::Instant,
    cancel: CancelSignal,
    task: AbortHandle,
    _permit: OwnedSemaphorePermit,
}

/// Leave to start one call.
pub(crate) struct Permit(OwnedSemaphorePermit);

impl ConsumePool {
    pub(crate) fn new(calls_max: usize, host: HostPermits, mailbox: Arc<Mailbox>) -> Self {
        Self {
            calls: BTreeMap::new(),
            calls_max,
            host,
            spare: None,
            waiting: None,
            tasks: TaskTracker::new(),
            mailbox,
        }
    }

    /// Leave for one more call, or `None` at a bound. At the host's bound it queues for
    /// [`ConsumePool::host_permit`].
    pub(crate) fn try_permit(&mut self) -> Option<Permit> {
        if self.calls.len() >= self.calls_max {
            return None;
        }
        if let Some(spare) = self.spare.take() {
            return Some(Permit(spare));
        }
        if self.waiting.is_some() {
            return None;
        }
        match Arc::clone(&self.host.0).try_acquire_owned() {
            Ok(permit) => Some(Permit(permit)),
            Err(_) => {
                let semaphore = Arc::clone(&self.host.0);
                self.waiting = Some(Box::pin(async move {
                    // Never closed.
                    semaphore.acquire_owned().await.ok()
                }));
                None
            }
        }
    }

    /// Nobody needs a permit now: whoever waits elsewhere gets it.
    pub(crate) fn give_back_spare(&mut self) {
        self.spare = None;
    }

    /// Starts a call of a listener.
    pub(crate) fn start(
        &mut self,
        request: Arc<ConsumeRequest>,
        listener: Arc<dyn MessageListener>,
        permit: Permit,
    ) {
        let cancel = CancelSignal::default();
        let id = CallId::Consume(request.id);
        let stage = Stage::NewCall {
            request: Arc::clone(&request),
            listener,
            cancel: cancel.clone(),
        };
        self.spawn(id, CallRequest::Consume(request), stage, cancel, permit);
    }

    /// Starts a run of a pull task.
    pub(crate) fn start_pull_task(
        &mut self,
        request: Arc<PullTaskRequest>,
        callback: Arc<dyn PullTaskCallback>,
        permit: Permit,
    ) {
        let cancel = CancelSignal::default();
        let id = CallId::PullTask(request.id);
        let puller = Puller::new(request.id, cancel.clone(), Arc::clone(&self.mailbox));
        let stage = Stage::NewRun {
            request: Arc::clone(&request),
            callback,
            puller: Arc::new(puller),
            cancel: cancel.clone(),
        };
        self.spawn(id, CallRequest::PullTask(request), stage, cancel, permit);
    }

    fn spawn(
        &mut self,
        id: CallId,
        request: CallRequest,
        stage: Stage,
        cancel: CancelSignal,
        permit: Permit,
    ) {
        let began = tokio::time::Instant::now();
        let report = Report {
            mailbox: Arc::clone(&self.mailbox),
            id,
            began,
            is_owed: true,
        };
        let running = Running { stage, report };
        let task = self.tasks.spawn(running).abort_handle();
        let before = self.calls.insert(
            id,
            Call {
                request,
                began,
                cancel,
                task,
                _permit: permit.0,
            },
        );
        debug_assert!(before.is_none(), "ids are never used twice");
    }

    /// A call has reported. Its permit goes back when the result is dropped. `None` if
    /// it was killed before.
    pub(crate) fn handle_ended(&mut self, id: CallId) -> Option<Call> {
        self.calls.remove(&id)
    }

    /// Kills the calls of a group, or all; what they report later is not heard.
    pub(crate) fn kill(&mut self, consumer_group: Option<&str>) -> Vec<Call> {
        let ids: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                consumer_group.is_none_or(|group| **call.request.consumer_group() == *group)
            })
            .map(|(&id, _)| id)
            .collect();
        let killed: Vec<_> = ids.iter().filter_map(|id| self.calls.remove(id)).collect();
        for call in &killed {
            call.cancel.cancel();
            call.task.abort();
        }
        killed
    }

    /// Resolves when the host has a permit for us; never while none is waited for.
    /// Cancel-safe: the place in the queue is kept.
    pub(crate) async fn host_permit(&mut self) {
        match &mut self.waiting {
            Some(waiting) => {
                self.spare = waiting.await;
                self.waiting = None;
            }
            None => std::future::pending().await,
        }
    }

    /// The calls of a group, in the place of a Java client's stacks: the stack of a guest
    /// can only be taken when it traps or is killed, and is in the log then.
    pub(crate) fn describe(&self, consumer_group: &str) -> String {
        use std::fmt::Write as _;
        let calls = self.calls.values();
        let calls: Vec<&Call> = calls
            .filter(|call| **call.request.consumer_group() == *consumer_group)
            .collect();
        let mut text = format!(
            "{} calls under way (a guest's own stack is in the log when it traps or is killed)\n",
            calls.len()
        );
        for call in calls {
            let what = match &call.request {
                CallRequest::Consume(request) => {
                    let first = request.iter().next();
                    let first = first.map_or(0, |first| first.message.queue_offset().0);
                    let (count, queue) = (request.len(), &request.message_queue);
                    format!("call of {count} messages of {queue} from offset {first}")
                }
                CallRequest::PullTask(request) => {
                    format!("run of the pull task of {}", request.message_queue)
                }
            };
            let seconds = call.began.elapsed().as_secs_f64();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{what}, for {seconds:.1} s");
        }
        text
    }

    /// Calls under way.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn calls_max(&self) -> usize {
        self.calls_max
    }

    pub(crate) fn waits_for_host_permit(&self) -> bool {
        self.waiting.is_some()
    }
}

/// Whoever owned the calls is gone: nobody would hear of them.
impl Drop for ConsumePool {
    fn drop(&mut self) {
        self.kill(None);
    }
}

/// The future of a call's task: never panics, and always reports.
struct Running {
    stage: Stage,
    report: Report,
}

enum Stage {
    NewCall {
        request: Arc<ConsumeRequest>,
        listener: Arc<dyn MessageListener>,
        cancel: CancelSignal,
    },
    Called(ConsumeFuture),
    NewRun {
        request: Arc<PullTaskRequest>,
        callback: Arc<dyn PullTaskCallback>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    },
    Runs(PullTaskFuture),
}

impl Stage {
    /// What a new stage becomes.
    fn begin(&self) -> Option<Self> {
        match self {
            Self::NewCall {
                request,
                listener,
                cancel,
            } => {
                let call = listener.consume_message(Arc::clone(request), cancel.clone());
                Some(Self::Called(call))
            }
            Self::NewRun {
                request,
                callback,
                puller,
                cancel,
            } => {
                let (request, puller) = (Arc::clone(request), Arc::clone(puller));
                let run = callback.do_pull_task(request, puller, cancel.clone());
                Some(Self::Runs(run))
            }
            Self::Called(_) | Self::Runs(_) => None,
        }
    }
}

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if let Some(stage) = this.stage.begin() {
                this.stage = stage;
            }
            match &mut this.stage {
                Stage::Called(call) => call.as_mut().poll(context).map(CallResult::Consumed),
                Stage::Runs(run) => run.as_mut().poll(context).map(CallResult::Ran),
                Stage::NewCall { .. } | Stage::NewRun { .. } => Poll::Pending,
            }
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => {
                let elapsed = this.report.began.elapsed();
                this.report.send(CallEnd::Returned { result, elapsed });
                Poll::Ready(())
            }
            Err(payload) => {
                let message = panic_message(payload.as_ref());
                this.report.send(CallEnd::Panicked { message });
                Poll::Ready(())
            }
        }
    }
}

/// The one report that a call owes.
struct Report {
    mailbox: Arc<Mailbox>,
    id: CallId,
    began: tokio::time::Instant,
    is_owed: bool,
}

impl Report {
    fn send(&mut self, end: CallEnd) {
        debug_assert!(self.is_owed);
        self.is_owed = false;
        self.mailbox.push(Input::CallEnded(self.id, end));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.is_owed {
            self.send(CallEnd::Dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use consumer::listener::{ConcurrentlyStatus, ConsumeMode, MessageModel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn done() -> ConsumeResult {
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
    }

    fn call(id: u64) -> CallId {
        CallId::Consume(ConsumeRequestId(id))
    }

    fn request(id: u64, consumer_group: &str) -> Arc<ConsumeRequest> {
        Arc::new(ConsumeRequest {
            id: ConsumeRequestId(id),
            consumer_group: consumer_group.into(),
            message_queue: MessageQueue::new("T", "b", 0),
            topic: "T".into(),
            message_model: MessageModel::Clustering,
            mode: ConsumeMode::Concurrently,
            runs: Vec::new(),
            messages_per_call: 32,
            consume_timeout: Duration::from_secs(60),
        })
    }

    /// A listener made of a function.
    struct Listener<F>(F);

    impl<F> MessageListener for Listener<F>
    where
        F: Fn(CancelSignal) -> ConsumeFuture + Send + Sync + 'static,
    {
        fn consume_message(&self, _: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
            (self.0)(cancel)
        }
    }

    fn returning() -> Arc<dyn MessageListener> {
        Arc::new(Listener(|_| Box::pin(async { done() }) as ConsumeFuture))
    }

    fn hanging() -> Arc<dyn MessageListener> {
        Arc::new(Listener(|_| {
            Box::pin(std::future::pending()) as ConsumeFuture
        }))
    }

    fn pool(calls_max: usize, host: &HostPermits) -> ConsumePool {
        ConsumePool::new(calls_max, host.clone(), Mailbox::new())
    }

    async fn reported(pool: &ConsumePool, count: usize) -> Vec<Input> {
        let mut all = Vec::new();
        let mut inputs = Vec::new();
        let waiting = async {
            while all.len() < count {
                pool.mailbox.filled().await;
                pool.mailbox.take(&mut inputs);
                all.append(&mut inputs);
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("reports");
        all
    }

    #[tokio::test]
    async fn a_call_reports_its_result_and_its_permit_comes_back_when_that_was_taken() {
        let host = HostPermits::new(1);
        let mut pool = pool(10, &host);
        let permit = pool.try_permit().expect("one is free");
        pool.start(request(7, "G"), returning(), permit);

        let inputs = reported(&pool, 1).await;
        assert!(matches!(
            &inputs[..],
            [Input::CallEnded(id, CallEnd::Returned { result: CallResult::Consumed(result), .. })]
                if *id == call(7) && *result == done()
        ));
        assert_eq!(host.available(), 0);

        assert!(pool.handle_ended(call(7)).is_some());
        assert_eq!(host.available(), 1);
        assert!(pool.handle_ended(call(7)).is_none());
    }

    #[tokio::test]
    async fn a_client_starts_no_more_calls_than_its_own_bound() {
        let host = HostPermits::new(10);
        let mut pool = pool(2, &host);
        for id in 0..2 {
            let permit = pool.try_permit().expect("below the bound");
            pool.start(request(id, "G"), hanging(), permit);
        }

        assert!(pool.try_permit().is_none());
        assert!(!pool.waits_for_host_permit());
        assert_eq!(host.available(), 8);
    }

    #[tokio::test]
    async fn the_client_that_waits_longest_gets_the_next_permit_of_the_host() {
        let host = HostPermits::new(1);
        let mut busy = pool(10, &host);
        let mut waiting = pool(10, &host);
        let permit = busy.try_permit().expect("one is free");
        busy.start(request(1, "G"), returning(), permit);
        assert!(waiting.try_permit().is_none());
        assert!(waiting.waits_for_host_permit());
        // The wait is polled and dropped, as `select!` does it: the place must be kept.
        let polled = tokio::time::timeout(Duration::ZERO, waiting.host_permit()).await;
        assert!(polled.is_err());

        reported(&busy, 1).await;
        busy.handle_ended(call(1));
        assert!(busy.try_permit().is_none(), "it does not push in");

        tokio::time::timeout(PATIENCE, waiting.host_permit())
            .await
            .expect("its turn");
        assert!(waiting.try_permit().is_some());
    }

    #[tokio::test]
    async fn a_permit_without_work_goes_to_whoever_waits() {
        let host = HostPermits::new(1);
        let mut pool = pool(10, &host);
        let held = Arc::clone(&host.0)
            .try_acquire_owned()
            .expect("one is free");
        assert!(pool.try_permit().is_none());
        drop(held);
        tokio::time::timeout(PATIENCE, pool.host_permit())
            .await
            .expect("its turn");
        assert_eq!(host.available(), 0);

        pool.give_back_spare();

        assert_eq!(host.available(), 1);
    }

    fn fail() -> ConsumeResult {
        std::panic::panic_any("later".to_owned())
    }

    #[tokio::test]
    async fn a_panic_in_a_listener_is_reported_wherever_it_happens() {
        let listeners: [Arc<dyn MessageListener>; 2] = [
            Arc::new(Listener(|_| -> ConsumeFuture { panic!("at once") })),
            Arc::new(Listener(|_| {
                Box::pin(async {
                    tokio::task::yield_now().await;
                    fail()
                }) as ConsumeFuture
            })),
        ];
        let host = HostPermits::new(10);
        let mut pool = pool(10, &host);
        for (id, listener) in (0..).zip(listeners) {
            let permit = pool.try_permit().expect("one is free");
            pool.start(request(id, "G"), listener, permit);
        }

        for input in reported(&pool, 2).await {
            let Input::CallEnded(id, CallEnd::Panicked { message }) = input else {
                panic!("{input:?}");
            };
            assert_eq!(message, ["at once", "later"][usize::from(id == call(1))]);
        }
    }

    #[tokio::test]
    async fn killing_a_group_drops_its_calls_and_leaves_the_others() {
        struct Dropped(Arc<AtomicBool>, CancelSignal);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.store(self.1.is_cancelled(), Ordering::SeqCst);
            }
        }
        let host = HostPermits::new(10);
        let mut pool = pool(10, &host);
        let started = Arc::new(AtomicUsize::new(0));
        let cancelled_before_drop = Arc::new(AtomicBool::new(false));
        let listener: Arc<dyn MessageListener> = {
            let (started, flag) = (Arc::clone(&started), Arc::clone(&cancelled_before_drop));
            Arc::new(Listener(move |cancel| {
                let dropped = Dropped(Arc::clone(&flag), cancel);
                let started = Arc::clone(&started);
                Box::pin(async move {
                    started.fetch_add(1, Ordering::SeqCst);
                    let _dropped = dropped;
                    std::future::pending().await
                }) as ConsumeFuture
            }))
        };
        let permit = pool.try_permit().expect("one is free");
        pool.start(request(1, "doomed"), listener, permit);
        let permit = pool.try_permit().expect("one is free");
        pool.start(request(2, "other"), hanging(), permit);
        while started.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }

        let killed = pool.kill(Some("doomed"));

        assert_eq!(killed.len(), 1);
        assert_eq!(**killed[0].request.consumer_group(), *"doomed");
        let inputs = reported(&pool, 1).await;
        assert!(matches!(
            inputs[..],
            [Input::CallEnded(
                CallId::Consume(ConsumeRequestId(1)),
                CallEnd::Dropped
            )]
        ));
        assert!(pool.handle_ended(call(1)).is_none(), "not heard again");
        assert!(cancelled_before_drop.load(Ordering::SeqCst));
        assert_eq!(pool.len(), 1);
        assert_eq!(pool.kill(None).len(), 1);
    }
}
