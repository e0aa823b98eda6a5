//! Orderly listeners and pull tasks with the real binary: order, suspension, commit and
//! rollback, poison, attempts and dead letters; runs that go on whatever happens in them.
//!
//! The guests write down each message that they come to, with its queue.

use std::collections::BTreeMap;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

fn orderly(broker: &EmbeddedBroker, consume: &str) -> HostFolder {
    let more = format!("[consume]\nsuspend_current_queue_time = \"50ms\"\n{consume}\n{ALL_LINES}");
    HostFolder::new(broker.namesrv_addr(), "").with_plugin_of_kind(
        "orderly",
        "ordered",
        &path("orderly_as_told"),
        &more,
    )
}

fn pulling(broker: &EmbeddedBroker, consume: &str) -> HostFolder {
    let more = format!("[consume]\npull_task_interval = \"50ms\"\n{consume}\n{ALL_LINES}");
    HostFolder::new(broker.namesrv_addr(), "").with_plugin_of_kind(
        "scheduled-pull",
        "pulled",
        &path("pull_as_told"),
        &more,
    )
}

fn start(folder: &HostFolder) -> HostProcess {
    let mut host = folder.run(&["--log-level", "info"]);
    host.wait_for_line("serving 1 plugin", BOUND);
    host
}

fn stop(mut host: HostProcess) {
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
}

/// What was come to, by queue and in order: attempts before, and the body.
fn by_queue(host: &HostProcess) -> BTreeMap<u32, Vec<(u32, String)>> {
    let mut queues: BTreeMap<u32, Vec<(u32, String)>> = BTreeMap::new();
    for delivery in host.deliveries() {
        let queue = queues.entry(delivery.queue_id).or_default();
        queue.push((delivery.reconsume_times, delivery.body));
    }
    queues
}

/// Of the one queue that everything was sent to.
fn come_to(host: &HostProcess) -> Vec<(u32, String)> {
    let queues = by_queue(host);
    assert!(queues.len() <= 1, "one batch is one queue: {queues:?}");
    queues.into_values().next().unwrap_or_default()
}

fn wait_for(host: &HostProcess, body: &str) {
    eventually(&format!("{body} being come to"), BOUND, || {
        let deliveries = host.deliveries();
        deliveries.iter().any(|one| one.body == body).then_some(())
    });
}

fn told(entries: &[(u32, &str)]) -> Vec<(u32, String)> {
    let entries = entries.iter();
    entries
        .map(|(times, body)| (*times, (*body).to_owned()))
        .collect()
}

#[test]
fn every_queue_is_consumed_in_its_order_and_once() {
    let broker = EmbeddedBroker::start();
    let folder = orderly(&broker, "");
    let host = start(&folder);
    let rounds: Vec<Vec<String>> = (0..8)
        .map(|round| {
            (0..50)
                .map(|number| format!("{round:02}-{number:02}"))
                .collect()
        })
        .collect();

    for round in &rounds {
        broker.send("ordered", round);
    }

    eventually("every message", BOUND, || {
        (host.delivery_count() >= 400).then_some(())
    });
    let queues = by_queue(&host);
    let mut all = Vec::new();
    for (queue, messages) in &queues {
        let of_rounds: Vec<&String> = messages.iter().map(|(_, body)| body).collect();
        for round in 0..8 {
            let prefix = format!("{round:02}-");
            let of_round: Vec<_> = of_rounds
                .iter()
                .filter(|body| body.starts_with(&prefix))
                .collect();
            assert!(of_round.is_sorted(), "queue {queue}: {of_round:?}");
        }
        assert!(
            messages.iter().all(|(times, _)| *times == 0),
            "{messages:?}"
        );
        all.extend(of_rounds);
    }
    all.sort();
    assert_eq!(
        all,
        rounds.iter().flatten().collect::<Vec<_>>(),
        "each once"
    );
    stop(host);
}

#[test]
fn suspended_message_comes_again_before_those_behind_it() {
    let broker = EmbeddedBroker::start();
    broker.send("ordered", ["a", "suspend-until=3", "b", "c"]);
    let folder = orderly(&broker, "");
    let host = start(&folder);

    wait_for(&host, "c");

    let expected = [
        (0, "a"),
        (0, "suspend-until=3"),
        (1, "suspend-until=3"),
        (2, "suspend-until=3"),
        (3, "suspend-until=3"),
        (0, "b"),
        (0, "c"),
    ];
    assert_eq!(come_to(&host), told(&expected));
    stop(host);

    broker.send("ordered", ["after"]);
    let host = start(&folder);
    wait_for(&host, "after");
    assert_eq!(host.delivery_count(), 1, "what was done is not repeated");
    stop(host);
}

