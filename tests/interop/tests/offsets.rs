//! Offsets that operators move with RocketMQ's own tool, and groups in which every member
//! gets everything, beside Java's client.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::host::{self, HostSettings};
use interop::java;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
/// A silent host is watched this long for deliveries that must not come.
const REPEAT_WATCH: Duration = Duration::from_secs(6);
const QUEUES: u32 = 4;
const GROUP: &str = "ledger-group";
const TOPIC: &str = "Ledger";

fn settings<'a>(cluster: &'a Cluster, component: &'a Path) -> HostSettings<'a> {
    HostSettings {
        component,
        namesrv_addr: cluster.namesrv_addr(),
        consumer_group: GROUP,
        topic: TOPIC,
        consume: "",
    }
}

/// Sends `PREFIX-QUEUE-NUMBER` to every queue.
fn send(cluster: &Cluster, prefix: &str, numbers: std::ops::Range<u32>) {
    let mut connection = Connection::open(&cluster.broker_addr());
    for queue in 0..QUEUES {
        for number in numbers.clone() {
            connection.send(
                TOPIC,
                queue,
                format!("{prefix}-{queue}-{number}").as_bytes(),
            );
        }
    }
}

/// Milliseconds; what was sent before is stored earlier, what is sent after is stored
/// later.
fn a_moment_between() -> u128 {
    // RocketMQ 4.9 takes the message that is nearest in time, not the next one.
    std::thread::sleep(Duration::from_secs(2));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_millis()
}

/// How often messages with this prefix were delivered.
fn times(host: &HostProcess, prefix: &str) -> usize {
    let deliveries = host.deliveries();
    let of_prefix = deliveries.iter().filter(|one| one.body.starts_with(prefix));
    of_prefix.count()
}

fn wait_for(host: &HostProcess, prefix: &str, count: usize) {
    eventually(&format!("{count} of {prefix}"), BOUND, || {
        (times(host, prefix) >= count).then_some(())
    });
}

fn committed_everything(cluster: &Cluster, group: &str) {
    let mut connection = Connection::open(&cluster.broker_addr());
    eventually("all offsets at the end", BOUND, || {
        let at_end = |queue| {
            connection.committed(group, TOPIC, queue) == Some(connection.max_offset(TOPIC, queue))
        };
        (0..QUEUES)
            .map(at_end)
            .collect::<Vec<_>>()
            .iter()
            .all(|at_end| *at_end)
            .then_some(())
    });
}

