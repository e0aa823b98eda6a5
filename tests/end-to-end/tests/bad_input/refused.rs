//! Files that are wrong: components, manifests, the configuration, places to write to.
//! All problems are listed at once, each with its remedy, and no connection is opened.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::workspace;
use guest_artifacts::{bytes, path};
use tempfile::TempDir;

use crate::{assert_no_panic, stop};

/// A component of this size is not even read.
const HUGE_BYTES: u64 = 100 * 1024 * 1024;

/// A name server that must not hear from anybody.
fn name_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

/// Runs to its end with 3; what it said. Nobody connected.
fn refused(mut host: HostProcess, listener: &TcpListener) -> String {
    assert_eq!(host.wait(BOUND).code(), Some(3), "{:#?}", host.lines());
    assert_no_panic(&host);
    assert!(listener.accept().is_err(), "somebody connected");
    host.lines().join("\n")
}

#[test]
fn bad_components_are_refused_each_in_plain_words() {
    let files = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let file = files.path().join(format!("{name}.wasm"));
        fs::write(&file, content).expect("a folder of ours");
        file
    };
    let whole = bytes("succeed");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    for byte in &mut flipped[middle..middle + 64] {
        *byte ^= 0x55;
    }
    let huge = file("huge", b"");
    let sparse = fs::File::options().write(true).open(&huge).expect("ours");
    sparse.set_len(HUGE_BYTES).expect("a sparse file");
    let cases = [
        (
            "missing",
            files.path().join("no-such.wasm"),
            "does not exist",
        ),
        ("empty", file("empty", b""), "is an empty file"),
        ("folder", files.path().to_path_buf(), "is not a file"),
        ("huge", huge, "more than"),
        (
            "text",
            file("text", b"#!/bin/sh\necho no component\n"),
            "not a WebAssembly",
        ),
        ("wat", file("wat", b"(component)"), ""),
        (
            "truncated",
            file("truncated", &whole[..whole.len() / 2]),
            "",
        ),
        ("header", file("header", &whole[..8]), ""),
        ("flipped", file("flipped", &flipped), ""),
        ("module", path("core_module"), "core WebAssembly module"),
        ("world", path("wrong_world"), ""),
        ("import", path("wrong_import"), ""),
        ("unknown", path("unknown_import"), ""),
        ("newer", path("newer_contract"), ""),
    ];
    let (listener, address) = name_server();
    let mut folder = HostFolder::new(&address, "").with_plugin("good", &path("succeed"), "");
    for (name, component, _) in &cases {
        folder = folder.with_plugin(name, component, "");
    }

    let said = refused(folder.run(&[]), &listener);

    for (name, _, words) in &cases {
        let place = format!("{name}.toml");
        let of_case: Vec<_> = said.lines().filter(|line| line.contains(&place)).collect();
        assert_eq!(of_case.len(), 1, "{name}: {said}");
        assert!(of_case[0].contains(words), "{name}: {}", of_case[0]);
        // What is wrong; what to do.
        assert!(of_case[0].contains("; "), "{name}: {}", of_case[0]);
    }
    assert!(!said.contains("good.toml"), "{said}");
    assert!(
        !said.contains("mqlet build"),
        "there is no such command: {said}"
    );
}

#[test]
fn bad_manifests_are_refused_each_with_key_and_remedy() {
    let cases = [
        ("unknown-key", "[consume]\nthreads = 4", "threads"),
        ("unknown-table", "[surprise]\na = 1", "surprise"),
        ("no-unit", "[limits]\nmemory = 128", "memory"),
        ("wrong-unit", "[limits]\nmemory = \"128s\"", "memory"),
        (
            "wrong-time",
            "[consume]\nconsume_timeout = \"5MiB\"",
            "consume_timeout",
        ),
        (
            "negative",
            "[consume]\nmax_reconsume_times = -5",
            "max_reconsume_times",
        ),
        ("over-range", "[limits]\nmemory = \"5TiB\"", "memory"),
        (
            "wrong-type",
            "[consume]\nconsume_message_batch_max_size = \"many\"",
            "consume_message_batch_max_size",
        ),
        ("twice", "[consume]\n[consume]", "consume"),
        ("no-toml", "= = =", ""),
    ];
    let (listener, address) = name_server();
    let mut folder = HostFolder::new(&address, "")
        .with_plugin("first", &path("succeed"), "")
        .with_plugin("good", &path("succeed"), "");
    for (name, more, _) in &cases {
        folder = folder.with_plugin(name, &path("succeed"), more);
    }
    // Another plugin of the same group.
    let manifest = folder.path().join("plugins/first.toml");
    let text = fs::read_to_string(&manifest).expect("written above");
    let text = text.replace("name = \"first\"", "name = \"second\"");
    fs::write(folder.path().join("plugins/second.toml"), text).expect("ours");

    let said = refused(folder.run(&[]), &listener);

    for (name, _, key) in &cases {
        let place = format!("{name}.toml");
        let of_case: Vec<_> = said.lines().filter(|line| line.contains(&place)).collect();
        assert!(!of_case.is_empty(), "{name}: {said}");
        assert!(of_case[0].contains(key), "{name}: {}", of_case[0]);
    }
    let group: Vec<_> = said.lines().filter(|l| l.contains("first-group")).collect();
    assert!(!group.is_empty(), "{said}");
    assert!(!said.contains("good.toml"), "{said}");
}

