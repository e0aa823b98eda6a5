//! Fresh messages and retries beside each other, full queues of both.

use super::*;
use crate::listener::ConsumeRequest;
use crate::status::Cause;

const FRESH_QUEUES: u32 = 3;

/// A group with so many calls of one message, and all queues full.
fn full(calls: u32) -> Harness {
    let mut t = Harness::default();
    t.topic("T1", &[("broker-a", FRESH_QUEUES)]);
    let group = group("T1")
        .consume_message_batch_max_size(1)
        .consume_thread_max(calls);
    pull_with(&mut t, group);
    t.permits = 0;
    for queue in 0..FRESH_QUEUES {
        let pull = format!("PullMessage T1@broker-a:{queue} ");
        t.answer_found(&pull, &messages(0..60));
    }
    let retries: Vec<TestMessage> = (0..60)
        .map(|offset| TestMessage::new("%RETRY%G1", offset).property("RETRY_TOPIC", "T1"))
        .collect();
    t.answer_found("PullMessage %RETRY%G1", &retries);
    t.permits = usize::MAX;
    // Calls are handed out.
    t.wait(Duration::from_millis(1));
    t.does("look", |_, _| ());
    t
}

/// Not a short call: several of those would be handed over together.
fn end(t: &mut Harness, call: usize) {
    t.skip(Duration::from_millis(1));
    t.result(call, success());
}

fn is_retry(request: &ConsumeRequest) -> bool {
    request.message_queue.topic.starts_with("%RETRY%")
}

#[test]
fn retries_have_a_turn_after_each_of_the_fresh_queues() {
    // Few enough, so that nobody has run out of messages.
    const TURNS: usize = 90;
    // Retries have one of four turns, and one of the calls at any time: with two calls that
    // is more than half, with twenty next to nothing beside their turns.
    for (calls, expected) in [(1, 22..=23), (2, 46..=56), (5, 24..=32), (20, 19..=26)] {
        let mut t = full(calls);
        let mut random = fastrand::Rng::with_seed(u64::from(calls));
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            let under_way: Vec<_> = t.numbered_calls().collect();
            let (number, request) = &under_way[random.usize(..under_way.len())];
            turns.push(is_retry(request));
            end(&mut t, *number);
        }
        let count = |turns: &[bool]| turns.iter().filter(|&&is_retry| is_retry).count();
        let retries = count(&turns);
        assert!(
            expected.contains(&retries),
            "{calls} calls: {retries} of {TURNS}"
        );
        if calls == 1 {
            // They begin in the order in which they end.
            let mut rounds = turns.windows(FRESH_QUEUES as usize + 1);
            assert!(rounds.all(|round| count(round) == 1), "{turns:?}");
        }
    }
}

#[test]
fn retries_that_hang_leave_calls_to_fresh_messages() {
    let mut t = full(4);
    // When no retry ends, every fresh message is consumed all the same.
    let mut consumed = 0;
    loop {
        let mut calls = t.numbered_calls();
        let Some((number, _)) = calls.find(|(_, request)| !is_retry(request)) else {
            break;
        };
        drop(calls);
        end(&mut t, number);
        consumed += 1;
        let fresh = t.calls().filter(|request| !is_retry(request)).count();
        let left = consumed < 60 * FRESH_QUEUES as usize - 4;
        assert!(!left || fresh >= 2, "{fresh} of 4 calls after {consumed}");
    }
    assert_eq!(consumed, 60 * FRESH_QUEUES as usize);
    // Then they have all calls but one, and whoever looks is told so;
    assert_eq!(t.calls().count(), 3);
    let status = t.client.status(t.now());
    let mut topics = status.groups[0].topics.iter();
    let retry = topics.find(|topic| topic.is_retry).expect("a retry topic");
    assert_eq!(retry.queues[0].reason.cause, Cause::ConsumeThreadMax);
    // a fresh message does not wait.
    t.answer_found("PullMessage T1@broker-a:0", &messages(60..61));
    assert_eq!(t.calls().count(), 4);
}

#[test]
fn fresh_messages_that_hang_leave_a_call_to_retries() {
    let mut t = full(4);
    let mut consumed = 0;
    loop {
        let mut calls = t.numbered_calls();
        let Some((number, _)) = calls.find(|(_, request)| is_retry(request)) else {
            break;
        };
        drop(calls);
        end(&mut t, number);
        consumed += 1;
    }
    assert_eq!(consumed, 60, "{}", t.transcript());
}
