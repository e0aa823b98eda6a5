//! `PluginSlot`: the listener that the consumer calls, whatever revision serves.
//!
//! A call takes the revision that serves when it begins and keeps it to its end, so a
//! swap is one pointer store and no call waits for one. The slot counts the calls of
//! each revision: that is how the end of draining is known. Beside the revision that
//! serves there may be one on trial (`trial.rs`).

mod trace;
mod trial;

pub use trace::QueueTrace;
pub(crate) use trial::Trial;
pub use trial::{CanaryPlan, TrialCounts};

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeRequest, ConsumeResult, Dispatch, MessageListener,
};
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskRequest, PullTaskResult, QueuePuller,
};
use tokio::sync::Notify;
use wasm::ComponentListener;

use crate::breaker::watch::WatchedBreaker;
use crate::event::Generation;
use trace::Traces;

/// One plugin's place in the host.
#[derive(Default)]
pub struct PluginSlot {
    /// Held for the time of a clone or a store, never across a wait; a lock and not a
    /// channel, since every call reads it and hardly anybody writes.
    places: RwLock<Places>,
}

/// Who may get a call.
#[derive(Default)]
struct Places {
    serving: Option<Arc<Serving>>,
    trial: Option<Arc<Trial>>,
}

impl PluginSlot {
    /// A slot that serves nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the next call to this one; returns what served before.
    pub fn switch(&self, to: Option<Arc<Serving>>) -> Option<Arc<Serving>> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        if let (Some(to), Some(before)) = (&to, &places.serving) {
            to.follows(before);
        }
        if to.is_none() {
            places.trial = None;
        }
        std::mem::replace(&mut places.serving, to)
    }

    /// Gives a share of the calls to this one, or to none; returns what had it.
    pub(crate) fn try_out(&self, trial: Option<Arc<Trial>>) -> Option<Arc<Trial>> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut places.trial, trial)
    }

    /// What has a share of the calls.
    pub(crate) fn trial(&self) -> Option<Arc<Trial>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.trial.clone()
    }

    /// What the next call gets.
    pub fn generation(&self) -> Option<Generation> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.serving.as_ref().map(|serving| serving.generation)
    }

    /// Calls under way in the revision that serves.
    pub fn calls(&self) -> u64 {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.serving.as_ref().map_or(0, |serving| serving.calls())
    }

    /// Whether the revision that serves may be called.
    fn dispatch_now(&self) -> Dispatch {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let breaker = places
            .serving
            .as_ref()
            .and_then(|serving| serving.breaker());
        breaker.map_or(Dispatch::Open, |breaker| breaker.dispatch())
    }

    /// Takes part in the count while the lock is held: after a switch no call can enter
    /// the old revision unseen.
    fn enter(&self) -> Option<(Call, Option<Tried>)> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let call = Call::of(places.serving.as_ref()?);
        let trial = places.trial.as_ref();
        let trial = trial.map(|trial| (Call::of(&trial.serving), Arc::clone(trial)));
        Some((call, trial))
    }
}

impl fmt::Debug for PluginSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginSlot({:?})", self.generation())
    }
}

impl MessageListener for PluginSlot {
    /// [`ConsumeResult::NotFinished`] when nothing serves.
    fn consume_message(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
        match self.enter() {
            None => Box::pin(std::future::ready(ConsumeResult::NotFinished)),
            Some((call, None)) => {
                let result = call.0.begin(&request, cancel);
                Box::pin(async move {
                    let result = result.await;
                    call.0.traces.ended(&request, &result);
                    result
                })
            }
            Some((call, Some((tried, trial)))) => {
                Box::pin(trial::consume(call, tried, trial, request, cancel))
            }
        }
    }

    fn dispatch(&self) -> Dispatch {
        self.dispatch_now()
    }

    fn properties(&self) -> Vec<(String, String)> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        match places.serving.as_ref() {
            Some(serving) => serving.properties.clone(),
            None => vec![("mqlet.plugin".to_owned(), "none serves".to_owned())],
        }
    }
}

