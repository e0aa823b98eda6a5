//! Calls that are held back because their listener keeps failing.

use super::*;
use crate::listener::Dispatch;
use crate::status::Cause;

fn held(pause: Duration) -> Dispatch {
    Dispatch::Held {
        pause,
        reason: "20 calls in a row failed, the last one: trap".into(),
    }
}

fn failed() -> ConsumeResult {
    let reason = "trap".into();
    ConsumeResult::Failed { reason }
}

#[test]
fn a_listener_that_keeps_failing_is_tried_with_one_message_at_a_time() {
    let builder = group("T1").consume_message_batch_max_size(2);
    let (mut t, id) = pulling(builder.consume_thread_max(2));
    t.answer_found("PullMessage T1", &messages(0..10));
    t.comment("two calls are under way when it asks for a pause: they end as they will");
    t.does("held for 1 s", |client, now| {
        client.handle_dispatch(id, held(seconds(1)), now);
    });
    t.result(1, failed());
    t.result(2, success());
    t.settle();
    t.comment("nothing is called, and nothing of what was fetched is sent back");
    assert_eq!(t.calls().count(), 0);
    t.wait(Duration::from_millis(900));
    assert_eq!(t.calls().count(), 0);
    t.comment("one message is tried, alone");
    t.wait(Duration::from_millis(100));
    t.comment("it fails, too: that is one attempt of one message");
    t.does("held for 2 s", |client, now| {
        client.handle_dispatch(id, held(seconds(2)), now);
    });
    t.result(3, failed());
    t.settle();
    t.wait(seconds(2));
    t.comment("it goes well: everything is called again");
    t.does("open", |client, now| {
        client.handle_dispatch(id, Dispatch::Open, now);
    });
    t.result(4, success());
    t.settle();
    check("hold", &t);
}

#[test]
fn held_calls_have_a_reason() {
    let (mut t, id) = pulling(
        group("T1")
            .consume_message_batch_max_size(2)
            .consume_thread_max(1),
    );
    t.answer_found("PullMessage T1", &messages(0..10));
    t.does("held", |client, now| {
        client.handle_dispatch(id, held(seconds(8)), now);
    });
    t.result(1, failed());
    t.settle();
    let now = t.now();
    let status = t.client.status(now);
    let group = &status.groups[0];
    let reason = &group.reasons[0];
    assert_eq!(reason.cause, Cause::ListenerFailing);
    assert!(reason.what.contains("the last one: trap"), "{reason}");
    let queue = group.explain(&queue("T1@broker-a:0")).expect("it is ours");
    assert_eq!(queue.cause, Cause::ListenerFailing, "{queue}");
}

#[test]
fn a_group_that_leaves_while_it_is_held_back_leaves() {
    let (mut t, id) = pulling(
        group("T1")
            .consume_message_batch_max_size(2)
            .consume_thread_max(1),
    );
    t.answer_found("PullMessage T1", &messages(0..10));
    t.does("held", |client, now| {
        client.handle_dispatch(id, held(seconds(60)), now);
    });
    t.result(1, ConsumeResult::NotFinished);
    t.does("unsubscribe", |client, now| {
        client.unsubscribe(id, now);
    });
    t.settle();
    t.wait(seconds(1));
    t.settle();
    let now = t.now();
    assert!(t.client.status(now).groups.is_empty(), "{}", t.transcript());
}
