//! Revisions in a running host: manifests that change, commands, what is taken back, what
//! a restart finds, and the ledger.

use std::fs;
use std::path::Path;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

/// The number of the revision that serves.
fn number(folder: &HostFolder) -> Option<u64> {
    // It may have no such plugin, yet.
    let output = folder.mqlet(&["plugins", "ledger", "--output", "json"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let number = text.split("\"number\":").nth(1)?;
    number.split(',').next()?.parse().ok()
}

fn wait_for_number(folder: &HostFolder, wanted: u64) {
    eventually(&format!("revision {wanted}"), BOUND, || {
        (number(folder) == Some(wanted)).then_some(())
    });
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

fn ledger(broker: &EmbeddedBroker) -> HostFolder {
    HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), ALL_LINES)
}

fn start(folder: &HostFolder) -> HostProcess {
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    host
}

/// The manifest of the plugin, with one setting.
fn manifest(component: &Path, setting: &str) -> String {
    format!(
        "name = \"ledger\"\ncomponent = {component:?}\nconsumer_group = \"ledger-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = \"ledger\"\n\
         [settings]\na = {setting:?}\n{ALL_LINES}\n"
    )
}

/// As an editor or a deployment tool does it.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, file).expect("renamed");
}

#[test]
fn manifests_that_come_change_break_and_go_are_followed() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let file = folder.path().join("plugins/ledger.toml");
    let host = start(&folder);
    assert_eq!(number(&folder), Some(1));

    replace(&file, &manifest(&path("ledger"), "two"));
    wait_for_number(&folder, 2);

    // What is broken changes nothing, and the listing says why.
    fs::write(&file, "name = \"ledger\"\n").expect("written");
    eventually("the problem", BOUND, || {
        let text = folder.printed(&["plugins"]);
        text.contains("consumer_group").then_some(())
    });
    replace(&file, &manifest(Path::new("no-such.wasm"), "two"));
    eventually("the failure", BOUND, || {
        let lines = host.lines();
        let mut lines = lines.iter();
        lines
            .any(|line| line.contains("does not exist"))
            .then_some(())
    });
    assert_eq!(number(&folder), Some(2));
    broker.send("ledger", ["still"]);
    wait_for_deliveries(&host, 1);

    // A file that is written in pieces is not taken before it is whole.
    let text = manifest(&path("ledger"), "three");
    let (first, second) = text.split_at(text.find("[settings]").expect("there"));
    let mut written = fs::File::create(&file).expect("opened");
    std::io::Write::write_all(&mut written, first.as_bytes()).expect("written");
    // Whoever has seen another file that came later has seen the half.
    let later = folder.path().join("plugins/later.toml");
    fs::write(&later, "name = 1\n").expect("written");
    eventually("a look at the folder", BOUND, || {
        let mut lines = host.lines().into_iter();
        lines.any(|line| line.contains("later.toml")).then_some(())
    });
    assert_eq!(number(&folder), Some(2), "half a manifest is none");
    fs::remove_file(later).expect("removed");
    std::io::Write::write_all(&mut written, second.as_bytes()).expect("written");
    drop(written);
    wait_for_number(&folder, 3);

    // As Kubernetes replaces a config map: a link to a folder is flipped.
    let plugins = folder.path().join("plugins");
    for (name, setting) in [("..one", "four"), ("..two", "five")] {
        fs::create_dir(plugins.join(name)).expect("made");
        let text = manifest(&path("ledger"), setting).replace("ledger-group", "map-group");
        let text = text
            .replace("\"ledger\"", "\"mapped\"")
            .replace("topic = \"mapped\"", "topic = \"ledger\"");
        fs::write(plugins.join(name).join("mapped.toml"), text).expect("written");
    }
    let link = |to: &str| {
        let new = plugins.join("..new");
        std::os::unix::fs::symlink(to, &new).expect("linked");
        fs::rename(new, plugins.join("..data")).expect("flipped");
    };
    let mapped = |wanted: &str| {
        eventually("the config map's plugin", BOUND, || {
            let output = folder.mqlet(&["plugins", "mapped", "--output", "json"]);
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            text.contains(wanted).then_some(())
        });
    };
    link("..one");
    std::os::unix::fs::symlink("..data/mapped.toml", plugins.join("mapped.toml")).expect("linked");
    mapped("\"number\":1,");
    // It is a group of its own, and reads everything again.
    wait_for_deliveries(&host, 2);
    link("..two");
    mapped("\"number\":2,");

    fs::remove_file(&file).expect("removed");
    eventually("the plugin to leave", BOUND, || {
        let groups = folder.printed(&["groups"]);
        (!groups.contains("ledger-group")).then_some(())
    });
    // The last one does not go because a disk is not there.
    fs::remove_file(plugins.join("mapped.toml")).expect("removed");
    eventually("the warning", BOUND, || {
        let lines = host.lines();
        let mut lines = lines.iter();
        lines
            .any(|line| line.contains("holds no manifest any more"))
            .then_some(())
    });
    assert!(folder.printed(&["groups"]).contains("map-group"));
    folder.printed(&["remove", "mapped"]);
    assert!(!folder.printed(&["groups"]).contains("map-group"));
}