impl PullTaskCallback for PluginSlot {
    /// [`PullTaskResult::NotFinished`] when nothing serves.
    fn do_pull_task(
        &self,
        request: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        cancel: CancelSignal,
    ) -> PullTaskFuture {
        let Some((call, tried)) = self.enter() else {
            return Box::pin(std::future::ready(PullTaskResult::NotFinished));
        };
        if let Some((tried, trial)) = tried
            && trial.has_queue(&request.message_queue)
        {
            return Box::pin(trial::pull_task(tried, trial, request, puller, cancel));
        }
        let result = call.0.listener.do_pull_task(request, puller, cancel);
        Box::pin(async move {
            let _counted = call;
            result.await
        })
    }

    fn dispatch(&self) -> Dispatch {
        self.dispatch_now()
    }
}

/// Both ports of the consumer (a plugin answers the one of its kind, and says so at the
/// other), and the two ways in which a revision ends.
pub trait Listener: MessageListener + PullTaskCallback {
    /// Requests under way end with the call that runs now; the rest of them is not
    /// finished.
    fn drain(&self);

    /// Requests under way end now; what their earlier calls came to stands.
    fn kill(&self);
}

impl Listener for ComponentListener {
    fn drain(&self) {
        Self::drain(self);
    }

    fn kill(&self) {
        Self::kill(self);
    }
}

/// A revision that serves or drains, and its calls under way.
pub struct Serving {
    generation: Generation,
    listener: Arc<dyn Listener>,
    properties: Vec<(String, String)>,
    /// `None`: it is called whatever it does.
    breaker: Option<Arc<WatchedBreaker>>,
    calls: AtomicU64,
    last_call_ended: Notify,
    traces: Arc<Traces>,
    /// Since when it has the calls, and how long the first one took to come.
    since: OnceLock<Instant>,
    first_call: OnceLock<Duration>,
    first_call_came: Notify,
}

impl Serving {
    /// A revision without calls.
    pub fn new(generation: Generation, listener: Arc<dyn Listener>) -> Self {
        Self {
            generation,
            listener,
            properties: Vec::new(),
            breaker: None,
            calls: AtomicU64::new(0),
            last_call_ended: Notify::new(),
            traces: Arc::default(),
            since: OnceLock::new(),
            first_call: OnceLock::new(),
            first_call_came: Notify::new(),
        }
    }

    /// With what is shown of it, for people.
    #[must_use]
    pub fn with_properties(mut self, properties: Vec<(String, String)>) -> Self {
        self.properties = properties;
        self
    }

    /// With what holds its calls back when it keeps failing.
    #[must_use]
    pub fn with_breaker(mut self, breaker: Arc<WatchedBreaker>) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// What holds its calls back when it keeps failing.
    pub fn breaker(&self) -> Option<&Arc<WatchedBreaker>> {
        self.breaker.as_ref()
    }

    /// What is shown of it.
    pub fn properties(&self) -> &[(String, String)] {
        &self.properties
    }

    /// What it was given and finished, queue by queue.
    pub fn queues(&self) -> Vec<QueueTrace> {
        self.traces.queues()
    }

    /// From the switch to its first call; `None` before that.
    pub fn first_call_after(&self) -> Option<Duration> {
        self.first_call.get().copied()
    }

    /// Waits for its first call after the switch.
    pub(crate) async fn first_call(&self) {
        loop {
            let mut came = pin!(self.first_call_came.notified());
            // Before looking, so that one between the two is not missed.
            came.as_mut().enable();
            if self.first_call.get().is_some() {
                return;
            }
            came.await;
        }
    }

    /// Nothing of the revision before is under way any more.
    pub(crate) fn stop_comparing(&self) {
        self.traces.stop_comparing();
    }

    /// It is about to take the calls over from that one.
    fn follows(&self, before: &Self) {
        self.traces.compare_with(&before.traces);
        // A canary has had calls before; its switch is what counts.
        let _ = self.since.set(Instant::now());
    }

    fn entered(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        if self.first_call.get().is_none()
            && let Some(since) = self.since.get()
        {
            let _ = self.first_call.set(since.elapsed());
            self.first_call_came.notify_waiters();
        }
    }

    fn begin(&self, request: &Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeFuture {
        self.traces.given(request);
        self.listener.consume_message(Arc::clone(request), cancel)
    }

    /// One request, traced.
    async fn consume(&self, request: Arc<ConsumeRequest>, cancel: CancelSignal) -> ConsumeResult {
        let result = self.begin(&request, cancel).await;
        self.traces.ended(&request, &result);
        result
    }

    /// Which deployment.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Calls under way.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Acquire)
    }

