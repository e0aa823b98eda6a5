//! mqlet against a real RocketMQ 5.5.0, beside Java's own clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::host::{self, HostSettings};
use interop::java;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

/// The time a silent host is watched for a delivery that must not come: longer than
/// the periodic commit and a rebalance together would need to bring one.
const REPEAT_WATCH: Duration = Duration::from_secs(6);

fn settings<'a>(cluster: &'a Cluster, component: &'a std::path::Path) -> HostSettings<'a> {
    HostSettings {
        component,
        namesrv_addr: cluster.namesrv_addr(),
        consumer_group: "ledger-group",
        topic: "Ledger",
        consume: "",
    }
}

fn bodies(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    let prefix = prefix.to_owned();
    (0..count).map(move |number| format!("{prefix}-{number}"))
}

/// Bodies that no process of `hosts` consumed.
fn missing(hosts: &[&HostProcess], prefix: &str, count: usize) -> usize {
    let mut left: BTreeSet<String> = bodies(prefix, count).collect();
    for host in hosts {
        for delivery in host.deliveries() {
            left.remove(&delivery.body);
        }
    }
    left.len()
}

#[test]
fn a_hundred_thousand_messages_from_eight_queues_come_exactly_once() {
    const COUNT: usize = 100_000;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 8);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut host = host::start(folder.path(), &settings(&cluster, &component));
    host.wait_for_line("serving", BOUND);

    host::send(cluster.namesrv_addr(), "Ledger", bodies("m", COUNT));
    eventually("all messages", BOUND, || {
        (host.delivery_count() >= COUNT).then_some(())
    });
    std::thread::sleep(REPEAT_WATCH);

    let deliveries = host.deliveries();
    assert_eq!(deliveries.len(), COUNT, "each message comes once");
    assert_eq!(
        counts(&deliveries).len(),
        COUNT,
        "and no message is missing"
    );
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.reconsume_times == 0)
    );
    let queues: BTreeSet<u32> = deliveries
        .iter()
        .map(|delivery| delivery.queue_id)
        .collect();
    assert_eq!(queues.len(), 8);

    host.interrupt();
    assert!(host.wait(BOUND).success());
    // What was consumed stays consumed: another host of the group gets nothing again.
    let mut next = host::start(folder.path(), &settings(&cluster, &component));
    next.wait_for_line("serving", BOUND);
    host::send(cluster.namesrv_addr(), "Ledger", bodies("after", 8));
    eventually("the later messages", BOUND, || {
        (next.delivery_count() >= 8).then_some(())
    });
    assert_eq!(missing(&[&next], "after", 8), 0);
    assert_eq!(
        next.delivery_count(),
        8,
        "nothing from before the restart comes again"
    );
}

