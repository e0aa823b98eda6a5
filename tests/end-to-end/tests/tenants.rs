//! Tenants of one host: what they use is measured, what they get is fair, and what one of
//! them suffers is its own affair.

use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
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
