//! `mqlet dev`: what a newcomer sees, with the sample plugin and its sources.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, send};
use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::counts;
use end_to_end::remoting_frame::{Frame, UPDATE_AND_CREATE_TOPIC};
use end_to_end::workspace;
use tempfile::TempDir;

/// Compiling a plugin, the standard library perhaps included.
const BUILD_BOUND: Duration = Duration::from_secs(240);

/// Starts `mqlet dev` on a folder; builds go to the repository's `target`, where
/// `cargo xtask guests` has been.
fn dev(plugin: &Path, arguments: &[&str]) -> HostProcess {
    HostProcess::spawn(
        Command::new(workspace::mqlet())
            .arg("dev")
            .arg(plugin)
            .args(arguments)
            .env("CARGO_TARGET_DIR", workspace::root().join("target"))
            .env("XDG_CACHE_HOME", workspace::cache()),
    )
}

/// A copy of the sample, to be edited.
fn copy_of_hello() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sample = workspace::root().join("plugins/hello/rust");
    fs::create_dir(folder.path().join("src")).expect("writable");
    for file in ["Cargo.toml", "Cargo.lock", "plugin.toml", "src/lib.rs"] {
        fs::copy(sample.join(file), folder.path().join(file)).expect("part of the sample");
    }
    let sdk = workspace::root().join("guest-sdk/rust");
    edit(
        &folder.path().join("Cargo.toml"),
        "../../../guest-sdk/rust",
        &sdk.display().to_string(),
    );
    folder
}

fn edit(file: &PathBuf, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a text");
    assert!(text.contains(from), "{} has no {from:?}", file.display());
    fs::write(file, text.replacen(from, to, 1)).expect("writable");
}

fn namesrv_addr(dev: &mut HostProcess) -> String {
    let line = dev.wait_for_line("namesrv_addr=", BUILD_BOUND);
    line.trim_start_matches("namesrv_addr=").to_owned()
}

fn send_to(namesrv_addr: &str, topic: &str, body: &str) {
    let mut process = send(&["send", topic, body, "--namesrv-addr", namesrv_addr]);
    assert!(process.wait(BOUND).success(), "{:?}", process.lines());
}

#[test]
fn hello_is_built_served_and_replaced_on_save() {
    let plugin = copy_of_hello();
    let source = plugin.path().join("src/lib.rs");
    let mut dev = dev(plugin.path(), &[]);

    let address = namesrv_addr(&mut dev);
    dev.wait_for_line(
        &format!("send hello \"good morning\" --namesrv-addr {address}"),
        BOUND,
    );
    eventually("ten samples", BOUND, || {
        let lines = dev.lines();
        let done = lines
            .iter()
            .filter(|line| line.starts_with("done ") && line.contains("queue hello@mqlet:"));
        (done.filter(|line| line.contains("attempt 1")).count() == 10).then_some(())
    });
    send_to(&address, "hello", "Zoe");
    dev.wait_for_line("hello, Zoe", BOUND);

    edit(&source, "\"{}, {name}\"", "\"{}, dear {name}\"");
    dev.wait_for_line("reloaded plugin \"hello\"", BUILD_BOUND);
    send_to(&address, "hello", "Max");
    dev.wait_for_line("hello, dear Max", BOUND);

    edit(&source, "Ok(Outcome::Done)", "Ok(Outcome::Don)");
    dev.wait_for_line(
        "not reloaded, the plugin from before serves on",
        BUILD_BOUND,
    );
    dev.wait_for_line("no variant", BOUND);
    send_to(&address, "hello", "Eve");
    dev.wait_for_line("hello, dear Eve", BOUND);

    edit(&source, "Ok(Outcome::Don)", "Ok(Outcome::Done)");
    edit(
        &plugin.path().join("plugin.toml"),
        "greeting = \"hello\"",
        "greeting = \"good evening\"",
    );
    eventually("the new greeting", BUILD_BOUND, || {
        send_to(&address, "hello", "Ann");
        dev.lines()
            .iter()
            .any(|line| line.contains("good evening, dear Ann"))
            .then_some(())
    });

    dev.interrupt();
    assert_eq!(dev.wait(BOUND).code(), Some(0));
    let lines = dev.lines();
    let summary = lines
        .iter()
        .find(|line| line.starts_with("plugin \"hello\": "));
    let summary = summary.expect("a summary at the end");
    assert!(
        summary.contains(" done, 0 retried, 0 dead letters, 0 failed calls"),
        "{summary}"
    );
}

