//! Queues that are consumed in order: locks, suspensions, attempts, the end.

use super::*;
use crate::listener::{ConsumeMode, OrderlyCall, OrderlyStatus};
use crate::request::{RequestError, Response};
use crate::status::Activity;
use crate::testing::{CLIENT_ID, refused};

fn orderly(auto_commit: bool) -> GroupConfigBuilder {
    group("T1").mode(ConsumeMode::Orderly { auto_commit })
}

fn answer(status: OrderlyStatus) -> ConsumeResult {
    ConsumeResult::Orderly(status)
}

fn done() -> ConsumeResult {
    answer(OrderlyStatus::Success)
}

fn suspend() -> ConsumeResult {
    suspend_for(None)
}

fn suspend_for(suspend: Option<Duration>) -> ConsumeResult {
    answer(OrderlyStatus::SuspendCurrentQueueAMoment { suspend })
}

/// A call ends, after too long a time for several to be handed over together.
fn ends(t: &mut Harness, call: usize, result: ConsumeResult) {
    t.skip(millis(1));
    t.result(call, result);
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn down() -> Result<Response, RequestError> {
    Err(RequestError::Unreachable {
        reason: "connection refused".to_owned(),
    })
}

fn activity(t: &Harness, queue_name: &str) -> Activity {
    let wanted = queue(queue_name);
    let status = t.client.status(t.now());
    let topics = status.groups.into_iter().flat_map(|group| group.topics);
    let mut queues = topics.flat_map(|topic| topic.queues);
    let found = queues.find(|status| status.queue == wanted);
    found.expect("a queue of ours").activity
}

/// Another member joins that gets `T1@broker-a:0`.
fn another_joins(t: &mut Harness) {
    t.cluster.members = vec!["10.0.0.8@1#zzz".to_owned(), CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
}

#[test]
fn queues_are_locked_before_anything_else_and_renewed_together() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2), ("broker-b", 1)]);
    t.subscribe(config(orderly(true)));
    t.settle_but(&["LockBatch"]);
    assert_eq!(
        activity(&t, "T1@broker-a:0"),
        Activity::WaitsForLock { obstacle: None }
    );
    t.comment("what is committed is asked under the lock");
    t.settle();
    t.comment("all locks of a broker are renewed together");
    t.shows_events = false;
    t.wait(seconds(20));
    t.settle();
    check("orderly_locks", &t);
}

#[test]
fn a_lock_that_is_refused_or_cannot_be_asked_for_is_asked_for_again() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.cluster.locked_by_others.insert(queue("T1@broker-a:0"));
    t.subscribe(config(orderly(true)));
    t.settle();
    t.comment("the other queue goes on; this one is asked for until it is free");
    t.wait(millis(500));
    t.answer("LockBatch T1@broker-a:0", down());
    t.wait(seconds(1));
    t.settle();
    let Activity::WaitsForLock { obstacle } = activity(&t, "T1@broker-a:0") else {
        panic!("it waits for its lock");
    };
    assert_eq!(obstacle.as_deref(), Some("another client has it"));
    t.cluster.locked_by_others.clear();
    t.wait(millis(500));
    t.settle();
    check("orderly_lock_refused", &t);
}

#[test]
fn a_lost_lock_drops_what_was_fetched_and_the_next_one_begins_with_what_is_committed() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(2));
    t.answer_found("PullMessage T1", &messages(0..6));
    ends(&mut t, 1, done());
    t.settle();
    t.comment("somebody else got it while our call runs");
    t.cluster.locked_by_others.insert(queue("T1@broker-a:0"));
    t.wait(seconds(20));
    t.settle_but(&["PullMessage"]);
    t.comment("what is committed has moved meanwhile; no call beside the one of before");
    t.cluster.committed.insert(queue("T1@broker-a:0"), 4);
    t.cluster.locked_by_others.clear();
    t.wait(millis(500));
    t.settle_but(&["PullMessage"]);
    t.answer_found("PullMessage T1@broker-a:0 from 4", &messages(4..6));
    t.comment("the late result moves nothing");
    ends(&mut t, 2, done());
    ends(&mut t, 3, done());
    check("orderly_lock_lost", &t);
}

