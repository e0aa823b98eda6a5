//! What an operator is told of calls that failed.

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::host_folder::HostFolder;
use guest_artifacts::path;

#[test]
fn failed_calls_are_listed_with_everything_known_and_nothing_harmful() {
    let broker = EmbeddedBroker::start();
    // One batch: what the first message prints is the last that the batch said.
    broker.send("told", ["print \u{1b}]0;yours\u{7}gone", "trap"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "told",
        &path("as_told"),
        "[consume]\nmax_reconsume_times = 5\n[limits]\nmemory = \"64MiB\"",
    );
    let mut host = folder.run(&[]);
    host.wait_for_line("\"isolated\":true", BOUND);

    let json = folder.printed(&["failures", "told", "--output", "json"]);
    let records: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    // The poison comes again soon.
    assert!(records.len() >= 2, "{json}");
    let (batch, alone) = (&records[0], &records[1]);
    assert_eq!(batch["messages"], 2);
    assert_eq!(batch["isolated"], false);
    assert_eq!(batch["last_log_lines"][0]["source"], "stdout");
    assert_eq!(alone["messages"], 1);
    assert_eq!(alone["isolated"], true);
    for record in &records[..2] {
        assert_eq!(record["kind"], "trap");
        assert_eq!(record["tenant"], "test");
        assert_eq!(record["attempt"], 1);
        assert_eq!(record["limits"]["memory_bytes"], 64 << 20);
        let component = record["component_sha256"].as_str().expect("a digest");
        assert_eq!(component.len(), 64);
        let frames = record["backtrace"].as_array().expect("frames");
        let names =
            |frame: &serde_json::Value| frame.as_str().is_some_and(|frame| frame.contains("panic"));
        assert!(frames.iter().any(names), "{frames:?}");
        let queue = record["queue"].as_str().expect("a queue");
        assert!(queue.contains("told"), "{queue}");
    }
    let id = alone["failed_messages"][0]["message_id"].as_str();
    assert_eq!(id, batch["failed_messages"][1]["message_id"].as_str());

    let text = folder.printed(&["failures"]);
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    assert!(text.contains("\\u{1b}]0;yours\\u{7}gone"), "{text}");
    assert!(
        text.contains("tried alone after its batch failed"),
        "{text}"
    );
    let newest = folder.printed(&["failures", "told", "--newest", "1", "--output", "json"]);
    assert_eq!(newest.lines().count(), 1);
    let other = folder.mqlet(&["failures", "shop"]);
    assert_eq!(other.status.code(), Some(1));
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}
