//! Routes that are not what they were: dead name servers, queues that come and go, a
//! broker at another address, a slave in its master's place, two clusters in one process.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::joined::Joined;
use interop::tenant::{Plugin, Tenant};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

fn bodies(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

fn seen(host: &HostProcess, prefix: &str) -> BTreeSet<String> {
    let deliveries = host.deliveries().into_iter().map(|d| d.body);
    deliveries.filter(|body| body.starts_with(prefix)).collect()
}

fn all_come(host: &HostProcess, prefix: &str, count: usize) {
    eventually("all messages", BOUND, || {
        (seen(host, prefix).len() == count).then_some(())
    });
}

#[test]
fn a_dead_and_an_unresolvable_name_server_beside_a_good_one_do_not_matter() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 2);
    let connection = format!(
        "namesrv_addr = [\"no-such-host.invalid:9876\", \"127.0.0.1:9\", {:?}]",
        cluster.namesrv_addr()
    );
    let tenant = Tenant::new(
        &connection,
        &[Plugin::of(&component, "ledger-group", "Ledger")],
    );
    let mut host = tenant.run();
    host.wait_for_line("serving", BOUND);
    assert!(
        tenant
            .send("Ledger", &bodies("m", 20), &["--timeout", "30s"])
            .0
    );
    all_come(&host, "m-", 20);
    // The bad ones are shown, each once.
    for bad in ["no-such-host.invalid", "127.0.0.1:9;"] {
        let lines = host.lines();
        let told = lines.iter().filter(|line| line.contains(bad));
        assert!((1..=4).contains(&told.count()), "{bad}: {lines:?}");
    }
}

#[test]
fn queues_that_are_added_and_taken_away_are_followed() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 2);
    let connection = format!("namesrv_addr = [{:?}]", cluster.namesrv_addr());
    let plugin = Plugin::of(&component, "ledger-group", "Ledger");
    let tenant = Tenant::new(&connection, &[plugin]);
    let host = tenant.run();
    let mut broker = Connection::open(&cluster.broker_addr());
    for queue in 0..2 {
        broker.send("Ledger", queue, b"m-0");
    }
    eventually("the first", BOUND, || {
        (host.delivery_count() >= 2).then_some(())
    });
    cluster.create_topic("Ledger", 8);
    // Sent before anybody has heard of the new queues.
    for queue in 0..8 {
        let body = format!("more-{queue}");
        broker.send("Ledger", queue, body.as_bytes());
    }
    all_come(&host, "more-", 8);
    cluster.create_topic("Ledger", 1);
    // The name in quotes, as JSON has them: the retry topic has one queue all the while.
    eventually("the queues are given back", BOUND, || {
        let lines = host.lines();
        lines
            .iter()
            .any(|line| line.contains("\\\"Ledger\\\" has 1 queues"))
            .then_some(())
    });
    broker.send("Ledger", 0, b"less-0");
    all_come(&host, "less-", 1);
    cluster.create_topic("Ledger", 4);
    for queue in 0..4 {
        let body = format!("again-{queue}");
        broker.send("Ledger", queue, body.as_bytes());
    }
    all_come(&host, "again-", 4);
    let deliveries = host.deliveries();
    assert_eq!(deliveries.len(), 2 + 8 + 1 + 4, "nothing comes twice");
}

#[test]
fn a_broker_that_comes_back_at_another_address_is_found() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    let moving = Joined::start(cluster.namesrv_addr(), "broker-b", &[]);
    let first = moving.addr();
    Connection::open(&first).create_topic(cluster.namesrv_addr(), "Moving", 2);
    let connection = format!("namesrv_addr = [{:?}]", cluster.namesrv_addr());
    let plugin = Plugin::of(&component, "ledger-group", "Moving");
    let tenant = Tenant::new(&connection, &[plugin]);
    let host = tenant.run();
    for queue in 0..2 {
        Connection::open(&first).send("Moving", queue, format!("m-{queue}").as_bytes());
    }
    all_come(&host, "m-", 2);
    moving.kill();
    moving.restart_at_another_port();
    assert_ne!(moving.addr(), first);
    for queue in 0..2 {
        Connection::open(&moving.addr()).send("Moving", queue, format!("n-{queue}").as_bytes());
    }
    all_come(&host, "n-", 2);
}

