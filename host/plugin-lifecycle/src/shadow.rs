//! A shadow: a revision that gets copies of requests beside the one that serves. What it
//! does outside is written down and not done (`ports.rs`, `effects.rs`), and what it
//! answers is compared (`report.rs`) and goes nowhere.
//!
//! The request that serves is never waited for by its copy's sake, nor does it wait: a copy
//! is begun in a task of its own when there is room for one, and left out when there is
//! none. Nothing of a copy reaches the consumer: no attempt counts, no offset moves.

pub mod effects;
pub(crate) mod ports;
pub mod report;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consumer::listener::{CancelSignal, ConsumeFuture, ConsumeMode, ConsumeRequest, ConsumeResult};
use protocol::MessageQueue;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::slot::{Call, Serving};
use effects::Effects;
use report::ShadowReport;

/// Copies of one shadow at once. Each holds its messages in memory until it has ended.
pub const COPIES_MAX: usize = 8;

/// How a revision is shadowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowPlan {
    /// Of the requests, in a thousand; 1 to 1000.
    pub per_mille: u16,
    /// After so long it ends by itself.
    pub length: Duration,
}

impl Default for ShadowPlan {
    fn default() -> Self {
        Self {
            per_mille: 1000,
            length: Duration::from_secs(600),
        }
    }
}

/// One shadow, beside what serves. Dropping it ends its copies.
pub(crate) struct Shadow {
    serving: Arc<Serving>,
    plan: ShadowPlan,
    room: Arc<Semaphore>,
    /// Queues in order that have a copy under way: the next one waits for nobody and is left
    /// out. Held for a look or an entry.
    in_order: Arc<Mutex<BTreeSet<MessageQueue>>>,
    /// Held to begin one.
    copies: Mutex<JoinSet<()>>,
    report: Arc<Mutex<ShadowReport>>,
}

/// The request that serves, of which there is a copy.
pub(crate) struct Original {
    effects: Arc<Effects>,
    answered: oneshot::Sender<ConsumeResult>,
}

impl Shadow {
    pub(crate) fn new(serving: Arc<Serving>, plan: ShadowPlan) -> Self {
        Self {
            report: Arc::new(Mutex::new(ShadowReport::new(
                serving.generation(),
                plan.per_mille,
            ))),
            serving,
            plan,
            room: Arc::new(Semaphore::new(COPIES_MAX)),
            in_order: Arc::default(),
            copies: Mutex::default(),
        }
    }

    /// What was found so far; it outlives the shadow.
    pub(crate) fn report(&self) -> Arc<Mutex<ShadowReport>> {
        Arc::clone(&self.report)
    }

    /// Begins a copy of a request, if it is wanted and there is room.
    pub(crate) fn copy(&self, request: &Arc<ConsumeRequest>) -> Option<Original> {
        if !self.is_wanted(request) {
            return None;
        }
        let place = Place::take(&self.room, &self.in_order, request);
        let Some(place) = place else {
            lock(&self.report).left_out += 1;
            return None;
        };
        lock(&self.report).copied += 1;
        let (answered, answer) = oneshot::channel();
        let original = Original {
            effects: Arc::default(),
            answered,
        };
        let copy = Copy {
            call: Call::of(&self.serving),
            request: Arc::clone(request),
            original: Arc::clone(&original.effects),
            answer,
            report: Arc::clone(&self.report),
        };
        let mut copies = lock(&self.copies);
        // Those that have ended take no room.
        while copies.try_join_next().is_some() {}
        copies.spawn(async move {
            copy.run().await;
            drop(place);
        });
        Some(original)
    }

    /// Of whole requests, so that a copy is divided into calls as its original is.
    fn is_wanted(&self, request: &ConsumeRequest) -> bool {
        let Some(first) = request.iter().next() else {
            return false;
        };
        let mut sum = Sha256::new();
        sum.update(request.message_queue.to_string());
        sum.update(first.message.queue_offset().0.to_le_bytes());
        let sum = sum.finalize();
        let number = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        number % 1000 < u32::from(self.plan.per_mille)
    }
}

impl Original {
    /// The request as it is; its copy hears of its end and of what it did.
    pub(crate) async fn watched(self, request: ConsumeFuture) -> ConsumeResult {
        let Self { effects, answered } = self;
        let result = effects.of(request).await;
        // A copy that is gone compares nothing.
        let _ = answered.send(result.clone());
        result
    }
}

/// Room for one copy.
struct Place {
    _room: tokio::sync::OwnedSemaphorePermit,
    queue: Option<(Arc<Mutex<BTreeSet<MessageQueue>>>, MessageQueue)>,
}

impl Place {
    fn take(
        room: &Arc<Semaphore>,
        in_order: &Arc<Mutex<BTreeSet<MessageQueue>>>,
        request: &ConsumeRequest,
    ) -> Option<Self> {
        let room = Arc::clone(room).try_acquire_owned().ok()?;
        let queue = match request.mode {
            ConsumeMode::Concurrently => None,
            ConsumeMode::Orderly { .. } => {
                let queue = request.message_queue.clone();
                if !lock(in_order).insert(queue.clone()) {
                    return None;
                }
                Some((Arc::clone(in_order), queue))
            }
        };
        Some(Self { _room: room, queue })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((in_order, queue)) = &self.queue {
            lock(in_order).remove(queue);
        }
    }
}

struct Copy {
    /// Counted, so that the revision is not dropped under it.
    call: Call,
    request: Arc<ConsumeRequest>,
    original: Arc<Effects>,
    answer: oneshot::Receiver<ConsumeResult>,
    report: Arc<Mutex<ShadowReport>>,
}

impl Copy {
    async fn run(self) {
        let effects = Arc::<Effects>::default();
        let call = self
            .call
            .consume(Arc::clone(&self.request), CancelSignal::default());
        let shadow = effects.of(call).await;
        lock(&self.report).not_performed += effects.count();
        // The original was given up: nothing to compare with.
        let Ok(live) = self.answer.await else { return };
        let compared = report::compare(
            &self.request,
            (&live, &self.original.list()),
            (&shadow, &effects.list()),
        );
        if let Some(differences) = compared {
            lock(&self.report).add(self.request.len(), differences);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
