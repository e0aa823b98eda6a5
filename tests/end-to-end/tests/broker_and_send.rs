//! `mqlet broker` and `mqlet send`: what they print, how they fail, how they end.

use std::process::Command;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address, send};
use end_to_end::host_process::HostProcess;
use end_to_end::workspace;

/// Runs it to its end: exit code and lines.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut process = send(arguments);
    process.close_stdin();
    let status = process.wait(BOUND);
    (status.code(), process.lines().join("\n"))
}

#[test]
fn broker_serves_until_ctrl_c_and_a_taken_port_is_a_clear_error() {
    let mut broker = EmbeddedBroker::start();
    let address = broker.namesrv_addr().to_owned();

    let (code, lines) = run(&["broker", "--listen", &address]);
    assert_eq!(code, Some(1), "{lines}");
    assert!(
        lines.contains(&format!("cannot listen on {address}")),
        "{lines}"
    );
    assert!(lines.contains("choose another"), "{lines}");

    broker.process.interrupt();
    assert_eq!(broker.process.wait(BOUND).code(), Some(0));
}

#[test]
fn send_says_where_each_message_is() {
    let broker = EmbeddedBroker::start();
    let to = ["--namesrv-addr", broker.namesrv_addr(), "--output", "json"];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("body");
    std::fs::write(&file, "two\nlines").expect("writable");
    let file = file.display().to_string();

    let labels = ["--tag", "t", "--key", "k", "--property", "a=b"];
    for body in [&["text"][..], &["--file", &file]] {
        let (code, lines) = run(&[&["send", "places"], body, &labels, &to].concat());
        assert_eq!(code, Some(0), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(
            lines.contains("\"topic\":\"places\",\"broker_name\":\"mqlet\",\"queue_id\":"),
            "{lines}"
        );
    }
    let (code, lines) = run(&[&["send", "places", "x", "--count", "8"], &to[..]].concat());
    assert_eq!(code, Some(0), "{lines}");
    for queue in 0..4 {
        let found = lines.matches(&format!("\"queue_id\":{queue},")).count();
        assert_eq!(found, 2, "all queues take part: {lines}");
    }
    assert!(lines.contains("\"sent\":8,"), "{lines}");
}

#[test]
fn every_line_of_standard_input_is_sent() {
    let broker = EmbeddedBroker::start();
    let mut process = send(&["send", "lines", "--namesrv-addr", broker.namesrv_addr()]);
    let lines: String = (0..20_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    process.write(&lines);
    process.write("\nlast, without an end");
    process.close_stdin();
    assert!(process.wait(BOUND).success());
    let printed = process.lines();
    assert!(
        printed
            .last()
            .is_some_and(|line| line.starts_with("sent 20001 messages to lines")),
        "{printed:?}"
    );
}

#[test]
fn typed_line_is_sent_before_the_next_one() {
    let broker = EmbeddedBroker::start();
    let mut process = send(&["send", "typed", "--namesrv-addr", broker.namesrv_addr()]);
    process.write("first\n");
    process.wait_for_line("is in typed", BOUND);
    process.write("second\n");
    process.close_stdin();
    assert!(process.wait(BOUND).success());
}

#[test]
fn failure_says_why_and_what_to_do() {
    let nobody = free_address();
    let to_nobody = ["--namesrv-addr", &nobody, "--timeout", "2s"];
    let (code, lines) = run(&[&["send", "t", "x"], &to_nobody[..]].concat());
    assert_eq!(code, Some(1), "{lines}");
    assert!(
        lines.contains(&nobody) && lines.contains("\"mqlet broker\" starts one"),
        "{lines}"
    );

    let (code, lines) = run(&["send", "no blanks", "x"]);
    assert_eq!(code, Some(2), "{lines}");
    assert!(lines.contains("no blanks"), "{lines}");

    let (code, lines) = run(&["send", "t", "--file", "no-such-file"]);
    assert_eq!(code, Some(1), "{lines}");
    assert!(lines.contains("cannot read no-such-file"), "{lines}");

    let broker = EmbeddedBroker::start();
    let to = ["--namesrv-addr", broker.namesrv_addr()];
    let (code, lines) = run(&[&["send", "t", "x", "--property", "KEYS=k"], &to[..]].concat());
    assert_eq!(code, Some(1), "{lines}");
    assert!(lines.contains("reserved"), "{lines}");
}

#[test]
fn flag_is_stronger_than_the_tenant_and_the_tenant_than_rocketmqs_variable() {
    let broker = EmbeddedBroker::start();
    let nowhere = free_address();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let send_as = |tenants: &str, flags: &[&str], variable: Option<&str>| {
        let config = format!(
            "[tenants.shop]\nnamesrv_addr = [\"{tenants}\"]\nplugins = \"plugins\"\nnamespace = \"shop\"\n"
        );
        std::fs::write(folder.path().join("mqlet.toml"), config).expect("writable");
        let mut command = Command::new(workspace::mqlet());
        command.args(["send", "places", "x", "--output", "json"]);
        command.args(flags).current_dir(folder.path());
        match variable {
            Some(address) => command.env("NAMESRV_ADDR", address),
            None => command.env_remove("NAMESRV_ADDR"),
        };
        let mut process = HostProcess::spawn(&mut command);
        let code = process.wait(BOUND).code();
        (code, process.lines().join("\n"))
    };
    let address = broker.namesrv_addr();
    let as_shop = ["--tenant", "shop"];
    let flag = ["--namesrv-addr", address];
    let both = [as_shop, flag].concat();
    let two = format!("{nowhere}; {address}");
    for (tenants, flags, variable) in [
        (nowhere.as_str(), &both[..], None),
        (&nowhere, &both, Some(nowhere.as_str())),
        (address, &as_shop, Some(&nowhere)),
        (&nowhere, &flag, Some(&nowhere)),
        (&nowhere, &[], Some(address)),
        (&nowhere, &[], Some(&two)),
    ] {
        let (code, lines) = send_as(tenants, flags, variable);
        assert_eq!(code, Some(0), "{flags:?} {variable:?}: {lines}");
        assert!(lines.contains("\"topic\":\"places\""), "{lines}");
    }
    let (code, lines) = send_as(address, &as_shop, None);
    assert_eq!(code, Some(0), "{lines}");
    let (code, lines) = send_as(address, &[], Some("127.0.0.1"));
    assert_eq!(code, Some(2), "{lines}");
    assert!(
        lines.contains("NAMESRV_ADDR") && lines.contains("write host:port"),
        "{lines}"
    );
}

#[test]
fn ctrl_c_ends_a_send_that_waits_for_input() {
    let broker = EmbeddedBroker::start();
    let mut process = HostProcess::spawn(Command::new(workspace::mqlet()).args([
        "send",
        "t",
        "--namesrv-addr",
        broker.namesrv_addr(),
    ]));
    process.write("one\n");
    process.wait_for_line("is in t", BOUND);
    process.interrupt();
    assert_eq!(process.wait(Duration::from_secs(20)).code(), Some(1));
}
