//! Broadcasting with the real binary: every host gets everything, and goes on from its own
//! file.

use std::fs;
use std::path::PathBuf;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use guest_artifacts::path;

fn folder(broker: &EmbeddedBroker, consume: &str) -> HostFolder {
    let folder = HostFolder::new(broker.namesrv_addr(), "");
    let manifest = format!(
        "name = \"ledger\"\ncomponent = {component:?}\nconsumer_group = \"ledger-group\"\n\
         message_model = \"broadcasting\"\nconsume_from_where = \"first_offset\"\n\
         [[subscription]]\ntopic = \"ledger\"\n[consume]\n{consume}\n\
         [limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"\n",
        component = path("ledger"),
    );
    fs::write(folder.path().join("plugins/ledger.toml"), manifest).expect("a folder of ours");
    folder
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

/// The file with this ending in the host's state folder.
fn offset_file(folder: &HostFolder, ending: &str) -> PathBuf {
    let state = folder.path().join("state/offsets/test");
    let files = fs::read_dir(&state).expect("the host has made it");
    let mut paths = files.map(|file| file.expect("readable").path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(ending));
    found.unwrap_or_else(|| panic!("no file *{ending} in {}", state.display()))
}

#[test]
fn every_host_gets_every_message_once_and_goes_on_from_its_own_file() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", bodies("a", 300));
    let folders = [folder(&broker, ""), folder(&broker, "")];
    let hosts = folders.each_ref().map(|folder| folder.run(&[]));
    for host in &hosts {
        wait_for_deliveries(host, 300);
    }
    broker.send("ledger", bodies("b", 300));
    for host in &hosts {
        wait_for_deliveries(host, 600);
        let deliveries = host.deliveries();
        assert_eq!(counts(&deliveries).len(), 600);
        assert_eq!(deliveries.len(), 600, "each once");
    }
    hosts.into_iter().for_each(stop);

    // What came meanwhile comes after the start, and nothing again.
    broker.send("ledger", bodies("c", 20));
    for folder in &folders {
        let host = folder.run(&[]);
        wait_for_deliveries(&host, 20);
        let deliveries = host.deliveries();
        assert!(
            deliveries.iter().all(|one| one.body.starts_with('c')),
            "{deliveries:?}"
        );
        stop(host);
    }
}

#[test]
fn a_failed_message_is_dropped_or_tried_again_here_as_asked() {
    let broker = EmbeddedBroker::start();
    let dropping = folder(&broker, "");
    let retrying = folder(
        &broker,
        "broadcast_retry = \"local\"\nmax_reconsume_times = 2",
    );
    let mut hosts = [dropping.run(&[]), retrying.run(&[])];
    for host in &mut hosts {
        host.wait_for_line("serving", BOUND);
    }
    broker.send("ledger", ["good1", "fail1", "good2"]);

    for (host, attempts) in hosts.iter_mut().zip([vec![0], vec![0, 1, 2]]) {
        let line = host.wait_for_line("message dropped", BOUND);
        assert!(line.contains("WARN"), "{line}");
        let deliveries = host.deliveries();
        let times = |body: &str| {
            let of_body = deliveries.iter().filter(|one| one.body == body);
            of_body.map(|one| one.reconsume_times).collect::<Vec<_>>()
        };
        assert_eq!(times("fail1"), attempts);
        assert_eq!(times("good1"), [0], "a neighbour costs no attempt");
    }
    hosts.into_iter().for_each(stop);
}

#[test]
fn a_damaged_file_is_its_copy_and_without_one_the_start_policy() {
    let broker = EmbeddedBroker::start();
    let folder = folder(&broker, "");
    let host = folder.run(&[]);
    broker.send("ledger", bodies("a", 40));
    wait_for_deliveries(&host, 40);
    stop(host);
    // The second run makes a copy that knows all of them.
    let host = folder.run(&[]);
    broker.send("ledger", bodies("b", 8));
    wait_for_deliveries(&host, 8);
    stop(host);

    let latest = offset_file(&folder, ".offsets");
    let whole = fs::read(&latest).expect("stored");
    fs::write(&latest, &whole[..whole.len() / 2]).expect("ours");
    let mut host = folder.run(&[]);
    let line = host.wait_for_line("from the copy before the latest", BOUND);
    assert!(
        line.contains("WARN") && line.contains("ledger-group-"),
        "{line}"
    );
    broker.send("ledger", bodies("c", 8));
    eventually("the new messages", BOUND, || {
        let deliveries = host.deliveries();
        let new = deliveries.iter().filter(|one| one.body.starts_with('c'));
        (new.count() >= 8).then_some(())
    });
    let deliveries = host.deliveries();
    assert!(deliveries.iter().all(|one| !one.body.starts_with('a')));
    host.kill();

    for ending in [".offsets", ".offsets.previous"] {
        fs::write(offset_file(&folder, ending), [0; 64]).expect("ours");
    }
    let mut host = folder.run(&[]);
    let line = host.wait_for_line("local offsets are lost", BOUND);
    assert!(line.contains("ERROR"), "{line}");
    // `first_offset`: everything again.
    wait_for_deliveries(&host, 56);
    stop(host);
}

#[test]
fn a_disk_that_is_full_stops_nobody() {
    let broker = EmbeddedBroker::start();
    let folder = folder(&broker, "");
    let host = folder.run(&[]);
    broker.send("ledger", bodies("a", 8));
    wait_for_deliveries(&host, 8);
    stop(host);

    let new = offset_file(&folder, ".offsets").with_extension("offsets.new");
    std::os::unix::fs::symlink("/dev/full", new).expect("ours");
    let mut host = folder.run(&[]);
    broker.send("ledger", bodies("b", 8));
    wait_for_deliveries(&host, 8);
    let line = host.wait_for_line("cannot store offsets", BOUND);
    assert!(line.contains("consuming goes on"), "{line}");
    broker.send("ledger", bodies("c", 8));
    wait_for_deliveries(&host, 16);
    stop(host);
}

#[test]
fn two_hosts_cannot_share_their_state() {
    let broker = EmbeddedBroker::start();
    let folder = folder(&broker, "");
    let mut first = folder.run(&[]);
    first.wait_for_line("local offsets of", BOUND);
    let mut second = folder.run(&[]);
    let line = second.wait_for_line("another host", BOUND);
    assert!(line.contains("state_dir"), "{line}");
    assert!(!second.wait(BOUND).success());
    stop(first);
}