#[test]
fn bad_configurations_are_refused_each_with_key_and_remedy() {
    let (listener, address) = name_server();
    let folder = HostFolder::new(&address, "").with_plugin("good", &path("succeed"), "");
    let file = folder.path().join("mqlet.toml");
    let good = fs::read_to_string(&file).expect("written above");
    let address = format!("[\"{address}\"]");
    let cases = [
        (good.replace("[host]", "[host]\ncalls = 7"), "calls"),
        (
            good.replace("[host]", "[host]\ndrain_timeout = 30"),
            "drain_timeout",
        ),
        (
            good.replace("[host]", "[host]\nbuffer_bytes = \"1s\""),
            "buffer_bytes",
        ),
        (good.replace("[host]", "[host]\ncalls_max = 0"), "calls_max"),
        (good.replace(&address, "[\"no port\"]"), "namesrv_addr"),
        (good.replace(&address, "[\"host:99999\"]"), "namesrv_addr"),
        (good.replace(&address, "[]"), "namesrv_addr"),
        (
            good.replace("\"plugins\"", "\"no-such-folder\""),
            "no-such-folder",
        ),
        (format!("{good}[tenants.test]\n"), "test"),
        (good.replace("\"json\"", "\"xml\""), "format"),
        ("tenants = 3".to_owned(), "tenants"),
        ("\u{feff}\u{0}\u{1}".to_owned(), "mqlet.toml"),
        (String::new(), "tenants"),
    ];
    for (config, key) in &cases {
        fs::write(&file, config).expect("ours");
        let said = refused(folder.run(&[]), &listener);
        assert!(said.contains(key), "{key} is not named: {said}");
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).expect("ours");
    let said = refused(folder.run(&[]), &listener);
    assert!(said.contains("mqlet.toml"), "{said}");
}

#[test]
fn port_that_is_taken_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let arguments = ["broker", "--listen", &address];
    let mut broker = HostProcess::spawn(Command::new(workspace::mqlet()).args(arguments));

    assert_eq!(broker.wait(BOUND).code(), Some(1));

    let said = broker.lines().join("\n");
    assert!(said.contains(&address), "{said}");
    assert_no_panic(&broker);
}

#[test]
fn places_that_cannot_be_written_cost_only_what_they_are_for() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["m"]);
    for place in ["/proc/mqlet", "/dev/null/mqlet", "/dev/null"] {
        let folder =
            HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), "");
        let mut host = folder.run(&["--cache-dir", place, "--state-dir", place]);
        let told = host.wait_for_line("compiled components are not kept", BOUND);
        assert!(told.contains(place), "{told}");
        host.wait_for_line("serving 1 plugin", BOUND);
        stop(host);
    }
}

/// Whoever fills a cache with rubbish pays with compiling.
#[test]
fn damaged_cache_is_compiled_anew() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["m"]);
    let cache = tempfile::tempdir().expect("a temporary folder");
    let at = cache.path().display().to_string();
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), "");
    let mut host = folder.run(&["--cache-dir", &at]);
    host.wait_for_line("serving 1 plugin", BOUND);
    stop(host);

    let damaged = damage_files(&cache);

    assert!(damaged > 0, "nothing was cached");
    let mut host = folder.run(&["--cache-dir", &at]);
    host.wait_for_line("serving 1 plugin", BOUND);
    stop(host);
}

fn damage_files(folder: &TempDir) -> usize {
    fn damage(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).expect("ours").map_while(Result::ok);
        let mut damaged = 0;
        for entry in entries {
            let path = entry.path();
            if path.is_dir() {
                damaged += damage(&path);
            } else {
                let mut content = fs::read(&path).expect("ours");
                let middle = content.len() / 2;
                for byte in &mut content[middle..] {
                    *byte = 0x55;
                }
                fs::write(&path, content).expect("ours");
                damaged += 1;
            }
        }
        damaged
    }
    damage(folder.path())
}

#[test]
fn commands_without_a_broker_say_so() {
    let address = free_address();
    let arguments = ["send", "topic", "body", "--namesrv-addr", &address];
    let mut send = HostProcess::spawn(Command::new(workspace::mqlet()).args(arguments));
    assert_eq!(send.wait(BOUND).code(), Some(1));
    let said = send.lines().join("\n");
    assert!(said.contains(&address), "{said}");
    assert_no_panic(&send);
}