#[test]
fn outcome_of_every_message_is_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let component = guest_artifacts::path("as_told");
    let manifest = format!(
        "name = \"told\"\ncomponent = {component:?}\nconsumer_group = \"told-group\"\n\
         [[subscription]]\ntopic = \"told\"\nexpression = \"A || B\"\n\
         [dev]\nmessages = \"messages.jsonl\"\n"
    );
    fs::write(folder.path().join("plugin.toml"), manifest).expect("writable");
    let messages = [
        r#"{"tags": "A", "body": "done"}"#,
        r#"{"tags": "B", "body": "later"}"#,
        r#"{"tags": "B", "body": "dead it cannot be"}"#,
        r#"{"tags": "A", "body": "trap"}"#,
        r#"{"tags": "C", "body": "nobody wants this"}"#,
    ];
    fs::write(folder.path().join("messages.jsonl"), messages.join("\n")).expect("writable");
    let mut dev = dev(folder.path(), &["--output", "json"]);

    for outcome in [
        "\"outcome\":\"done\"",
        "\"outcome\":\"retry\"",
        "\"outcome\":\"dead-letter\",\"reason\":\"it cannot be\"",
    ] {
        dev.wait_for_line(outcome, BOUND);
    }
    eventually("four outcomes", BOUND, || {
        let lines = dev.lines();
        (lines
            .iter()
            .filter(|line| line.contains("\"outcome\":"))
            .count()
            == 4)
            .then_some(())
    });

    dev.interrupt();
    assert_eq!(dev.wait(BOUND).code(), Some(0));
    let lines = dev.lines();
    let summary = "{\"summary\":{\"plugin\":\"told\",\"done\":1,\"retried\":2,\"dead_letters\":1";
    assert!(
        lines.iter().any(|line| line.starts_with(summary)),
        "{lines:?}"
    );
}

#[test]
fn plugin_that_is_not_built_or_not_allowed_does_not_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let start = |component: &Path, more: &str| {
        let manifest = format!(
            "name = \"p\"\ncomponent = {component:?}\nconsumer_group = \"g\"\n\
             [[subscription]]\ntopic = \"t\"\n{more}"
        );
        fs::write(folder.path().join("plugin.toml"), manifest).expect("writable");
        let mut dev = dev(folder.path(), &[]);
        let code = dev.wait(BOUND).code();
        (code, dev.lines().join("\n"))
    };

    let (code, lines) = start(&guest_artifacts::path("wrong_import"), "");
    assert_eq!(code, Some(3), "{lines}");
    let (code, lines) = start(Path::new("missing.wasm"), "");
    assert_eq!(code, Some(3), "{lines}");
    assert!(lines.contains("does not exist"), "{lines}");
    let (code, lines) = start(Path::new("built.wasm"), "[build]\ncommand = [\"false\"]");
    assert_eq!(code, Some(1), "{lines}");
    assert!(lines.contains("\"false\" failed"), "{lines}");
}

/// The same component with other bytes: a custom section more.
fn with_section(component: &[u8], number: u8) -> Vec<u8> {
    [component, &[0, 3, 1, b'n', number]].concat()
}

#[test]
fn replacing_a_plugin_under_traffic_loses_and_repeats_nothing() {
    const ROUNDS: u8 = 4;
    const MESSAGES: usize = 500;
    let ledger = guest_artifacts::bytes("ledger");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let component = folder.path().join("ledger.wasm");
    fs::write(&component, &ledger).expect("writable");
    let manifest = "name = \"ledger\"\ncomponent = \"ledger.wasm\"\nconsumer_group = \"g\"\n\
         [[subscription]]\ntopic = \"ledger\"\n[limits]\nlog_lines_per_second = 1000000\n\
         log_bytes_per_call = \"1MiB\"\n";
    fs::write(folder.path().join("plugin.toml"), manifest).expect("writable");
    let mut dev = dev(folder.path(), &["--samples", "0"]);
    let address = namesrv_addr(&mut dev);

    for round in 1..=ROUNDS {
        let mut traffic = send(&["send", "ledger", "--namesrv-addr", &address]);
        for number in 0..MESSAGES {
            traffic.write(&format!("round{round}-{number}\n"));
            if number == MESSAGES / 10 {
                let new = folder.path().join("ledger.wasm.new");
                fs::write(&new, with_section(&ledger, round)).expect("writable");
                fs::rename(&new, &component).expect("one folder");
            }
        }
        // Traffic goes on until the new one serves.
        let reloaded = format!("(g{})", round + 1);
        eventually("the new revision", BOUND, || {
            traffic.write(&format!("more{round}-{}\n", dev.delivery_count()));
            let lines = dev.lines();
            let found = |line: &String| line.contains("reloaded") && line.contains(&reloaded);
            lines.iter().any(found).then_some(())
        });
        traffic.close_stdin();
        assert!(traffic.wait(BOUND).success(), "{:?}", traffic.lines());
    }
    let expected = MESSAGES * usize::from(ROUNDS);
    let of_rounds = |dev: &HostProcess| {
        let deliveries = dev.deliveries().into_iter();
        deliveries
            .filter(|one| one.body.starts_with("round"))
            .collect::<Vec<_>>()
    };
    eventually("every message", BOUND, || {
        (counts(&of_rounds(&dev)).len() == expected).then_some(())
    });
    dev.interrupt();
    assert_eq!(dev.wait(BOUND).code(), Some(0));
    assert_eq!(of_rounds(&dev).len(), expected, "a message was repeated");
}

