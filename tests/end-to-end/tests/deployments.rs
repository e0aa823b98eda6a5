//! Deployments that come too fast, that fail at each step, that hang, and hosts that are
//! killed in the middle of one: the old revision serves or the new one does.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::workspace;
use guest_artifacts::path;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

fn command(folder: &HostFolder, arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace::mqlet());
    command.args(arguments).current_dir(folder.path());
    command
}

fn number(folder: &HostFolder) -> Option<u64> {
    let text = folder.printed(&["plugins", "ledger", "--output", "json"]);
    let number = text.split("\"number\":").nth(1)?;
    number.split(',').next()?.parse().ok()
}

/// Another revision of the plugin; returns its path.
fn manifest(folder: &HostFolder, guest: &str, setting: &str) -> String {
    let text = format!(
        "name = \"ledger\"\ncomponent = {:?}\nconsumer_group = \"ledger-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = \"ledger\"\n\
         [settings]\na = {setting:?}\n{ALL_LINES}\n",
        path(guest)
    );
    let file = folder.path().join(format!("{guest}-{setting}.toml"));
    fs::write(&file, text).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

fn start(folder: &HostFolder) -> HostProcess {
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    host
}

fn ledger(broker: &EmbeddedBroker) -> HostFolder {
    HostFolder::new(broker.namesrv_addr(), "").with_plugin("ledger", &path("ledger"), ALL_LINES)
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

#[test]
fn of_twenty_deployments_at_once_one_serves_and_of_those_that_expect_one_wins() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let host = start(&folder);
    let deploy = |expect: &[&str], setting: &str| {
        let file = manifest(&folder, "ledger", setting);
        let mut arguments = vec!["deploy", "ledger", &file];
        arguments.extend(expect);
        let mut command = command(&folder, &arguments);
        let piped = std::process::Stdio::piped;
        let command = command.stdout(piped()).stderr(piped());
        command.spawn().expect("mqlet starts")
    };
    // The control socket serves sixteen at once, and the others after them.
    let deployments: Vec<_> = (0..20).map(|n| deploy(&[], &format!("a{n}"))).collect();
    broker.send("ledger", (0..500).map(|n| n.to_string()));
    let mut served = 0;
    for deployment in deployments {
        let output = deployment.wait_with_output().expect("it ends");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        match output.status.success() {
            true => served += 1,
            false => assert!(
                error.contains("a newer deployment took its place"),
                "{error}"
            ),
        }
    }
    assert!(served > 0);
    wait_for_deliveries(&host, 500);
    assert_eq!(host.delivery_count(), 500, "nothing is repeated");

    let serving = number(&folder).expect("one serves").to_string();
    let expect = ["--expect", serving.as_str()];
    let deployments: Vec<_> = (0..5).map(|n| deploy(&expect, &format!("b{n}"))).collect();
    let outputs = deployments
        .into_iter()
        .map(|one| one.wait_with_output().expect("it ends"));
    let (won, lost): (Vec<_>, Vec<_>) = outputs.partition(|output| output.status.success());
    assert_eq!((won.len(), lost.len()), (1, 4));
    for output in lost {
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(error.contains("somebody was faster"), "{error}");
    }
}

#[test]
fn command_that_comes_while_a_plugin_loads_has_the_word() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "");
    let file = manifest(&folder, "init_waits_forever", "x");
    fs::copy(file, folder.path().join("plugins/ledger.toml")).expect("copied");
    let mut host = folder.run(&[]);
    host.wait_for_line("warm-up", BOUND);

    let file = manifest(&folder, "ledger", "y");
    folder.printed(&["deploy", "ledger", &file]);

    host.wait_for_line("serving 1 plugin", BOUND);
    broker.send("ledger", ["one"]);
    wait_for_deliveries(&host, 1);
}

