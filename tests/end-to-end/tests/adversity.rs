//! Deployments while the broker answers nobody.

use std::fs;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

fn ledger(namesrv_addr: &str) -> HostFolder {
    HostFolder::new(namesrv_addr, "").with_plugin("ledger", &path("ledger"), ALL_LINES)
}

/// The same plugin with another setting; returns its path.
fn manifest(folder: &HostFolder, setting: &str) -> String {
    let text = fs::read_to_string(folder.path().join("plugins/ledger.toml")).expect("written");
    let file = folder.path().join("other.toml");
    fs::write(&file, format!("{text}\n[settings]\na = {setting:?}\n")).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

fn wait_for_bodies(host: &HostProcess, wanted: &[String]) {
    eventually("every message", BOUND, || {
        let seen = host.deliveries();
        let has = |body: &String| seen.iter().any(|one| one.body == *body);
        wanted.iter().all(has).then_some(())
    });
}

fn bodies(name: &str) -> Vec<String> {
    (0..50).map(|number| format!("{name}-{number}")).collect()
}

#[test]
fn deployment_without_a_broker_serves_when_there_is_one_again() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr());
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    let sent = bodies("before");
    broker.send("ledger", &sent);
    wait_for_bodies(&host, &sent);
    // It answers nobody, and has everything when it does again.
    signal(&broker.process, "-STOP");

    let file = manifest(&folder, "two");
    let text = folder.printed(&["deploy", "ledger", &file]);
    assert!(text.contains("serves revision 2"), "{text}");
    let text = folder.printed(&["rollback", "ledger"]);
    assert!(text.contains("serves revision 1"), "{text}");
    folder.printed(&["rollback", "ledger", "--to", "2"]);

    signal(&broker.process, "-CONT");
    let sent = bodies("after");
    broker.send("ledger", &sent);
    wait_for_bodies(&host, &sent);
    let text = folder.printed(&["plugins", "ledger"]);
    assert!(text.contains("serves revision 2"), "{text}");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
    folder.printed(&["history", "--verify"]);
}

fn signal(process: &HostProcess, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &process.id().to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{signal}");
}