/// Writes the manifest of the plugin "changing", at once.
fn becomes(folder: &Path, kind: &str, guest: &str, topic: &str) {
    let component = guest_artifacts::path(guest);
    let manifest = format!(
        "name = \"changing\"\nlistener = {kind:?}\ncomponent = {component:?}\n\
         consumer_group = \"g\"\n[[subscription]]\ntopic = {topic:?}\n"
    );
    let new = folder.join("plugin.toml.new");
    fs::write(&new, manifest).expect("writable");
    fs::rename(&new, folder.join("plugin.toml")).expect("one folder");
}

#[test]
fn plugin_that_becomes_a_listener_of_another_kind_costs_no_attempt() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let becomes = |kind: &str, guest: &str| becomes(folder.path(), kind, guest, "changing");
    becomes("concurrent", "as_told");
    let mut dev = dev(folder.path(), &["--samples", "0"]);
    let address = namesrv_addr(&mut dev);
    let mut traffic = send(&["send", "changing", "--namesrv-addr", &address]);

    let kinds = [
        ("orderly", "orderly_as_told"),
        ("concurrent", "as_told"),
        ("orderly", "orderly_as_told"),
    ];
    for (generation, (kind, guest)) in (2..).zip(kinds) {
        becomes(kind, guest);
        let reloaded = format!("(g{generation})");
        eventually(kind, BOUND, || {
            traffic.write("fine\n");
            let lines = dev.lines();
            let found = |line: &String| line.contains("reloaded") && line.contains(&reloaded);
            lines.iter().any(found).then_some(())
        });
    }

    traffic.close_stdin();
    assert!(traffic.wait(BOUND).success(), "{:?}", traffic.lines());
    dev.interrupt();
    assert_eq!(dev.wait(BOUND).code(), Some(0));
    let lines = dev.lines();
    let told = lines.iter().find(|line| line.contains("another way"));
    assert_eq!(told, None, "no call was of the other kind");
    let mut summary = lines
        .iter()
        .filter(|line| line.starts_with("plugin \"changing\""));
    let summary = summary.next().expect("a summary at the end");
    assert!(
        summary.contains(" done, 0 retried, 0 dead letters, 0 failed calls"),
        "{summary}"
    );
}

/// Creates topics until the broker takes no more.
fn fill_with_topics(namesrv_addr: &str) {
    /// More than it takes.
    const TOPICS: usize = 20_000;
    /// Asked for before the answers are read.
    const AT_ONCE: usize = 100;
    let mut broker = TcpStream::connect(namesrv_addr).expect("one address for everything");
    broker.set_read_timeout(Some(BOUND)).expect("connected");
    for first in (0..TOPICS).step_by(AT_ONCE) {
        for number in first..first + AT_ONCE {
            let fields = format!(
                r#"{{"topic":"more{number}","readQueueNums":"1","writeQueueNums":"1","perm":"6","topicFilterType":"SINGLE_TAG","defaultTopic":"TBW102","topicSysFlag":"0","order":"false"}}"#
            );
            let opaque = i32::try_from(number).expect("few");
            let request = Frame::request(UPDATE_AND_CREATE_TOPIC, opaque, &fields, b"");
            broker.write_all(request.bytes()).expect("connected");
        }
        for _ in 0..AT_ONCE {
            let answer = Frame::read(&mut broker).expect("connected");
            let answer = answer.expect("an answer");
            if answer.code() != 0 {
                return;
            }
        }
    }
    panic!("the broker took {TOPICS} topics");
}

#[test]
fn change_of_kind_that_fails_leaves_the_plugin_from_before_serving() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    becomes(folder.path(), "concurrent", "as_told", "changing");
    let mut dev = dev(folder.path(), &["--samples", "0"]);
    let address = namesrv_addr(&mut dev);
    send_to(&address, "changing", "fine");
    dev.wait_for_line("done ", BOUND);

    fill_with_topics(&address);
    becomes(folder.path(), "orderly", "orderly_as_told", "one-too-many");
    let line = dev.wait_for_line("not reloaded, the plugin from before serves on", BOUND);
    assert!(line.contains("cannot create topic one-too-many"), "{line}");
    let done = |dev: &HostProcess| {
        let lines = dev.lines();
        lines
            .iter()
            .filter(|line| line.starts_with("done "))
            .count()
    };
    assert_eq!(done(&dev), 1);
    send_to(&address, "changing", "fine");
    eventually("the plugin from before", BOUND, || {
        (done(&dev) == 2).then_some(())
    });

    // The next one that loads is as good as any.
    becomes(folder.path(), "orderly", "orderly_as_told", "changing");
    dev.wait_for_line("reloaded plugin \"changing\" (g2)", BOUND);
    send_to(&address, "changing", "fine");
    eventually("the new plugin", BOUND, || (done(&dev) == 3).then_some(()));
    dev.interrupt();
    assert_eq!(dev.wait(BOUND).code(), Some(0));
}