#[test]
fn deployment_that_fails_or_hangs_leaves_the_old_revision_and_can_be_cancelled() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let mut host = start(&folder);
    for (guest, part) in [
        ("init_fails", "init"),
        ("init_traps", "trap"),
        ("wrong_world", "another world"),
        ("wrong_import", "not granted"),
        ("orderly_succeed", "orderly"),
    ] {
        let file = manifest(&folder, guest, "x");
        let output = folder.mqlet(&["deploy", "ledger", &file]);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{guest}: {error}");
        assert!(error.contains(part), "{guest}: {error}");
        assert_eq!(number(&folder), Some(1), "after {guest}");
    }
    broker.send("ledger", ["one"]);
    wait_for_deliveries(&host, 1);

    let file = manifest(&folder, "init_waits_forever", "x");
    let mut hanging = command(&folder, &["deploy", "ledger", &file]);
    let hanging = hanging.stderr(std::process::Stdio::piped());
    let hanging = hanging.spawn().expect("mqlet starts");
    eventually("a deployment that warms up", BOUND, || {
        let text = folder.printed(&["plugins", "--output", "json"]);
        text.contains("\"step\":\"warm-up\"").then_some(())
    });
    broker.send("ledger", ["two"]);
    wait_for_deliveries(&host, 2);
    folder.printed(&["cancel", "ledger"]);
    let output = hanging.wait_with_output().expect("it ends");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.contains("cancelled"), "{error}");
    // What hangs still holds no later deployment up for longer than its `init_time`.
    let file = manifest(&folder, "ledger", "next");
    let text = folder.printed(&["deploy", "ledger", &file]);
    assert!(text.contains("serves revision 2"), "{text}");
    assert_eq!(
        components(&folder),
        1,
        "both have the same, and others none"
    );
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
}

#[test]
fn host_that_is_killed_at_any_step_of_a_deployment_serves_the_old_or_the_new_revision() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(&broker);
    let mut host = start(&folder);
    let mut sent = 0;
    let mut seen: Vec<String> = Vec::new();
    let mut serving = 1;
    for (step, guest) in [
        ("fetch …", "ledger"),
        ("check …", "ledger"),
        ("compile …", "ledger"),
        ("warm-up …", "init_waits_forever"),
        ("is active", "ledger"),
    ] {
        let component = new_component(&folder, guest);
        let newest = kept(&folder).into_iter().max().expect("one serves");
        let before = host.lines().len();
        let component = component.to_str().expect("UTF-8");
        let mut deploying = command(&folder, &["deploy", "ledger", component]);
        let deploying = deploying.stderr(std::process::Stdio::null());
        let mut deploying = deploying
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        eventually(step, BOUND, || {
            let lines = host.lines().split_off(before);
            lines.iter().any(|line| line.contains(step)).then_some(())
        });
        host.kill();
        let lines = host.lines().split_off(before);
        let is_active = lines.iter().any(|line| line.contains("is active"));
        seen.extend(host.deliveries().into_iter().map(|one| one.body));
        let _ = deploying.wait();

        host = start(&folder);

        let serves = number(&folder).expect("one serves");
        // Machine code that nobody has made before is not made in no time.
        let may_be_active = match step {
            "fetch …" | "check …" | "is active" => is_active,
            _ => {
                assert!(!is_active, "it was not killed in {step}");
                false
            }
        };
        assert!(
            serves == serving || (may_be_active && serves == newest + 1),
            "killed in {step}: {serves} serves, {serving} served, and {newest} was the newest"
        );
        serving = serves;
        broker.send("ledger", (sent..sent + 50).map(|n| n.to_string()));
        sent += 50;
        wait_for_deliveries(&host, 50);
        folder.printed(&["history", "--verify"]);
    }
    seen.extend(host.deliveries().into_iter().map(|one| one.body));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), sent, "every message was consumed");
    // What never served has left nothing behind.
    eventually("a swept folder", BOUND, || {
        (components(&folder) <= kept(&folder).len()).then_some(())
    });
}

/// The numbers of the revisions that the host keeps.
fn kept(folder: &HostFolder) -> Vec<u64> {
    let text = folder.printed(&["plugins", "ledger", "--output", "json"]);
    let row: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let revisions = row["revisions"].as_array().expect("a list");
    let numbers = revisions.iter().map(|one| one["number"].as_u64());
    numbers.collect::<Option<_>>().expect("numbers")
}

/// How many components the host keeps.
fn components(folder: &HostFolder) -> usize {
    let files = fs::read_dir(folder.path().join("state/components"));
    files.expect("a folder").count()
}

