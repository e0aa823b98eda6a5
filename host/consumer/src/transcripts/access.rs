//! Wrong secrets and missing rights: told once, asked about rarely.

use super::{config, group, messages, pull_with, pulling, queue, seconds, success};
use crate::config::GroupConfig;
use crate::pull_task::{PullTaskResult, PullerRequest, QueuePull};
use crate::request::{Request, RequestError};
use crate::testing::{Cluster, Harness, refused};

fn wrong_secret() -> RequestError {
    refused(16, "User:rocketmq1 signature check failed")
}

/// Refuses everything that goes to a broker for this many seconds; how many requests
/// that was.
fn refuse(t: &mut Harness, time: u64) -> usize {
    let mut refusals = 0;
    for _ in 0..time * 2 {
        t.wait(std::time::Duration::from_millis(500));
        while let Some(line) = t
            .open_requests()
            .into_iter()
            .find(|line| line.contains(":10911"))
        {
            let number = line.split(' ').next().expect("a number").to_owned();
            t.answer(&format!("{number} "), Err(wrong_secret()));
            refusals += 1;
        }
        t.settle_but(&[":10911"]);
    }
    refusals
}

#[test]
fn a_wrong_secret_costs_a_broker_two_heartbeats_a_minute_and_is_explained() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 64)]);
    t.subscribe(config(group("T1")));
    t.settle_but(&[":10911"]);
    refuse(&mut t, 120);
    assert_eq!(t.transcript().matches("AccessRefused").count(), 1);
    let requests = refuse(&mut t, 600);
    assert!((15..=25).contains(&requests), "{requests} in ten minutes");
    let status = t.client.status(t.now());
    assert!(
        status.groups[0].reasons[0]
            .to_string()
            .contains("signature check failed"),
        "{:?}",
        status.groups[0].reasons
    );
    assert!(status.brokers[0].refused.is_some());

    // It is corrected on the other side.
    t.forget_transcript();
    t.wait(seconds(31));
    t.settle_but(&["PullMessage"]);
    assert!(
        t.transcript().contains("AccessGranted"),
        "{}",
        t.transcript()
    );
    assert!(t.client.status(t.now()).brokers[0].refused.is_none());
}

#[test]
fn a_secret_that_is_withdrawn_stops_every_queue_and_its_return_starts_them_again() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 200)]);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1@broker-a:7 ", &messages(0..1));
    t.result(1, success());
    // The first answers come to 201 queues; then it is known.
    refuse(&mut t, 60);
    let requests = refuse(&mut t, 600);
    assert!(requests <= 25, "{requests} in ten minutes, with 201 queues");
    let status = t.client.status(t.now());
    let topic = &status.groups[0].topics[1];
    assert!(
        topic.queues[0].reason.to_string().contains("signature"),
        "{}",
        topic.queues[0].reason
    );
    t.forget_transcript();
    t.wait(seconds(31));
    t.settle_but(&["PullMessage"]);
    t.wait(seconds(1));
    let pulls = t.open_requests();
    let pulls = pulls.iter().filter(|line| line.contains("PullMessage"));
    assert_eq!(pulls.count(), 201);
    assert!(
        !t.transcript().contains("Starting"),
        "no queue was given up"
    );
}

#[test]
fn a_queue_that_may_not_be_pulled_is_asked_for_with_growing_pauses() {
    let (mut t, _) = pulling(group("T1"));
    let mut pulls = 0;
    for _ in 0..300 {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage T1"]);
        if t.open_requests()
            .iter()
            .any(|r| r.contains("PullMessage T1"))
        {
            pulls += 1;
            // ACL 1.0's way of saying so.
            let words = "org.apache.rocketmq.acl.common.AclException: No default permission";
            t.answer("PullMessage T1", Err(refused(1, words)));
        }
    }
    assert!((10..=17).contains(&pulls), "{pulls} pulls in five minutes");
    assert_eq!(t.transcript().matches("PullFailed").count(), 1);
    assert!(
        !t.transcript().contains("AccessRefused"),
        "heartbeats are taken"
    );
}

#[test]
fn what_a_slave_was_told_is_told_to_the_master_when_it_is_back() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let slave = Cluster::address("broker-s");
    t.cluster
        .slaves
        .insert("broker-a".to_owned(), slave.clone());
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    // The master dies: its connection is gone and it takes no heartbeat.
    let master = Cluster::address("broker-a");
    let dead = || {
        Err(RequestError::Unreachable {
            reason: "refused".to_owned(),
        })
    };
    t.does("master gone", |client, now| {
        client.handle_disconnected(&master, now);
    });
    let of_master = format!("{master} ");
    for _ in 0..12 {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage", &of_master]);
        while t.open_requests().iter().any(|r| r.contains(&of_master)) {
            t.answer(&of_master, dead());
        }
    }
    let pulls = t.open_requests();
    let of_slave = |line: &String| line.contains(&format!("{slave} PullMessage T1"));
    assert!(pulls.iter().any(of_slave), "{pulls:?}");
    let told = format!("{slave} UpdateConsumerOffset T1@broker-a:0 to 3");
    assert!(t.transcript().contains(&told), "{}", t.transcript());
    let status = t.client.status(t.now());
    assert_eq!(
        status.groups[0].topics[1].queues[0].committed_offset,
        Some(protocol::QueueOffset(0)),
        "the master does not know it"
    );
    // It is back.
    t.forget_transcript();
    for _ in 0..7 {
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
    let told = format!("{master} UpdateConsumerOffset T1@broker-a:0 to 3");
    assert!(t.transcript().contains(&told), "{}", t.transcript());
}

