//! Offsets between a master and its slave, which has them from a while ago or not at all.

use super::*;
use crate::pull_task::PullerRequest;
use crate::request::{RequestError, Response};
use crate::testing::Cluster;

const T1: &str = "T1@broker-a:0";

/// `T1` on a broker with a slave.
fn beside_a_slave() -> Harness {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster
        .slaves
        .insert("broker-a".to_owned(), Cluster::address("broker-s"));
    t
}

fn of(broker: &str, what: &str) -> String {
    format!("{} {what}", Cluster::address(broker))
}

/// The master answers nothing for so long.
fn master_is_silent(t: &mut Harness, time: u64) {
    let of_master = of("broker-a", "");
    for _ in 0..time * 2 {
        t.settle_but(&["PullMessage", &of_master]);
        while t
            .open_requests()
            .iter()
            .any(|line| line.contains(&of_master))
        {
            t.answer(&of_master, Err(RequestError::Timeout));
        }
        t.wait(Duration::from_millis(500));
    }
}

/// Everybody in the routes answers for so long.
fn all_answer(t: &mut Harness, time: u64) {
    for _ in 0..time * 2 {
        t.settle_but(&["PullMessage"]);
        t.wait(Duration::from_millis(500));
    }
    t.settle_but(&["PullMessage"]);
}

#[test]
fn a_slave_without_an_offset_does_not_let_the_policy_decide() {
    let mut t = beside_a_slave();
    t.cluster.offsets.insert(queue(T1), (0, 500));
    t.subscribe(config(group("T1")));
    master_is_silent(&mut t, 5);
    let asked = of("broker-s", "QueryConsumerOffset T1");
    assert!(t.transcript().contains(&asked), "{}", t.transcript());
    let status = t.client.status(t.now());
    let reason = status.groups[0].explain(&queue(T1)).expect("read");
    let words = "its master, which has to say";
    assert!(reason.what.contains(words), "{reason}");
    // The group had committed 5 before.
    t.cluster.committed.insert(queue(T1), 5);
    all_answer(&mut t, 3);
    t.request("PullMessage T1@broker-a:0 from 5,");
    assert!(
        !t.transcript().contains("GetMaxOffset T1"),
        "{}",
        t.transcript()
    );
}

#[test]
fn what_a_slave_said_is_not_committed_over_what_the_master_has() {
    let mut t = beside_a_slave();
    t.cluster.committed.insert(queue(T1), 5);
    t.subscribe(config(group("T1")));
    master_is_silent(&mut t, 5);
    t.answer_found("PullMessage T1@broker-a:0 from 5,", &messages(5..7));
    t.result(1, success());
    master_is_silent(&mut t, 10);
    // It had more.
    t.cluster.committed.insert(queue(T1), 9);
    all_answer(&mut t, 12);
    let commits = t.take_commits().into_iter();
    let commits: Vec<_> = commits.filter(|(of, _)| *of == queue(T1)).collect();
    assert_eq!(commits, [], "{}", t.transcript());
    t.answer_found("PullMessage T1@broker-a:0 from 7,", &messages(7..12));
    t.result(2, success());
    all_answer(&mut t, 6);
    assert_eq!(t.cluster.committed[&queue(T1)], 12);
}

#[test]
fn what_a_slave_told_a_pull_task_is_not_committed_over_what_the_master_has() {
    let mut t = beside_a_slave();
    t.cluster.committed.insert(queue(T1), 5);
    let interval = GroupConfig::PULL_TASK_INTERVAL;
    t.subscribe(config(group("T1").pull_task_interval(interval)));
    master_is_silent(&mut t, 5);
    t.ask(1, PullerRequest::FetchConsumeOffset);
    master_is_silent(&mut t, 1);
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(7)));
    master_is_silent(&mut t, 10);
    // It had more.
    t.cluster.committed.insert(queue(T1), 9);
    all_answer(&mut t, 30);
    assert_eq!(t.cluster.committed[&queue(T1)], 9, "{}", t.transcript());
    // What the guest sets back on purpose is.
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(2)));
    all_answer(&mut t, 6);
    assert_eq!(t.cluster.committed[&queue(T1)], 2, "{}", t.transcript());
}

#[test]
fn a_queue_that_leaves_before_the_master_was_asked_looks_at_it_first() {
    let mut t = beside_a_slave();
    t.cluster.committed.insert(queue(T1), 5);
    let group = t.subscribe(config(group("T1")));
    master_is_silent(&mut t, 5);
    t.answer_found("PullMessage T1@broker-a:0 from 5,", &messages(5..7));
    t.result(1, success());
    t.cluster.committed.insert(queue(T1), 9);
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    all_answer(&mut t, 1);
    assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
    assert_eq!(t.cluster.committed[&queue(T1)], 9);
}

