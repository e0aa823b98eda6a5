//! What a manifest changes is said before it serves, and when it does.

use std::fs;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::host_folder::HostFolder;
use guest_artifacts::path;

#[test]
fn check_and_the_log_say_what_changes_against_the_revision_that_serves() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "plugin",
        &path("succeed"),
        "[limits]\nmemory = \"64MiB\"\n[settings]\nregion = \"eu\"",
    );
    let check = || folder.printed(&["check", "mqlet.toml"]);
    assert!(!check().contains("against revision"), "nothing has served");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    let text = check();
    assert!(
        text.contains("nothing changes against revision 1"),
        "{text}"
    );

    let file = folder.path().join("plugins/plugin.toml");
    let manifest = fs::read_to_string(&file).expect("written above");
    let manifest = manifest
        .replace("64MiB", "128MiB")
        .replace("\"eu\"", "\"us\"")
        .replace(
            &format!("{:?}", path("succeed")),
            &format!("{:?}", path("reach")),
        );
    let manifest = format!(
        "{manifest}\n[grants]\nconfig = true\nproducer = {{ topics = [\"out\"] }}\n\
         http = {{ hosts = [\"api.example.org\"] }}\nkeyvalue = {{ buckets = [\"orders\"] }}\n"
    );
    // Looked at in another folder, as if it were to come.
    let changed = folder.path().join("changed.toml");
    let config = fs::read_to_string(folder.path().join("mqlet.toml")).expect("written above");
    fs::create_dir(folder.path().join("next")).expect("a folder of ours");
    fs::write(folder.path().join("next/plugin.toml"), &manifest).expect("a folder of ours");
    let config = config.replace("plugins = \"plugins\"", "plugins = \"next\"");
    fs::write(&changed, config).expect("a folder of ours");
    let text = folder.printed(&["check", "changed.toml"]);
    for line in [
        "against revision 1, which served last:",
        "it newly imports wasi:http/outgoing-handler",
        "it newly imports wasi:keyvalue/store",
        "it newly may send to out",
        "it newly may ask api.example.org by HTTP",
        "it newly may use bucket orders",
        "it newly may ask for its settings and secrets",
        "another component: ",
        "limits.memory: \"64MiB\" → \"128MiB\"",
        "settings.region: \"eu\" → \"us\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = folder.printed(&["check", "changed.toml", "--output", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["plugins"][0]["changes"]["revision"], 1);

    fs::write(&file, manifest).expect("a folder of ours");
    let line = host.wait_for_line("what changes against revision 1", BOUND);
    assert!(line.contains("it newly may use bucket orders"), "{line}");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}
