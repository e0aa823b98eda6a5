//! Why a queue is idle: made to happen, and the reason names exactly this.

use super::*;
use crate::listener::{ConsumeMode, OrderlyStatus};
use crate::request::{PullStatus, RequestError};
use crate::status::{Cause, Reason};
use crate::testing::{CLIENT_ID, refused};

const T1: &str = "T1@broker-a:0";

fn explain(t: &Harness, name: &str) -> Reason {
    let status = t.client.status(t.now());
    let reason = status.groups[0].explain(&queue(name));
    reason.expect("a topic of the group")
}

fn cause(t: &Harness) -> Cause {
    explain(t, T1).cause
}

fn unreachable() -> RequestError {
    RequestError::Unreachable {
        reason: "connection refused".to_owned(),
    }
}

#[test]
fn topics_and_name_servers() {
    let mut t = Harness::default();
    t.subscribe(config(group("T1")));
    assert_eq!(cause(&t), Cause::RouteUnknown, "not asked");
    t.answer("GetRouteInfo T1", Err(unreachable()));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::RouteUnknown);
    assert!(reason.what.contains("connection refused"), "{reason}");
    t.wait(seconds(1));
    t.settle();
    assert_eq!(cause(&t), Cause::TopicMissing);
    assert!(
        explain(&t, T1).next.contains("in 5s"),
        "{}",
        explain(&t, T1)
    );
    t.topic("T1", &[("broker-a", 0)]);
    t.wait(seconds(5));
    t.settle();
    assert_eq!(cause(&t), Cause::NoReadableQueue);
    t.topic("T1", &[("broker-a", 1)]);
    t.wait(seconds(30));
    t.settle();
    assert_eq!(explain(&t, "T1@broker-a:5").cause, Cause::NoSuchQueue);
    let status = t.client.status(t.now());
    assert!(status.groups[0].explain(&queue("T9@broker-a:0")).is_none());
}

#[test]
fn members_and_who_has_the_queue() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    t.subscribe(config(group("T1")));
    t.settle_but(&["HeartBeat"]);
    assert_eq!(cause(&t), Cause::MembersUnknown, "no heartbeat was taken");
    t.answer("HeartBeat", Err(unreachable()));
    assert_eq!(cause(&t), Cause::MembersUnknown);
    t.cluster.members = vec!["10.0.0.1@1#a".to_owned()];
    t.wait(seconds(1));
    t.settle();
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::MembersUnknown);
    assert!(reason.what.contains("not among the 1 members"), "{reason}");
    t.cluster.members.push(CLIENT_ID.to_owned());
    t.wait(seconds(1));
    t.settle();
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::OtherMember);
    assert!(reason.what.contains("10.0.0.1@1#a"), "{reason}");
    assert_eq!(explain(&t, "T1@broker-a:1").cause, Cause::Consuming);
    t.cluster.members.push("10.0.0.2@1#b".to_owned());
    t.cluster.members.push("10.0.0.3@1#c".to_owned());
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    let status = t.client.status(t.now());
    assert!(
        status.groups[0]
            .topics
            .iter()
            .all(|topic| topic.queues.is_empty())
    );
    let causes: Vec<_> = status.groups[0]
        .reasons
        .iter()
        .map(|reason| reason.cause)
        .collect();
    assert_eq!(causes, [Cause::MoreMembersThanQueues]);
    t.cluster.members.push(CLIENT_ID.to_owned());
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle();
    let status = t.client.status(t.now());
    assert_eq!(status.groups[0].reasons[0].cause, Cause::ClientIdClash);
}

#[test]
fn starts() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(group("T1")));
    t.settle_but(&["QueryConsumerOffset"]);
    assert_eq!(cause(&t), Cause::Starting);
    t.answer("QueryConsumerOffset T1", Err(refused(1, "disk is full")));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::StartFailed);
    assert!(reason.what.contains("disk is full"), "{reason}");
    assert!(reason.next.contains("in 1s"), "{reason}");
    t.wait(seconds(1));
    t.answer("QueryConsumerOffset T1", Err(RequestError::Timeout));
    assert_eq!(cause(&t), Cause::BrokerUnreachable);
}

