//! `mqlet invoke` with real components: outcomes, figures, log lines, exit codes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[test]
fn message_that_is_done_ends_with_0_and_figures() {
    let report = Plugin::new("succeed").json(&["--body", "hi"], 0);

    assert_eq!(outcomes(&report), ["done"]);
    let call = &report["calls"][0];
    assert_eq!(call["messages"], 1);
    assert!(call["wall_us"].as_u64().expect("a number") > 0);
    assert!(call["memory_bytes"].as_u64().expect("a number") >= 64 << 10);
    assert_eq!(report["revision"].as_str().map(str::len), Some(12));
}

#[test]
fn second_invocation_finds_the_compiled_code() {
    let plugin = Plugin::new("succeed");
    assert_eq!(plugin.json(&["--body", "hi"], 0)["compiled_before"], false);
    assert_eq!(plugin.json(&["--body", "hi"], 0)["compiled_before"], true);
}

#[test]
fn outcome_other_than_done_ends_with_5() {
    let report = Plugin::new("reconsume_later").json(&["--body", "hi", "--count", "3"], 5);
    assert_eq!(outcomes(&report), ["reconsume later"; 3]);
}

#[test]
fn batch_whose_message_traps_names_it_and_spares_the_others() {
    let plugin = Plugin::new("trap_on");

    let output = plugin.invoke(&[], "good\ntrap\nalso good\n");

    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let messages: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("message "))
        .map(|line| line.rsplit_once(": ").expect("an outcome").1)
        .collect();
    assert_eq!(messages, ["done", "reconsume later", "done"], "{text}");
    assert!(text.contains("failed in consume-message: trap"), "{text}");
    assert!(
        text.contains("failed in consume-message, the message alone: trap"),
        "{text}"
    );
}

#[test]
fn endless_loop_is_killed_and_said_so() {
    let plugin = Plugin::with("never_return", "[limits]\ncompute_time = \"100ms\"\n");
    let report = plugin.json(&["--body", "hi"], 5);
    assert_eq!(report["calls"][0]["failure"]["kind"], "compute_time");
}

#[test]
fn log_lines_are_shown() {
    let output = Plugin::new("print").invoke(&["--body", "hi"], "");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for line in ["log info to standard output 0", "log error [levels] error"] {
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
}

#[test]
fn sent_message_is_shown_and_goes_nowhere() {
    let plugin = Plugin::with(
        "send",
        "[grants]\nproducer = { topics = [\"hello-out\"] }\n",
    );
    let report = plugin.json(&["--body", "hi"], 0);
    assert_eq!(report["sent"][0]["topic"], "hello-out", "{report}");
}

#[test]
fn orderly_plugin_gets_its_queue_up_to_the_first_that_is_suspended() {
    let plugin = Plugin::of_kind("orderly", "orderly_as_told", "");

    let output = plugin.invoke(&[], "a\nsuspend 250\nnever\n");

    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let messages: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("message "))
        .map(|line| line.rsplit_once(": ").expect("an outcome").1)
        .collect();
    assert_eq!(messages, ["done", "suspended for 250 ms", "not finished"]);
    assert!(!text.contains("never"), "{text}");
}

#[test]
fn commit_and_rollback_are_told_with_auto_commit_off() {
    let consume = "[consume]\nauto_commit = false\n";
    let plugin = Plugin::of_kind("orderly", "orderly_as_told", consume);
    let report = plugin.json(&["--body", "commit"], 0);
    assert_eq!(outcomes(&report), ["committed"]);
    let report = plugin.json(&["--body", "rollback"], 5);
    assert_eq!(outcomes(&report), ["rolled back"]);

    let plugin = Plugin::of_kind("orderly", "orderly_as_told", "");
    let report = plugin.json(&["--body", "commit"], 0);
    assert_eq!(outcomes(&report), ["done"]);
    assert!(
        report["notes"].to_string().contains("auto_commit"),
        "{report}"
    );
}

#[test]
fn pull_task_runs_once_on_the_messages_as_its_queue() {
    let plugin = Plugin::of_kind("scheduled-pull", "pull_as_told", "");
    let report = plugin.json(&["--body", "a", "--count", "3"], 0);
    let run = &report["runs"][0];
    assert_eq!(run["outcome"], "done", "{report}");
    assert_eq!(
        (&run["consume_offset"], &run["done"]),
        (&3.into(), &3.into())
    );
    assert_eq!(run["next_run_ms"], 200, "the manifest's default");

    let output = plugin.invoke(&[], "a\nfail no bank\nb\n");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("queue hello@invoke:0: failed, no bank, 1 of 3 messages before its offset 1"),
        "{text}"
    );
}

