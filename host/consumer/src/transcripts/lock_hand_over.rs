//! A lock from one client to the next: within a second of the end of the last call,
//! however the queue leaves.

use std::collections::BTreeMap;

use super::*;
use crate::listener::{ConsumeMode, OrderlyStatus};
use crate::request::{Request, Response};

const STEP: Duration = Duration::from_millis(10);
const OLD: &str = "10.0.0.1@1#old";
const NEXT: &str = "10.0.0.2@1#next";

/// What a broker holds for whom.
type Locks = BTreeMap<MessageQueue, &'static str>;

fn client(id: &'static str) -> Harness {
    let mut t = Harness::new(|config| config.client_id = id.to_owned());
    t.topic("T1", &[("broker-a", 1)]);
    t
}

/// Both clients answer what is due; locks are the broker's, which both see.
fn serve(t: &mut Harness, id: &'static str, locks: &mut Locks) {
    let of_locks = |line: &String| line.contains("LockBatch") || line.contains("UnlockBatch");
    loop {
        t.settle_but(&["PullMessage", "LockBatch", "UnlockBatch"]);
        let Some(line) = t.open_requests().into_iter().find(of_locks) else {
            return;
        };
        let number = format!("{} ", line.split(' ').next().expect("a number"));
        let response = match &t.request(&number).request {
            Request::LockBatch { queues, .. } => {
                let mut granted = queues.clone();
                granted.retain(|queue| *locks.entry(queue.clone()).or_insert(id) == id);
                Response::Locked(granted)
            }
            Request::UnlockBatch { queues, .. } => {
                locks.retain(|queue, holder| *holder != id || !queues.contains(queue));
                Response::Done
            }
            other => panic!("{other:?}"),
        };
        t.answer(&number, Ok(response));
    }
}

/// From the end of the old owner's call to the first pull of the next one.
fn hand_over(leave: impl FnOnce(&mut Harness, GroupId)) -> Duration {
    let mut locks = Locks::new();
    let (mut old, mut next) = (client(OLD), client(NEXT));
    let orderly = || group("T1").mode(ConsumeMode::Orderly { auto_commit: true });
    old.cluster.members = vec![OLD.to_owned()];
    let id = old.subscribe(config(orderly()));
    serve(&mut old, OLD, &mut locks);
    old.answer_found("PullMessage T1", &messages(0..1));
    next.cluster.members = vec![NEXT.to_owned()];
    leave(&mut old, id);
    next.subscribe(config(orderly()));
    let mut call_ended = None;
    for step in 0..2_000_u32 {
        serve(&mut old, OLD, &mut locks);
        serve(&mut next, NEXT, &mut locks);
        let now = STEP * step;
        // At a moment that fits nobody's timers.
        if step == 333 {
            assert!(
                !next.transcript().contains("PullMessage T1"),
                "a call is under way elsewhere\n{}",
                next.transcript()
            );
            old.result(1, ConsumeResult::Orderly(OrderlyStatus::Success));
            call_ended = Some(now);
        }
        if let Some(call_ended) = call_ended
            && next.transcript().contains("PullMessage T1")
        {
            let committed = old.cluster.committed.get(&queue("T1@broker-a:0"));
            assert_eq!(committed, Some(&1), "the last commit comes first");
            return now - call_ended;
        }
        old.wait(STEP);
        next.wait(STEP);
    }
    panic!("nobody has it\n{}\n{}", old.transcript(), next.transcript());
}

#[test]
fn a_lock_is_the_next_owners_within_a_second() {
    let revoked = hand_over(|old, _| {
        old.cluster.members = vec!["10.0.0.0@1#another".to_owned(), OLD.to_owned()];
        old.notify_members_changed("G1");
    });
    let unloaded = hand_over(|old, group| {
        old.does("unsubscribe", |client, now| client.unsubscribe(group, now));
    });
    let stopped = hand_over(|old, _| {
        old.does("stop", |client, now| client.stop(now));
    });
    for (how, after) in [
        ("revoked", revoked),
        ("unloaded", unloaded),
        ("stopped", stopped),
    ] {
        assert!(after <= seconds(1), "{how}: after {after:?}");
    }
}
