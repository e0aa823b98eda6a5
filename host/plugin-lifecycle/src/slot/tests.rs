//! Calls, switches and the end of draining, with a listener that answers when it is told to.

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
