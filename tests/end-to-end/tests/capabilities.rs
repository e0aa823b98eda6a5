//! What a plugin reaches by its grants, in a running host.

use std::fs;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const GRANTS: &str = "[grants]\nconfig = true\nhttp = { hosts = [\"api.example.org\"] }\n\
    keyvalue = { buckets = [\"orders\"] }\n[settings]\nregion = \"eu\"\n\
    [secrets]\napi-key = { file = \"../api-key\" }\n";

/// The guest answers each message with a dead letter that says what came of it.
fn run(folder: &HostFolder) -> HostProcess {
    let mut host = folder.run(&["--log-level", "info,consumer=debug"]);
    host.wait_for_line("serving 1 plugin", BOUND);
    host
}

fn stop(mut host: HostProcess) {
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn buckets_outlive_the_host_and_secrets_are_in_no_log() {
    let broker = EmbeddedBroker::start();
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("reach", &path("reach"), GRANTS);
    fs::write(folder.path().join("api-key"), "s3cret\n").expect("a folder of ours");

    let mut host = run(&folder);
    broker.send("reach", ["add orders count 40", "length api-key"]);
    host.wait_for_line("reach[40]", BOUND);
    host.wait_for_line("reach[6 bytes]", BOUND);
    let lines = host.lines();
    assert!(
        !lines.iter().any(|line| line.contains("s3cret")),
        "{lines:?}"
    );
    stop(host);

    let mut host = run(&folder);
    broker.send("reach", ["add orders count 2"]);
    host.wait_for_line("reach[42]", BOUND);
    broker.send("reach", ["GET http://api.example.com/"]);
    host.wait_for_line("HttpRequestDenied", BOUND);
    stop(host);
}
