//! Filters that change while messages flow, and names within a namespace.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use consumer::pause::{PauseKind, PauseScope};
use consumer::publish::OutgoingMessage;
use consumer::{ConsumeFromWhere, GroupConfig};
use driver::{Driver, HostPermits};
use protocol::subscription::{ExpressionType, SubscriptionData};

use crate::cluster::{Cluster, PATIENCE, eventually};
use crate::listeners::{Act, Recorder};
use crate::{GROUP, TOPIC, group, subscribe};

fn tagged(tag: &str) -> SubscriptionData {
    SubscriptionData::build(TOPIC, tag, ExpressionType::Tag).unwrap()
}

/// Even numbers are tagged so, odd ones too.
async fn send(driver: &Driver, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let tag = if number % 2 == 0 { "even" } else { "odd" };
        let message = OutgoingMessage {
            topic: TOPIC.to_owned(),
            body: number.to_string().into(),
            tags: Some(tag.to_owned()),
            ..OutgoingMessage::default()
        };
        let sent = driver.producer().send(vec![message], PATIENCE).await;
        assert_eq!(&*sent.unwrap()[0].message_queue.topic, TOPIC);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_filter_takes_effect_under_traffic_and_passes_over_nothing_it_wants() {
    let cluster = Cluster::start().await;
    let (driver, log) = cluster.driver(&HostPermits::new(16), 16);
    let recorder = Recorder::succeeding();
    let config = GroupConfig::builder(GROUP)
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .subscription(tagged("even"));
    subscribe(&driver, config.build().unwrap(), &recorder).await;
    for (round, tag) in ["even", "odd", "even", "odd"].into_iter().enumerate() {
        if round > 0 {
            driver
                .change_subscription(GROUP, tagged(tag))
                .await
                .unwrap();
        }
        // Sent while brokers hold pulls of the filter before. A queue may stand before
        // messages that the filter before did not want: those may come, too.
        let first = u32::try_from(round).unwrap() * 100;
        send(&driver, first..first + 100).await;
        let kind = u32::from(tag == "odd");
        let (wanted, others): (Vec<u32>, Vec<u32>) =
            (first..first + 100).partition(|number| number % 2 == kind);
        eventually("all that the filter wants", || {
            wanted
                .iter()
                .all(|&number| !recorder.attempts_of(number).is_empty())
        })
        .await;
        let came = |number: &u32| !recorder.attempts_of(*number).is_empty();
        assert!(!others.iter().any(came), "the other kind");
    }
    assert_eq!(log.count("PullFailed"), 0, "nobody was refused in between");
    assert!(
        driver
            .change_subscription("nobody", tagged("odd"))
            .await
            .is_err()
    );
    driver.stop(PATIENCE).await;
    assert_eq!(recorder.deliveries(), recorder.messages(), "nothing twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_have_their_namespace_at_the_broker_and_nowhere_else() {
    let cluster = Cluster::start().await;
    let (driver, log) = cluster.driver_in("shop", &HostPermits::new(16), 16);
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&names);
    // One is sent back, so that the retry topic is seen, too.
    let recorder = Recorder::new(move |request, numbers| {
        let mut seen = seen.lock().unwrap();
        seen.insert(request.consumer_group.to_string());
        seen.insert(request.message_queue.topic.to_string());
        seen.insert(request.topic.to_string());
        let failing = numbers.iter().filter(|number| **number == (7, 0));
        Act::Fail(failing.map(|&(number, _)| number).collect())
    });
    send(&driver, 0..20).await;
    subscribe(&driver, group(GROUP), &recorder).await;
    eventually("all are consumed", || recorder.deliveries() == 21).await;
    let by = "a test".into();
    let topic = PauseScope::Topic(TOPIC.into());
    driver
        .pause(GROUP, topic.clone(), PauseKind::Pause, by)
        .await
        .unwrap();
    let status = driver.status().await.unwrap();
    let status = &status.client.groups[0];
    assert_eq!(&*status.consumer_group, GROUP);
    let topics: Vec<&str> = status.topics.iter().map(|topic| &*topic.topic).collect();
    assert_eq!(topics, [&format!("%RETRY%{GROUP}"), TOPIC]);
    let queues = status.topics[1].queues.iter();
    assert!(queues.clone().count() > 0);
    assert!(
        queues
            .map(|queue| &queue.queue)
            .all(|queue| &*queue.topic == TOPIC)
    );
    assert_eq!(status.pauses[0].scope, topic);
    driver.resume(GROUP, topic).await.unwrap();
    driver.unsubscribe(GROUP).await.unwrap();
    assert_eq!(cluster.committed("shop%counters", "shop%numbers"), 20);
    let told = log.count("shop%counters");
    assert_eq!(log.count("counters"), told, "of the names at the broker");
    assert!(told > 0, "something was told");
    driver.stop(PATIENCE).await;
    let names = names.lock().unwrap();
    assert!(names.contains(GROUP) && names.contains(TOPIC), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("shop")), "{names:?}");
}