#[test]
fn the_last_commit_is_for_the_master() {
    let mut t = beside_a_slave();
    let group = pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    t.comment("it is silent for a moment: the slave is being told");
    let of_master = of("broker-a", "");
    t.wait(Duration::from_millis(4_900));
    let down = Err(RequestError::Timeout);
    t.does("master gone", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    t.answer(&of("broker-a", "HeartBeat"), down);
    t.wait(Duration::from_millis(200));
    let told = of("broker-s", "UpdateConsumerOffset T1@broker-a:0 to 3");
    t.request(&told);
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.settle_but(&["PullMessage", &of_master, &told]);
    t.answer(&told, Ok(Response::Done));
    t.answer(
        &of("broker-a", "UpdateConsumerOffset T1@broker-a:0 to 3"),
        Ok(Response::Done),
    );
    t.settle();
    assert!(
        !t.transcript().contains("CommitFailed"),
        "{}",
        t.transcript()
    );
}

#[test]
fn a_last_commit_that_only_a_slave_has_counts_as_failed() {
    let mut t = beside_a_slave();
    let group = pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.cluster.masters_gone.insert("broker-a".to_owned());
    t.wait(seconds(30));
    t.settle();
    t.result(1, success());
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.settle();
    assert!(
        t.transcript().contains("only a slave could be told"),
        "{}",
        t.transcript()
    );
    assert!(t.transcript().contains("GroupLeft"));
}

#[test]
fn a_slave_is_told_the_last_commit_that_its_master_does_not_take() {
    for others in [&[][..], &["10.0.0.8@1#zzz"]] {
        let mut t = beside_a_slave();
        // Ours is the first of two queues.
        t.topic("T1", &[("broker-a", 1 + others.len() as u32)]);
        let ids = [&[crate::testing::CLIENT_ID][..], others].concat();
        t.cluster.members = ids.into_iter().map(str::to_owned).collect();
        t.cluster.members.reverse();
        let ours = if others.is_empty() {
            T1
        } else {
            "T1@broker-a:1"
        };
        let group = pull_with(&mut t, group("T1"));
        t.wait(seconds(3));
        t.settle();
        t.answer_found(&format!("PullMessage {ours}"), &messages(0..3));
        t.result(1, success());
        t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
        let of_master = of("broker-a", "");
        for _ in 0..100 {
            if t.transcript().contains("GroupLeft") {
                break;
            }
            t.settle_but(&["PullMessage", &of_master]);
            let open = t.open_requests();
            let Some(line) = open.iter().find(|l| l.contains(&of_master)) else {
                break;
            };
            let number = format!("{} ", line.split(' ').next().expect("a number"));
            t.answer(&number, Err(RequestError::Timeout));
        }
        assert!(t.transcript().contains("GroupLeft"), "{}", t.transcript());
        let told = of("broker-s", &format!("UpdateConsumerOffset {ours} to 3"));
        assert!(t.transcript().contains(&told), "{}", t.transcript());
        assert!(
            t.transcript().contains("only a slave could be told"),
            "the master does not know it\n{}",
            t.transcript()
        );
    }
}

#[test]
fn a_reset_is_not_begun_before_a_master_has_stored_it() {
    let mut t = beside_a_slave();
    pull_with(&mut t, group("T1"));
    t.cluster.masters_gone.insert("broker-a".to_owned());
    t.wait(seconds(30));
    t.settle();
    t.reset_offsets("G1", "T1", &reset_to(2));
    all_answer(&mut t, 5);
    assert!(
        !t.transcript()
            .contains(&of("broker-s", "UpdateConsumerOffset"))
    );
    let begun = "PullMessage T1@broker-a:0 from 2,";
    assert!(!t.transcript().contains(begun), "{}", t.transcript());
    t.cluster.masters_gone.clear();
    all_answer(&mut t, 30);
    t.request(begun);
    assert_eq!(t.cluster.committed[&queue(T1)], 2);
}

#[test]
fn a_pull_task_hears_of_no_offset_from_the_master_alone() {
    use crate::pull_task::PullerRequest;
    let mut t = beside_a_slave();
    pull_with(
        &mut t,
        group("T1").pull_task_interval(GroupConfig::PULL_TASK_INTERVAL),
    );
    t.does("master gone", |client, now| {
        client.handle_disconnected(&Cluster::address("broker-a"), now);
    });
    t.answer(&of("broker-a", "HeartBeat"), Err(RequestError::Timeout));
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.answer(
        &of("broker-s", "QueryConsumerOffset"),
        Ok(Response::ConsumerOffset(None)),
    );
    assert!(
        t.transcript().contains("the run gets: error: the broker"),
        "{}",
        t.transcript()
    );
    t.wait(seconds(1));
    t.settle();
    t.ask(1, PullerRequest::FetchConsumeOffset);
    t.settle();
    assert!(t.transcript().contains("the run gets: ConsumeOffset(None)"));
}