#[test]
fn commands_deploy_roll_back_and_remove_and_the_ledger_knows() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let mut host = start(&folder);
    let other = folder.path().join("other.toml");
    fs::write(&other, manifest(&path("ledger"), "two")).expect("written");
    let other = other.to_str().expect("UTF-8");

    let text = folder.printed(&["deploy", "ledger", other, "--expect", "1"]);
    assert!(text.contains("serves revision 2"), "{text}");
    assert!(text.contains("fetch") && text.contains("warm-up"), "{text}");
    assert!(text.contains("not as its manifest says, by user"), "{text}");
    let error = folder.refused(&["deploy", "ledger", other, "--expect", "1"]);
    assert!(error.contains("serves revision 2, not 1"), "{error}");
    let error = folder.refused(&["deploy", "shop", other]);
    assert!(error.contains("no plugin \"shop\""), "{error}");
    let bad = path("init_fails");
    let bad = bad.to_str().expect("UTF-8");
    let error = folder.refused(&["deploy", "ledger", bad]);
    assert!(error.contains("init"), "{error}");
    assert_eq!(number(&folder), Some(2));

    let text = folder.printed(&["rollback", "ledger"]);
    assert!(text.contains("serves revision 1"), "{text}");
    assert!(!text.contains("steps:"), "nothing was compiled: {text}");
    folder.printed(&["rollback", "ledger", "--to", "2"]);
    let error = folder.refused(&["rollback", "ledger", "--to", "9"]);
    assert!(error.contains("revision 9"), "{error}");
    let error = folder.refused(&["promote", "ledger"]);
    assert!(error.contains("has no canary"), "{error}");
    broker.send("ledger", ["one"]);
    wait_for_deliveries(&host, 1);
    let kept = folder.printed(&["plugins", "ledger"]);
    assert!(kept.contains("warm") && kept.contains("serves"), "{kept}");

    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
    let history = folder.printed(&["history", "--verify", "--output", "json"]);
    let switched = history
        .lines()
        .filter(|line| line.contains("\"what\":\"switched\""));
    assert_eq!(switched.count(), 4, "{history}");
    assert!(
        history.contains("\"what\":\"failed\"") && history.contains("\"repeats\":0"),
        "{history}"
    );
    // Somebody changes a line.
    let log = folder.path().join("state/ledger.log");
    let text = fs::read_to_string(&log).expect("a ledger");
    fs::write(&log, text.replacen("\"number\":2", "\"number\":3", 1)).expect("written");
    let error = folder.refused(&["history", "--verify"]);
    assert!(error.contains("was changed"), "{error}");
}