#[test]
fn two_hosts_and_a_java_member_divide_the_queues_and_each_has_one_owner() {
    const COUNT: usize = 6_000;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 9);
    let folders = [tempfile::tempdir(), tempfile::tempdir()]
        .map(|folder| folder.expect("a temporary folder"));
    let settings = settings(&cluster, &component);
    let mut one = host::start(folders[0].path(), &settings);
    let mut two = host::start(folders[1].path(), &settings);
    one.wait_for_line("serving", BOUND);
    two.wait_for_line("serving", BOUND);
    let mut java = HostProcess::spawn(&mut java::program(
        "Member",
        &[cluster.namesrv_addr(), "ledger-group", "Ledger", "AVG"],
    ));
    java.wait_for_line("queues 3", BOUND);

    // Probes until what arrives shows nine queues with one owner each, three a member.
    // `mqlet send` sends lines in batches, each to the next queue: enough for every queue.
    const PROBES: usize = 9 * 256;
    let owners = |round: usize| {
        let prefix = format!("probe{round}");
        host::send(cluster.namesrv_addr(), "Ledger", bodies(&prefix, PROBES));
        let seen_by = |host: &HostProcess| {
            host.deliveries()
                .into_iter()
                .filter(|delivery| delivery.body.starts_with(&format!("{prefix}-")))
                .map(|delivery| delivery.queue_id)
                .collect::<Vec<_>>()
        };
        eventually("every probe at some member", BOUND, || {
            let seen = [seen_by(&one), seen_by(&two), seen_by(&java)];
            (seen.iter().map(Vec::len).sum::<usize>() >= PROBES).then_some(seen)
        })
    };
    let mut round = 0;
    eventually("three queues at each member", BOUND, || {
        round += 1;
        let seen = owners(round).map(|queues| queues.into_iter().collect::<BTreeSet<u32>>());
        (seen.iter().all(|queues| queues.len() == 3)
            && seen.iter().flatten().collect::<BTreeSet<_>>().len() == 9)
            .then_some(())
    });

    // Settled: now each message comes once, in one process.
    let before = (one.delivery_count(), two.delivery_count());
    host::send(cluster.namesrv_addr(), "Ledger", bodies("m", COUNT));
    let seen = eventually("all messages", BOUND, || {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let members = [&one, &two, &java];
        let deliveries = members.iter().flat_map(|member| member.deliveries());
        for body in deliveries.map(|delivery| delivery.body) {
            if body.starts_with("m-") {
                *seen.entry(body).or_default() += 1;
            }
        }
        (seen.len() >= COUNT).then_some(seen)
    });
    assert!(
        seen.values().all(|times| *times == 1),
        "no queue has two owners"
    );
    assert!(one.delivery_count() > before.0 && two.delivery_count() > before.1);

    // The Java member leaves: its queues are taken over, nothing is lost.
    java.close_stdin();
    java.wait_for_line("left the group", BOUND);
    host::send(cluster.namesrv_addr(), "Ledger", bodies("late", 900));
    eventually("messages after the member left", BOUND, || {
        (missing(&[&one, &two], "late", 900) == 0).then_some(())
    });
}

#[test]
fn a_failing_message_comes_back_after_its_delay_and_ends_in_the_dead_letters() {
    let component = guest_artifacts::path("ledger");
    // Levels 3 and 4 are what the first and the second retry wait.
    let levels = QUICK_LEVELS.replacen("1s 1s 1s 1s", "1s 1s 2s 4s", 1);
    let cluster = Cluster::start(&[&levels]);
    cluster.create_topic("Ledger", 2);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = HostSettings {
        consume: "max_reconsume_times = 2",
        ..settings(&cluster, &component)
    };
    let mut host = host::start(folder.path(), &settings);
    host.wait_for_line("serving", BOUND);

    let start = Instant::now();
    host::send(
        cluster.namesrv_addr(),
        "Ledger",
        ["good-1", "fail-always", "good-2"].map(str::to_owned),
    );
    let attempts = eventually("three attempts", BOUND, || {
        let attempts: Vec<u32> = host
            .deliveries()
            .iter()
            .filter(|delivery| delivery.body == "fail-always")
            .map(|delivery| delivery.reconsume_times)
            .collect();
        (attempts.len() >= 3).then_some(attempts)
    });
    assert_eq!(attempts, [0, 1, 2]);
    assert!(
        start.elapsed() >= Duration::from_secs(6),
        "levels 3 and 4 wait 2 s and 4 s"
    );

    // The dead letter is there for whoever looks after it.
    let grave = tempfile::tempdir().expect("a temporary folder");
    let undertaker = HostSettings {
        consumer_group: "undertaker",
        topic: "%DLQ%ledger-group",
        ..settings.clone()
    };
    let undertaker = host::start(
        grave.path(),
        &HostSettings {
            consume: "",
            ..undertaker
        },
    );
    eventually("the dead letter", BOUND, || {
        (undertaker.delivery_count() >= 1).then_some(())
    });
    assert_eq!(undertaker.deliveries()[0].body, "fail-always");
    let counts_at_end = host.deliveries();
    for good in ["good-1", "good-2"] {
        assert_eq!(
            counts(&counts_at_end).get(good),
            Some(&1),
            "a neighbour costs no attempt"
        );
    }
}