/// One round of resets, whichever way the broker has for them. Only a broker that keeps
/// resets itself has one by value: told to send them to the clients, it sends the time
/// alone, for every queue.
fn resets_are_obeyed(cluster: &Cluster, by_value: bool) {
    let component = guest_artifacts::path("ledger");
    cluster.create_topic(TOPIC, QUEUES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut host = host::start(folder.path(), &settings(cluster, &component));
    host.wait_for_line("serving", BOUND);
    send(cluster, "a", 0..20);
    wait_for(&host, "a", 80);
    let between = a_moment_between();
    send(cluster, "b", 0..10);
    wait_for(&host, "b", 40);
    // The tool's old way needs an offset of every queue.
    committed_everything(cluster, GROUP);

    // By time: the first message at or after it is the first to come, in every queue.
    let between = between.to_string();
    let by_time = [
        "resetOffsetByTime",
        "-g",
        GROUP,
        "-t",
        TOPIC,
        "-s",
        &between,
    ];
    let said = cluster.mqadmin(&by_time);
    wait_for(&host, "b", 80);
    assert_eq!(
        times(&host, "a"),
        80,
        "nothing from before the time: {said}"
    );
    committed_everything(cluster, GROUP);

    // The same again is another reset.
    cluster.mqadmin(&by_time);
    wait_for(&host, "b", 120);
    committed_everything(cluster, GROUP);

    if by_value {
        reset_by_value_is_obeyed(cluster, &host);
    }
    let is_told = |line: &String| {
        line.contains("OFFSET_RESET") || line.contains("an operator reset the offset")
    };
    assert!(host.lines().iter().any(is_told), "a reset is told");

    // To the end: what has piled up never comes.
    host::mqlet(folder.path(), &["pause", GROUP]);
    send(cluster, "skipped", 0..5);
    let before = host.delivery_count();
    let said = cluster.mqadmin(&["skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC]);
    host::mqlet(folder.path(), &["resume", GROUP]);
    send(cluster, "after", 0..2);
    wait_for(&host, "after", 8);
    assert_eq!(times(&host, "skipped"), 0, "the tool said {said}");
    assert_eq!(host.delivery_count(), before + 8);
    host.interrupt();
    assert!(host.wait(BOUND).success());
}

/// One queue goes back to an offset, the others stay.
fn reset_by_value_is_obeyed(cluster: &Cluster, host: &HostProcess) {
    let broker = cluster.broker_addr();
    let said = cluster.mqadmin(&[
        "resetOffsetByTime",
        "-g",
        GROUP,
        "-t",
        TOPIC,
        "-b",
        &broker,
        "-q",
        "2",
        "-s",
        "0",
        "-o",
        "15",
    ]);
    wait_for(host, "a-2-", 25);
    wait_for(host, "b-2-", 40);
    std::thread::sleep(REPEAT_WATCH);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in host.deliveries() {
        *seen.entry(delivery.body).or_default() += 1;
    }
    for (body, count) in &seen {
        let mut parts = body.split('-');
        let (prefix, queue) = (parts.next(), parts.next());
        let number: u32 = parts.next().and_then(|n| n.parse().ok()).expect("a number");
        let expected = match (prefix, queue) {
            (Some("a"), Some("2")) if number >= 15 => 2,
            (Some("a"), _) => 1,
            (_, Some("2")) => 4,
            _ => 3,
        };
        assert_eq!(*count, expected, "{body}; the tool said {said}");
    }
    committed_everything(cluster, GROUP);
}

#[test]
fn resets_kept_by_the_broker_are_obeyed_live() {
    resets_are_obeyed(&Cluster::start(&[]), true);
}

#[test]
fn resets_sent_to_the_clients_are_obeyed_live() {
    resets_are_obeyed(&Cluster::start(&["useServerSideResetOffset=false"]), false);
}

#[test]
fn resets_of_a_4_9_broker_are_obeyed_live() {
    resets_are_obeyed(&Cluster::start_version("4.9.7", &[]), false);
}

#[test]
fn retry_topics_are_reset_and_offsets_of_another_group_are_taken_over() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&["useServerSideResetOffset=false", QUICK_LEVELS]);
    cluster.create_topic(TOPIC, QUEUES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut host = host::start(
        folder.path(),
        &HostSettings {
            consume: "max_reconsume_times = 2",
            ..settings(&cluster, &component)
        },
    );
    host.wait_for_line("serving", BOUND);
    send(&cluster, "fail", 0..1);
    send(&cluster, "good", 0..5);
    // Four messages, three attempts each.
    wait_for(&host, "fail", 12);
    wait_for(&host, "good", 20);
    committed_everything(&cluster, GROUP);
    let retry_topic = format!("%RETRY%{GROUP}");
    let mut connection = Connection::open(&cluster.broker_addr());
    eventually("the retry topic's offset", BOUND, || {
        let end = connection.max_offset(&retry_topic, 0);
        (end >= 8 && connection.committed(GROUP, &retry_topic, 0) == Some(end)).then_some(())
    });

    // What a client holds in memory, as the broker reads it.
    let status = connection.consumer_status(GROUP, TOPIC);
    for queue in 0..QUEUES {
        let entry =
            format!("{{\"brokerName\":\"broker-a\",\"queueId\":{queue},\"topic\":\"{TOPIC}\"}}:6");
        assert!(status.contains(&entry), "{entry} in {status}");
    }

    // The retry topic again: its eight retries come once more.
    let said = cluster.mqadmin(&[
        "resetOffsetByTime",
        "-g",
        GROUP,
        "-t",
        &retry_topic,
        "-s",
        "0",
    ]);
    eventually("the retries again", BOUND, || {
        (times(&host, "fail") >= 20).then_some(())
    });
    assert_eq!(times(&host, "good"), 20, "{said}");
    host.interrupt();
    assert!(host.wait(BOUND).success());

    // Another group takes the offsets over and gets nothing that this one has consumed.
    cluster.mqadmin(&["updateSubGroup", "-c", "DefaultCluster", "-g", "heir"]);
    let said = cluster.mqadmin(&[
        "cloneGroupOffset",
        "-s",
        GROUP,
        "-d",
        "heir",
        "-t",
        TOPIC,
        "-o",
        "true",
    ]);
    assert!(said.contains("success"), "cloneGroupOffset said: {said}");
    let heirs = tempfile::tempdir().expect("a temporary folder");
    let heir = host::start(
        heirs.path(),
        &HostSettings {
            consumer_group: "heir",
            ..settings(&cluster, &component)
        },
    );
    send(&cluster, "new", 0..2);
    wait_for(&heir, "new", 8);
    assert_eq!(heir.delivery_count(), 8);
}

#[test]
fn every_member_of_a_broadcasting_group_gets_every_message_beside_java() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&["useServerSideResetOffset=false"]);
    cluster.create_topic(TOPIC, QUEUES);
    let folders = [tempfile::tempdir(), tempfile::tempdir()]
        .map(|folder| folder.expect("a temporary folder"));
    let mut hosts = folders.each_ref().map(|folder| {
        let plugins = folder.path().join("plugins");
        fs::create_dir_all(&plugins).expect("a folder of ours");
        let manifest = format!(
            "name = \"ledger\"\ncomponent = {component:?}\nconsumer_group = \"{GROUP}\"\n\
             message_model = \"broadcasting\"\nconsume_from_where = \"first_offset\"\n\
             [[subscription]]\ntopic = \"{TOPIC}\"\n[limits]\n\
             log_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"\n"
        );
        fs::write(plugins.join("ledger.toml"), manifest).expect("a folder of ours");
        host::run(folder.path(), cluster.namesrv_addr())
    });
    let mut java = HostProcess::spawn(&mut java::program(
        "Broadcaster",
        &[cluster.namesrv_addr(), GROUP, TOPIC],
    ));
    java.wait_for_line("started", BOUND);
    for host in &mut hosts {
        host.wait_for_line("serving", BOUND);
    }
    let between = a_moment_between();
    send(&cluster, "m", 0..25);
    for member in hosts.iter().chain([&java]) {
        wait_for(member, "m", 100);
    }

    // Brokers have no offset of the group, without which they pass no reset on; with one,
    // they send it to every member.
    let mut connection = Connection::open(&cluster.broker_addr());
    for queue in 0..QUEUES {
        assert_eq!(connection.committed(GROUP, TOPIC, queue), None);
        connection.commit(GROUP, TOPIC, queue, 25);
    }
    let between = between.to_string();
    let said = cluster.mqadmin(&[
        "resetOffsetByTime",
        "-g",
        GROUP,
        "-t",
        TOPIC,
        "-s",
        &between,
    ]);
    println!("the tool said: {said}");
    for member in hosts.iter().chain([&java]) {
        wait_for(member, "m", 200);
    }

    let [mut first, second] = hosts;
    first.interrupt();
    assert!(first.wait(BOUND).success());
    send(&cluster, "late", 0..5);
    wait_for(&second, "late", 20);
    wait_for(&java, "late", 20);
    let again = host::run(folders[0].path(), cluster.namesrv_addr());
    wait_for(&again, "late", 20);
    assert_eq!(times(&again, "m"), 0, "it goes on from its own file");
    let committed = |queue| connection.committed(GROUP, TOPIC, queue);
    assert_eq!(
        (0..QUEUES).map(committed).collect::<Vec<_>>(),
        [Some(25); 4],
        "members commit nothing to the broker"
    );
}