#[test]
fn what_served_before_a_crash_serves_after_it_without_its_file() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let file = folder.path().join("plugins/ledger.toml");
    let component = folder.path().join("ledger.wasm");
    fs::copy(path("ledger"), &component).expect("copied");
    let copied = manifest(Path::new("../ledger.wasm"), "one");
    fs::write(&file, &copied).expect("written");
    let mut host = start(&folder);
    let other = folder.path().join("other.toml");
    fs::write(&other, manifest(&component, "two")).expect("written");
    folder.printed(&["deploy", "ledger", other.to_str().expect("UTF-8")]);

    host.kill();
    fs::remove_file(&other).expect("removed");
    fs::remove_file(&component).expect("removed");
    let mut host = start(&folder);

    assert_eq!(number(&folder), Some(2));
    broker.send("ledger", ["one"]);
    wait_for_deliveries(&host, 1);
    folder.printed(&["rollback", "ledger", "--to", "1"]);
    broker.send("ledger", ["two"]);
    wait_for_deliveries(&host, 2);

    // Taken away by a command, it stays away until its manifest changes.
    folder.printed(&["remove", "ledger"]);
    // Of what happens the ledger knows a little later.
    eventually("the ledger", BOUND, || {
        let text = folder.printed(&["history"]);
        text.contains("removed").then_some(())
    });
    host.kill();
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 0 plugins", BOUND);
    assert!(!folder.printed(&["groups"]).contains("ledger-group"));
    replace(&file, &manifest(&path("ledger"), "three"));
    wait_for_number(&folder, 3);
    assert!(folder.printed(&["history", "--verify"]).contains("removed"));
}

#[test]
fn revision_whose_calls_fail_is_taken_back_and_refused() {
    let broker = EmbeddedBroker::start();
    let more = format!("[consume]\nconsume_message_batch_max_size = 1\n{ALL_LINES}");
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), &more);
    let mut host = start(&folder);
    let bad = path("trap_on");
    let bad = bad.to_str().expect("UTF-8");
    folder.printed(&["deploy", "ledger", bad]);

    broker.send("ledger", (0..40).map(|number| format!("trap{number}")));

    host.wait_for_line("serves again", BOUND);
    eventually("every message", BOUND, || {
        let mut bodies: Vec<_> = host.deliveries().into_iter().map(|one| one.body).collect();
        bodies.sort();
        bodies.dedup();
        (bodies.len() >= 35).then_some(())
    });
    assert_eq!(number(&folder), Some(1));
    let error = folder.refused(&["deploy", "ledger", bad]);
    assert!(error.contains("was taken back"), "{error}");
    let kept = folder.printed(&["plugins", "ledger"]);
    assert!(kept.contains("refused: its calls keep failing"), "{kept}");
    let error = folder.refused(&["rollback", "ledger"]);
    assert!(
        error.contains("took revision 2") && error.contains("--to 2"),
        "{error}"
    );
    assert_eq!(number(&folder), Some(1));
    host.kill();
    // Of that a restart knows, too.
    let host = start(&folder);
    assert_eq!(number(&folder), Some(1));
    let error = folder.refused(&["deploy", "ledger", bad]);
    assert!(error.contains("was taken back"), "{error}");
    folder.printed(&["deploy", "ledger", bad, "--again"]);
    assert_eq!(number(&folder), Some(2));
    drop(host);
}

