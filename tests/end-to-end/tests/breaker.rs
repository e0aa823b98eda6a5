//! A plugin that always fails is held back before its topic is poured into the dead
//! letters, and consumes everything once it is mended.

use std::fs;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::workspace;
use guest_artifacts::path;

const MESSAGES: usize = 200;
/// Rows end soon; every message may fail a few times.
const BREAKER: &str = "[consume]\nconsume_message_batch_max_size = 4\nconsume_thread_max = 2\n\
    [breaker]\nfailures = 10\npause = \"300ms\"\npause_max = \"1s\"\n\
    [limits]\nlog_lines_per_second = 1000000";
/// The row, what was under way when it ended, and a probe for each pause of a slow test:
/// far less than one for each message.
const FAILURES_MAX: usize = 60;

fn asked(folder: &HostFolder, command: &str, target: &str) -> String {
    let arguments = [command, target, "--output", "json"];
    let mut command = Command::new(workspace::mqlet());
    let output = command.args(arguments).current_dir(folder.path()).output();
    String::from_utf8(output.expect("mqlet starts").stdout).expect("UTF-8")
}

#[test]
fn a_plugin_that_always_fails_is_held_back_and_then_loses_nothing() {
    let broker = EmbeddedBroker::start();
    let bodies: Vec<String> = (0..MESSAGES).map(|number| format!("m{number}")).collect();
    broker.send("ledger", &bodies);
    let broken = format!("{BREAKER}\n[settings]\nmisbehave = \"unreachable\"\n");
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("hostile"), &broken);
    let mut host = folder.run(&[]);
    host.wait_for_line("keeps failing and is held back", BOUND);
    // Two probes that fail.
    host.wait_for_line("still fails", BOUND);
    eventually("the reason", BOUND, || {
        asked(&folder, "explain", "ledger-group")
            .contains("\"cause\":\"listener-failing\"")
            .then_some(())
    });
    let failures = asked(&folder, "failures", "ledger").lines().count();
    assert!(
        (10..=FAILURES_MAX).contains(&failures),
        "{failures} failed calls"
    );
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));

    let manifest = folder.path().join("plugins/ledger.toml");
    let text = fs::read_to_string(&manifest).expect("written above");
    fs::write(&manifest, text.replace("misbehave", "behave")).expect("a folder of ours");
    let host = folder.run(&[]);

    eventually("everything is consumed", BOUND, || {
        let deliveries = host.deliveries();
        let bodies: std::collections::BTreeSet<_> = deliveries
            .iter()
            .map(|delivery| delivery.body.clone())
            .collect();
        (bodies.len() == MESSAGES).then_some(())
    });
}

#[test]
fn a_mended_plugin_is_called_at_once_however_long_it_would_be_held_back() {
    let broker = EmbeddedBroker::start();
    let bodies: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    broker.send("ledger", &bodies);
    let broken = "[breaker]\nfailures = 3\npause = \"1h\"\npause_max = \"1h\"\n\
        [settings]\nmisbehave = \"unreachable\"\n";
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("hostile"), broken);
    let mut host = folder.run(&[]);
    host.wait_for_line("keeps failing and is held back", BOUND);

    let manifest = folder.path().join("plugins/ledger.toml");
    let text = fs::read_to_string(&manifest).expect("written above");
    fs::write(&manifest, text.replace("misbehave", "behave")).expect("a folder of ours");

    // Those that were tried come by the retry topic, after 10 s.
    eventually("everything is consumed", BOUND, || {
        let deliveries = host.deliveries();
        let bodies: std::collections::BTreeSet<_> = deliveries
            .iter()
            .map(|delivery| delivery.body.clone())
            .collect();
        (bodies.len() == 20).then_some(())
    });
}
