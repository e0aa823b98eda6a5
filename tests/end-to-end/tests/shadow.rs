//! A revision that gets copies: what it does otherwise is found, and nothing of what it does
//! outside is done.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

fn start(folder: &HostFolder, plugins: &str) -> HostProcess {
    let mut host = folder.run(&[]);
    host.wait_for_line(plugins, BOUND);
    host
}

/// A number of the report.
fn number(folder: &HostFolder, plugin: &str, name: &str) -> usize {
    let report = folder.printed(&["shadow", plugin, "--output", "json"]);
    let value = report.split(&format!("\"{name}\":")).nth(1);
    let value = value.and_then(|rest| rest.split([',', '}']).next());
    let value = value.and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Waits until so many messages were compared.
fn wait_for_compared(folder: &HostFolder, plugin: &str, messages: usize) {
    eventually(&format!("{messages} messages compared"), BOUND, || {
        (number(folder, plugin, "messages") >= messages).then_some(())
    });
}

/// The plugin's manifest with one setting more, as a file of its own.
fn second(folder: &HostFolder, plugin: &str) -> String {
    let text = std::fs::read_to_string(folder.path().join(format!("plugins/{plugin}.toml")));
    let text = text.expect("written") + "\n[settings]\nnumber = \"two\"\n";
    let file = folder.path().join("second.toml");
    std::fs::write(&file, text).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn shadow_that_is_alike_differs_in_nothing_sends_nothing_and_is_promoted() {
    let broker = EmbeddedBroker::start();
    let grant = "[grants.producer]\ntopics = [\"send-out\"]\n";
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("send", &path("send"), grant)
        .with_plugin("send-out", &path("ledger"), ALL_LINES);
    let mut host = start(&folder, "serving 2 plugins");
    let file = second(&folder, "send");
    let text = folder.printed(&["deploy", "send", &file, "--shadow"]);
    assert!(text.contains("serves revision 1"), "{text}");
    assert!(text.contains("shadow: revision 2"), "{text}");

    // One after the other, so that there is always room for a copy.
    for body in 0..20 {
        broker.send("send", [body.to_string()]);
        wait_for_compared(&folder, "send", body + 1);
    }

    eventually("what was sent on", BOUND, || {
        (host.delivery_count() >= 20).then_some(())
    });
    for (name, wanted) in [
        ("compared", 20),
        ("other_outcomes", 0),
        ("other_effects", 0),
        ("not_performed", 20),
        ("left_out", 0),
    ] {
        assert_eq!(number(&folder, "send", name), wanted, "{name}");
    }

    // It is loaded anew, and what it sends then leaves.
    let text = folder.printed(&["promote", "send"]);
    assert!(text.contains("serves revision 2"), "{text}");
    broker.send("send", ["after"]);
    eventually("what the new one sent", BOUND, || {
        let seen = host.deliveries();
        seen.iter().any(|one| one.body == "after").then_some(())
    });
    assert_eq!(host.delivery_count(), 21, "each was sent on once");
    let report = folder.printed(&["shadow", "send"]);
    assert!(report.contains("its last shadow has ended"), "{report}");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
    let history = folder.printed(&["history", "--verify"]);
    assert!(history.contains("shadow-started"), "{history}");
}

#[test]
fn planted_differences_are_found_and_cost_no_message_an_attempt() {
    let broker = EmbeddedBroker::start();
    let more = format!("[consume]\nconsume_message_batch_max_size = 1\n{ALL_LINES}");
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), &more);
    let host = start(&folder, "serving 1 plugin");
    let other = path("trap_on");
    let other = other.to_str().expect("UTF-8");
    folder.printed(&["deploy", "ledger", other, "--shadow"]);

    for (count, body) in ["good", "trap", "dead", "good"].into_iter().enumerate() {
        broker.send("ledger", [format!("{body}{count}")]);
        wait_for_compared(&folder, "ledger", count + 1);
    }

    assert_eq!(number(&folder, "ledger", "other_outcomes"), 2);
    let report = folder.printed(&["shadow", "ledger"]);
    for part in ["serves: done", "shadow: failed", "shadow: dead letter"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let deliveries = host.deliveries();
    assert_eq!(deliveries.len(), 4, "{deliveries:?}");
    assert!(deliveries.iter().all(|one| one.reconsume_times == 0));
    folder.printed(&["abort", "ledger"]);
    broker.send("ledger", ["trap-after"]);
    eventually("the next one", BOUND, || {
        (host.delivery_count() == 5).then_some(())
    });
    assert_eq!(number(&folder, "ledger", "copied"), 4, "it gets no more");
    let error = folder.refused(&["promote", "ledger"]);
    assert!(error.contains("has no canary and no shadow"), "{error}");
}

#[test]
fn shadow_writes_no_key_and_asks_no_server() {
    let broker = EmbeddedBroker::start();
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = server.local_addr().expect("bound").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.expect("a connection");
            count.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
        }
    });
    let grants = format!(
        "[grants]\nconfig = true\nkeyvalue = {{ buckets = [\"orders\"] }}\n\
         http = {{ hosts = [\"127.0.0.1:{port}\"], private = [\"127.0.0.1/32\"] }}\n{ALL_LINES}"
    );
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("reach", &path("reach"), &grants);
    let mut host = start(&folder, "serving 1 plugin");
    let file = second(&folder, "reach");
    folder.printed(&["deploy", "reach", &file, "--shadow"]);

    let bodies = [
        "add orders count 40".to_owned(),
        "set orders name one".to_owned(),
        "delete orders name".to_owned(),
        format!("GET http://127.0.0.1:{port}/"),
    ];
    for (count, body) in bodies.iter().enumerate() {
        broker.send("reach", [body]);
        wait_for_compared(&folder, "reach", count + 1);
    }

    assert_eq!(
        asked.load(Ordering::Relaxed),
        1,
        "the server was asked once"
    );
    assert_eq!(number(&folder, "reach", "not_performed"), 4);
    assert_eq!(number(&folder, "reach", "other_effects"), 0);
    folder.printed(&["abort", "reach"]);
    broker.send("reach", ["add orders count 2"]);
    // 40 was added once.
    host.wait_for_line("reach[42]", BOUND);
}