/// A guest in bytes that no host has compiled yet.
fn new_component(folder: &HostFolder, guest: &str) -> std::path::PathBuf {
    let mut bytes = fs::read(path(guest)).expect("a guest");
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).expect("later");
    let text = format!("{}-{}", std::process::id(), since.as_nanos());
    // A custom section: 0, its length, the length of its name, the name, and whatever.
    let length = u8::try_from(1 + 3 + text.len()).expect("short");
    bytes.extend([0, length, 3]);
    bytes.extend(b"new");
    bytes.extend(text.as_bytes());
    let file = folder.path().join(format!("{text}.wasm"));
    fs::write(&file, bytes).expect("written");
    file
}

#[test]
fn orderly_canary_has_whole_queues_and_gives_them_back_when_it_fails() {
    let broker = EmbeddedBroker::start();
    let more = format!("[consume]\nsuspend_current_queue_time = \"50ms\"\n{ALL_LINES}");
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin_of_kind(
        "orderly",
        "ordered",
        &path("orderly_succeed"),
        &more,
    );
    let host = start(&folder);
    let component = path("orderly_as_told");
    let component = component.to_str().expect("UTF-8");
    // Whatever it fails: the trial is not over.
    let trial = [
        "--canary",
        "99%",
        "--canary-time",
        "1h",
        "--canary-failures",
        "100%",
    ];
    let mut arguments = vec!["deploy", "ordered", component];
    arguments.extend(trial);
    folder.printed(&arguments);
    broker.send("ordered", ["one", "two"]);
    wait_for_deliveries(&host, 2);

    // It would be suspended for ever; the other revision takes it for a success.
    broker.send("ordered", ["suspend 1000"]);
    broker.send("ordered", ["three"]);

    eventually("the failure", BOUND, || {
        let text = folder.printed(&["plugins", "--output", "json"]);
        text.contains("\"worse\":1").then_some(())
    });
    wait_until_finished(&folder);
    folder.printed(&["promote", "ordered"]);
    let text = folder.printed(&["plugins", "ordered"]);
    assert!(text.contains("serves revision 2"), "{text}");
}

/// Nothing fetched is left.
fn wait_until_finished(folder: &HostFolder) {
    eventually("nothing to be left", BOUND, || {
        let text = folder.printed(&["groups", "--output", "json"]);
        text.contains("\"cached_messages\":0,").then_some(())
    });
}

#[test]
fn api_answers_whoever_has_the_token_as_the_socket_does() {
    let broker = EmbeddedBroker::start();
    let token = "0123456789abcdef0123456789abcdef";
    let address = free_address();
    let control = format!("[control]\napi = \"{address}\"\napi_token = {{ file = \"token\" }}");
    let folder = HostFolder::new(broker.namesrv_addr(), &control).with_plugin(
        "ledger",
        &path("ledger"),
        ALL_LINES,
    );
    fs::write(folder.path().join("token"), format!("{token}\n")).expect("written");
    let _host = start(&folder);
    let ask = |head: &str, body: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        let length = body.len();
        let request = format!("{head} HTTP/1.1\r\ncontent-length: {length}\r\n");
        let authorization = format!("authorization: Bearer {token}\r\n\r\n{body}");
        stream
            .write_all((request + &authorization).as_bytes())
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    assert!(ask("GET /v1/plugins", "").contains("\"number\":1"));
    let file = manifest(&folder, "ledger", "api");
    let body = format!("{{\"plugin\":\"ledger\",\"path\":{file:?},\"expect\":1}}");
    let answer = ask("POST /v1/deploy", &body);
    assert!(
        answer.contains("200 OK") && answer.contains("\"number\":2"),
        "{answer}"
    );
    assert!(ask("POST /v1/deploy", &body).contains("409 Conflict"));
    for (body, status) in [
        ("{", "400"),
        ("{\"plugin\":\"ledger\",\"colour\":1}", "400"),
    ] {
        assert!(ask("POST /v1/deploy", body).contains(status), "{body}");
    }
    for authorization in [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: Basic x\r\n",
    ] {
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        let request = format!("GET /v1/plugins HTTP/1.1\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(
            answer.contains("401 Unauthorized") && !answer.contains("number"),
            "{answer}"
        );
    }
    let error = folder.mqlet(&["check", "mqlet.toml"]);
    assert!(error.status.success(), "{error:?}");
    let config = folder.path().join("mqlet.toml");
    let text = fs::read_to_string(&config).expect("readable");
    fs::write(&config, text.replace(&address, "0.0.0.0:9")).expect("written");
    let refused = folder.mqlet(&["check", "mqlet.toml"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
}