#[test]
fn pulls_that_fail() {
    let (mut t, _) = pulling(group("T1"));
    assert_eq!(cause(&t), Cause::Consuming, "the first pull");
    t.skip(seconds(2));
    assert_eq!(cause(&t), Cause::CaughtUp, "the broker holds it");
    let cases = [
        (unreachable(), Cause::BrokerUnreachable),
        (RequestError::Timeout, Cause::BrokerUnreachable),
        (refused(25, "not latest"), Cause::SubscriptionNotKnown),
        (refused(24, "not exist"), Cause::SubscriptionNotKnown),
        (refused(16, "no permission"), Cause::PullRefused),
        (refused(215, "too much"), Cause::BrokerFlowControl),
    ];
    for (error, expected) in cases {
        // A refusal for who we are is asked about with growing pauses.
        let pause = if error.is_access_refused() { 20 } else { 2 };
        t.answer("PullMessage T1", Err(error));
        assert_eq!(cause(&t), expected);
        t.wait(seconds(pause));
    }
    t.answer_pull("PullMessage T1", PullStatus::NoNewMessage, 0);
    assert_eq!(cause(&t), Cause::CaughtUp);
}

#[test]
fn thresholds_and_what_holds_the_messages() {
    let over_count = group("T1").pull_threshold_for_queue(2);
    let (mut t, _) = pulling(over_count);
    t.answer_found("PullMessage T1", &messages(0..3));
    t.skip(seconds(40));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::PullThresholdForQueue);
    assert!(reason.what.contains("not answered for 40s"), "{reason}");

    let mut big = messages(0..3);
    for message in &mut big {
        message.body = vec![b'x'; 600 << 10];
    }
    let (mut t, _) = pulling(group("T1").pull_threshold_size_for_queue(1 << 20));
    t.answer_found("PullMessage T1", &big);
    assert_eq!(cause(&t), Cause::PullThresholdSizeForQueue);

    let (mut t, _) = pulling(group("T1").pull_threshold_for_topic(2));
    t.answer_found("PullMessage T1", &messages(0..3));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::PullThresholdForTopic);
    assert!(reason.what.contains("share of pull_threshold_for_topic"));

    let (mut t, _) = pulling(group("T1").pull_threshold_size_for_topic(1 << 20));
    t.answer_found("PullMessage T1", &big);
    assert_eq!(cause(&t), Cause::PullThresholdSizeForTopic);

    let (mut t, _) = pulling(group("T1").consume_concurrently_max_span(10));
    t.answer_found(
        "PullMessage T1",
        &[messages(0..1), messages(20..21)].concat(),
    );
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::ConsumeConcurrentlyMaxSpan);
    assert!(
        reason.what.contains("message 0 is not finished, and 20"),
        "{reason}"
    );

    let mut t = Harness::new(|config| config.buffer_bytes = 100);
    pull_with(&mut t, group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    assert_eq!(cause(&t), Cause::BufferBytes);
}

#[test]
fn listeners_and_permits() {
    let busy = group("T1")
        .consume_thread_max(1)
        .consume_message_batch_max_size(1);
    let (mut t, _) = pulling(busy);
    t.answer_found("PullMessage T1", &messages(0..3));
    t.skip(seconds(8));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::ConsumeThreadMax);
    assert!(reason.what.contains("the oldest for 8s"), "{reason}");

    let (mut t, _) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    assert_eq!(cause(&t), Cause::Consuming);
    t.skip(seconds(45));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::ListenerSlow);
    assert!(reason.next.contains("killed in 15s"), "{reason}");
    t.result(
        1,
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level: None }),
    );
    assert_eq!(cause(&t), Cause::SendingBack);
    for _ in 0..3 {
        t.answer("SendMessageBack", Err(unreachable()));
    }
    let is_open = |t: &Harness| {
        t.open_requests()
            .iter()
            .any(|line| line.contains("SendMessage"))
    };
    for _ in 0..30 {
        t.settle_but(&["SendMessage", "PullMessage", "HeartBeat"]);
        if is_open(&t) {
            t.answer("SendMessage", Err(refused(1, "no")));
        }
    }
    assert_eq!(cause(&t), Cause::SendBackFailed, "{}", t.transcript());

    let (mut t, _) = pulling(group("T1"));
    t.permits = 0;
    t.answer_found("PullMessage T1", &messages(0..3));
    assert_eq!(cause(&t), Cause::CallsMax);
}

