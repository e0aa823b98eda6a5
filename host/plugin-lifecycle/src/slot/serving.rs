//! `Serving`: a revision that serves or drains, with its calls under way.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeRequest, ConsumeResult, MessageListener,
};
use consumer::pull_task::PullTaskCallback;
use tokio::sync::Notify;
use wasm::ComponentListener;

use super::record::CallRecord;
use super::trace::{QueueTrace, Traces};
use crate::breaker::watch::WatchedBreaker;
use crate::event::Generation;

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
    pub(super) listener: Arc<dyn Listener>,
    properties: Vec<(String, String)>,
    /// `None`: it is called whatever it does.
    breaker: Option<Arc<WatchedBreaker>>,
    record: Arc<CallRecord>,
    calls: AtomicU64,
    last_call_ended: Notify,
    pub(super) traces: Arc<Traces>,
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
            record: Arc::default(),
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

    /// With what its calls are written down in.
    #[must_use]
    pub fn with_record(mut self, record: Arc<CallRecord>) -> Self {
        self.record = record;
        self
    }

    /// What its calls are written down in.
    pub fn record(&self) -> &Arc<CallRecord> {
        &self.record
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
    pub(super) fn follows(&self, before: &Self) {
        self.traces.compare_with(&before.traces);
        // A canary has had calls before; its switch is what counts.
        let _ = self.since.set(Instant::now());
    }

    pub(super) fn entered(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        if self.first_call.get().is_none()
            && let Some(since) = self.since.get()
        {
            let _ = self.first_call.set(since.elapsed());
            self.first_call_came.notify_waiters();
        }
    }

    pub(super) fn begin(
        &self,
        request: &Arc<ConsumeRequest>,
        cancel: CancelSignal,
    ) -> ConsumeFuture {
        self.traces.given(request);
        self.listener.consume_message(Arc::clone(request), cancel)
    }

    /// One request, traced.
    pub(super) async fn consume(
        &self,
        request: Arc<ConsumeRequest>,
        cancel: CancelSignal,
    ) -> ConsumeResult {
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

/// One call in the count, from entering to its end, however it ends.
pub(crate) struct Call(pub(super) Arc<Serving>);

impl Call {
    pub(crate) fn of(serving: &Arc<Serving>) -> Self {
        serving.entered();
        Self(Arc::clone(serving))
    }

    /// A request in a revision that does not serve, and that nobody traces.
    pub(crate) fn consume(
        &self,
        request: Arc<ConsumeRequest>,
        cancel: CancelSignal,
    ) -> ConsumeFuture {
        self.0.listener.consume_message(request, cancel)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.last_call_ended.notify_waiters();
        }
    }
}
