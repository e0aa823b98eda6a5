//! Queues that are consumed in order, over real sockets: one call at a time, failures
//! first, and from one owner to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consumer::listener::{
    CancelSignal, ConsumeFuture, ConsumeMode, ConsumeRequest, ConsumeResult, MessageListener,
    OrderlyCall, OrderlyStatus,
};
use consumer::{ConsumeFromWhere, GroupConfig};
use driver::{Driver, HostPermits};
use protocol::subscription::SubscriptionData;

use crate::cluster::{Cluster, PATIENCE, QUEUES, eventually};

const TOPIC: &str = "steps";
const GROUP: &str = "walkers";

fn orderly(max_reconsume_times: Option<u32>) -> GroupConfig {
    let mut builder = GroupConfig::builder(GROUP)
        .mode(ConsumeMode::Orderly { auto_commit: true })
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .consume_message_batch_max_size(1)
        .suspend_current_queue_time(Duration::from_millis(10))
        .subscription(SubscriptionData::all(TOPIC));
    if let Some(max) = max_reconsume_times {
        builder = builder.max_reconsume_times(max);
    }
    builder.build().unwrap()
}

/// What listeners of all owners saw together.
#[derive(Default)]
struct Book {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By queue: numbers that were done with, in order.
    done: BTreeMap<u32, Vec<u32>>,
    /// By number: the attempt of each delivery.
    attempts: BTreeMap<u32, Vec<u32>>,
    /// Queues with a call under way.
    called: BTreeMap<u32, u32>,
    called_at_once_max: u32,
    /// By queue: who called last.
    last: BTreeMap<u32, &'static str>,
}

impl Book {
    fn done(&self) -> usize {
        self.state.lock().unwrap().done.values().map(Vec::len).sum()
    }

    /// Every queue had its numbers once, in order, one call at a time.
    fn check(&self, without: Option<u32>) {
        let state = self.state.lock().unwrap();
        assert_eq!(state.called_at_once_max, 1, "calls of one queue at once");
        for (queue, numbers) in &state.done {
            let expected = (0..).map(|n| n * QUEUES + queue);
            let expected = expected.filter(|n| Some(*n) != without);
            let expected: Vec<u32> = expected.take(numbers.len()).collect();
            assert_eq!(*numbers, expected, "queue {queue}");
        }
    }

    /// The queues whose last call was this one's.
    fn owned_by(&self, name: &str) -> Vec<u32> {
        let state = self.state.lock().unwrap();
        let owned = state.last.iter().filter(|(_, owner)| **owner == name);
        owned.map(|(queue, _)| *queue).collect()
    }
}

/// Fails the number `fails` so often.
struct Walker {
    name: &'static str,
    book: Arc<Book>,
    fails: Option<(u32, usize)>,
}

impl MessageListener for Walker {
    fn consume_message(&self, request: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
        let (name, book, fails) = (self.name, Arc::clone(&self.book), self.fails);
        Box::pin(async move {
            let queue = request.message_queue.queue_id;
            {
                let mut state = book.state.lock().unwrap();
                let called = state.called.entry(queue).or_default();
                *called += 1;
                let called = *called;
                state.called_at_once_max = state.called_at_once_max.max(called);
                state.last.insert(queue, name);
            }
            tokio::task::yield_now().await;
            let mut state = book.state.lock().unwrap();
            if let Some(called) = state.called.get_mut(&queue) {
                *called -= 1;
            }
            // A request may have several calls, here of one message each.
            let mut calls = Vec::new();
            for message in request.iter() {
                let body = std::str::from_utf8(message.message.body()).unwrap();
                let number: u32 = body.parse().unwrap();
                let attempts = state.attempts.entry(number).or_default();
                attempts.push(message.reconsume_times);
                let failed = fails.is_some_and(|(n, times)| n == number && attempts.len() <= times);
                let status = if failed {
                    OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None }
                } else {
                    state.done.entry(queue).or_default().push(number);
                    OrderlyStatus::Success
                };
                calls.push(OrderlyCall {
                    messages: 1,
                    status,
                    reason: None,
                });
                if failed {
                    break;
                }
            }
            ConsumeResult::OrderlyCalls(calls)
        })
    }
}

async fn walk(driver: &Driver, group: GroupConfig, walker: Walker) {
    driver.subscribe(group, Arc::new(walker)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_stays_first_in_its_queue_until_it_is_done() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..400);
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let book = Arc::new(Book::default());
    let walker = Walker {
        name: "a",
        book: Arc::clone(&book),
        fails: Some((41, 5)),
    };
    walk(&driver, orderly(None), walker).await;
    eventually("all are done", || book.done() == 400).await;
    driver.stop(PATIENCE).await;
    book.check(None);
    let attempts = book.state.lock().unwrap().attempts[&41].clone();
    assert_eq!(attempts, [0, 1, 2, 3, 4, 5]);
    assert_eq!(cluster.committed(GROUP, TOPIC), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_enough_attempts_is_a_dead_letter_and_its_queue_goes_on() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..200);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let book = Arc::new(Book::default());
    let walker = Walker {
        name: "a",
        book: Arc::clone(&book),
        fails: Some((42, usize::MAX)),
    };
    walk(&driver, orderly(Some(2)), walker).await;
    eventually("the others are done", || book.done() == 199).await;
    driver.stop(PATIENCE).await;
    book.check(Some(42));
    let attempts = book.state.lock().unwrap().attempts[&42].clone();
    assert_eq!(attempts, [0, 1, 2]);
    assert_eq!(cluster.stored(&format!("%DLQ%{GROUP}")), 1);
    assert_eq!(log.count("DeadLettered"), 1);
    assert_eq!(cluster.committed(GROUP, TOPIC), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_go_from_owner_to_owner_in_order_and_without_waiting_for_a_lock_to_expire() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..400);
    let book = Arc::new(Book::default());
    let walker = |name| Walker {
        name,
        book: Arc::clone(&book),
        fails: None,
    };
    let (first, _) = cluster.driver(&HostPermits::new(16), 16);
    walk(&first, orderly(None), walker("first")).await;
    eventually("the first has all", || book.done() == 400).await;

    // Given a second owner that takes its share.
    let (second, _) = cluster.driver(&HostPermits::new(16), 16);
    walk(&second, orderly(None), walker("second")).await;
    let mut sent = 400;
    let mut feed = || {
        cluster.send(TOPIC, sent..sent + QUEUES);
        sent += QUEUES;
    };
    eventually("the second has a share", || {
        feed();
        !book.owned_by("second").is_empty()
    })
    .await;
    // When the first one leaves, nobody waits for a lock to expire: none does.
    first.stop(PATIENCE).await;
    eventually("the second has all queues", || {
        feed();
        book.owned_by("second").len() == QUEUES as usize
    })
    .await;
    eventually("all are done", || book.done() == sent as usize).await;
    second.stop(PATIENCE).await;
    book.check(None);
    assert_eq!(cluster.committed(GROUP, TOPIC), i64::from(sent));
}
