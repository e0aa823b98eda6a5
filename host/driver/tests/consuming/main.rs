//! A driver, its rules and real sockets against the embedded broker: messages go in at
//! one end and native listeners get them at the other.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod broadcasting;
mod cluster;
mod filters;
mod listeners;
mod orderly;
mod pull_tasks;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::{Cluster, PATIENCE, eventually};
use consumer::{ConsumeFromWhere, GroupConfig};
use driver::{Driver, DriverConfig, DriverError, HostPermits};
use listeners::{Act, Listener, Recorder};
use protocol::subscription::SubscriptionData;

const TOPIC: &str = "numbers";
const GROUP: &str = "counters";

fn group(name: &str) -> GroupConfig {
    GroupConfig::builder(name)
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .subscription(SubscriptionData::all(TOPIC))
        .build()
        .unwrap()
}

async fn subscribe(driver: &Driver, group: GroupConfig, recorder: &Arc<Recorder>) {
    driver
        .subscribe(group, Arc::new(Listener(Arc::clone(recorder))))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_consumed_exactly_once_and_all_is_committed_at_the_end() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..3_000);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &recorder).await;

    eventually("the first are consumed", || recorder.messages() == 3_000).await;
    cluster.send(TOPIC, 3_000..5_000);
    eventually("all are consumed", || recorder.messages() == 5_000).await;
    let report = driver.stop(PATIENCE).await;

    assert_eq!(recorder.deliveries(), 5_000);
    assert!(recorder.calls.load(Ordering::SeqCst) <= 2_500, "by the run");
    assert_eq!(cluster.committed(GROUP, TOPIC), 5_000);
    assert_eq!((report.killed_calls, report.is_complete), (0, true));
    assert_eq!(log.count("Stopped"), 1);
    assert_eq!(
        driver.stop(PATIENCE).await,
        report,
        "stopping twice is stopping once"
    );
    assert!(matches!(driver.status().await, Err(DriverError::Stopped)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_message_comes_again_alone_with_its_attempts_counted() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..200);
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::new(|_, numbers| {
        let failing = numbers
            .iter()
            .filter(|&&(number, times)| number == 77 && times < 3)
            .map(|&(number, _)| number);
        Act::Fail(failing.collect())
    });
    subscribe(&driver, group(GROUP), &recorder).await;

    eventually("the last attempt", || recorder.attempts_of(77).len() == 4).await;
    eventually("the others", || recorder.messages() == 200).await;
    driver.stop(PATIENCE).await;

    assert_eq!(recorder.attempts_of(77), [0, 1, 2, 3]);
    assert_eq!(recorder.deliveries(), 203);
    assert_eq!(cluster.committed(GROUP, TOPIC), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_listener_is_told_and_its_messages_come_again() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::new(|_, numbers| {
        match numbers
            .iter()
            .any(|&(number, times)| number == 5 && times == 0)
        {
            true => Act::Panic,
            false => Act::Succeed,
        }
    });
    subscribe(&driver, group(GROUP), &recorder).await;

    eventually("it comes again", || recorder.attempts_of(5).len() == 2).await;
    eventually("the others", || recorder.messages() == 100).await;
    driver.stop(PATIENCE).await;

    assert_eq!(log.count("ListenerPanicked"), 1);
    assert_eq!(cluster.committed(GROUP, TOPIC), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_hang_are_killed_at_the_deadline_and_their_messages_are_not_lost() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let hanging =
        Recorder::new(
            |_, numbers| match numbers.iter().any(|&(number, _)| number == 8) {
                true => Act::Hang,
                false => Act::Succeed,
            },
        );
    subscribe(&driver, group(GROUP), &hanging).await;
    eventually("all are delivered", || hanging.messages() == 100).await;

    let report = driver.stop(Duration::from_millis(50)).await;

    assert_eq!((report.killed_calls, report.is_complete), (1, true));
    assert!(report.elapsed >= Duration::from_millis(50));
    assert_eq!(log.count("CallsKilled"), 1);
    assert!(cluster.committed(GROUP, TOPIC) < 100);
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let second = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &second).await;
    eventually("it comes again", || !second.attempts_of(8).is_empty()).await;
    driver.stop(PATIENCE).await;
    assert_eq!(second.attempts_of(8), [0], "no attempt was counted");
    assert_eq!(cluster.committed(GROUP, TOPIC), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_together_make_no_more_calls_than_the_host_allows() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..2_000);
    let permits = HostPermits::new(3);
    let recorder = Recorder::new(|_, _| Act::Linger);
    let (first, _) = cluster.driver(&permits, 16);
    let (second, _) = cluster.driver(&permits, 16);
    subscribe(&first, group("group-a"), &recorder).await;
    subscribe(&second, group("group-b"), &recorder).await;

    eventually("both have all", || recorder.deliveries() == 4_000).await;
    first.stop(PATIENCE).await;
    second.stop(PATIENCE).await;

    assert_eq!(cluster.committed("group-a", TOPIC), 2_000);
    assert_eq!(cluster.committed("group-b", TOPIC), 2_000);
    assert!(recorder.under_way_max.load(Ordering::SeqCst) <= 3);
    assert_eq!(permits.available(), 3, "all permits are back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_makes_no_more_calls_than_its_own_bound() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..500);
    let (driver, _) = cluster.driver(&HostPermits::new(100), 2);
    let recorder = Recorder::new(|_, _| Act::Linger);
    subscribe(&driver, group(GROUP), &recorder).await;

    eventually("all are consumed", || recorder.messages() == 500).await;
    driver.stop(PATIENCE).await;

    assert!(recorder.under_way_max.load(Ordering::SeqCst) <= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_group_does_not_keep_another_from_consuming() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, _) = cluster.driver(&HostPermits::new(64), 64);
    let hanging = Recorder::new(|_, _| Act::Hang);
    let working = Recorder::succeeding();
    subscribe(&driver, group("hanging"), &hanging).await;
    eventually("it hangs", || hanging.messages() > 0).await;
    subscribe(&driver, group("working"), &working).await;

    eventually("the other works", || working.messages() == 100).await;
    assert!(driver.stop(Duration::ZERO).await.killed_calls > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_away_and_comes_back_costs_no_message() {
    let mut cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..500);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &recorder).await;
    eventually("the first are consumed", || recorder.messages() == 500).await;

    cluster.go_away().await;
    eventually("it is missed", || log.count("Disconnected {") > 0).await;
    cluster.send(TOPIC, 500..1_000);
    cluster.come_back().await;

    eventually("all are consumed", || recorder.messages() == 1_000).await;
    driver.stop(PATIENCE).await;
    assert_eq!(
        recorder.deliveries(),
        1_000,
        "what was finished is remembered"
    );
    assert_eq!(cluster.committed(GROUP, TOPIC), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_leaves_is_finished_and_the_others_go_on() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let leaving = Recorder::succeeding();
    let staying = Recorder::succeeding();
    subscribe(&driver, group("leaving"), &leaving).await;
    subscribe(&driver, group("staying"), &staying).await;
    eventually("both have all", || {
        leaving.messages() + staying.messages() == 200
    })
    .await;

    let report = driver.unsubscribe("leaving").await.unwrap();

    assert!(report.is_complete);
    assert_eq!(cluster.committed("leaving", TOPIC), 100);
    assert_eq!(log.count("GroupLeft"), 1);
    let error = driver.unsubscribe("leaving").await.unwrap_err();
    assert!(matches!(error, DriverError::UnknownGroup { .. }), "{error}");
    cluster.send(TOPIC, 100..200);
    eventually("the other goes on", || staying.messages() == 200).await;
    assert_eq!(leaving.messages(), 100);
    // And it may come again.
    subscribe(&driver, group("leaving"), &leaving).await;
    eventually("it goes on where it was", || leaving.messages() == 200).await;
    assert_eq!(leaving.deliveries(), 200);
    driver.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_taken_in_once() {
    let cluster = Cluster::start().await;
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &recorder).await;

    let again = driver
        .subscribe(group(GROUP), Arc::new(Listener(recorder)))
        .await;

    assert!(matches!(again, Err(DriverError::Subscribe(_))), "{again:?}");
    driver.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_through_the_producer_is_consumed() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..1);
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &recorder).await;
    let producer = driver.producer();
    let message = |number: u32| consumer::publish::OutgoingMessage {
        topic: TOPIC.to_owned(),
        body: number.to_string().into(),
        ..consumer::publish::OutgoingMessage::default()
    };

    let results = producer.send(vec![message(1)], PATIENCE).await.unwrap();
    assert_eq!(results.len(), 1);
    producer.send_oneway(message(2)).await.unwrap();

    eventually("all three come", || recorder.messages() == 3).await;
    driver.stop(PATIENCE).await;
    assert!(producer.send(vec![message(3)], PATIENCE).await.is_err());
    assert_eq!(cluster.stored(TOPIC), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_driver_kills_what_is_under_way() {
    let cluster = Cluster::start().await;
    cluster.send(TOPIC, 0..100);
    let permits = HostPermits::new(16);
    let (driver, _) = cluster.driver(&permits, 16);
    let hanging = Recorder::new(|_, _| Act::Hang);
    subscribe(&driver, group(GROUP), &hanging).await;
    eventually("it hangs", || hanging.messages() > 0).await;

    drop(driver);

    eventually("all permits are back", || permits.available() == 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_task_that_panics_is_told_to_the_process() {
    let cluster = Cluster::start().await;
    let config = DriverConfig::new(consumer::ClientConfig::new(
        "127.0.0.1@1#panic",
        vec![cluster.address()],
    ));
    let driver = Driver::start(
        config,
        Arc::new(|event: &driver::Event| {
            assert!(
                !matches!(event, driver::Event::Connected { .. }),
                "on purpose"
            );
        }),
    );
    let recorder = Recorder::succeeding();
    subscribe(&driver, group(GROUP), &recorder).await;

    let message = tokio::time::timeout(PATIENCE, driver.failed())
        .await
        .unwrap();

    assert!(message.contains("on purpose"), "{message}");
    assert!(!driver.stop(PATIENCE).await.is_complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_without_a_broker_does_not_wait_for_one() {
    let mut cluster = Cluster::start().await;
    cluster.go_away().await;
    let (driver, _) = cluster.driver(&HostPermits::new(16), 16);
    subscribe(&driver, group(GROUP), &Recorder::succeeding()).await;

    let report = tokio::time::timeout(PATIENCE, driver.stop(Duration::from_millis(100)))
        .await
        .unwrap();

    assert_eq!(report.killed_calls, 0);
}
