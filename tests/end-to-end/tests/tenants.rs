//! Tenants of one host: what they use is measured, what they get is fair, and what one of
//! them suffers is its own affair.

use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::workspace::mqlet;
use guest_artifacts::path;
use serde_json::Value;

/// Calls that compute without end, for longer than any test.
const SPINS: &str = "[consume]\nconsume_timeout = \"10m\"\n[limits]\ncompute_time = \"10m\"";
const DRAINS_AT_ONCE: &str = "drain_timeout = \"0s\"";

/// The rows of `mqlet usage`, or `None` while no host listens.
fn usage(folder: &HostFolder) -> Option<Vec<Value>> {
    let output = Command::new(mqlet())
        .args(["usage", "--output", "json"])
        .current_dir(folder.path())
        .output()
        .expect("mqlet can be started");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let rows = lines.lines();
    let rows: Vec<Value> = rows
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    (!rows.is_empty()).then_some(rows)
}

/// CPU seconds of a row.
fn cpu(rows: &[Value], kind: &str, tenant: Option<&str>) -> f64 {
    let row = rows
        .iter()
        .find(|row| row["kind"] == kind && tenant.is_none_or(|tenant| row["tenant"] == tenant));
    let row = row.unwrap_or_else(|| panic!("no row {kind} {tenant:?} in {rows:?}"));
    row["cpu_seconds"].as_f64().expect("a number")
}

/// The rows once the guests have computed for so long in total.
fn usage_after(folder: &HostFolder, seconds: f64) -> Vec<Value> {
    eventually(&format!("{seconds} CPU seconds"), BOUND, || {
        usage(folder).filter(|rows| cpu(rows, "process", None) >= seconds)
    })
}

fn stop(mut host: HostProcess) {
    host.interrupt();
    host.wait(BOUND);
}

#[test]
fn cpu_follows_weights_and_adds_up_to_what_the_process_used() {
    let broker = EmbeddedBroker::start();
    let namesrv_addr = broker.namesrv_addr();
    let folder = HostFolder::new(namesrv_addr, DRAINS_AT_ONCE)
        .with_plugin("idle", &path("succeed"), "")
        .with_tenant_of(
            "small",
            namesrv_addr,
            "weight = 100",
            &path("never_return"),
            SPINS,
        )
        .with_tenant_of(
            "large",
            namesrv_addr,
            "weight = 300",
            &path("never_return"),
            SPINS,
        );
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 3 plugins", BOUND);
    broker.send("idle", ["1", "2", "3"]);
    // In every queue, so that each of them has more calls than there are cores.
    broker.send("small", vec!["x"; 64]);
    broker.send("large", vec!["x"; 64]);
    let begun = eventually("both compute", BOUND, || {
        usage(&folder).filter(|rows| {
            cpu(rows, "tenant", Some("small")) > 0.2 && cpu(rows, "tenant", Some("large")) > 0.2
        })
    });

    let ended = usage_after(&folder, cpu(&begun, "process", None) + 8.0);

    let used = |kind, tenant| cpu(&ended, kind, tenant) - cpu(&begun, kind, tenant);
    let (small, large) = (used("tenant", Some("small")), used("tenant", Some("large")));
    let ratio = large / small;
    assert!((2.6..3.4).contains(&ratio), "{large} to {small}: {ratio}");
    let process = used("process", None);
    let guests = (small + large) / process;
    assert!((0.9..=1.01).contains(&guests), "{guests} of {process} s");
    let sum = small + large + used("tenant", Some("test")) + used("host", None);
    let sum = sum / process;
    assert!((0.99..=1.01).contains(&sum), "{sum} of {process} s");
    // A tenant's row is the sum of its plugins', and they say what they did.
    let idle = ended
        .iter()
        .find(|row| row["kind"] == "plugin" && row["plugin"] == "idle");
    let idle = idle.expect("it is there");
    assert_eq!(idle["messages"], 3);
    assert!(idle["calls"].as_u64() >= Some(1));
    assert!(idle["bytes_in"].as_u64() >= Some(3));
    assert!(idle["memory_mib_seconds"].as_f64() > Some(0.0));
    assert_eq!(cpu(&ended, "tenant", Some("test")), idle["cpu_seconds"]);
    stop(host);
}

