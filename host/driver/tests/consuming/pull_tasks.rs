//! Groups of pull tasks: native callbacks pull for themselves from the embedded broker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consumer::GroupConfig;
use consumer::listener::CancelSignal;
use consumer::pull_task::{
    PullTaskCallback, PullTaskFuture, PullTaskRequest, PullTaskResult, QueuePull, QueuePuller,
    QueuePullerError,
};
use consumer::request::PullStatus;
use driver::{Driver, DriverError, HostPermits};
use protocol::QueueOffset;
use protocol::subscription::SubscriptionData;

use crate::cluster::{Cluster, PATIENCE, QUEUES, eventually};
use crate::listeners::{Listener, Recorder};
use crate::{TOPIC, group};

const GROUP: &str = "pullers";

fn task_group() -> GroupConfig {
    GroupConfig::builder(GROUP)
        .subscription(SubscriptionData::all(TOPIC))
        .pull_task_interval(Duration::from_millis(10))
        .build()
        .unwrap()
}

/// What a run does beside pulling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Pull,
    Fail,
    Panic,
    Hang,
}

/// Pulls everything of its queues, counts it and sets the offset behind it.
struct Puller {
    act: fn(usize) -> Act,
    runs: AtomicUsize,
    /// Number → how often it was pulled.
    pulled: Mutex<BTreeMap<u32, usize>>,
    errors: Mutex<Vec<QueuePullerError>>,
    kept: Mutex<Vec<Arc<dyn QueuePuller>>>,
}

impl Puller {
    fn new(act: fn(usize) -> Act) -> Arc<Self> {
        Arc::new(Self {
            act,
            runs: AtomicUsize::new(0),
            pulled: Mutex::default(),
            errors: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    fn messages(&self) -> usize {
        self.pulled.lock().unwrap().len()
    }

    fn pulls(&self) -> usize {
        self.pulled.lock().unwrap().values().sum()
    }

    async fn run(&self, puller: &dyn QueuePuller) -> Result<Option<Duration>, QueuePullerError> {
        let offset = match puller.fetch_consume_offset().await? {
            Some(offset) => offset,
            None => puller.min_offset().await?,
        };
        let pull = QueuePull {
            sub_expression: "*".to_owned(),
            offset,
            max_messages: 16,
        };
        let result = puller.pull(pull).await?;
        for run in &result.runs {
            for index in run.range.clone() {
                let message = run.batch.message(index);
                let number = std::str::from_utf8(message.body()).unwrap();
                let number = number.parse().unwrap();
                *self.pulled.lock().unwrap().entry(number).or_default() += 1;
            }
        }
        puller
            .update_consume_offset(result.next_begin_offset)
            .await?;
        Ok((result.status == PullStatus::Found).then_some(Duration::ZERO))
    }
}

/// The callback that a [`Puller`] is.
struct Callback(Arc<Puller>);

impl PullTaskCallback for Callback {
    fn do_pull_task(
        &self,
        _: Arc<PullTaskRequest>,
        puller: Arc<dyn QueuePuller>,
        _: CancelSignal,
    ) -> PullTaskFuture {
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            let run = this.runs.fetch_add(1, Ordering::SeqCst);
            this.kept.lock().unwrap().push(Arc::clone(&puller));
            match (this.act)(run) {
                Act::Pull => {}
                Act::Fail => {
                    let reason = "as the test asked".to_owned();
                    return PullTaskResult::Failed { reason };
                }
                Act::Panic => panic!("as the test asked"),
                Act::Hang => std::future::pending().await,
            }
            match this.run(&*puller).await {
                Ok(after) => PullTaskResult::NextRun { after },
                Err(error) => {
                    let reason = error.to_string();
                    this.errors.lock().unwrap().push(error);
                    PullTaskResult::Failed { reason }
                }
            }
        })
    }
}

async fn subscribe(driver: &Driver, puller: &Arc<Puller>) {
    let callback = Arc::new(Callback(Arc::clone(puller)));
    driver
        .subscribe_pull_tasks(task_group(), callback)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_pull_everything_once_and_what_they_set_is_committed_at_the_end() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..500);
    let (driver, _) = cluster.driver(&HostPermits::new(2), 16);
    let puller = Puller::new(|_| Act::Pull);
    subscribe(&driver, &puller).await;

