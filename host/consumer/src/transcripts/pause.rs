//! Pauses and drains of groups, topics and queues.

use super::*;
use crate::pause::PauseError;
use crate::request::{PullStatus, RequestError};
use crate::testing::CLIENT_ID;

/// `G1` pulls two queues of T1, one of T2 and its retry topic.
fn two_topics() -> (Harness, GroupId) {
    let mut t = Harness::default();
    t.topic("T2", &[("broker-a", 1)]);
    t.topic("T1", &[("broker-a", 2)]);
    let builder = group("T1").subscription(SubscriptionData::all("T2"));
    let id = pull_with(&mut t, builder);
    (t, id)
}

fn scoped(t: &mut Harness, id: GroupId, scope: &PauseScope, kind: PauseKind) {
    let what = format!("{kind:?} {scope}");
    let by = "somebody".into();
    let done = t.does(&what, |client, now| client.pause(id, scope, kind, &by, now));
    done.expect("something to pause");
}

fn resume_scope(t: &mut Harness, id: GroupId, scope: &PauseScope) {
    let what = format!("resume {scope}");
    let done = t.does(&what, |client, now| client.resume(id, scope, now));
    done.expect("something that is paused");
}

fn paused_queues(t: &Harness) -> Vec<String> {
    let status = t.client.status(t.now());
    let queues = status.groups[0]
        .topics
        .iter()
        .flat_map(|topic| &topic.queues);
    let paused = queues.filter(|queue| queue.reason.cause == crate::status::Cause::Paused);
    paused.map(|queue| queue.queue.to_string()).collect()
}

#[test]
fn a_queue_is_held_back_while_group_topic_or_queue_is_paused() {
    let (mut t, id) = two_topics();
    let of_queue = PauseScope::Queue(queue("T1@broker-a:0"));
    let of_topic = PauseScope::Topic("T1".into());
    scoped(&mut t, id, &of_queue, PauseKind::Pause);
    assert_eq!(paused_queues(&t), ["T1@broker-a:0"]);
    scoped(&mut t, id, &of_topic, PauseKind::Pause);
    assert_eq!(paused_queues(&t), ["T1@broker-a:0", "T1@broker-a:1"]);
    scoped(&mut t, id, &PauseScope::Group, PauseKind::Pause);
    assert_eq!(paused_queues(&t).len(), 4);
    for pull in ["PullMessage T1@broker-a:0", "PullMessage T1@broker-a:1"] {
        t.answer_pull(pull, PullStatus::NoNewMessage, 0);
    }
    t.comment("the topic is still paused, and its first queue also by itself");
    resume_scope(&mut t, id, &PauseScope::Group);
    assert_eq!(paused_queues(&t), ["T1@broker-a:0", "T1@broker-a:1"]);
    resume_scope(&mut t, id, &of_topic);
    assert_eq!(paused_queues(&t), ["T1@broker-a:0"]);
    resume_scope(&mut t, id, &of_queue);
    assert!(paused_queues(&t).is_empty());
    check("pause_nested", &t);
}

#[test]
fn pauses_of_groups_and_topics_outlive_a_rebalance_and_those_of_queues_do_not() {
    let (mut t, id) = two_topics();
    let of_queue = PauseScope::Queue(queue("T1@broker-a:1"));
    let of_topic = PauseScope::Topic("T2".into());
    scoped(&mut t, id, &of_queue, PauseKind::Pause);
    scoped(&mut t, id, &of_topic, PauseKind::Pause);
    t.cluster.members = vec![CLIENT_ID.to_owned(), "9.9.9.9@1#zzz".to_owned()];
    t.forget_transcript();
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    assert_eq!(paused_queues(&t), ["T2@broker-a:0"]);
    check("pause_rebalance", &t);
}