#[test]
fn a_lock_ends_thirty_seconds_after_it_was_asked_for() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(2));
    t.answer_found("PullMessage T1", &messages(0..4));
    t.comment("no renewal is answered");
    t.wait(millis(29_900));
    ends(&mut t, 1, done());
    t.comment("time passes unnoticed: no call under a lock that has ended");
    t.skip(seconds(1));
    ends(&mut t, 2, done());
    assert_eq!(t.calls().count(), 0);
    t.settle_but(&["PullMessage"]);
    check("orderly_lock_expires", &t);
}

#[test]
fn a_failed_batch_stays_first_with_its_attempts_counted() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(2));
    t.answer_found("PullMessage T1", &messages(0..5));
    ends(&mut t, 1, suspend());
    t.comment("more messages come meanwhile; the batch comes again as it was");
    t.answer_found("PullMessage T1", &messages(5..6));
    t.wait(seconds(1));
    t.comment("a time of its own, within 10 ms and 30 s");
    ends(&mut t, 2, suspend_for(Some(Duration::ZERO)));
    t.wait(millis(10));
    ends(&mut t, 3, suspend_for(Some(seconds(600))));
    t.wait(seconds(20));
    t.settle_but(&["PullMessage"]);
    t.wait(millis(9_999));
    t.comment("now");
    t.wait(millis(1));
    t.comment("nothing happened: at once, and no attempt");
    ends(&mut t, 4, ConsumeResult::NotFinished);
    t.comment("an answer of the wrong kind is no answer");
    ends(&mut t, 5, success());
    t.wait(seconds(1));
    t.comment("a listener that broke is a suspension");
    let reason = "trap: unreachable".into();
    ends(&mut t, 6, ConsumeResult::Failed { reason });
    t.wait(seconds(1));
    ends(&mut t, 7, done());
    ends(&mut t, 8, done());
    check("orderly_suspend", &t);
}

#[test]
fn each_call_of_a_request_is_obeyed_as_if_it_were_a_request_of_its_own() {
    let calls = |statuses: &[(u32, OrderlyStatus)]| {
        let calls = statuses.iter().map(|(messages, status)| OrderlyCall {
            messages: *messages,
            status: status.clone(),
            reason: None,
        });
        ConsumeResult::OrderlyCalls(calls.collect())
    };
    let suspended = OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None };
    let builder = orderly(true).consume_message_batch_max_size(1);
    let (mut t, _) = pulling(builder.max_reconsume_times(1));
    t.answer_found("PullMessage T1", &messages(0..40));
    t.comment("a short call: the next ones are handed over together");
    t.result(1, done());
    t.comment("three went well, the fourth failed, the others were not reached");
    let success = OrderlyStatus::Success;
    t.result(2, calls(&[(3, success.clone()), (1, suspended.clone())]));
    t.wait(seconds(1));
    t.comment("it comes again alone, and is a dead letter then");
    t.result(3, calls(&[(1, suspended)]));
    t.settle_but(&["PullMessage"]);
    t.comment("more answers than messages");
    ends(&mut t, 4, calls(&[(100, success.clone()), (3, success)]));
    t.comment("with auto-commit off each commit counts");
    let (mut u, _) = pulling(orderly(false).consume_message_batch_max_size(4));
    u.answer_found("PullMessage T1", &messages(0..4));
    let commits = [
        (1, OrderlyStatus::Success),
        (1, OrderlyStatus::Commit),
        (1, OrderlyStatus::Success),
        (1, OrderlyStatus::Rollback),
    ];
    u.result(1, calls(&commits));
    u.wait(seconds(5));
    t.append(&u);
    check("orderly_calls", &t);
}

