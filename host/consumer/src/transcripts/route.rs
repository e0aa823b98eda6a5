//! Routes that change under a running group.

use protocol::Address;

use super::{config, group, pulling, seconds};
use crate::request::RequestError;
use crate::testing::Harness;

/// Lets time pass; everything but pulls is answered. How often the route was asked for.
fn pass(t: &mut Harness, time: u64) -> usize {
    t.forget_transcript();
    for _ in 0..time {
        t.wait(seconds(1));
        t.settle();
    }
    let asked = |line: &&str| line.contains("GetRouteInfo T1");
    t.transcript().lines().filter(asked).count()
}

fn held(t: &Harness) -> usize {
    let status = t.client.status(t.now());
    let topics = status.groups[0].topics.iter();
    let topics = topics.filter(|topic| &*topic.topic == "T1");
    topics.map(|topic| topic.queues.len()).sum()
}

#[test]
fn a_queue_whose_broker_comes_back_is_read_within_seconds() {
    let (mut t, _) = pulling(group("T1"));
    let (whole, rest) = (
        [("broker-a", 2), ("broker-b", 1)],
        [("broker-a", 2), ("broker-c", 0)],
    );
    t.topic("T1", &whole);
    pass(&mut t, 31);
    assert_eq!(held(&t), 3);
    assert_eq!(pass(&mut t, 60), 2, "a route is asked for every 30 s");

    // broker-b is shut down: the route lacks its queue.
    t.topic("T1", &rest);
    pass(&mut t, 30);
    assert_eq!(held(&t), 2);
    assert_eq!(pass(&mut t, 20), 4, "a route that shrank, every 5 s");

    // It is back.
    t.topic("T1", &whole);
    pass(&mut t, 5);
    assert_eq!(held(&t), 3, "{}", t.transcript());
    pass(&mut t, 30);
    assert_eq!(pass(&mut t, 60), 2, "and then as before");
}

/// A member that joined while one name server knew too little, and then reached none.
#[test]
fn a_route_that_no_name_server_answered_for_is_asked_for_every_five_seconds() {
    let mut t = Harness::new(|config| {
        config.namesrv_addr.push(Address::new("10.0.1.2", 9876));
    });
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(group("T1")));
    pass(&mut t, 10);
    assert_eq!(held(&t), 1);
    t.topic("T1", &[("broker-a", 2)]);
    t.wait(seconds(21));
    t.settle_but(&["GetRouteInfo T1"]);
    let no_answer = |t: &mut Harness| {
        for _ in 0..2 {
            let error = RequestError::Timeout;
            t.answer("GetRouteInfo T1", Err(error));
        }
    };
    no_answer(&mut t);
    for _ in 0..3 {
        t.wait(seconds(5));
        t.settle_but(&["GetRouteInfo T1"]);
        no_answer(&mut t);
    }
    assert_eq!(held(&t), 1, "what is known stays known");

    // They are back.
    pass(&mut t, 6);
    assert_eq!(held(&t), 2, "{}", t.transcript());
    pass(&mut t, 30);
    assert_eq!(pass(&mut t, 60), 2, "and then as before");
}

#[test]
fn queues_that_do_not_come_back_are_waited_for_within_bounds() {
    let (mut t, _) = pulling(group("T1"));
    t.topic("T1", &[("broker-a", 2)]);
    pass(&mut t, 31);
    t.topic("T1", &[("broker-a", 1)]);
    pass(&mut t, 30);
    let asked = pass(&mut t, 310);
    assert!((55..=62).contains(&asked), "{asked}");
    assert_eq!(pass(&mut t, 60), 2);
    assert_eq!(held(&t), 1);
}

#[test]
fn a_topic_that_all_brokers_left_is_held_and_asked_for_every_five_seconds() {
    let (mut t, _) = pulling(group("T1"));
    let topics = std::mem::take(&mut t.cluster.topics);
    pass(&mut t, 31);
    assert_eq!(held(&t), 1, "its broker may be restarting");
    assert_eq!(pass(&mut t, 30), 6);
    t.cluster.topics = topics;
    pass(&mut t, 35);
    assert_eq!(held(&t), 1);
    assert_eq!(pass(&mut t, 60), 2);
}

#[test]
fn names_of_brokers_that_are_gone_are_forgotten() {
    let (mut t, _) = pulling(group("T1"));
    for round in 0..8 {
        // A name server that invents other names each time.
        let names: Vec<String> = (0..200).map(|n| format!("broker-{round}-{n}")).collect();
        let mut brokers: Vec<(&str, u32)> = names.iter().map(|name| (&**name, 1)).collect();
        brokers.push(("broker-a", 1));
        let retry = t.cluster.topics.remove("%RETRY%G1").expect("there");
        t.topic("T1", &brokers);
        t.cluster.topics.insert("%RETRY%G1".to_owned(), retry);
        t.wait(seconds(31));
        t.settle();
        t.forget_transcript();
    }
    let known = t.client.known_broker_names();
    assert!(
        known < 2_200,
        "{known} names are known after 4,000 came and went"
    );
    assert!(held(&t) > 0);
}
