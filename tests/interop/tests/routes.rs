//! Routes that are not what they were: dead name servers, queues that come and go, a
//! broker at another address, a slave in its master's place, two clusters in one process.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::{Cluster, VERSION, script};
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

/// A slave or another broker beside a cluster; killed when dropped.
struct Joined(tempfile::TempDir);

impl Joined {
    fn start(namesrv_addr: &str, broker_name: &str, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = script(VERSION);
        command.arg("start").arg(folder.path());
        command.args(["--join", namesrv_addr, "--broker-port", "0"]);
        command.args(["--broker-name", broker_name, "--broker-heap", "512m"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        succeeds(&mut command);
        Self(folder)
    }

    fn addr(&self) -> String {
        let options = fs::read_to_string(self.0.path().join("options")).expect("started");
        let port = options
            .lines()
            .find_map(|line| line.strip_prefix("broker_port="))
            .expect("a port");
        format!("127.0.0.1:{port}")
    }

    fn kill(&self) {
        let mut command = script(VERSION);
        succeeds(command.arg("stop").arg(self.0.path()).arg("--kill"));
    }

    fn restart_at_another_port(&self) {
        let mut command = script(VERSION);
        command.arg("start").arg(self.0.path());
        succeeds(command.args(["--broker-port", "0"]));
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut command = script(VERSION);
        // The test has its result.
        let _ = command
            .arg("stop")
            .arg(self.0.path())
            .arg("--kill")
            .output();
    }
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("the script runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
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
    eventually("the queues are given back", BOUND, || {
        let lines = host.lines();
        lines
            .iter()
            .any(|line| line.contains("has 1 queues"))
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
    let moved = Instant::now();
    for queue in 0..2 {
        Connection::open(&moving.addr()).send("Moving", queue, format!("n-{queue}").as_bytes());
    }
    all_come(&host, "n-", 2);
    let took = moved.elapsed();
    assert!(took < Duration::from_secs(35), "found after {took:?}");
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