#[test]
fn poison_blocks_its_queue_until_its_attempts_are_used_up_and_no_order_is_lost() {
    let mut broker = EmbeddedBroker::start();
    broker.send("ordered", ["a", "trap", "b", "c"]);
    let folder = orderly(
        &broker,
        "max_reconsume_times = 2\nconsume_message_batch_max_size = 4",
    );
    let mut host = start(&folder);

    broker.process.wait_for_line("is a dead letter now", BOUND);
    wait_for(&host, "c");

    let seen = come_to(&host);
    let first_b = seen
        .iter()
        .position(|(_, body)| body == "b")
        .expect("after the poison");
    let poison: Vec<u32> = seen
        .iter()
        .filter(|(_, body)| body == "trap")
        .map(|(times, _)| *times)
        .collect();
    assert_eq!(poison.last(), Some(&2), "{seen:?}");
    assert!(
        seen[first_b..]
            .iter()
            .all(|(_, body)| body != "trap" && body != "a"),
        "{seen:?}"
    );
    // The batch, "a" and the poison alone; then batches that begin with the poison.
    assert_eq!(
        seen[..4],
        told(&[(0, "a"), (0, "trap"), (0, "a"), (0, "trap")])
    );
    assert_eq!(
        seen.iter().filter(|(_, body)| body == "a").count(),
        2,
        "{seen:?}"
    );
    host.wait_for_line("\"kind\":\"trap\"", BOUND);
    stop(host);
}

#[test]
fn rollback_brings_back_what_was_consumed_since_the_last_commit() {
    let broker = EmbeddedBroker::start();
    broker.send(
        "ordered",
        ["a", "commit", "b", "c", "rollback-once", "d", "commit=2"],
    );
    let folder = orderly(&broker, "auto_commit = false");
    let host = start(&folder);

    wait_for(&host, "commit=2");

    let seen = come_to(&host);
    let bodies: Vec<&str> = seen.iter().map(|(_, body)| body.as_str()).collect();
    let expected = [
        "a",
        "commit",
        "b",
        "c",
        "rollback-once",
        "b",
        "c",
        "rollback-once",
        "d",
        "commit=2",
    ];
    assert_eq!(bodies, expected);
    stop(host);

    broker.send("ordered", ["after", "commit=3"]);
    let host = start(&folder);
    wait_for(&host, "commit=3");
    let again: Vec<String> = host.deliveries().into_iter().map(|one| one.body).collect();
    assert!(
        !again.contains(&"d".to_owned()),
        "what was committed is done: {again:?}"
    );
    stop(host);
}

#[test]
fn uncommitted_messages_come_again_after_a_restart() {
    let broker = EmbeddedBroker::start();
    broker.send("ordered", ["a", "commit", "b", "c"]);
    let folder = orderly(&broker, "auto_commit = false");
    let host = start(&folder);
    wait_for(&host, "c");
    stop(host);

    let host = start(&folder);
    wait_for(&host, "c");
    let bodies: Vec<String> = host.deliveries().into_iter().map(|one| one.body).collect();
    assert_eq!(bodies, ["b", "c"], "\"a\" was committed");
    stop(host);
}

#[test]
fn pull_task_runs_for_every_queue_and_goes_on_where_it_was() {
    let broker = EmbeddedBroker::start();
    let folder = pulling(&broker, "");
    for round in 0..4 {
        let bodies: Vec<String> = (0..20)
            .map(|number| format!("{round}-{number:02}"))
            .collect();
        broker.send("pulled", bodies);
    }
    let host = start(&folder);

    eventually("every message", BOUND, || {
        (host.delivery_count() >= 80).then_some(())
    });
    let mut bodies: Vec<String> = host.deliveries().into_iter().map(|one| one.body).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 80);
    assert_eq!(host.delivery_count(), 80, "each once");
    broker.send("pulled", ["more"]);
    wait_for(&host, "more");
    stop(host);

    broker.send("pulled", ["after"]);
    let host = start(&folder);
    wait_for(&host, "after");
    assert_eq!(host.delivery_count(), 1, "its offset was kept");
    stop(host);
}

#[test]
fn errors_and_traps_delay_the_next_run_and_never_lose_it() {
    let broker = EmbeddedBroker::start();
    broker.send("pulled", ["a", "trap-once", "b", "next=10", "wait=1", "c"]);
    let folder = pulling(&broker, "consume_timeout = \"10s\"");
    let mut host = start(&folder);

    wait_for(&host, "c");

    let bodies: Vec<String> = host.deliveries().into_iter().map(|one| one.body).collect();
    assert_eq!(bodies, ["a", "trap-once", "b", "next=10", "wait=1", "c"]);
    host.wait_for_line("failed in do-pull-task: trap", BOUND);

    broker.send("pulled", ["fail the bank is closed"]);
    host.wait_for_line("the bank is closed", BOUND);
    eventually("the run after a failure", BOUND, || {
        let deliveries = host.deliveries();
        let failed = deliveries.iter().filter(|one| one.body.starts_with("fail"));
        (failed.count() >= 3).then_some(())
    });
    stop(host);
}
