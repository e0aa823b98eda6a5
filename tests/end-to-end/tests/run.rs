//! `mqlet run`: messages come through, servers and topics may come late, the end is
//! ordered.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use guest_artifacts::path;

/// The ledger writes every message down.
const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

fn ledger(namesrv_addr: &str, more: &str) -> HostFolder {
    let more = format!("{more}\n{ALL_LINES}");
    HostFolder::new(namesrv_addr, "").with_plugin("ledger", &path("ledger"), &more)
}

fn bodies(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

fn stop(mut host: HostProcess) {
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
}

#[test]
fn every_message_is_consumed_once_and_the_group_goes_on_where_it_was() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", bodies("a", 1000));
    let folder = ledger(broker.namesrv_addr(), "");

    let mut host = folder.run(&[]);
    let line = host.wait_for_line("serving", BOUND);
    assert!(line.contains("serving 1 plugin of 1 tenant"), "{line}");
    broker.send("ledger", bodies("b", 1000));
    wait_for_deliveries(&host, 2000);
    let deliveries = host.deliveries();
    assert_eq!(counts(&deliveries).len(), 2000);
    assert!(counts(&deliveries).values().all(|count| *count == 1));
    stop(host);

    broker.send("ledger", bodies("c", 10));
    let host = folder.run(&[]);
    wait_for_deliveries(&host, 10);
    let deliveries = host.deliveries();
    assert!(
        deliveries.iter().all(|one| one.body.starts_with('c')),
        "{deliveries:?}"
    );
    stop(host);
}

#[test]
fn failed_message_comes_again_until_its_attempts_are_used_up() {
    let mut broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr(), "[consume]\nmax_reconsume_times = 2");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    broker.send("ledger", ["good1", "fail1", "good2"]);

    broker.process.wait_for_line("is a dead letter now", BOUND);

    let deliveries = host.deliveries();
    let times = |body: &str| {
        let of_body = deliveries.iter().filter(|one| one.body == body);
        of_body.map(|one| one.reconsume_times).collect::<Vec<_>>()
    };
    assert_eq!(times("fail1"), [0, 1, 2]);
    assert_eq!(times("good1"), [0]);
    assert_eq!(times("good2"), [0]);
    stop(host);
}

#[test]
fn host_waits_for_its_name_server_and_its_topic() {
    let address = free_address();
    let folder = ledger(&address, "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    host.wait_for_line(&format!("cannot connect to {address}"), BOUND);

    let broker = EmbeddedBroker::start_at(&address);
    host.wait_for_line("does not exist yet", BOUND);
    broker.send("ledger", bodies("m", 5));

    wait_for_deliveries(&host, 5);
    let told = host.lines();
    let told = told
        .iter()
        .filter(|line| line.contains("trying again until it answers"));
    assert_eq!(told.count(), 1, "a fault that repeats is told once");
    stop(host);
}

#[test]
fn broker_that_comes_back_empty_is_consumed_again() {
    let address = free_address();
    let mut broker = EmbeddedBroker::start_at(&address);
    let folder = ledger(&address, "");
    let host = folder.run(&[]);
    broker.send("ledger", bodies("before", 20));
    wait_for_deliveries(&host, 20);

    broker.process.kill();
    let broker = EmbeddedBroker::start_at(&address);

    // The first ones may be sent before the group is back at the end of its queues.
    let mut sent = 0;
    eventually("a message of the new broker", BOUND, || {
        broker.send("ledger", [format!("after{sent}")]);
        sent += 1;
        let deliveries = host.deliveries();
        deliveries
            .iter()
            .any(|one| one.body.starts_with("after"))
            .then_some(())
    });
    stop(host);
}

#[test]
fn killed_host_loses_nothing() {
    let broker = EmbeddedBroker::start();
    let all = bodies("m", 5000);
    let folder = ledger(broker.namesrv_addr(), "");
    let mut first = folder.run(&[]);
    first.wait_for_line("serving", BOUND);
    broker.send("ledger", &all[..2500]);
    wait_for_deliveries(&first, 500);
    first.kill();
    let of_first = first.deliveries();
    broker.send("ledger", &all[2500..]);

    let second = folder.run(&[]);

    eventually("every message", BOUND, || {
        let of_second = second.deliveries();
        let seen: BTreeSet<_> = counts(of_first.iter().chain(&of_second))
            .into_keys()
            .map(str::to_owned)
            .collect();
        (seen.len() == all.len()).then_some(())
    });
    stop(second);
}

#[test]
fn cache_that_cannot_be_written_costs_only_time() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr(), "");
    // Not even root can make a folder below a file.
    let file = folder.path().join("mqlet.toml/cache").display().to_string();
    let mut host = folder.run(&["--cache-dir", &file]);
    host.wait_for_line("compiled components are not kept", BOUND);
    host.wait_for_line("serving", BOUND);
    broker.send("ledger", ["m"]);
    wait_for_deliveries(&host, 1);
    stop(host);
}

