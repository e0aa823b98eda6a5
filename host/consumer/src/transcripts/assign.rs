//! Queues given by hand, and queues that go on somewhere else.

use super::*;
use crate::assignment::{AssignError, QueueSelector};
use crate::request::RequestError;
use crate::testing::CLIENT_ID;
use crate::{SeekForward, SeekTo};

const PULL: &str = "PullMessage T1";

fn one_queue(id: u32) -> QueueSelector {
    QueueSelector {
        topic: "T1".into(),
        broker_name: Some("broker-a".into()),
        queue_id: Some(id),
    }
}

fn assigned(queues: Vec<QueueSelector>) -> GroupConfigBuilder {
    group("T1").assign(queues)
}

fn later() -> ConsumeResult {
    ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None })
}

#[test]
fn queues_given_by_hand_are_taken_without_asking_for_members() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2), ("broker-b", 1)]);
    // Whoever asked would be told that everything belongs to others.
    t.cluster.members = Vec::new();
    let group = t.subscribe(config(assigned(vec![one_queue(1)])));
    t.settle();
    t.comment("other queues, live: one more, then all of the topic but the first");
    let more = vec![one_queue(0), one_queue(1)];
    t.does("assign", |c, now| c.assign(group, more, now))
        .expect("assigned");
    t.settle();
    t.answer_found("PullMessage T1@broker-a:0", &messages(0..2));
    t.result(1, success());
    let other = QueueSelector {
        topic: "T1".into(),
        broker_name: Some("broker-b".into()),
        queue_id: None,
    };
    let queues = vec![one_queue(1), other];
    t.does("assign", |c, now| c.assign(group, queues, now))
        .expect("assigned");
    t.settle();
    t.comment("a member that comes or goes changes nothing");
    t.notify_members_changed("G1");
    t.wait(seconds(21));
    t.settle();
    t.comment("the end commits to the group");
    t.answer_found("PullMessage T1@broker-b:0", &messages(0..2));
    t.result(2, success());
    t.does("stop", |client, now| client.stop(now));
    t.settle();
    assert!(!t.transcript().contains("GetConsumerListByGroup"));
    check("assign", &t);
}

#[test]
fn a_group_that_divides_its_queues_is_given_none_by_hand() {
    let (mut t, group) = pulling(super::group("T1"));
    let refused = t.does("assign", |client, now| {
        client.assign(group, vec![one_queue(0)], now)
    });
    assert!(matches!(refused, Err(AssignError::Divided { .. })));
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let group = t.subscribe(config(assigned(vec![QueueSelector::topic("T1")])));
    let refused = t.does("assign", |client, now| {
        client.assign(group, vec![QueueSelector::topic("T2")], now)
    });
    assert!(matches!(refused, Err(AssignError::NotSubscribed { .. })));
}

#[test]
fn a_failed_message_waits_here_and_its_last_attempt_makes_a_dead_letter() {
    let (mut t, _) = pulling(assigned(vec![QueueSelector::topic("T1")]).max_reconsume_times(1));
    t.answer_found(PULL, &messages(0..1));
    t.result(1, later());
    t.wait(seconds(5));
    t.result(2, later());
    t.settle();
    t.wait(seconds(5));
    check("assign_retry", &t);
}

#[test]
fn a_queue_that_seeks_drops_what_it_had_and_its_calls_commit_nothing() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.committed.insert(queue("T1@broker-a:0"), 50);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (3, 200));
    let group = pull_with(&mut t, super::group("T1").consume_message_batch_max_size(2));
    t.answer_found(PULL, &messages(50..54));
    let here = queue("T1@broker-a:0");
    let seek = |t: &mut Harness, to| {
        t.does(&format!("seek {to:?}"), |client, now| {
            client.seek(group, &here, to, SeekForward::Skips, now)
        });
    };
    seek(&mut t, SeekTo::Offset(QueueOffset(10)));
    t.comment("the calls of before end without effect, the old pull's answer is thrown away");
    t.result(1, success());
    t.result(2, success());
    t.answer_found(PULL, &messages(54..56));
    t.wait(seconds(2));
    t.settle();
    t.answer_found(PULL, &messages(10..12));
    t.result(3, success());
    t.comment("to both ends and to a time; the broker is asked first");
    for to in [SeekTo::MinOffset, SeekTo::Timestamp(9), SeekTo::MaxOffset] {
        seek(&mut t, to);
        t.settle();
        t.wait(seconds(2));
        t.settle();
    }
    t.comment("a place that cannot be found out changes nothing");
    seek(&mut t, SeekTo::MinOffset);
    t.answer("GetMinOffset", Err(RequestError::Timeout));
    t.comment("a queue of somebody else is refused");
    let other = queue("T1@broker-a:9");
    t.does("seek another", |client, now| {
        client.seek(group, &other, SeekTo::MinOffset, SeekForward::Skips, now)
    });
    check("seek", &t);
}