#[test]
fn a_dead_letter_of_a_batch_says_how_its_last_attempt_broke() {
    let builder = orderly(true).consume_message_batch_max_size(4);
    let (mut t, _) = pulling(builder.max_reconsume_times(0));
    t.answer_found("PullMessage T1", &messages(0..4));
    let done = OrderlyCall {
        messages: 1,
        status: OrderlyStatus::Success,
        reason: None,
    };
    let broke = OrderlyCall {
        messages: 1,
        status: OrderlyStatus::SuspendCurrentQueueAMoment { suspend: None },
        reason: Some("trap: unreachable".into()),
    };
    t.result(1, ConsumeResult::OrderlyCalls(vec![done, broke]));
    let told = "is reached; the last attempt: trap: unreachable";
    assert!(t.transcript().contains(told), "{}", t.transcript());
}

#[test]
fn a_blocked_queue_is_told_once_and_its_end_too() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1", &messages(0..2));
    t.shows_events = false;
    for call in 1..=15 {
        ends(&mut t, call, suspend());
        t.wait(seconds(1));
        t.settle_but(&["PullMessage"]);
    }
    t.forget_transcript();
    t.shows_events = true;
    ends(&mut t, 16, suspend());
    t.wait(seconds(1));
    ends(&mut t, 17, suspend());
    let Activity::Suspended {
        offset, attempts, ..
    } = activity(&t, "T1@broker-a:0")
    else {
        panic!("it is suspended");
    };
    assert_eq!((offset.0, attempts), (0, 17));
    t.wait(seconds(1));
    ends(&mut t, 18, done());
    check("orderly_blocked", &t);
}

#[test]
fn a_message_that_was_tried_often_enough_is_a_dead_letter_and_the_queue_goes_on() {
    let builder = orderly(true).consume_message_batch_max_size(2);
    let (mut t, _) = pulling(builder.max_reconsume_times(1));
    t.answer_found("PullMessage T1", &messages(0..4));
    ends(&mut t, 1, suspend());
    t.wait(seconds(1));
    t.comment("nothing comes before the broker has both");
    ends(&mut t, 2, suspend());
    t.answer("SendMessage %RETRY%G1", Ok(sent()));
    t.comment("one is not taken in any way: the queue stays where it is");
    for _ in 0..3 {
        t.answer("SendMessage %RETRY%G1", down());
    }
    t.answer("SendMessageBack", Err(refused(1, "disk full")));
    t.wait(seconds(5));
    t.comment("tried once more here, then the broker takes it");
    ends(&mut t, 3, suspend());
    t.settle_but(&["PullMessage"]);
    t.comment("then the next ones");
    ends(&mut t, 4, done());
    check("orderly_exhausted", &t);
}

fn sent() -> Response {
    Response::Sent(crate::request::SentMessage {
        msg_id: "OFFSETID".to_owned(),
        queue_id: 0,
        queue_offset: protocol::QueueOffset(0),
    })
}

#[test]
fn a_listener_that_commits_for_itself() {
    let (mut t, _) = pulling(orderly(false).consume_message_batch_max_size(2));
    t.answer_found("PullMessage T1", &messages(0..8));
    ends(&mut t, 1, done());
    t.comment("a success is not finished before the commit");
    t.wait(seconds(5));
    ends(&mut t, 2, answer(OrderlyStatus::Commit));
    t.wait(seconds(5));
    t.settle_but(&["PullMessage", "LockBatch"]);
    t.comment("a suspension puts its own batch back, a rollback all since the commit");
    ends(&mut t, 3, done());
    ends(&mut t, 4, suspend());
    t.wait(seconds(1));
    ends(&mut t, 5, answer(OrderlyStatus::Rollback));
    t.wait(seconds(1));
    ends(&mut t, 6, done());
    ends(&mut t, 7, answer(OrderlyStatus::Commit));
    t.wait(seconds(5));
    check("orderly_commit_and_rollback", &t);
}