#[test]
fn a_drain_ends_when_everything_is_finished_and_stored() {
    let (mut t, group) = pulling(group("T1").consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1", &messages(0..3));
    scoped(&mut t, group, &PauseScope::Group, PauseKind::Drain);
    t.comment("what comes now is not kept");
    t.answer_found("PullMessage T1", &messages(3..4));
    t.result(1, success());
    t.result(3, success());
    let later = ConcurrentlyStatus::ReconsumeLater { delay_level: None };
    t.result(2, ConsumeResult::Concurrently(later));
    t.comment("the last one is on its way back");
    t.settle();
    let status = t.client.status(t.now());
    assert!(status.groups[0].pauses[0].drained, "{status:?}");
    t.comment("and comes when the drain is over");
    resume_scope(&mut t, group, &PauseScope::Group);
    check("pause_drain", &t);
}

#[test]
fn a_drain_waits_for_a_commit_that_fails_without_hammering_the_broker() {
    let (mut t, group) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    scoped(
        &mut t,
        group,
        &PauseScope::Topic("T1".into()),
        PauseKind::Drain,
    );
    t.answer_pull("PullMessage T1", PullStatus::NoNewMessage, 3);
    t.result(1, success());
    t.answer("UpdateConsumerOffset", Err(RequestError::Timeout));
    let open = t.open_requests();
    assert!(
        open.iter()
            .all(|line| !line.contains("UpdateConsumerOffset")),
        "{open:?}"
    );
    t.wait(seconds(5));
    t.settle();
    t.comment("the first commit may still be on its way for a moment");
    t.wait(seconds(1));
    t.settle();
    assert!(t.client.status(t.now()).groups[0].pauses[0].drained);
}

#[test]
fn what_is_not_there_cannot_be_paused() {
    let (mut t, id) = two_topics();
    let by = "somebody".into();
    let now = t.now();
    let mut pause = |scope| t.client.pause(id, &scope, PauseKind::Pause, &by, now);
    let topic = PauseScope::Topic("T3".into());
    assert!(matches!(
        pause(topic),
        Err(PauseError::NotSubscribed { .. })
    ));
    let other = PauseScope::Queue(queue("T1@broker-a:7"));
    assert!(matches!(pause(other), Err(PauseError::NotHeld { .. })));
    let resumed = t.client.resume(id, &PauseScope::Group, now);
    assert!(matches!(resumed, Err(PauseError::NotPaused { .. })));
    t.client.unsubscribe(id, now);
    let left = t
        .client
        .pause(id, &PauseScope::Group, PauseKind::Pause, &by, now);
    assert_eq!(left, Err(PauseError::Leaving));
}

fn drain(t: &mut Harness, id: GroupId) {
    scoped(t, id, &PauseScope::Group, PauseKind::Drain);
}

fn is_drained(t: &Harness) -> bool {
    t.transcript().contains("Drained {")
}

#[test]
fn a_drain_waits_for_the_last_commit_of_a_queue_that_is_given_back() {
    let (mut t, id) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.result(1, success());
    let others = vec!["10.0.0.8@1#zzz".to_owned(), CLIENT_ID.to_owned()];
    t.cluster.members = others;
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    let but = ["PullMessage", "UpdateConsumerOffset", "QueryConsumerOffset"];
    t.settle_but(&but);
    drain(&mut t, id);
    assert!(!is_drained(&t), "{}", t.transcript());
    t.settle_but(&["PullMessage"]);
    assert!(is_drained(&t), "{}", t.transcript());
}

#[test]
fn a_drain_waits_for_a_call_whose_assignment_has_ended() {
    for scope in [PauseScope::Group, PauseScope::Topic("T1".into())] {
        let (mut t, id) = pulling(group("T1"));
        t.answer_found("PullMessage T1", &messages(0..3));
        t.reset_offsets("G1", "T1", &reset_to(1));
        scoped(&mut t, id, &scope, PauseKind::Drain);
        t.settle();
        t.wait(seconds(2));
        t.settle();
        assert!(!is_drained(&t), "{}", t.transcript());
        t.result(1, success());
        assert!(is_drained(&t), "{}", t.transcript());
    }
}

#[test]
fn a_drain_does_not_wait_for_a_queue_that_cannot_begin() {
    use crate::listener::ConsumeMode;
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.locked_by_others.insert(queue("T1@broker-a:0"));
    let mode = ConsumeMode::Orderly { auto_commit: true };
    let id = t.subscribe(config(group("T1").mode(mode)));
    t.settle();
    t.comment("another client has its lock, and nothing of it was fetched");
    drain(&mut t, id);
    t.settle_but(&["PullMessage"]);
    assert!(is_drained(&t), "{}", t.transcript());
    t.comment("it is not pulled when it can begin");
    t.cluster.locked_by_others.clear();
    t.wait(seconds(1));
    t.settle();
    let pulls = t.open_requests();
    let of_it = |line: &String| line.contains("PullMessage T1");
    assert!(!pulls.iter().any(of_it), "{pulls:?}");
}

#[test]
fn a_drain_waits_until_an_operators_word_is_stored() {
    let (mut t, id) = pulling(group("T1"));
    t.reset_offsets("G1", "T1", &reset_to(1));
    drain(&mut t, id);
    t.answer("UpdateConsumerOffset T1", Err(RequestError::Timeout));
    assert!(!is_drained(&t), "{}", t.transcript());
    t.wait(seconds(1));
    t.settle();
    assert!(is_drained(&t), "{}", t.transcript());
}
