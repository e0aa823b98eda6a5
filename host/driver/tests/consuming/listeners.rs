//! Listeners that do as a test says and remember what they got.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeRequest, ConsumeResult,
    MessageListener, MessageOutcome,
};

/// What to do with a call.
pub(crate) type Behaviour = dyn Fn(&ConsumeRequest, &Numbers) -> Act + Send + Sync;

/// What a call does.
pub(crate) enum Act {
    Succeed,
    /// Every message with one of these numbers is sent back.
    Fail(Vec<u32>),
    Panic,
    /// Until killed.
    Hang,
    /// Lets others run before it succeeds.
    Linger,
}

/// Every number and how often it was delivered before, as this call sees it.
pub(crate) type Numbers = Vec<(u32, u32)>;

/// Counts what it got.
pub(crate) struct Recorder {
    behaviour: Box<Behaviour>,
    /// Number → deliveries, each with its `reconsume_times`.
    deliveries: Mutex<BTreeMap<u32, Vec<u32>>>,
    pub(crate) calls: AtomicUsize,
    under_way: AtomicUsize,
    pub(crate) under_way_max: AtomicUsize,
}

impl Recorder {
    pub(crate) fn new(
        behaviour: impl Fn(&ConsumeRequest, &Numbers) -> Act + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            behaviour: Box::new(behaviour),
            deliveries: Mutex::default(),
            calls: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            under_way_max: AtomicUsize::new(0),
        })
    }

    pub(crate) fn succeeding() -> Arc<Self> {
        Self::new(|_, _| Act::Succeed)
    }

    /// Different messages delivered.
    pub(crate) fn messages(&self) -> usize {
        self.deliveries.lock().unwrap().len()
    }

    /// Deliveries, repeats included.
    pub(crate) fn deliveries(&self) -> usize {
        self.deliveries.lock().unwrap().values().map(Vec::len).sum()
    }

    /// The `reconsume_times` of each delivery of a message.
    pub(crate) fn attempts_of(&self, number: u32) -> Vec<u32> {
        self.deliveries
            .lock()
            .unwrap()
            .get(&number)
            .cloned()
            .unwrap_or_default()
    }
}

/// Counts down even when the call is killed.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The listener that a [`Recorder`] is.
pub(crate) struct Listener(pub(crate) Arc<Recorder>);

impl MessageListener for Listener {
    fn consume_message(&self, request: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
        let recorder = Arc::clone(&self.0);
        Box::pin(async move {
            let now = recorder.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            let _under_way = UnderWay(&recorder.under_way);
            recorder.under_way_max.fetch_max(now, Ordering::SeqCst);
            let numbers: Numbers = request
                .iter()
                .map(|message| {
                    let body = std::str::from_utf8(message.message.body()).unwrap();
                    (body.parse().unwrap(), message.reconsume_times)
                })
                .collect();
            {
                let mut deliveries = recorder.deliveries.lock().unwrap();
                for &(number, times) in &numbers {
                    deliveries.entry(number).or_default().push(times);
                }
            }
            recorder.calls.fetch_add(1, Ordering::SeqCst);
            match (recorder.behaviour)(&request, &numbers) {
                Act::Succeed => {}
                Act::Fail(failing) => return outcomes(&numbers, &failing),
                Act::Panic => panic!("as the test asked"),
                Act::Hang => std::future::pending().await,
                Act::Linger => {
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                }
            }
            ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index: None })
        })
    }
}

fn outcomes(numbers: &Numbers, failing: &[u32]) -> ConsumeResult {
    let outcomes = numbers
        .iter()
        .map(|(number, _)| match failing.contains(number) {
            true => MessageOutcome::ReconsumeLater { delay_level: None },
            false => MessageOutcome::Done,
        })
        .collect();
    ConsumeResult::Concurrently(ConcurrentlyStatus::Each(outcomes))
}
