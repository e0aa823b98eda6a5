//! Plugins in a process of their own (`isolation = "process"`): the same contract, within
//! what the operating system allows, and whatever becomes of the process costs its own
//! plugin a call.

use std::fs;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, send};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const PROCESS: &str = "[limits]\nisolation = \"process\"\n";

/// The worker of a host that has one.
fn worker(host: &HostProcess) -> u32 {
    eventually("a worker", BOUND, || {
        let output = Command::new("ps")
            .args(["-o", "pid=,args=", "--ppid", &host.id().to_string()])
            .output()
            .expect("ps runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let worker = text.lines().find(|line| line.contains("plugin-worker"));
        worker?.split_whitespace().next()?.parse().ok()
    })
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

fn interrupt(mut host: HostProcess) {
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn plugin_in_its_own_process_consumes_and_the_process_is_confined() {
    let broker = EmbeddedBroker::start();
    let bodies: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    broker.send("ledger", &bodies);
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), PROCESS);
    let host = folder.run(&[]);
    wait_for_deliveries(&host, 100);
    assert_eq!(host.delivery_count(), 100, "nothing is repeated");

    let proc = format!("/proc/{}", worker(&host));
    let status = fs::read_to_string(format!("{proc}/status")).expect("it lives");
    let has = |line: &str| status.lines().any(|one| one == line);
    assert!(has("Seccomp:\t2") && has("NoNewPrivs:\t1"), "{status}");
    let environment = fs::read(format!("{proc}/environ")).expect("ours");
    assert_eq!(environment, b"");
    let limits = fs::read_to_string(format!("{proc}/limits")).expect("ours");
    let limit = |name: &str| {
        limits
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned)
    };
    let words = |name| {
        let line = limit(name).expect("it is listed");
        line[name.len()..]
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    assert_eq!(words("Max core file size").as_deref(), Some("0"));
    assert_eq!(words("Max open files").as_deref(), Some("64"));
    assert_ne!(words("Max data size").as_deref(), Some("unlimited"));
    // Nothing is open but its pipes, its socket and what the runtime waits with.
    for descriptor in fs::read_dir(format!("{proc}/fd")).expect("ours") {
        let descriptor = descriptor.expect("ours").path();
        let Ok(target) = fs::read_link(&descriptor) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        let expected = ["socket:", "pipe:", "anon_inode:", "/dev/null", "/memfd:"];
        assert!(
            expected.iter().any(|one| target.starts_with(one)),
            "{target}"
        );
    }
    interrupt(host);
}

#[test]
fn orderly_listener_in_its_own_process_keeps_the_order() {
    let broker = EmbeddedBroker::start();
    broker.send("told", ["log one", "log two", "log three"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin_of_kind(
        "orderly",
        "told",
        &path("orderly_as_told"),
        PROCESS,
    );
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    host.wait_for_line("\"message\":\"consumed\"", BOUND);
    interrupt(host);
}

#[test]
fn worker_that_is_killed_fails_its_call_and_another_one_takes_the_message() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "drain_timeout = \"1s\"")
        .with_plugin("ledger", &path("ledger"), "")
        .with_plugin(
            "told",
            &path("as_told"),
            &format!("{PROCESS}[consume]\nconsume_timeout = \"15m\"\nmax_reconsume_times = 1\n"),
        );
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 2 plugins", BOUND);
    broker.send("told", ["log the call is under way", "wait"]);
    host.wait_for_line("the call is under way", BOUND);
    let first = worker(&host);

    kill(first);

    let told = host.wait_for_line("\"kind\":\"worker_died\"", BOUND);
    assert!(told.contains("signal: 9"), "{told}");
    // The neighbour lives in the host.
    broker.send("ledger", ["a"]);
    wait_for_deliveries(&host, 1);
    // The message is tried again, alone, in a worker of its own time.
    let second = eventually("another worker", BOUND, || {
        let second = worker(&host);
        (second != first).then_some(second)
    });
    broker.send("told", ["log served again"]);
    host.wait_for_line("served again", BOUND);
    assert_eq!(worker(&host), second, "it lives on");
    host.interrupt();
    // The call that waits is killed.
    assert_eq!(host.wait(BOUND).code(), Some(4));
    let gone = !fs::exists(format!("/proc/{second}")).unwrap_or(true);
    assert!(gone, "no worker outlives its host");
}

fn kill(process: u32) {
    let mut kill = Command::new("kill");
    let status = kill.args(["-9", &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

#[test]
fn poison_in_a_process_costs_only_its_own_message_an_attempt() {
    let broker = EmbeddedBroker::start();
    // All in one batch, so that one call has them together.
    broker.send("poisoned", ["a", "trap", "b", "c"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "poisoned",
        &path("trap_on"),
        &format!("{PROCESS}[consume]\nmax_reconsume_times = 1"),
    );
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    host.wait_for_line("\"attempt\":2", BOUND);
    let lines = host.lines();
    let failed = |text: &str| {
        let failed = lines
            .iter()
            .filter(|line| line.contains("\"kind\":\"trap\""));
        failed.filter(|line| line.contains(text)).count()
    };
    assert_eq!(failed("\"messages\":4,"), 1, "the batch");
    assert_eq!(failed("\"isolated\":true"), 1, "the poison alone, once");
    interrupt(host);
}

#[test]
fn endless_and_greedy_plugins_in_processes_end_at_their_limits() {
    let broker = EmbeddedBroker::start();
    broker.send("computes", ["1"]);
    broker.send("waits", ["1"]);
    broker.send("hoards", ["1"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "drain_timeout = \"10s\"")
        .with_plugin(
            "computes",
            &path("never_return"),
            &format!("{PROCESS}compute_time = \"300ms\"\n"),
        )
        .with_plugin(
            "waits",
            &path("wait_forever"),
            &format!("{PROCESS}[consume]\nconsume_timeout = \"1s\"\n"),
        )
        .with_plugin("hoards", &path("grow_memory"), PROCESS);
    let host = folder.run(&[]);
    for (plugin, kind) in [
        ("computes", "compute_time"),
        ("waits", "timeout"),
        ("hoards", "memory"),
    ] {
        let (plugin, kind) = (
            format!("\"plugin\":\"{plugin}\""),
            format!("\"kind\":\"{kind}\""),
        );
        eventually(&format!("{kind} of {plugin}"), BOUND, || {
            let lines = host.lines();
            let found = |line: &String| line.contains(&plugin) && line.contains(&kind);
            lines.iter().any(found).then_some(())
        });
    }
    interrupt(host);
}

#[test]
fn what_is_sent_in_a_process_leaves_by_the_host_and_its_grants() {
    let mut broker = EmbeddedBroker::start();
    let grant = format!(
        "{PROCESS}[consume]\nmax_reconsume_times = 1\n[grants.producer]\ntopics = [\"send-out\"]\n"
    );
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("send", &path("send"), &grant)
        .with_plugin("send-out", &path("ledger"), "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 2 plugins", BOUND);
    let send_with = |body: &str, property: &str| {
        let address = broker.namesrv_addr().to_owned();
        let arguments = [
            "send",
            "send",
            body,
            "--property",
            property,
            "--namesrv-addr",
            &address,
        ];
        assert!(send(&arguments).wait(BOUND).success());
    };
    send_with("of-a-trap", "then=trap");
    send_with("good", "then=success");
    wait_for_deliveries(&host, 1);
    broker.process.wait_for_line("is a dead letter now", BOUND);
    let deliveries = host.deliveries();
    let bodies: Vec<_> = deliveries.iter().map(|one| one.body.as_str()).collect();
    assert_eq!(bodies, ["good"], "a call that failed has sent nothing");
    interrupt(host);
}