#[test]
fn a_slave_serves_when_its_master_is_killed() {
    const COUNT: usize = 20_000;
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 4);
    // Without the last of these a slave answers every pull with "ask the master".
    let slave = ["brokerId=1", "brokerRole=SLAVE", "slaveReadEnable=true"];
    let slave = Joined::start(cluster.namesrv_addr(), "broker-a", &slave);
    let connection = format!("namesrv_addr = [{:?}]", cluster.namesrv_addr());
    // One message a call, one call at once: there is a backlog when the master dies.
    let plugin = Plugin {
        consume: "consume_thread_max = 1\nconsume_message_batch_max_size = 1\n\
                  pull_threshold_for_queue = 64",
        ..Plugin::of(&component, "ledger-group", "Ledger")
    };
    let tenant = Tenant::new(&connection, &[plugin]);
    assert!(tenant.send("Ledger", &bodies("m", COUNT), &[]).0);
    let mut copy = Connection::open(&slave.addr());
    eventually("a copy of everything at the slave", BOUND, || {
        let copied: u64 = (0..4).map(|queue| copy.max_offset("Ledger", queue)).sum();
        (copied == COUNT as u64 && copy.has_topic("Ledger")).then_some(())
    });
    let mut host = tenant.run();
    host.wait_for_line("serving", BOUND);
    eventually("a stream under way", BOUND, || {
        (host.delivery_count() >= 300).then_some(())
    });
    cluster.kill_broker();
    let killed = Instant::now();
    let before = host.delivery_count();
    assert!(before < COUNT, "the kill came mid-stream");
    all_come(&host, "m-", COUNT);
    let mut times: Vec<Instant> = host
        .timed_deliveries()
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    times.retain(|at| *at >= killed);
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(
        gap.is_some_and(|gap| gap < Duration::from_secs(10)),
        "nothing came for {gap:?}"
    );

    // The slave is told how far we are, every few seconds.
    eventually("everything committed at the slave", BOUND, || {
        let at_end = |queue| {
            let end = copy.max_offset("Ledger", queue);
            copy.committed("ledger-group", "Ledger", queue) == Some(end)
        };
        let at_end: Vec<bool> = (0..4).map(at_end).collect();
        at_end.iter().all(|at_end| *at_end).then_some(())
    });
    // A member that starts while there is only the slave begins where the group is.
    host.interrupt();
    assert!(host.wait(BOUND).success());
    let mut host = tenant.run();
    host.wait_for_line("serving", BOUND);
    eventually("every queue at its end", BOUND, || {
        let queues = interop::host::mqlet(tenant.folder(), &["queues", "--output", "json"]);
        let of_topic = queues.lines().filter(|line| line.contains("\"Ledger@"));
        let at_end = of_topic.filter(|line| line.contains("\"cause\":\"caught-up\""));
        (at_end.count() == 4).then_some(())
    });
    assert_eq!(host.delivery_count(), 0, "everything was committed");
}

#[test]
fn two_clusters_in_one_process_do_not_know_each_other() {
    let component = guest_artifacts::path("ledger");
    let (one, two) = (Cluster::start(&[]), Cluster::start(&[]));
    for cluster in [&one, &two] {
        cluster.create_topic("Ledger", 2);
    }
    let connection = format!(
        "namesrv_addr = [{:?}]\n[tenants.other]\nplugins = \"plugins\"\nnamesrv_addr = [{:?}]",
        one.namesrv_addr(),
        two.namesrv_addr()
    );
    let plugin = Plugin::of(&component, "ledger-group", "Ledger");
    let tenant = Tenant::new(&connection, &[plugin]);
    let mut host = tenant.run();
    host.wait_for_line("serving 2 plugins of 2 tenants", BOUND);
    for (cluster, prefix) in [(&one, "one"), (&two, "two")] {
        let mut broker = Connection::open(&cluster.broker_addr());
        broker.send("Ledger", 0, format!("{prefix}-0").as_bytes());
        broker.send("Ledger", 1, format!("{prefix}-1").as_bytes());
    }
    all_come(&host, "one-", 2);
    all_come(&host, "two-", 2);
    // One of them ends; the other does not notice.
    one.kill_broker();
    let mut broker = Connection::open(&two.broker_addr());
    broker.send("Ledger", 0, b"later-0");
    all_come(&host, "later-", 1);
}