#[test]
fn canary_that_fails_one_message_of_a_hundred_is_aborted_and_a_good_one_promoted() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let mut host = start(&folder);
    let bad = path("trap_on");
    let bad = bad.to_str().expect("UTF-8");
    // Nearly all messages, and a verdict when nearly all are through: which of them are the
    // canary's depends on their ids.
    let trial = [
        "--canary",
        "90%",
        "--canary-time",
        "2s",
        "--canary-sample",
        "800",
    ];
    let canary = |component: &str| {
        let mut arguments = vec!["deploy", "ledger", component];
        arguments.extend(trial);
        folder.printed(&arguments)
    };
    let text = canary(bad);
    assert!(
        text.contains("serves revision 1") && text.contains("canary: revision 2"),
        "{text}"
    );

    let bodies = |round: usize| {
        (0..1000).map(move |number| match number % 100 {
            99 => format!("trap{round}-{number}"),
            _ => format!("good{round}-{number}"),
        })
    };
    broker.send("ledger", bodies(1));

    host.wait_for_line("canary is aborted", BOUND);
    broker.send("ledger", bodies(2));
    eventually("every message that traps", BOUND, || {
        let deliveries = host.deliveries();
        let mut traps: Vec<_> = deliveries
            .iter()
            .filter(|one| one.body.starts_with("trap"))
            .collect();
        // No attempt was lost: the revision that serves had each as its first.
        assert!(traps.iter().all(|one| one.reconsume_times == 0));
        traps.sort_by(|a, b| a.body.cmp(&b.body));
        traps.dedup_by(|a, b| a.body == b.body);
        (traps.len() == 20).then_some(())
    });
    assert_eq!(number(&folder), Some(1));

    let other = folder.path().join("other.toml");
    fs::write(&other, manifest(&path("ledger"), "two")).expect("written");
    let text = canary(other.to_str().expect("UTF-8"));
    assert!(text.contains("canary: revision 3"), "{text}");
    let error = folder.refused(&["deploy", "ledger", other.to_str().expect("UTF-8")]);
    assert!(error.contains("on trial already"), "{error}");
    broker.send("ledger", bodies(3));
    wait_for_number(&folder, 3);

    // What is deployed of its component alone has its settings.
    let component = path("ledger");
    folder.printed(&["deploy", "ledger", component.to_str().expect("UTF-8")]);
    assert_eq!(number(&folder), Some(3), "it is the same revision");
    // The group is not the canary's to change.
    let text = manifest(&component, "four") + "[consume]\nconsume_thread_max = 3\n";
    fs::write(&other, text).expect("written");
    let mut arguments = vec!["deploy", "ledger", other.to_str().expect("UTF-8")];
    arguments.extend(trial);
    let error = folder.refused(&arguments);
    assert!(error.contains("without --canary"), "{error}");
}

#[test]
fn canary_that_is_slow_or_wants_dead_letters_is_aborted() {
    let broker = EmbeddedBroker::start();
    let more = format!("[consume]\nconsume_message_batch_max_size = 1\n{ALL_LINES}");
    let folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), &more);
    let mut host = start(&folder);
    let other = path("trap_on");
    let other = other.to_str().expect("UTF-8");
    let trial = ["--canary", "50%", "--canary-time", "1h", "--canary-sample"];
    let canary = |sample: &str| {
        let mut arguments = vec!["deploy", "ledger", other, "--again"];
        arguments.extend(trial);
        arguments.push(sample);
        folder.printed(&arguments);
    };
    // Five of a hundred are slow: in the old revision they are like all others.
    canary("300");
    broker.send(
        "ledger",
        (0..1000).map(|number| match number % 20 {
            7 => format!("slow{number}"),
            _ => format!("good{number}"),
        }),
    );
    let aborted = host.wait_for_line("canary is aborted", BOUND);
    assert!(
        aborted.contains("99 of 100 messages take up to"),
        "{aborted}"
    );
    assert_eq!(number(&folder), Some(1));
    let kept = folder.printed(&["plugins", "ledger"]);
    assert!(kept.contains("refused: 99 of 100"), "{kept}");

    let before = host.lines().len();
    canary("100");
    // Which of them are the canary's depends on their ids.
    broker.send("ledger", (0..20).map(|number| format!("dead{number}")));
    eventually("the end of the canary", BOUND, || {
        let lines = host.lines().split_off(before);
        let mut lines = lines.iter();
        lines
            .any(|line| line.contains("canary is aborted") && line.contains("dead letters"))
            .then_some(())
    });
    // The revision that serves had them all, each as its first attempt.
    eventually("every one of them", BOUND, || {
        let deliveries = host.deliveries();
        let dead = deliveries.iter().filter(|one| one.body.starts_with("dead"));
        (dead.count() == 20).then_some(())
    });
    assert!(host.deliveries().iter().all(|one| one.reconsume_times == 0));
}
