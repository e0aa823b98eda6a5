//! Situations that people met with other clients (`host/docs/field-reports.md`), where a
//! count says more than a transcript.

use super::*;
use crate::request::RequestError;
use crate::testing::CLIENT_ID;

/// How many lines of the transcript have all of these parts.
fn lines(t: &Harness, parts: &[&str]) -> usize {
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    t.transcript().lines().filter(has_all).count()
}

/// Lets time pass; whatever names one of `silent` is never answered.
fn pass(t: &mut Harness, time: u64, silent: &[&str]) {
    for _ in 0..time {
        t.wait(seconds(1));
        t.settle_but(silent);
    }
}

#[test]
fn a_broker_that_does_not_answer_delays_nothing_of_another() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1), ("broker-b", 1)]);
    pull_with(&mut t, group("T1"));
    // broker-a falls silent for a minute and a half; messages come from broker-b.
    let silent = ["-> 10.0.0.1:10911"];
    for round in 0..9 {
        t.answer_found("PullMessage T1@broker-b:0", &messages(round..round + 1));
        let call = usize::try_from(round).unwrap_or(0) + 1;
        t.result(call, success());
        pass(&mut t, 10, &silent);
    }
    let of_b = |what: &str| lines(&t, &["#", "-> 10.0.0.2:10911", what]);
    assert!(of_b("HeartBeat") >= 3, "{}", t.transcript());
    assert!(of_b("PullMessage T1@broker-b:0") >= 9);
    assert!(of_b("UpdateConsumerOffset") >= 9);
    let routes = lines(&t, &["-> 10.0.1.1", "GetRouteInfo T1"]);
    assert_eq!(routes, 3, "every 30 s");
}

#[test]
fn a_cluster_that_is_gone_is_asked_gently_and_told_of_once() {
    let (mut t, _) = pulling(group("T1"));
    let down = || {
        Err(RequestError::Unreachable {
            reason: "connection refused".to_owned(),
        })
    };
    for _ in 0..60 {
        while let Some(line) = t.open_requests().first().cloned() {
            let number = line.split_whitespace().next().map(str::to_owned);
            t.answer(&format!("{} ", number.unwrap_or_default()), down());
        }
        t.wait(seconds(1));
    }
    // Two queues, one heartbeat and a route or two, once a second each.
    let asked = lines(&t, &["  #", " -> "]);
    assert!(asked < 60 * 6, "{asked} requests in a minute");
    assert_eq!(lines(&t, &["PullFailed", "T1@broker-a:0"]), 1);
    assert_eq!(lines(&t, &["HeartbeatFailed"]), 1);
    assert_eq!(lines(&t, &["NameServerFailed"]), 1);
}

#[test]
fn an_answer_to_a_pull_of_an_earlier_assignment_moves_nothing() {
    // Given a pull under way whose queue goes to another member and comes back.
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    pull_with(&mut t, group("T1"));
    let (_, old) = t.take_request("PullMessage T1@broker-a:0");
    for members in [&["10.0.0.0@1#a", CLIENT_ID][..], &[CLIENT_ID][..]] {
        t.cluster.members = members.iter().map(ToString::to_string).collect();
        t.notify_members_changed("G1");
        t.wait(seconds(1));
        t.settle();
    }
    t.take_commits();
    // When the answer to the old pull comes, with messages that somebody else has.
    let batch = crate::testing::batch(&messages(0..9));
    t.does("the old answer", |client, now| {
        client.handle_response(old.id, Ok(crate::testing::found(&batch, 9)), now);
    });
    t.wait(seconds(10));
    // Then nothing is delivered, skipped or committed because of it.
    assert_eq!(t.calls().count(), 0);
    assert_eq!(t.take_commits(), []);
    let pull = t.open_requests().join("\n");
    assert!(pull.contains("PullMessage T1@broker-a:0 from 0"), "{pull}");
}

