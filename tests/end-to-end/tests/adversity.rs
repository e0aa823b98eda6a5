//! Deployments while something is gone: the disk is full, or no broker is there. What serves,
//! serves on, and what a later start finds is the old revision or the new one.

use std::fs;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::workspace;
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

/// A host none of whose files may grow beyond this. Pipes and sockets may.
fn run_on_a_full_disk(folder: &HostFolder, blocks_of_512: u32) -> HostProcess {
    // Whoever ignores the signal gets an error from the write, as of a disk that is full.
    let script = format!("trap '' XFSZ; ulimit -f {blocks_of_512}; exec \"$0\" run mqlet.toml");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(workspace::mqlet());
    command
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .current_dir(folder.path());
    HostProcess::spawn(&mut command)
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
fn full_disk_stops_nothing_and_a_later_start_finds_one_of_the_revisions() {
    let broker = EmbeddedBroker::start();
    // Nothing can be written; a book and no ledger of a few lines; all but components.
    for blocks in [0, 4, 64] {
        let folder = ledger(broker.namesrv_addr());
        let mut host = run_on_a_full_disk(&folder, blocks);
        host.wait_for_line("serving 1 plugin", BOUND);
        for round in 0..4 {
            let file = manifest(&folder, &format!("{round}"));
            let text = folder.printed(&["deploy", "ledger", &file]);
            assert!(
                text.contains("serves revision"),
                "{blocks}, {round}: {text}"
            );
            let sent = bodies(&format!("full{blocks}-{round}"));
            broker.send("ledger", &sent);
            wait_for_bodies(&host, &sent);
        }
        let lines = host.lines();
        let told = |part: &str| lines.iter().any(|line| line.contains(part));
        assert!(told("is not kept"), "{blocks}: somebody is told");
        host.kill();

        let mut host = folder.run(&[]);
        host.wait_for_line("serving 1 plugin", BOUND);
        let sent = bodies(&format!("room{blocks}"));
        broker.send("ledger", &sent);
        wait_for_bodies(&host, &sent);
        folder.printed(&["history", "--verify"]);
    }
}

#[test]
fn deployment_without_a_broker_serves_when_there_is_one_again() {
    let address = free_address();
    let mut broker = EmbeddedBroker::start_at(&address);
    let folder = ledger(&address);
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    let sent = bodies("before");
    broker.send("ledger", &sent);
    wait_for_bodies(&host, &sent);
    broker.process.kill();

    let file = manifest(&folder, "two");
    let text = folder.printed(&["deploy", "ledger", &file]);
    assert!(text.contains("serves revision 2"), "{text}");
    let text = folder.printed(&["rollback", "ledger"]);
    assert!(text.contains("serves revision 1"), "{text}");
    folder.printed(&["rollback", "ledger", "--to", "2"]);

    let broker = EmbeddedBroker::start_at(&address);
    let sent = bodies("after");
    broker.send("ledger", &sent);
    wait_for_bodies(&host, &sent);
    let text = folder.printed(&["plugins", "ledger"]);
    assert!(text.contains("serves revision 2"), "{text}");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
    folder.printed(&["history", "--verify"]);
}
