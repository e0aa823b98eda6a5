//! Two hundred swaps in a row under load, for each kind of plugin, on two hosts of one
//! group: every message comes once, in its order, and nobody rebalances.
//!
//! The guests write down what they come to before they answer, so that a message that is
//! repeated stands there twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::Delivery;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";
/// Of both hosts together.
const SWAPS: usize = 200;
/// Messages of one `mqlet send`.
const BATCH: usize = 100;

/// One host of the two.
struct Member {
    folder: HostFolder,
    host: HostProcess,
    /// Lines of its log before the first swap.
    lines_before: usize,
}

fn manifest(kind: &str, component: &Path, setting: &str, more: &str) -> String {
    let from = match kind {
        "scheduled-pull" => "",
        _ => "consume_from_where = \"first_offset\"\n",
    };
    format!(
        "name = \"swapped\"\nlistener = {kind:?}\ncomponent = {component:?}\n{from}\
         consumer_group = \"swapped-group\"\n[[subscription]]\ntopic = \"swapped\"\n\
         [settings]\nnumber = {setting:?}\n{more}\n{ALL_LINES}\n"
    )
}

/// A member of the group, and the other revision it swaps to and fro with.
fn member(
    broker: &EmbeddedBroker,
    kind: &str,
    guest: &str,
    other: &str,
    more: &str,
) -> (Member, PathBuf) {
    let folder = HostFolder::new(broker.namesrv_addr(), "");
    let file = folder.path().join("plugins/swapped.toml");
    fs::write(&file, manifest(kind, &path(guest), "one", more)).expect("written");
    let second = folder.path().join("second.toml");
    fs::write(&second, manifest(kind, &path(other), "two", more)).expect("written");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    let member = Member {
        folder,
        host,
        lines_before: 0,
    };
    (member, second)
}

/// Bodies are numbers; each `mqlet send` goes to one queue, in order.
fn send(broker: &EmbeddedBroker, sent: &AtomicUsize) {
    let first = sent.fetch_add(BATCH, Ordering::Relaxed);
    broker.send("swapped", (first..first + BATCH).map(|n| n.to_string()));
}

fn all(members: &[Member]) -> Vec<Vec<Delivery>> {
    members.iter().map(|one| one.host.deliveries()).collect()
}

fn two_hundred_swaps(kind: &str, guest: &str, other: &str, more: &str) {
    let broker = EmbeddedBroker::start();
    let sent = AtomicUsize::new(0);
    send(&broker, &sent);
    let mut members = Vec::new();
    let mut seconds = Vec::new();
    for _ in 0..2 {
        let (member, second) = member(&broker, kind, guest, other, more);
        members.push(member);
        seconds.push(second);
    }
    // Both have queues before anything is swapped, and all there was is consumed.
    eventually("queues at both hosts", BOUND, || {
        let has_queues = |member: &Member| {
            let queues = member.folder.printed(&["queues", "--output", "json"]);
            let ours = |line: &&str| {
                line.contains("\"ours\":true") && line.contains("\"topic\":\"swapped\"")
            };
            queues.lines().filter(ours).count() == 2
        };
        members.iter().all(has_queues).then_some(())
    });
    eventually("the first messages", BOUND, || {
        let seen: usize = all(&members).iter().map(Vec::len).sum();
        (seen >= BATCH).then_some(())
    });
    let before: usize = all(&members).iter().map(Vec::len).sum();
    for member in &mut members {
        member.lines_before = member.host.lines().len();
    }

    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (broker, sent, is_over) = (&broker, &sent, &is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                send(broker, sent);
            }
        });
        let swapping: Vec<_> = members
            .iter()
            .zip(&seconds)
            .map(|(member, second)| {
                scope.spawn(move || {
                    for swap in 0..SWAPS / 2 {
                        // A new revision, cold, and back to the one before, warm.
                        if swap % 2 == 1 {
                            member.folder.printed(&["rollback", "swapped"]);
                            continue;
                        }
                        let text = manifest(kind, &path(other), &format!("{swap}"), more);
                        fs::write(second, text).expect("written");
                        let second = second.to_str().expect("UTF-8");
                        member.folder.printed(&["deploy", "swapped", second]);
                    }
                })
            })
            .collect();
        for swapping in swapping {
            swapping.join().expect("every swap is done");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let sent = sent.load(Ordering::Relaxed);
    eventually("every message", BOUND, || {
        let seen: usize = all(&members).iter().map(Vec::len).sum();
        (seen - before >= sent - BATCH).then_some(())
    });

    assert!(sent > SWAPS * 5, "{sent} messages are no load");
    // What was there before the group had settled may be repeated by that.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in all(&members).into_iter().flatten() {
        *counts.entry(delivery.body).or_default() += 1;
    }
    let lost = (0..sent)
        .filter(|n| !counts.contains_key(&n.to_string()))
        .count();
    let repeated = counts
        .iter()
        .filter(|(body, count)| **count > 1 && body.parse().is_ok_and(|n: usize| n >= BATCH))
        .count();
    assert_eq!((lost, repeated), (0, 0), "lost, repeated of {sent}");
    if kind != "concurrent" {
        for deliveries in all(&members) {
            assert_in_order(&deliveries);
        }
    }
    for member in &members {
        let lines = member.host.lines().split_off(member.lines_before);
        for bad in ["taken, ", "lost the lock", "killed", "dead letter"] {
            let found = lines.iter().find(|line| line.contains(bad));
            assert_eq!(found, None, "\"{bad}\" while swapping");
        }
    }
    for mut member in members {
        member.host.interrupt();
        assert_eq!(member.host.wait(BOUND).code(), Some(0), "an ordered end");
        let history = member
            .folder
            .printed(&["history", "--verify", "--output", "json"]);
        let switched = history
            .lines()
            .filter(|line| line.contains("\"what\":\"switched\""));
        assert_eq!(switched.count(), SWAPS / 2 + 1, "one entry a switch");
        assert!(
            !history
                .lines()
                .any(|line| line.contains("\"repeats\":") && !line.contains("\"repeats\":0,"))
        );
    }
}

/// The bodies of one batch went to one queue in their order.
fn assert_in_order(deliveries: &[Delivery]) {
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for delivery in deliveries {
        let number: usize = delivery.body.parse().expect("a number");
        if let Some(before) = last.insert(delivery.queue_id, number)
            && number >= BATCH
        {
            assert!(
                before < number,
                "{number} after {before} in {}",
                delivery.queue_id
            );
        }
    }
}

#[test]
fn two_hundred_swaps_of_a_concurrent_listener_lose_and_repeat_nothing() {
    two_hundred_swaps("concurrent", "ledger", "ledger", "");
}

#[test]
fn two_hundred_swaps_of_an_orderly_listener_keep_the_order_and_the_locks() {
    two_hundred_swaps("orderly", "orderly_as_told", "orderly_as_told", "");
}

#[test]
fn two_hundred_swaps_of_a_pull_task_lose_and_repeat_nothing() {
    let interval = "[consume]\npull_task_interval = \"20ms\"";
    two_hundred_swaps("scheduled-pull", "pull_as_told", "pull_as_told", interval);
}