#[test]
fn kill_9_loses_nothing_and_repeats_only_what_was_in_flight_or_uncommitted() {
    const COUNT: usize = 60_000;
    const QUEUES: usize = 8;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 8);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = settings(&cluster, &component);
    let mut first = host::start(folder.path(), &settings);
    first.wait_for_line("serving", BOUND);

    let namesrv_addr = cluster.namesrv_addr().to_owned();
    let sender =
        std::thread::spawn(move || host::send(&namesrv_addr, "Ledger", bodies("m", COUNT)));
    eventually("a stream under way", BOUND, || {
        (first.delivery_count() >= 10_000).then_some(())
    });
    first.kill();
    let at_kill = first.delivery_count();
    assert!(at_kill < COUNT, "the kill came mid-stream");

    let second = host::start(folder.path(), &settings);
    sender.join().expect("every message was sent");
    eventually("every message at one of the two", BOUND, || {
        (first.delivery_count() + second.delivery_count() >= COUNT
            && missing(&[&first, &second], "m", COUNT) == 0)
            .then_some(())
    });
    let all = [first.deliveries(), second.deliveries()].concat();
    let repeats = all.len() - counts(&all).len();
    // At most what a queue may hold, and one pull on its way, for each queue.
    let allowed = QUEUES * (1_000 + 32);
    assert!(repeats <= allowed, "{repeats} repeats, {allowed} allowed");
}

#[test]
fn a_broker_that_stops_and_starts_again_mid_stream_loses_nothing() {
    const COUNT: usize = 30_000;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 4);
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Few calls and small batches, so that the backlog outlives the broker's end.
    let settings = HostSettings {
        consume: "consume_thread_max = 1\nconsume_message_batch_max_size = 1",
        ..settings(&cluster, &component)
    };
    host::send(cluster.namesrv_addr(), "Ledger", bodies("m", COUNT));
    let mut host = host::start(folder.path(), &settings);
    eventually("a stream under way", BOUND, || {
        (host.delivery_count() >= 500).then_some(())
    });
    // In order, so that the broker's own store is whole: what is tested is us.
    cluster.stop_broker();
    cluster.restart();
    let restarted = Instant::now();
    host::send(cluster.namesrv_addr(), "Ledger", bodies("after", 400));
    eventually("messages from after the restart", BOUND, || {
        (missing(&[&host], "after", 400) == 0).then_some(())
    });
    eventually("all messages from before", BOUND, || {
        (missing(&[&host], "m", COUNT) == 0).then_some(())
    });
    let report = format!(
        "consumed everything {:?} after the restart\n",
        restarted.elapsed()
    );
    fs::write(folder.path().join("report"), report).expect("a folder of ours");
    host.interrupt();
    assert!(host.wait(BOUND).success());
}

#[test]
fn the_java_clients_get_the_same_answers_from_both_brokers() {
    let scenario = |namesrv_addr: &str| {
        let mut program = HostProcess::spawn(&mut java::program(
            "Scenario",
            &[namesrv_addr, &format!("s{}", std::process::id())],
        ));
        program.wait_for_line("scenario complete", Duration::from_secs(400));
        program
            .lines()
            .into_iter()
            .filter(|line| !line.starts_with("Note:"))
            .collect::<Vec<_>>()
    };
    let real = {
        let cluster = Cluster::start(&[QUICK_LEVELS]);
        scenario(cluster.namesrv_addr())
    };
    let levels = QUICK_LEVELS.split_once('=').expect("KEY=VALUE").1;
    let mut embedded = HostProcess::spawn(
        std::process::Command::new(end_to_end::workspace::mqlet()).args([
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--message-delay-level",
            levels,
        ]),
    );
    let line = embedded.wait_for_line("namesrv_addr=", BOUND);
    let namesrv_addr = line
        .split("namesrv_addr=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .expect("the line names the address")
        .to_owned();
    assert_eq!(scenario(&namesrv_addr), real);
}