    /// See [`Listener::drain`]. When no new call can come.
    pub fn drain(&self) {
        self.listener.drain();
    }

    /// See [`Listener::kill`].
    pub fn kill(&self) {
        self.listener.kill();
    }

    /// Waits until no call is under way. Only of use when no new one can come.
    pub async fn drained(&self) {
        loop {
            let mut ended = pin!(self.last_call_ended.notified());
            // Before looking, so that an end between the two is not missed.
            ended.as_mut().enable();
            if self.calls() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serving({}, {} calls)", self.generation, self.calls())
    }
}

/// A call in the revision on trial.
type Tried = (Call, Arc<Trial>);

/// One call in the count, from entering to its end, however it ends.
struct Call(Arc<Serving>);

impl Call {
    fn of(serving: &Arc<Serving>) -> Self {
        serving.entered();
        Self(Arc::clone(serving))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.last_call_ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use consumer::listener::{ConcurrentlyStatus, ConsumeMode, ConsumeRequestId, MessageModel};
    use consumer::pull_task::{
        PullTaskId, QueuePull, QueuePullResult, QueuePullerError, QueuePullerFuture,
    };
    use protocol::{MessageQueue, QueueOffset};
    use tokio::sync::oneshot;

    use super::*;

    const DONE: ConsumeResult =
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None });

    /// Answers when it is told to, and is not finished when it is killed.
    #[derive(Default)]
    struct Held(Mutex<Vec<oneshot::Sender<ConsumeResult>>>);

    impl Listener for Held {
        fn drain(&self) {}

        fn kill(&self) {
            self.0.lock().expect("no panic").clear();
        }
    }

    impl Held {
        fn answer(&self, result: ConsumeResult) {
            let call = self
                .0
                .lock()
                .expect("no panic")
                .pop()
                .expect("a call under way");
            call.send(result).expect("its caller waits");
        }
    }

    impl MessageListener for Held {
        fn consume_message(&self, _: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
            let (answer, result) = oneshot::channel();
            self.0.lock().expect("no panic").push(answer);
            Box::pin(async move { result.await.unwrap_or(ConsumeResult::NotFinished) })
        }
    }

    impl PullTaskCallback for Held {
        fn do_pull_task(
            &self,
            _: Arc<PullTaskRequest>,
            _: Arc<dyn QueuePuller>,
            _: CancelSignal,
        ) -> PullTaskFuture {
            let (answer, result) = oneshot::channel();
            self.0.lock().expect("no panic").push(answer);
            Box::pin(async move {
                match result.await {
                    Ok(_) => PullTaskResult::NextRun { after: None },
                    Err(_) => PullTaskResult::NotFinished,
                }
            })
        }
    }

    /// A queue that nobody asks.
    struct NoQueue;

    impl QueuePuller for NoQueue {
        fn pull(&self, _: QueuePull) -> QueuePullerFuture<QueuePullResult> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }

