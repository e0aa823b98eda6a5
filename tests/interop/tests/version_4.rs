//! The main scenarios on RocketMQ 4.9.7, beside its own Java client.

use std::collections::BTreeSet;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::host::{self, HostSettings};
use interop::java;

const VERSION: &str = "4.9.7";
/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

fn bodies(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    let prefix = prefix.to_owned();
    (0..count).map(move |number| format!("{prefix}-{number}"))
}

/// Bodies with this prefix that were delivered to any of these.
fn delivered(members: &[&HostProcess], prefix: &str) -> BTreeSet<String> {
    let deliveries = members.iter().flat_map(|member| member.deliveries());
    deliveries
        .map(|delivery| delivery.body)
        .filter(|body| body.starts_with(prefix))
        .collect()
}

fn wait_for_all(members: &[&HostProcess], prefix: &str, count: usize) {
    eventually("every message at some member", BOUND, || {
        (delivered(members, prefix).len() >= count).then_some(())
    });
}

#[test]
fn an_old_broker_and_its_java_client_get_on_with_us() {
    const COUNT: usize = 20_000;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start_version(VERSION, &[QUICK_LEVELS]);
    cluster.create_topic("Ledger", 4);
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let settings = HostSettings {
        component: &component,
        namesrv_addr: cluster.namesrv_addr(),
        consumer_group: "ledger-group",
        topic: "Ledger",
        consume: "max_reconsume_times = 2",
    };

    // Consumed once each, from every queue.
    let mut host = host::start(folders[0].path(), &settings);
    host.wait_for_line("serving", BOUND);
    host::send(cluster.namesrv_addr(), "Ledger", bodies("m", COUNT));
    wait_for_all(&[&host], "m-", COUNT);
    let deliveries = host.deliveries();
    assert_eq!(deliveries.len(), COUNT, "each message comes once");
    let queues: BTreeSet<u32> = deliveries.iter().map(|d| d.queue_id).collect();
    assert_eq!(queues.len(), 4);

    // A failing message: two retries, then the dead letters; its neighbours come once.
    let failing = ["good-1", "fail-always", "good-2"].map(str::to_owned);
    host::send(cluster.namesrv_addr(), "Ledger", failing);
    let attempts = eventually("three attempts", BOUND, || {
        let deliveries = host.deliveries();
        let attempts: Vec<u32> = deliveries
            .iter()
            .filter(|delivery| delivery.body == "fail-always")
            .map(|delivery| delivery.reconsume_times)
            .collect();
        (attempts.len() >= 3).then_some(attempts)
    });
    assert_eq!(attempts, [0, 1, 2]);
    let undertaker = HostSettings {
        consumer_group: "undertaker",
        topic: "%DLQ%ledger-group",
        consume: "",
        ..settings.clone()
    };
    let undertaker = host::start(folders[1].path(), &undertaker);
    wait_for_all(&[&undertaker], "fail-always", 1);
    drop(undertaker);
    let deliveries = host.deliveries();
    let counts = counts(&deliveries);
    assert_eq!((counts["good-1"], counts["good-2"]), (1, 1));

    // A Java member of the same release joins and leaves: nothing is lost.
    let arguments = [cluster.namesrv_addr(), "ledger-group", "Ledger", "AVG"];
    let mut java = HostProcess::spawn(&mut java::program_of_version(VERSION, "Member", &arguments));
    java.wait_for_line("queues 2", BOUND);
    host::send(cluster.namesrv_addr(), "Ledger", bodies("shared", 2_000));
    wait_for_all(&[&host, &java], "shared-", 2_000);
    assert!(!delivered(&[&java], "shared-").is_empty());
    java.close_stdin();
    java.wait_for_line("left the group", BOUND);
    host::send(cluster.namesrv_addr(), "Ledger", bodies("late", 400));
    wait_for_all(&[&host], "late-", 400);

    // kill -9 mid-stream: the next host finds everything that was not committed.
    let namesrv_addr = cluster.namesrv_addr().to_owned();
    let sender = std::thread::spawn(move || {
        host::send(&namesrv_addr, "Ledger", bodies("killed", COUNT));
    });
    eventually("a stream under way", BOUND, || {
        (delivered(&[&host], "killed-").len() >= COUNT / 5).then_some(())
    });
    host.kill();
    let second = host::start(folders[0].path(), &settings);
    sender.join().expect("every message was sent");
    wait_for_all(&[&host, &second], "killed-", COUNT);
    let all = [host.deliveries(), second.deliveries()].concat();
    let killed: Vec<_> = all
        .iter()
        .filter(|d| d.body.starts_with("killed"))
        .collect();
    let repeats = killed.len() - COUNT;
    let allowed = 4 * (1_000 + 32);
    assert!(repeats <= allowed, "{repeats} repeats, {allowed} allowed");
}