#[test]
fn kills_are_counted_by_reason() {
    let broker = EmbeddedBroker::start();
    broker.send("traps", ["trap"]);
    broker.send("computes", ["x"]);
    let little = "[limits]\ncompute_time = \"50ms\"";
    let folder = HostFolder::new(broker.namesrv_addr(), DRAINS_AT_ONCE)
        .with_plugin("traps", &path("trap_on"), "")
        .with_plugin("computes", &path("never_return"), little);
    let host = folder.run(&[]);
    eventually("both kills", BOUND, || {
        let rows = usage(&folder)?;
        let kills = |plugin: &str, reason: &str| {
            let row = rows.iter().find(|row| row["plugin"] == plugin)?;
            row["kills"][reason].as_u64()
        };
        (kills("traps", "trap") >= Some(1) && kills("computes", "compute_time") >= Some(1))
            .then_some(())
    });
    stop(host);
}

#[test]
fn budget_of_messages_delays_and_fails_nothing() {
    let broker = EmbeddedBroker::start();
    let bodies: Vec<String> = (0..200).map(|number| format!("m{number}")).collect();
    broker.send("slowed", &bodies);
    broker.send("ledger", &bodies);
    let namesrv_addr = broker.namesrv_addr();
    let keys = "[tenants.slowed.budgets]\nmessages_per_second = 20";
    let folder = HostFolder::new(namesrv_addr, DRAINS_AT_ONCE)
        .with_plugin("ledger", &path("ledger"), "")
        .with_tenant_of("slowed", namesrv_addr, keys, &path("succeed"), "");
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    host.wait_for_line("serving 2 plugins", BOUND);

    let mut seen = Vec::new();
    let explained = eventually("the reason", BOUND, || {
        seen = usage(&folder)?;
        let text = explain(&folder, "slowed");
        text.contains("\"cause\":\"tenant-budget\"").then_some(text)
    });

    assert!(
        explained.contains("budgets.messages_per_second = 20"),
        "{explained}"
    );
    eventually("the neighbour's messages", BOUND, || {
        (host.delivery_count() == bodies.len()).then_some(())
    });
    let of_slowed = |rows: &[Value]| {
        let row = rows.iter().find(|row| row["plugin"] == "slowed");
        row.and_then(|row| row["messages"].as_u64()).unwrap_or(0)
    };
    assert!(of_slowed(&usage(&folder).expect("rows")) < 200);
    eventually("all messages in the end", BOUND, || {
        usage(&folder).filter(|rows| of_slowed(rows) == 200)
    });
    let text = host.lines().join("\n");
    assert!(
        !text.contains("dead letter") && !text.contains("\"kind\":"),
        "{text}"
    );
    stop(host);
}

#[test]
fn budget_of_memory_delays_and_fails_nothing() {
    let broker = EmbeddedBroker::start();
    // Each call holds 24 MiB for a while; two fit beside what an instance begins with.
    broker.send("grows", vec!["grow 24"; 12]);
    let namesrv_addr = broker.namesrv_addr();
    let keys = "[tenants.grows.budgets]\nmemory = \"64MiB\"";
    let one_each = "[consume]\nconsume_message_batch_max_size = 1";
    let folder = HostFolder::new(namesrv_addr, DRAINS_AT_ONCE)
        .with_plugin("ledger", &path("ledger"), "")
        .with_tenant_of("grows", namesrv_addr, keys, &path("as_told"), one_each);
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    host.wait_for_line("serving 2 plugins", BOUND);

    eventually("all calls", BOUND, || {
        let rows = usage(&folder)?;
        let row = rows.iter().find(|row| row["plugin"] == "grows")?;
        assert!(row["memory_bytes"].as_u64() <= Some(64 << 20), "{row}");
        assert_eq!(row["kills"], serde_json::json!({}), "{row}");
        (row["calls"].as_u64() >= Some(12)).then_some(())
    });
    let text = host.lines().join("\n");
    assert!(
        !text.contains("dead letter") && !text.contains("\"kind\":"),
        "{text}"
    );
    stop(host);
}

