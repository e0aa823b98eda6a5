//! A plugin that misbehaves costs itself something, and nobody else.

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const SHORT_CALLS: &str = "[consume]\nconsume_timeout = \"1s\"";
/// Long calls: on a busy machine computing takes its time.
const LITTLE_CPU: &str = "[consume]\nconsume_timeout = \"1m\"\n[limits]\ncompute_time = \"300ms\"";

#[test]
fn endless_and_greedy_plugins_leave_their_neighbour_alone() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "drain_timeout = \"10s\"")
        .with_plugin("ledger", &path("ledger"), "")
        .with_plugin("computes", &path("never_return"), LITTLE_CPU)
        .with_plugin("waits", &path("wait_forever"), SHORT_CALLS)
        .with_plugin("hoards", &path("grow_memory"), "")
        .with_plugin("talks", &path("flood_log"), "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 5 plugins", BOUND);
    for topic in ["computes", "waits", "hoards", "talks"] {
        broker.send(topic, ["1", "2"]);
    }
    let neighbours: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    broker.send("ledger", &neighbours);

    for (plugin, what) in [
        ("computes", "\"kind\":\"compute_time\""),
        ("waits", "\"kind\":\"timeout\""),
        ("hoards", "\"kind\":\"memory\""),
        ("talks", "logs more than its limits allow"),
    ] {
        let plugin = format!("\"plugin\":\"{plugin}\"");
        eventually(&format!("{what} of {plugin}"), BOUND, || {
            let lines = host.lines();
            let found = |line: &String| line.contains(&plugin) && line.contains(what);
            lines.iter().any(found).then_some(())
        });
    }
    eventually("the neighbour's messages", BOUND, || {
        (host.delivery_count() == neighbours.len()).then_some(())
    });
    let talked = host.lines();
    let talked = talked.iter().filter(|line| {
        line.contains("\"target\":\"guest\"") && line.contains("\"plugin\":\"talks\"")
    });
    let talked = talked.count();
    assert!(
        talked > 0 && talked < 2000,
        "{talked} lines of the plugin that talks"
    );
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn poison_costs_only_its_own_message_an_attempt() {
    let broker = EmbeddedBroker::start();
    // All in one batch, so that one call has them together.
    broker.send("poisoned", ["a", "trap", "b", "c"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "poisoned",
        &path("trap_on"),
        "[consume]\nmax_reconsume_times = 1",
    );
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);

    // The batch, the message alone, and its second attempt.
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
    let consumed = lines
        .iter()
        .find(|line| line.contains("\"message\":\"consumed\""));
    let consumed = consumed.expect("told before the second attempt");
    assert!(
        consumed.contains("\"done\":3") && consumed.contains("\"failed\":1"),
        "{consumed}"
    );
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

/// A host with a call that never ends, and says that it began.
fn host_with_an_endless_call(
    broker: &EmbeddedBroker,
    drain_timeout: &str,
) -> (HostFolder, HostProcess) {
    // One batch, in this order.
    broker.send("told", ["log the call is under way", "wait"]);
    let host = format!("drain_timeout = \"{drain_timeout}\"");
    let folder = HostFolder::new(broker.namesrv_addr(), &host).with_plugin(
        "told",
        &path("as_told"),
        "[consume]\nconsume_timeout = \"15m\"",
    );
    let mut host = folder.run(&[]);
    host.wait_for_line("the call is under way", BOUND);
    (folder, host)
}

#[test]
fn calls_that_do_not_end_are_killed_at_the_drain_deadline() {
    let broker = EmbeddedBroker::start();
    let (_folder, mut host) = host_with_an_endless_call(&broker, "300ms");

    host.interrupt();

    assert_eq!(host.wait(BOUND).code(), Some(4), "{:?}", host.lines());
    let lines = host.lines();
    assert!(
        lines.iter().any(|line| line.contains("were killed")),
        "{lines:?}"
    );
}

#[test]
fn second_ctrl_c_ends_at_once() {
    let broker = EmbeddedBroker::start();
    let (_folder, mut host) = host_with_an_endless_call(&broker, "1h");

    host.interrupt();
    host.wait_for_line("stopping", BOUND);
    host.interrupt();

    assert_eq!(host.wait(BOUND).code(), Some(130));
}