#[test]
fn a_seek_skips_only_what_it_may() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.committed.insert(queue("T1@broker-a:0"), 50);
    t.cluster.offsets.insert(queue("T1@broker-a:0"), (3, 200));
    let group = pull_with(&mut t, super::group("T1"));
    let here = queue("T1@broker-a:0");
    let seek = |t: &mut Harness, to| {
        t.does(&format!("seek {to:?}, skip nothing"), |client, now| {
            client.seek(group, &here, to, SeekForward::Refused, now)
        });
    };
    t.comment("at once, and when the broker has said where it is");
    seek(&mut t, SeekTo::Offset(QueueOffset(51)));
    seek(&mut t, SeekTo::MaxOffset);
    t.settle();
    seek(&mut t, SeekTo::Offset(QueueOffset(50)));
    t.comment("nobody knows what a queue would skip that has not begun");
    seek(&mut t, SeekTo::Offset(QueueOffset(60)));
    t.wait(seconds(2));
    t.settle();
    seek(&mut t, SeekTo::MinOffset);
    t.settle();
    check("seek_forward", &t);
}

#[test]
fn a_pull_task_whose_queue_seeks_goes_on_there_with_its_next_run() {
    use crate::pull_task::{PullTaskResult, PullerRequest};
    let builder = super::group("T1").pull_task_interval(GroupConfig::PULL_TASK_INTERVAL);
    let (mut t, group) = pulling(builder);
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(8)));
    let here = queue("T1@broker-a:0");
    let to = SeekTo::Offset(QueueOffset(2));
    t.does("seek", |client, now| {
        client.seek(group, &here, to, SeekForward::Skips, now)
    });
    t.settle();
    t.comment("the run of before has no say any more");
    t.ask(1, PullerRequest::UpdateConsumeOffset(QueueOffset(9)));
    t.run_result(1, PullTaskResult::NextRun { after: None });
    t.ask(2, PullerRequest::FetchConsumeOffset);
    t.wait(seconds(5));
    t.settle();
    check("seek_pull_task", &t);
}

#[test]
fn the_answer_to_a_seek_does_not_bring_a_queue_back() {
    use crate::listener::{ConsumeMode, OrderlyStatus};
    let mode = ConsumeMode::Orderly { auto_commit: true };
    let (mut t, group) = pulling(super::group("T1").mode(mode));
    t.answer_found(PULL, &messages(0..1));
    let here = queue("T1@broker-a:0");
    for _ in 0..2 {
        t.does("seek", |client, now| {
            client.seek(group, &here, SeekTo::MaxOffset, SeekForward::Skips, now)
        });
    }
    t.comment("it is given back, and waits for its call");
    t.cluster.members = vec!["10.0.0.8@1#zzz".to_owned(), CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["PullMessage", "GetMaxOffset"]);
    let end = || Ok(crate::request::Response::Offset(QueueOffset(500)));
    t.answer("GetMaxOffset", end());
    t.result(1, ConsumeResult::Orderly(OrderlyStatus::Success));
    t.settle_but(&["PullMessage", "GetMaxOffset"]);
    t.comment("it is gone");
    t.answer("GetMaxOffset", end());
    t.settle_but(&["PullMessage"]);
    check("seek_given_back", &t);
    assert_eq!(t.cluster.committed[&here], 1);
    assert_eq!(t.transcript().matches("SeekFailed").count(), 2);
}

#[test]
fn a_place_is_stored_even_if_the_queue_leaves() {
    let (mut t, group) = pulling(super::group("T1"));
    let here = queue("T1@broker-a:0");
    let to = SeekTo::Offset(QueueOffset(7));
    t.does("seek", |client, now| {
        client.seek(group, &here, to, SeekForward::Skips, now)
    });
    t.answer("UpdateConsumerOffset T1", Err(RequestError::Timeout));
    t.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    t.settle();
    assert_eq!(t.cluster.committed[&here], 7);
}