    eventually("the first are pulled", || puller.messages() == 500).await;
    cluster.send(TOPIC, 500..800);
    eventually("all are pulled", || puller.messages() == 800).await;
    let report = driver.stop(PATIENCE).await;

    assert_eq!((report.killed_calls, report.is_complete), (0, true));
    assert_eq!(puller.pulls(), 800, "each once");
    // At the end nothing more is pulled.
    let errors = puller.errors.lock().unwrap();
    assert!(errors.iter().all(|e| *e == QueuePullerError::Released));
    assert_eq!(cluster.committed(GROUP, TOPIC), 800);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_another_member_takes_go_on_where_they_were() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..400);
    let permits = HostPermits::new(16);
    let (first, _) = cluster.driver(&permits, 16);
    let (second, _) = cluster.driver(&permits, 16);
    let (one, two) = (Puller::new(|_| Act::Pull), Puller::new(|_| Act::Pull));
    subscribe(&first, &one).await;
    eventually("the first has all", || one.messages() == 400).await;

    subscribe(&second, &two).await;
    eventually("the second has runs", || {
        two.runs.load(Ordering::SeqCst) > 0
    })
    .await;
    cluster.send(TOPIC, 400..800);
    eventually("all are pulled", || one.messages() + two.messages() >= 800).await;
    first.stop(PATIENCE).await;
    cluster.send(TOPIC, 800..900);
    eventually("the second has the rest", || {
        let two = two.pulled.lock().unwrap();
        (800..900).all(|number| two.contains_key(&number))
    })
    .await;
    second.stop(PATIENCE).await;

    assert!(two.messages() >= 100 && two.messages() < 900);
    assert_eq!(cluster.committed(GROUP, TOPIC), 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_panics_delay_a_task_and_lose_nothing() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let puller = Puller::new(|run| match run {
        0 | 3 => Act::Panic,
        1 | 2 => Act::Fail,
        _ => Act::Pull,
    });
    subscribe(&driver, &puller).await;

    eventually("all are pulled", || puller.messages() == 100).await;
    driver.stop(PATIENCE).await;

    assert_eq!(log.count("ListenerPanicked"), 2);
    assert_eq!(log.count("failure: Some"), 4);
    assert_eq!(cluster.committed(GROUP, TOPIC), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_hangs_is_killed_at_the_end_and_an_ended_one_has_no_say() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let puller = Puller::new(|run| match run {
        20 => Act::Hang,
        _ => Act::Pull,
    });
    subscribe(&driver, &puller).await;
    eventually("a run hangs", || {
        puller.runs.load(Ordering::SeqCst) > 20 + QUEUES as usize
    })
    .await;

    let old = Arc::clone(&puller.kept.lock().unwrap()[0]);
    let refused = old.update_consume_offset(QueueOffset(0)).await;
    assert_eq!(refused, Err(QueuePullerError::Released));
    let report = driver.stop(Duration::from_millis(50)).await;
    assert_eq!((report.killed_calls, report.is_complete), (1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_is_no_pull_task() {
    let cluster = Cluster::start().await;
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let listener = Arc::new(Listener(Recorder::succeeding()));
    let wrong = DriverError::WrongKind {
        consumer_group: GROUP.to_owned(),
    };
    assert_eq!(
        driver.subscribe(task_group(), listener).await,
        Err(wrong.clone())
    );
    let callback = Arc::new(Callback(Puller::new(|_| Act::Pull)));
    assert_eq!(
        driver.subscribe_pull_tasks(group(GROUP), callback).await,
        Err(wrong)
    );
    driver.stop(PATIENCE).await;
}