#[test]
fn refused_plugins_are_all_named_and_nothing_is_opened() {
    let broken = tempfile::tempdir().expect("a temporary folder");
    let truncated = broken.path().join("truncated.wasm");
    let whole = guest_artifacts::bytes("succeed");
    fs::write(&truncated, &whole[..whole.len() / 2]).expect("writable");
    let folder = HostFolder::new(&free_address(), "")
        .with_plugin("good", &path("succeed"), "")
        .with_plugin("imports", &path("wrong_import"), "")
        .with_plugin("cut", &truncated, "")
        .with_plugin("module", &path("core_module"), "")
        .with_plugin("unit", &path("succeed"), "[limits]\nmemory = 128");
    let mut host = folder.run(&[]);

    assert_eq!(host.wait(BOUND).code(), Some(3));

    let lines = host.lines().join("\n");
    for file in ["imports.toml", "cut.toml", "module.toml", "unit.toml"] {
        assert!(lines.contains(file), "{file} is not named:\n{lines}");
    }
    assert!(!lines.contains("good.toml"), "{lines}");
    assert!(!lines.contains("connect"), "{lines}");
}

#[test]
fn plugin_that_does_not_start_leaves_the_others_alone() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr(), "").with_plugin("trapped", &path("init_traps"), "");
    let mut host = folder.run(&[]);
    let line = host.wait_for_line("serving", BOUND);
    assert!(line.contains("without test/trapped"), "{line}");
    broker.send("ledger", ["m"]);
    wait_for_deliveries(&host, 1);
    stop(host);

    let alone =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("trapped", &path("init_traps"), "");
    let mut host = alone.run(&[]);
    assert_eq!(host.wait(BOUND).code(), Some(1));
}

#[test]
fn guests_of_three_languages_do_the_same() {
    let mut broker = EmbeddedBroker::start();
    let once = "[consume]\nmax_reconsume_times = 0";
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("in-rust", &path("respond"), once)
        .with_plugin("in-c", &path("respond_c"), once)
        .with_plugin("in-javascript", &path("respond_javascript"), once);
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    // A JavaScript engine takes its time to be compiled.
    host.wait_for_line("serving 3 plugins", 3 * BOUND);
    for topic in ["in-rust", "in-c", "in-javascript"] {
        broker.send(topic, ["fine", "!bad", "fine, too"]);
    }
    for topic in ["in-rust", "in-c", "in-javascript"] {
        let group = format!("\"consumer_group\":\"{topic}-group\"");
        eventually(&format!("outcomes of {topic}"), BOUND, || {
            let lines = host.lines();
            let of_group = |text: &str| {
                let found = lines
                    .iter()
                    .filter(|line| line.contains(&group) && line.contains(text));
                found.cloned().collect::<Vec<_>>()
            };
            let malformed = of_group("is malformed").len() == 1;
            let consumed = of_group("\"message\":\"consumed\"");
            let done: u32 = consumed.iter().map(|line| number(line, "\"done\":")).sum();
            (malformed && done == 2).then_some(())
        });
        broker
            .process
            .wait_for_line(&format!("{topic}-group\" is a dead letter now"), BOUND);
    }
    stop(host);
}

/// The number after `key` in a JSON line.
fn number(line: &str, key: &str) -> u32 {
    let rest = line.split_once(key).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[test]
fn missing_configuration_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut host = HostProcess::spawn(
        Command::new(end_to_end::workspace::mqlet())
            .args(["run", "no-such.toml"])
            .current_dir(folder.path()),
    );
    assert_eq!(host.wait(BOUND).code(), Some(3));
    assert!(host.lines().join("\n").contains("no-such.toml"));
}

#[test]
fn tenants_have_their_own_clusters() {
    let (one, two) = (EmbeddedBroker::start(), EmbeddedBroker::start());
    let folder = ledger(one.namesrv_addr(), "");
    let file = folder.path().join("mqlet.toml");
    let config = fs::read_to_string(&file).expect("written above");
    // The same folder of plugins: the same group, in another cluster.
    let second = format!(
        "[tenants.second]\nnamesrv_addr = [\"{}\"]\nplugins = \"plugins\"\n",
        two.namesrv_addr()
    );
    fs::write(&file, config + &second).expect("writable");
    let mut host = folder.run(&[]);
    let line = host.wait_for_line("serving", BOUND);
    assert!(line.contains("serving 2 plugins of 2 tenants"), "{line}");

    one.send("ledger", bodies("of-one-", 10));
    two.send("ledger", bodies("of-two-", 10));

    wait_for_deliveries(&host, 20);
    let lines = host.lines();
    for (tenant, prefix) in [("test", "of-one-"), ("second", "of-two-")] {
        let tenant = format!("\"tenant\":\"{tenant}\"");
        let consumed = lines.iter().filter(|line| line.contains(prefix));
        assert!(consumed.clone().count() > 0);
        assert!(
            consumed.clone().all(|line| line.contains(&tenant)),
            "{lines:?}"
        );
    }
    stop(host);
}
