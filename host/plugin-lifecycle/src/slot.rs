//! `PluginSlot`: the listener that the consumer calls, whatever revision serves.
//!
//! A call takes the revision that serves when it begins and keeps it to its end, so a
//! swap is one pointer store and no call waits for one. The slot counts the calls of
//! each revision: that is how the end of draining is known. Beside the revision that
//! serves there may be one on trial (`trial.rs`), or one that gets copies of its requests
//! (`shadow.rs` of the crate).

mod guards;
mod record;
mod serving;
mod trace;
mod trial;

pub use guards::{CanaryPlan, TrialCounts};
pub use record::{CallRecord, CallSums};
pub(crate) use serving::Call;
pub use serving::{Listener, Serving};
pub use trace::QueueTrace;
pub(crate) use trial::Trial;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeRequest, ConsumeResult, Dispatch, MessageListener,
};
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskRequest, PullTaskResult, QueuePuller,
};

use crate::event::Generation;
use crate::shadow::Shadow;
use crate::shadow::report::ShadowReport;

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
    shadow: Option<Arc<Shadow>>,
    /// Of the last shadow.
    report: Option<Arc<Mutex<ShadowReport>>>,
}

/// What a request finds.
struct Entered {
    call: Call,
    tried: Option<Tried>,
    shadow: Option<Arc<Shadow>>,
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
            places.shadow = None;
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

    /// Gives copies of requests to this one, or to none.
    pub(crate) fn shadow(&self, shadow: Option<Arc<Shadow>>) {
        let ended = {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(shadow) = &shadow {
                places.report = Some(shadow.report());
            }
            std::mem::replace(&mut places.shadow, shadow)
        };
        // Its copies end here, when no lock is held.
        drop(ended);
    }

    /// What the last shadow found, and whether it still gets copies.
    pub(crate) fn shadow_report(&self) -> Option<(ShadowReport, bool)> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let report = places.report.as_ref()?;
        let report = report.lock().unwrap_or_else(PoisonError::into_inner);
        Some((report.clone(), places.shadow.is_some()))
    }

    /// What serves.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.serving.clone()
    }

    /// What the next call gets.
    pub fn generation(&self) -> Option<Generation> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.serving.as_ref().map(|serving| serving.generation())
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
    fn enter(&self) -> Option<Entered> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let call = Call::of(places.serving.as_ref()?);
        let trial = places.trial.as_ref();
        Some(Entered {
            call,
            tried: trial.map(|trial| (Call::of(&trial.serving), Arc::clone(trial))),
            shadow: places.shadow.clone(),
        })
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
        let Some(Entered {
            call,
            tried,
            shadow,
        }) = self.enter()
        else {
            return Box::pin(std::future::ready(ConsumeResult::NotFinished));
        };
        if let Some((tried, trial)) = tried {
            return Box::pin(trial::consume(call, tried, trial, request, cancel));
        }
        let original = shadow.and_then(|shadow| shadow.copy(&request));
        let result = call.0.begin(&request, cancel);
        Box::pin(async move {
            let result = match original {
                Some(original) => original.watched(result).await,
                None => result.await,
            };
            call.0.traces.ended(&request, &result);
            result
        })
    }

    fn dispatch(&self) -> Dispatch {
        self.dispatch_now()
    }

    fn properties(&self) -> Vec<(String, String)> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        match places.serving.as_ref() {
            Some(serving) => serving.properties().to_vec(),
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
        let Some(Entered { call, tried, .. }) = self.enter() else {
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

/// A call in the revision on trial.
type Tried = (Call, Arc<Trial>);

#[cfg(test)]
mod tests;