        fn fetch_consume_offset(&self) -> QueuePullerFuture<Option<QueueOffset>> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }

        fn update_consume_offset(&self, _: QueueOffset) -> QueuePullerFuture<()> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }

        fn min_offset(&self) -> QueuePullerFuture<QueueOffset> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }

        fn max_offset(&self) -> QueuePullerFuture<QueueOffset> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }

        fn search_offset(&self, _: u64) -> QueuePullerFuture<QueueOffset> {
            Box::pin(async { Err(QueuePullerError::Released) })
        }
    }

    fn run(slot: &PluginSlot) -> PullTaskFuture {
        let request = Arc::new(PullTaskRequest {
            id: PullTaskId(1),
            consumer_group: "g".into(),
            message_queue: MessageQueue::new("t", "b", 0),
            message_model: MessageModel::Clustering,
            consume_timeout: Duration::from_secs(60),
        });
        slot.do_pull_task(request, Arc::new(NoQueue), CancelSignal::default())
    }

    fn request() -> Arc<ConsumeRequest> {
        Arc::new(ConsumeRequest {
            id: ConsumeRequestId(1),
            consumer_group: "g".into(),
            message_queue: MessageQueue::new("t", "b", 0),
            topic: "t".into(),
            message_model: MessageModel::Clustering,
            mode: ConsumeMode::Concurrently,
            runs: Vec::new(),
            messages_per_call: 1,
            consume_timeout: Duration::from_secs(60),
        })
    }

    fn serving(number: u64) -> (Arc<Held>, Arc<Serving>) {
        let listener = Arc::new(Held::default());
        let port: Arc<dyn Listener> = Arc::<Held>::clone(&listener);
        (listener, Arc::new(Serving::new(Generation(number), port)))
    }

    #[tokio::test]
    async fn call_keeps_its_revision_and_the_next_one_gets_the_new() {
        let slot = PluginSlot::new();
        let (old, old_serving) = serving(1);
        let (new, new_serving) = serving(2);
        slot.switch(Some(Arc::clone(&old_serving)));
        let first = slot.consume_message(request(), CancelSignal::default());

        slot.switch(Some(Arc::clone(&new_serving)));
        let second = slot.consume_message(request(), CancelSignal::default());

        assert_eq!((old_serving.calls(), new_serving.calls()), (1, 1));
        old.answer(ConsumeResult::NotFinished);
        new.answer(DONE);
        assert_eq!(first.await, ConsumeResult::NotFinished);
        assert_eq!(second.await, DONE);
        assert_eq!((old_serving.calls(), new_serving.calls()), (0, 0));
    }

    #[tokio::test]
    async fn draining_ends_with_the_last_call() {
        let slot = PluginSlot::new();
        let (listener, serving) = serving(1);
        slot.switch(Some(Arc::clone(&serving)));
        let calls = [
            slot.consume_message(request(), CancelSignal::default()),
            slot.consume_message(request(), CancelSignal::default()),
        ];
        slot.switch(None);
        let mut drained = wait_for_drained(Arc::clone(&serving));

        for (left, call) in calls.into_iter().enumerate().rev() {
            assert!(still_waits(&mut drained).await, "{left} calls left");
            listener.answer(DONE);
            assert_eq!(call.await, DONE);
        }

        drained.await.expect("no panic");
    }

    #[tokio::test]
    async fn killed_call_was_not_finished() {
        let slot = PluginSlot::new();
        let (_listener, serving) = serving(1);
        slot.switch(Some(Arc::clone(&serving)));
        let call = tokio::spawn(slot.consume_message(request(), CancelSignal::default()));
        slot.switch(None);

        serving.kill();

        assert_eq!(call.await.expect("no panic"), ConsumeResult::NotFinished);
        serving.drained().await;
    }

    #[tokio::test]
    async fn dropped_call_leaves_the_count() {
        let slot = PluginSlot::new();
        let (_listener, serving) = serving(1);
        slot.switch(Some(Arc::clone(&serving)));
        drop(slot.consume_message(request(), CancelSignal::default()));

        serving.drained().await;
    }

    #[tokio::test]
    async fn empty_slot_finishes_nothing() {
        let call = PluginSlot::new().consume_message(request(), CancelSignal::default());
        assert_eq!(call.await, ConsumeResult::NotFinished);
    }

    #[tokio::test]
    async fn run_of_a_pull_task_counts_as_a_call_and_ends_as_one() {
        let slot = PluginSlot::new();
        assert_eq!(run(&slot).await, PullTaskResult::NotFinished);
        let (listener, serving) = serving(1);
        slot.switch(Some(Arc::clone(&serving)));
        let first = run(&slot);
        assert_eq!(slot.calls(), 1);
        listener.answer(DONE);
        assert_eq!(first.await, PullTaskResult::NextRun { after: None });
        let second = tokio::spawn(run(&slot));
        slot.switch(None);

        serving.kill();

        assert_eq!(second.await.expect("no panic"), PullTaskResult::NotFinished);
        serving.drained().await;
    }

    fn wait_for_drained(serving: Arc<Serving>) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { serving.drained().await })
    }

    /// Lets every other task run, then says whether this one still waits.
    async fn still_waits(task: &mut tokio::task::JoinHandle<()>) -> bool {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        !task.is_finished()
    }
}