#[test]
fn orderly_queues() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    let mode = ConsumeMode::Orderly { auto_commit: true };
    t.subscribe(config(group("T1").mode(mode)));
    t.settle_but(&["LockBatch"]);
    assert_eq!(cause(&t), Cause::WaitsForLock);
    t.settle();
    assert_eq!(cause(&t), Cause::Consuming);
    let status = t.client.status(t.now());
    let queue = &status.groups[0].topics[1].queues[0];
    assert!(queue.locked_for.is_some(), "{queue:?}");
    t.answer_found("PullMessage T1", &messages(0..3));
    let suspend = OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };
    t.result(1, ConsumeResult::Orderly(suspend));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::Suspended);
    assert!(
        reason.what.contains("message 0 has failed 1 times"),
        "{reason}"
    );
}

#[test]
fn pauses_and_the_end() {
    let (mut t, id) = pulling(group("T1"));
    t.answer_found("PullMessage T1", &messages(0..3));
    let scope = PauseScope::Topic("T1".into());
    let by = "user 1000: new disk".into();
    let pause = |t: &mut Harness, kind| {
        let paused = t.does("pause", |client, now| {
            client.pause(id, &scope, kind, &by, now)
        });
        paused.expect("paused");
    };
    pause(&mut t, PauseKind::Pause);
    t.skip(seconds(65));
    let reason = explain(&t, T1);
    assert_eq!(reason.cause, Cause::Paused);
    let told = "topic \"T1\" was asked to stop pulling by user 1000: new disk 1m 5s ago";
    assert!(reason.what.contains(told), "{reason}");
    assert!(reason.what.contains("3 fetched messages"), "{reason}");
    pause(&mut t, PauseKind::Drain);
    assert_eq!(cause(&t), Cause::Draining);
    t.result(1, success());
    t.settle();
    assert_eq!(cause(&t), Cause::Drained);
    let resumed = t.does("resume", |client, now| client.resume(id, &scope, now));
    resumed.expect("resumed");
    t.answer_found("PullMessage T1", &messages(3..4));
    t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
    assert_eq!(cause(&t), Cause::Stopping);
    let status = t.client.status(t.now());
    assert_eq!(status.groups[0].reasons[0].cause, Cause::Stopping);
}

#[test]
fn every_cause_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Cause::ALL.map(Cause::as_str).into();
    assert_eq!(names.len(), Cause::ALL.len());
}

#[test]
fn owners_of_other_queues_are_worked_out_within_one_bound_for_all_topics() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 300)]);
    t.topic("T2", &[("broker-a", 300)]);
    let others = (0..299).map(|number| format!("10.0.1.{number:03}@1#zzz"));
    t.cluster.members = others.chain([CLIENT_ID.to_owned()]).collect();
    let builder = group("T1").subscription(SubscriptionData::all("T2"));
    t.subscribe(config(builder));
    t.settle();
    let status = t.client.status(t.now());
    let known = status.groups[0]
        .topics
        .iter()
        .filter(|topic| !topic.is_retry);
    let known = known.map(|topic| topic.others.iter().filter(|o| o.owner.is_some()).count());
    assert_eq!(
        known.collect::<Vec<_>>(),
        [299, 0],
        "300 members times 300 queues, once"
    );
}