#[test]
fn offsets_and_members_are_asked_of_a_slave_when_the_master_is_silent() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let slave = Cluster::address("broker-s");
    t.cluster
        .slaves
        .insert("broker-a".to_owned(), slave.clone());
    t.cluster.committed.insert(queue("T1@broker-a:0"), 5);
    t.subscribe(config(group("T1")));
    let of_master = format!("{} ", Cluster::address("broker-a"));
    for _ in 0..8 {
        t.settle_but(&["PullMessage", &of_master]);
        while t.open_requests().iter().any(|r| r.contains(&of_master)) {
            t.answer(&of_master, Err(RequestError::Timeout));
        }
        t.wait(seconds(1));
    }
    let Request::PullMessage(pull) = &t.request("PullMessage T1").request else {
        panic!("a pull");
    };
    assert_eq!(pull.queue_offset.0, 5, "{}", t.transcript());
    assert!(
        t.request("PullMessage T1").destination.address() == &slave,
        "{}",
        t.transcript()
    );
}

#[test]
fn locks_are_not_asked_for_where_nobody_lets_us_in() {
    use crate::listener::ConsumeMode;
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 100)]);
    pull_with(
        &mut t,
        group("T1").mode(ConsumeMode::Orderly { auto_commit: true }),
    );
    refuse(&mut t, 120);
    let requests = refuse(&mut t, 600);
    assert!(requests <= 25, "{requests} in ten minutes");
    t.forget_transcript();
    t.wait(seconds(31));
    t.settle_but(&["PullMessage"]);
    t.wait(seconds(2));
    t.settle_but(&["PullMessage"]);
    let pulls = t.open_requests();
    let pulls = pulls.iter().filter(|line| line.contains("PullMessage"));
    assert_eq!(pulls.count(), 101);
}

#[test]
fn a_lock_that_may_not_be_asked_for_is_asked_for_with_growing_pauses() {
    use crate::listener::ConsumeMode;
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(
        group("T1").mode(ConsumeMode::Orderly { auto_commit: true }),
    ));
    let mut asked = 0;
    for _ in 0..300 {
        t.settle_but(&["LockBatch"]);
        while t.open_requests().iter().any(|r| r.contains("LockBatch")) {
            asked += 1;
            t.answer("LockBatch", Err(wrong_secret()));
        }
        t.wait(seconds(1));
    }
    assert!((10..=17).contains(&asked), "{asked} in five minutes");
}

#[test]
fn nobody_is_asked_for_a_second_look_where_nobody_lets_us_in() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 100)]);
    t.cluster.members = vec![
        "10.0.0.8@1#zzz".to_owned(),
        crate::testing::CLIENT_ID.to_owned(),
    ];
    pull_with(&mut t, group("T1"));
    t.does("the connection is lost", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    refuse(&mut t, 120);
    let requests = refuse(&mut t, 600);
    assert!(requests <= 25, "{requests} in ten minutes");
}

/// A group of pull tasks on so many queues.
fn with_pull_tasks(queues: u32) -> Harness {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", queues)]);
    let interval = GroupConfig::PULL_TASK_INTERVAL;
    pull_with(&mut t, group("T1").pull_task_interval(interval));
    t
}

/// The next run pulls, if there is one; which it is.
fn next_run_pulls(t: &mut Harness) -> Option<usize> {
    let (run, _) = t.numbered_runs().next()?;
    let pull = QueuePull {
        sub_expression: "*".to_owned(),
        offset: protocol::QueueOffset(0),
        max_messages: 32,
    };
    t.ask(run, PullerRequest::Pull(pull));
    Some(run)
}

/// As a guest that takes no notice of errors.
fn run_again() -> PullTaskResult {
    PullTaskResult::NextRun { after: None }
}

#[test]
fn runs_of_pull_tasks_ask_seldom_where_nobody_lets_us_in_and_all_come_when_somebody_does() {
    let mut t = with_pull_tasks(10);
    t.does("the connection is lost", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    let mut requests = 0;
    for _ in 0..600 {
        while let Some(run) = next_run_pulls(&mut t) {
            t.run_result(run, run_again());
        }
        requests += refuse(&mut t, 1);
    }
    assert!((15..=50).contains(&requests), "{requests} in ten minutes");

    t.forget_transcript();
    t.wait(seconds(31));
    t.settle_but(&["PullMessage"]);
    t.wait(seconds(1));
    assert!(
        t.transcript().contains("AccessGranted"),
        "{}",
        t.transcript()
    );
    for _ in 0..10 {
        let run = next_run_pulls(&mut t).expect("a run for each queue");
        let pull = format!("PullMessage {} ", t.run(run).message_queue);
        t.answer_found(&pull, &messages(0..1));
        t.run_result(run, run_again());
    }
}

#[test]
fn a_pull_task_that_may_not_pull_runs_with_growing_pauses_and_as_before_once_it_may() {
    // One that takes our heartbeats, and refuses the pulls.
    let mut t = with_pull_tasks(1);
    let mut pulls = 0;
    for _ in 0..300 {
        while let Some(run) = next_run_pulls(&mut t) {
            pulls += 1;
            t.answer("PullMessage T1", Err(wrong_secret()));
            t.run_result(run, run_again());
        }
        t.wait(seconds(1));
        t.settle_but(&["PullMessage T1"]);
    }
    assert!((10..=17).contains(&pulls), "{pulls} pulls in five minutes");

    t.wait(seconds(31));
    t.settle();
    for _ in 0..3 {
        let run = next_run_pulls(&mut t).expect("a run");
        t.answer_found("PullMessage T1", &messages(0..1));
        t.run_result(run, run_again());
        t.wait(GroupConfig::PULL_TASK_INTERVAL);
    }
}