#[test]
fn message_file_gives_every_part_of_a_message() {
    let plugin = Plugin::new("describe");
    let file = plugin.folder.path().join("message.json");
    let message = r#"{"topic": "hello", "tags": "paid", "keys": ["4711"], "properties": {"region": "eu"},
        "body_base64": "aGk=", "reconsume_times": 2, "broker_name": "broker-b", "queue_id": 3, "queue_offset": 42}"#;
    std::fs::write(&file, message).expect("written");

    let report = plugin.json(&["--message", file.to_str().expect("UTF-8")], 5);

    assert_eq!(outcomes(&report), ["dead letter"], "as this guest does");
    let facts = report["messages"][0]["reason"]
        .as_str()
        .expect("all it knows");
    for fact in [
        "topic=hello",
        "broker-name=broker-b",
        "queue-id=3",
        "queue-offset=42",
        "body=hi",
        "reconsume-times=2",
        "property.region=eu",
        "property.TAGS=paid",
        "property.KEYS=4711",
    ] {
        assert!(facts.lines().any(|line| line == fact), "{fact} in {facts}");
    }
}

#[test]
fn message_that_no_consumer_would_get_is_noted() {
    let report = Plugin::new("succeed").json(&["--body", "hi", "--topic", "other"], 0);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("does not subscribe to topic other"),
        "{notes}"
    );
}

#[test]
fn no_message_is_wrong_usage() {
    let output = Plugin::new("succeed").invoke(&[], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn reserved_property_is_wrong_usage() {
    let output = Plugin::new("succeed").invoke(&["--body", "hi", "--property", "TAGS=x"], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn plugin_that_cannot_be_loaded_is_refused_with_its_reason() {
    for (guest, part) in [
        ("core_module", "core WebAssembly module"),
        ("wrong_import", "not granted"),
        ("init_fails", "init returned an error"),
    ] {
        let output = Plugin::new(guest).invoke(&["--body", "hi"], "");
        assert_eq!(output.status.code(), Some(3), "{guest}: {output:?}");
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(text.contains(part), "{guest}: {text}");
    }
}

#[test]
fn component_that_is_not_built_names_the_command_that_builds_it() {
    let plugin = Plugin::with("succeed", "[build]\ncommand = [\"make\", \"hello.wasm\"]\n");
    let manifest = plugin.folder.path().join("plugin.toml");
    let text = std::fs::read_to_string(&manifest).expect("ours");
    std::fs::write(&manifest, text.replace("succeed.wasm", "none.wasm")).expect("ours");

    let output = plugin.invoke(&["--body", "hi"], "");

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        text.contains("does not exist; build it: make hello.wasm"),
        "{text}"
    );
}

#[test]
fn cache_that_cannot_be_used_costs_a_note_and_nothing_else() {
    let plugin = Plugin::new("succeed");
    let file = plugin.folder.path().join("cache");
    std::fs::write(&file, b"not a folder").expect("written");

    let report = plugin.json(&["--body", "hi"], 0);

    assert!(
        report["notes"]
            .to_string()
            .contains("compiled code is not kept"),
        "{report}"
    );
}

/// A plugin in a folder of its own.
struct Plugin {
    folder: tempfile::TempDir,
}

impl Plugin {
    fn new(guest: &str) -> Self {
        Self::with(guest, "")
    }

    fn with(guest: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let component = guest_artifacts::path(guest).canonicalize().expect("built");
        let manifest = format!(
            "name = \"{}\"\ncomponent = {component:?}\nconsumer_group = \"g\"\n[[subscription]]\ntopic = \"hello\"\n{more}",
            guest.replace('_', "-")
        );
        std::fs::write(folder.path().join("plugin.toml"), manifest).expect("written");
        Self { folder }
    }

    fn of_kind(kind: &str, guest: &str, more: &str) -> Self {
        let plugin = Self::with(guest, more);
        let manifest = plugin.folder.path().join("plugin.toml");
        let text = std::fs::read_to_string(&manifest).expect("ours");
        let text = format!("listener = {kind:?}\n{text}");
        std::fs::write(&manifest, text).expect("ours");
        plugin
    }

    fn invoke(&self, flags: &[&str], stdin: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mqlet"))
            .arg("invoke")
            .arg(self.folder.path())
            .args(flags)
            .env("MQLET_HOST__CACHE_DIR", self.cache())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mqlet starts");
        let mut input = child.stdin.take().expect("piped");
        // It may have ended without reading.
        let _ = input.write_all(stdin.as_bytes());
        drop(input);
        child.wait_with_output().expect("mqlet ends")
    }

    fn json(&self, flags: &[&str], exit: i32) -> Value {
        let output = self.invoke(&[flags, &["--output", "json"]].concat(), "");
        assert_eq!(output.status.code(), Some(exit), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("one JSON value")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }
}

fn outcomes(report: &Value) -> Vec<&str> {
    let messages = report["messages"].as_array().expect("a list");
    messages
        .iter()
        .map(|message| message["outcome"].as_str().expect("a word"))
        .collect()
}
