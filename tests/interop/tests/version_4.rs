//! The main scenarios on RocketMQ 4.9.7, beside its own Java client.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use interop::broker::Connection;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::host::{self, HostSettings};
use interop::java;
use interop::tenant::{Plugin, Tenant};

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

/// A plugin of this component that reads `topic` as the group of the same name.
fn manifest(component: &str, listener: &str, topic: &str, head: &str, filter: &str) -> String {
    let component = guest_artifacts::path(component);
    format!(
        "name = \"{name}\"\ncomponent = {component:?}\nlistener = {listener:?}\n\
         consumer_group = {topic:?}\n{head}\n\
         [[subscription]]\ntopic = {topic:?}\n{filter}\n\
         [limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"\n",
        name = topic.to_lowercase(),
    )
}

#[test]
fn every_way_of_consuming_works_on_an_old_broker_and_goes_on_after_a_restart() {
    const COUNT: usize = 200;
    const TOPICS: [&str; 5] = ["ordered", "everywhere", "chosen", "pulled", "given"];
    let cluster = Cluster::start_version(VERSION, &[QUICK_LEVELS, "enablePropertyFilter=true"]);
    let namesrv_addr = cluster.namesrv_addr();
    let tenant = Tenant::new(
        &format!("namesrv_addr = [{namesrv_addr:?}]"),
        &[] as &[Plugin<'_>],
    );
    let sql = "expression_type = \"sql92\"\nexpression = \"region = 'eu'\"";
    let first = "consume_from_where = \"first_offset\"\n";
    let by_hand = "\n[[assign]]\ntopic = \"given\"\n";
    let broadcasting = format!("{first}message_model = \"broadcasting\"\n");
    for (topic, text) in [
        (
            "ordered",
            manifest("orderly_as_told", "orderly", "ordered", first, ""),
        ),
        (
            "everywhere",
            manifest("ledger", "concurrent", "everywhere", &broadcasting, ""),
        ),
        (
            "chosen",
            manifest("ledger", "concurrent", "chosen", first, sql),
        ),
        (
            "pulled",
            manifest("pull_as_told", "scheduled-pull", "pulled", "", ""),
        ),
        (
            "given",
            manifest("ledger", "concurrent", "given", first, by_hand),
        ),
    ] {
        cluster.create_topic(topic, 2);
        let file = tenant
            .folder()
            .join("plugins")
            .join(format!("{topic}.toml"));
        fs::write(file, text).expect("a folder of ours");
    }
    let send = |round: &str| {
        for topic in TOPICS {
            let prefix = format!("{topic}-{round}");
            let property = ["--property", "region=eu"];
            let all: Vec<String> = bodies(&prefix, COUNT).collect();
            assert!(tenant.send(topic, &all, &property).0);
        }
        let other = ["--property", "region=us"];
        assert!(tenant.send("chosen", &["not-chosen".to_owned()], &other).0);
    };
    let mut hosts: Vec<HostProcess> = Vec::new();
    for round in ["first", "second"] {
        if round == "second" {
            // While nobody is there.
            send(round);
        }
        let mut host = tenant.run();
        host.wait_for_line("serving", BOUND);
        if round == "first" {
            send(round);
            // Stays first in its queue until it has been tried three times.
            let mut broker = Connection::to_broker_of(namesrv_addr);
            broker.send("ordered", 0, b"suspend-until 2");
            broker.send("ordered", 0, b"behind-it");
            wait_for_all(&[&host], "behind-it", 1);
        }
        for topic in TOPICS {
            wait_for_all(&[&host], &format!("{topic}-{round}"), COUNT);
        }
        host.interrupt();
        assert!(host.wait(BOUND).success());
        hosts.push(host);
    }
    let all: Vec<_> = hosts.iter().flat_map(HostProcess::deliveries).collect();
    let counts = counts(&all);
    assert_eq!(counts.get("not-chosen"), None);
    let again = counts.get("suspend-until=2");
    assert_eq!(again, Some(&3), "the first attempt and two more");
    for (body, count) in &counts {
        let expected = if *body == "suspend-until=2" { 3 } else { 1 };
        assert_eq!(*count, expected, "{body}");
    }
    let expected = TOPICS.len() * 2 * COUNT + 2;
    assert_eq!(counts.len(), expected);
}