#[test]
fn with_auto_commit_a_commit_or_rollback_is_a_success() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1", &messages(0..2));
    ends(&mut t, 1, answer(OrderlyStatus::Rollback));
    ends(&mut t, 2, answer(OrderlyStatus::Commit));
    check("orderly_status_without_meaning", &t);
}

#[test]
fn a_queue_that_is_given_back_waits_for_its_call_then_for_its_commit_then_is_unlocked() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1", &messages(0..3));
    ends(&mut t, 1, done());
    another_joins(&mut t);
    t.settle_but(&["PullMessage"]);
    t.comment("its lock is renewed as long as the call lasts");
    t.wait(seconds(20));
    t.settle_but(&["PullMessage"]);
    t.comment("it is ours again before it is unlocked: not before the broker has answered");
    t.cluster.members = vec![CLIENT_ID.to_owned()];
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    t.settle_but(&["PullMessage"]);
    ends(&mut t, 2, done());
    t.answer("UpdateConsumerOffset", Ok(Response::Done));
    t.wait(seconds(1));
    t.settle_but(&["PullMessage", "UnlockBatch"]);
    t.settle_but(&["PullMessage"]);
    t.wait(seconds(1));
    t.settle_but(&["PullMessage"]);
    check("orderly_give_back", &t);
}

#[test]
fn a_lock_that_is_being_asked_for_is_given_back_after_the_answer() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 1)]);
    t.subscribe(config(orderly(true)));
    t.settle_but(&["LockBatch"]);
    t.forget_transcript();
    t.does("stop", |client, now| client.stop(now));
    t.comment("the broker may have granted them all the same");
    t.answer("LockBatch", Err(RequestError::Timeout));
    t.comment("told three times at most");
    t.answer("UnlockBatch T1", Err(RequestError::Timeout));
    t.answer("UnlockBatch %RETRY%G1", Ok(Response::Done));
    t.wait(seconds(1));
    t.answer("UnlockBatch T1", Err(RequestError::Timeout));
    t.wait(seconds(1));
    t.answer("UnlockBatch T1", Err(RequestError::Timeout));
    t.settle();
    assert!(t.client.is_stopped(), "{}", t.transcript());
    check("orderly_stop_while_locking", &t);
}

#[test]
fn a_client_with_locks_stops_in_order() {
    let (mut t, _) = pulling(orderly(true).consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1", &messages(0..3));
    t.does("stop", |client, now| client.stop(now));
    t.comment("the call counts, the rest is anybody's");
    ends(&mut t, 1, done());
    t.settle();
    assert!(t.client.is_stopped(), "{}", t.transcript());
    t.wait(seconds(60));
    check("orderly_stop", &t);
}

#[test]
fn queues_take_turns_with_one_call_each() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 3)]);
    let builder = orderly(true).consume_message_batch_max_size(2);
    pull_with(&mut t, builder.consume_thread_max(2));
    for queue in 0..3 {
        t.answer_found(&format!("PullMessage T1@broker-a:{queue}"), &messages(0..6));
    }
    t.comment("a queue that is busy all the time does not keep the others waiting");
    for call in 1..=4 {
        ends(&mut t, call, done());
    }
    check("orderly_turns", &t);
}

#[test]
fn a_lock_is_given_back_though_the_queue_was_reset_since() {
    let (mut t, id) = pulling(orderly(true));
    t.answer_found("PullMessage T1", &messages(0..2));
    ends(&mut t, 1, done());
    t.answer_pull(
        "PullMessage T1",
        crate::request::PullStatus::NoNewMessage,
        2,
    );
    t.comment("a young pull carries an offset: the new assignment waits, without a lock yet");
    t.reset_offsets("G1", "T1", &reset_to(1));
    t.does("unsubscribe", |client, now| client.unsubscribe(id, now));
    t.settle();
    assert!(
        t.transcript().contains("UnlockBatch T1@broker-a:0"),
        "{}",
        t.transcript()
    );
}