#[test]
fn two_clusters_of_one_host_have_nothing_in_common_and_one_that_dies_is_not_noticed() {
    let mut first = EmbeddedBroker::start();
    let second = EmbeddedBroker::start();
    let names = [
        first.namesrv_addr().to_owned(),
        second.namesrv_addr().to_owned(),
    ];
    // The same topic and group on both.
    let folder = HostFolder::new(&names[0], DRAINS_AT_ONCE)
        .with_plugin("ledger", &path("ledger"), "")
        .with_empty_tenant("other", &names[1])
        .with_plugin_of("other", "ledger", &path("ledger"), "");
    first.send("ledger", ["of-the-first"]);
    second.send("ledger", ["of-the-second"]);
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 2 plugins of 2 tenants", BOUND);
    eventually("one of each", BOUND, || {
        (host.delivery_count() == 2).then_some(())
    });
    first.process.kill();
    for number in 0..10 {
        let before = host.delivery_count();
        second.send("ledger", [format!("late{number}")]);
        eventually("a late message", BOUND, || {
            (host.delivery_count() > before).then_some(())
        });
    }
    assert_eq!(host.delivery_count(), 12, "nothing comes twice");
    stop(host);
}

/// A cluster that is gone, one that hangs up, a budget that is used up, plugins that trap,
/// spin, hoard and talk: each in a tenant of its own, beside one that is well.
#[test]
fn trouble_of_one_tenant_changes_nothing_for_another() {
    let broker = EmbeddedBroker::start();
    let namesrv_addr = broker.namesrv_addr();
    let nobody = free_address();
    let starved = "[tenants.starved.budgets]\nmessages_per_second = 1";
    let folder = HostFolder::new(namesrv_addr, DRAINS_AT_ONCE)
        .with_plugin("ledger", &path("ledger"), "")
        .with_tenant("gone", &nobody, &path("succeed"))
        .with_tenant_of("starved", namesrv_addr, starved, &path("succeed"), "")
        .with_tenant_of("spins", namesrv_addr, "", &path("never_return"), SPINS)
        .with_tenant("traps", namesrv_addr, &path("trap_on"))
        .with_tenant("hoards", namesrv_addr, &path("grow_memory"))
        .with_tenant("talks", namesrv_addr, &path("flood_log"))
        .with_tenant("fails", namesrv_addr, &path("init_traps"));
    for topic in ["starved", "spins", "hoards", "talks"] {
        broker.send(topic, vec!["x"; 100]);
    }
    broker.send("traps", vec!["trap"; 100]);
    let bodies: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
    broker.send("ledger", &bodies);

    let mut host = folder.run(&[]);
    host.wait_for_line("serving 7 plugins of 8 tenants, without fails/fails", BOUND);
    eventually("the healthy tenant's messages", BOUND, || {
        (host.delivery_count() >= bodies.len()).then_some(())
    });
    // While all of them are at it: a message each is handled before the next is sent.
    for number in 0..20 {
        let before = host.delivery_count();
        broker.send("ledger", [format!("late{number}")]);
        eventually("a late message", BOUND, || {
            (host.delivery_count() > before).then_some(())
        });
    }

    let deliveries = host.deliveries();
    assert_eq!(deliveries.len(), bodies.len() + 20, "nothing comes twice");
    assert!(
        deliveries
            .iter()
            .all(|delivery| delivery.reconsume_times == 0)
    );
    for (tenant, cause) in [("starved", "tenant-budget"), ("gone", "route-unknown")] {
        let text = explain(&folder, tenant);
        assert!(text.contains(cause), "{tenant}: {text}");
    }
    let well = explain(&folder, "ledger");
    assert!(well.contains("\"healthy\":true"), "{well}");
    stop(host);
}

fn explain(folder: &HostFolder, target: &str) -> String {
    let output = Command::new(mqlet())
        .args(["explain", target, "--output", "json"])
        .current_dir(folder.path())
        .output()
        .expect("mqlet can be started");
    String::from_utf8(output.stdout).expect("UTF-8")
}
