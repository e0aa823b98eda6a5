//! Folders of manifests that change under a running host in awkward ways: files that break
//! while a command's revision serves, plugins that are renamed or come back while their
//! last call drains, groups that are somebody else's.

use std::fs;
use std::path::Path;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;
use serde_json::Value;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

/// A manifest of a plugin on this group, for the topic `ledger`.
fn manifest(name: &str, group: &str, guest: &str, more: &str) -> String {
    format!(
        "name = {name:?}\ncomponent = {:?}\nconsumer_group = {group:?}\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = \"ledger\"\n{more}\n{ALL_LINES}\n",
        path(guest)
    )
}

fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, file).expect("renamed");
}

/// The row of a plugin in `mqlet plugins`.
fn row(folder: &HostFolder, tenant: &str, name: &str) -> Option<Value> {
    let output = folder.mqlet(&["plugins", name, "--output", "json"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.into_iter()
        .find(|row| row["plugin"] == name && row["tenant"] == tenant)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, BOUND, || is_so().then_some(()));
}

fn wait_for_problem(folder: &HostFolder, part: &str) {
    wait_for(part, || folder.printed(&["plugins"]).contains(part));
}

fn start(folder: &HostFolder, plugins: &str) -> HostProcess {
    let mut host = folder.run(&[]);
    host.wait_for_line(&format!("serving {plugins}"), BOUND);
    host
}

#[test]
fn broken_file_leaves_what_a_command_deployed_in_its_group() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "ledger",
        &path("ledger"),
        ALL_LINES,
    );
    let host = start(&folder, "1 plugin");
    let staged = folder.path().join("staging/ledger");
    fs::create_dir_all(&staged).expect("made");
    let text = manifest(
        "ledger",
        "ledger-group",
        "ledger",
        "[settings]\na = \"two\"",
    );
    fs::write(staged.join("plugin.toml"), text).expect("written");
    folder.printed(&["deploy", "ledger", staged.to_str().expect("UTF-8")]);

    let file = folder.path().join("plugins/ledger.toml");
    fs::write(&file, "name = \"ledger\"\n").expect("written");
    wait_for_problem(&folder, "consumer_group");

    broker.send("ledger", ["one"]);
    wait_for("a delivery", || host.delivery_count() == 1);
    let row = row(&folder, "test", "ledger").expect("it is there");
    assert_eq!(row["number"], 2);
    let shown = row["manifest"].as_str().expect("a path");
    assert!(shown.ends_with("plugins/ledger.toml"), "{shown}");

    // Another breaker is no other revision, and is made all the same.
    let active = || {
        let lines = host.lines().into_iter();
        lines.filter(|line| line.contains("is active")).count()
    };
    assert_eq!(active(), 2);
    let more = "[settings]\na = \"two\"\n[breaker]\nfailures = 5";
    replace(&file, &manifest("ledger", "ledger-group", "ledger", more));
    wait_for("another breaker", || active() == 3);
}

#[test]
fn plugin_that_is_renamed_or_comes_back_while_a_call_drains_has_its_group() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "drain_timeout = \"2s\"").with_plugin(
        "idle",
        &path("ledger"),
        ALL_LINES,
    );
    let file = folder.path().join("plugins/ledger.toml");
    let waits = manifest("ledger", "ledger-group", "wait_forever", "");
    fs::write(&file, &waits).expect("written");
    let mut host = start(&folder, "2 plugins");
    broker.send("ledger", ["one"]);
    let has_a_call = |name: &'static str| {
        wait_for("a call", || {
            row(&folder, "test", name).is_some_and(|row| row["calls"] == 1)
        });
    };
    has_a_call("ledger");

    replace(
        &file,
        &waits.replace("name = \"ledger\"", "name = \"renamed\""),
    );

    // The message that was not finished is given to it again.
    has_a_call("renamed");
    assert_eq!(row(&folder, "test", "ledger"), None);

    fs::remove_file(&file).expect("removed");
    host.wait_for_line("plugin \\\"renamed\\\" has no manifest any more", BOUND);
    replace(&file, &manifest("renamed", "ledger-group", "ledger", ""));

    wait_for("a delivery", || host.delivery_count() >= 1);
    let row = row(&folder, "test", "renamed").expect("it is there");
    assert_eq!(row["state"], "serving");
    folder.printed(&["pause", "ledger-group"]);
}

#[test]
fn group_of_another_plugin_is_refused_before_anything_is_loaded() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("ledger", &path("ledger"), ALL_LINES)
        .with_plugin("idle", &path("ledger"), ALL_LINES)
        .with_empty_tenant("other", broker.namesrv_addr());
    // The same name in another tenant.
    let others = folder.path().join("other/ledger.toml");
    fs::write(&others, manifest("ledger", "third", "ledger", "")).expect("written");
    let host = start(&folder, "3 plugins");

    let taken = folder.path().join("taken.toml");
    fs::write(&taken, manifest("ledger", "idle-group", "ledger", "")).expect("written");
    let taken = taken.to_str().expect("UTF-8");
    let error = folder.refused(&["deploy", "ledger", taken, "--tenant", "test"]);
    assert!(error.contains("on the group of plugin \"idle\""), "{error}");

    replace(&others, &manifest("ledger", "ledger-group", "ledger", ""));
    wait_for_problem(&folder, "on the group of plugin \"ledger\"");
    for tenant in ["test", "other"] {
        let row = row(&folder, tenant, "ledger").expect("it is there");
        assert_eq!(
            (&row["state"], &row["number"]),
            (&"serving".into(), &1.into())
        );
    }
    broker.send("ledger", ["one"]);
    wait_for("both groups", || host.delivery_count() == 2);

    // A group of its own is its own, for commands too.
    replace(&others, &manifest("ledger", "fourth", "ledger", ""));
    wait_for("the other group", || {
        folder.mqlet(&["pause", "fourth"]).status.success()
    });
    let groups = folder.printed(&["groups"]);
    assert!(
        groups.contains("fourth") && !groups.contains("third"),
        "{groups}"
    );
    assert!(!groups.contains("failed"), "{groups}");
}

#[test]
fn host_that_is_stopped_while_plugins_load_does_not_wait_for_them() {
    let broker = EmbeddedBroker::start();
    let mut folder = HostFolder::new(broker.namesrv_addr(), "");
    for number in 0..12 {
        folder = folder.with_plugin(
            &format!("waits{number}"),
            &path("init_waits_forever"),
            "[limits]\ninit_time = \"10m\"",
        );
    }
    let mut host = folder.run(&[]);
    host.wait_for_line("warm-up", BOUND);

    host.interrupt();

    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
}