#[test]
fn what_is_finished_and_not_yet_committed_survives_a_rebalance() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..3));
    t.result(1, success());
    t.take_commits();
    for _ in 0..3 {
        t.notify_members_changed("G1");
        t.wait(seconds(1));
        t.settle();
    }
    t.wait(seconds(3));
    let commits = t.take_commits();
    assert!(
        commits.contains(&(queue("T1@broker-a:0"), 3)),
        "{commits:?}\n{}",
        t.transcript()
    );
}

#[test]
fn a_broker_that_lost_commits_hears_with_every_pull_how_far_we_are() {
    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..3));
    t.result(1, success());
    t.wait(seconds(6));
    t.settle();
    t.take_commits();
    // The broker restarts with an older table of offsets; nothing new is consumed.
    t.cluster.committed.insert(queue("T1@broker-a:0"), 1);
    t.answer_pull(
        "PullMessage T1@broker-a:0",
        crate::request::PullStatus::NoNewMessage,
        3,
    );
    assert_eq!(t.take_commits(), [(queue("T1@broker-a:0"), 3)]);
    assert_eq!(t.calls().count(), 0, "nothing is consumed again");
}

#[test]
fn retries_and_fresh_messages_take_turns() {
    let (mut t, _) = pulling(group("T1").consume_message_batch_max_size(1));
    t.permits = 1;
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..40));
    let retries: Vec<TestMessage> = (0..40)
        .map(|offset| TestMessage::new("%RETRY%G1", offset).property("RETRY_TOPIC", "T1"))
        .collect();
    t.answer_found("PullMessage %RETRY%G1", &retries);
    let mut turns = Vec::new();
    loop {
        let next = t.numbered_calls().next();
        let Some((number, request)) = next else {
            break;
        };
        turns.push(request.message_queue.topic.starts_with("%RETRY%"));
        t.result(number, success());
    }
    // Each has had its turn long before the other has no more.
    let first = &turns[..3];
    assert!(first.contains(&true) && first.contains(&false), "{turns:?}");
}

#[test]
fn another_client_with_our_id_is_told_of() {
    let (mut t, _) = pulling(group("T1"));
    t.cluster.members = vec![CLIENT_ID.to_owned(), CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    let status = t.client.status(t.now());
    let reasons = format!("{:?}", status.groups[0].reasons);
    assert!(reasons.contains("ClientIdClash"), "{reasons}");
}

#[test]
fn a_member_with_two_connections_is_one_member() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 8)]);
    let other = format!("{CLIENT_ID}-other");
    t.cluster.members = [CLIENT_ID, CLIENT_ID, &other].map(str::to_owned).to_vec();
    t.subscribe(config(group("T1")));
    t.settle_but(&["PullMessage"]);
    let status = t.client.status(t.now());
    let topics = &status.groups[0].topics;
    let topic = topics.iter().find(|topic| &*topic.topic == "T1");
    let held = topic.expect("subscribed").queues.len();
    assert_eq!(
        held, 4,
        "half of the queues, and the other half is the other's"
    );
}

#[test]
fn a_thousand_groups_that_came_and_went_leave_nothing_behind() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    for round in 0..1000 {
        let id = t.subscribe(config(group("T1")));
        t.settle();
        if round % 3 == 0 {
            t.wait(seconds(1));
            t.settle();
        }
        t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
        t.settle();
        while let Some(line) = t.open_requests().into_iter().find(|r| r.contains("Pull")) {
            let number = line.split_whitespace().next().unwrap_or_default();
            let (_, open) = t.take_request(&format!("{number} "));
            t.does("too late", |client, now| {
                client.handle_response(open.id, Err(RequestError::Timeout), now);
            });
        }
        t.forget_transcript();
    }
    t.wait(seconds(31));
    t.settle();
    let client = &t.client;
    assert_eq!(client.groups.len(), 0);
    assert_eq!(client.queues.len(), 0);
    assert_eq!(client.releases.len(), 0);
    assert_eq!(client.in_flight.len(), 0, "{:?}", t.open_requests());
    assert!(client.changed_offsets.is_empty() && !client.memory.is_anybody_waiting());
    assert_eq!(client.memory.held_bytes(), 0);
    assert!(
        client.ready_groups.len() < 10,
        "{}",
        client.ready_groups.len()
    );
}