#[test]
fn the_commit_before_a_reset_is_waited_for_though_the_lock_was_lost_since() {
    let (mut t, _) = pulling(orderly(true));
    t.answer_found("PullMessage T1", &messages(0..2));
    ends(&mut t, 1, done());
    t.wait(seconds(5));
    t.request("UpdateConsumerOffset T1@broker-a:0 to 2");
    t.reset_offsets("G1", "T1", &reset_to(1));
    let but = ["PullMessage", "UpdateConsumerOffset T1"];
    t.settle_but(&but);
    t.comment("the lock is lost before the old commit is answered");
    t.cluster.locked_by_others.insert(queue("T1@broker-a:0"));
    t.wait(seconds(20));
    t.settle_but(&but);
    assert!(
        t.transcript().contains("QueueLockLost"),
        "{}",
        t.transcript()
    );
    t.cluster.locked_by_others.clear();
    t.wait(seconds(1));
    t.settle_but(&but);
    let commits = |t: &Harness| {
        let open = t.open_requests();
        let commits = open.into_iter().filter(|line| line.contains(but[1]));
        commits.collect::<Vec<_>>()
    };
    assert_eq!(commits(&t).len(), 1, "{:?}", commits(&t));
    t.answer(
        "UpdateConsumerOffset T1@broker-a:0 to 2",
        Ok(Response::Done),
    );
    t.settle_but(&["PullMessage"]);
    t.request("PullMessage T1@broker-a:0 from 1,");
    assert_eq!(t.cluster.committed[&queue("T1@broker-a:0")], 1);
}

#[test]
fn a_queue_with_a_dead_letter_under_way_is_not_given_back_for_the_end_of_another() {
    let builder = orderly(true).consume_message_batch_max_size(1);
    let (mut t, _) = pulling(builder.max_reconsume_times(0));
    t.answer_found("PullMessage T1", &messages(0..1));
    let mut closed = messages(1..2);
    closed[0].wrong_compression = true;
    t.answer_found("PullMessage T1", &closed);
    ends(&mut t, 1, suspend());
    t.comment("of two dead letters the first has ended");
    t.answer("SendMessage %RETRY%G1", Ok(sent()));
    another_joins(&mut t);
    t.settle_but(&["PullMessage", "SendMessage"]);
    let unlocked = "UnlockBatch T1@broker-a:0";
    assert!(!t.transcript().contains(unlocked), "{}", t.transcript());
    t.answer("SendMessage %RETRY%G1", Ok(sent()));
    t.settle_but(&["PullMessage"]);
    assert!(t.transcript().contains(unlocked), "{}", t.transcript());
}

#[test]
fn an_unlock_that_failed_is_not_tried_again_whenever_a_call_ends() {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", 2)]);
    pull_with(&mut t, orderly(true).consume_message_batch_max_size(1));
    t.answer_found("PullMessage T1@broker-a:1", &messages(0..1));
    let others = ["10.0.0.7@1#zzz", "10.0.0.8@1#zzz"];
    t.cluster.members = others.map(str::to_owned).to_vec();
    t.cluster.members.push(CLIENT_ID.to_owned());
    t.notify_members_changed("G1");
    t.wait(seconds(1));
    let but = ["PullMessage", "UnlockBatch"];
    t.settle_but(&but);
    t.answer("UnlockBatch T1@broker-a:0", Err(RequestError::Timeout));
    ends(&mut t, 1, done());
    t.settle_but(&but);
    let again = |t: &Harness| {
        let open = t.open_requests();
        open.iter()
            .any(|line| line.contains("UnlockBatch T1@broker-a:0"))
    };
    assert!(!again(&t), "{}", t.transcript());
    t.wait(seconds(1));
    assert!(again(&t), "{}", t.transcript());
}
