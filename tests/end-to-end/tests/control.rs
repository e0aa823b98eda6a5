//! The control socket: groups, queues, explain, pause, drain, resume and seek against a
//! running host, and what is not a request.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use end_to_end::workspace;
use guest_artifacts::path;

/// The ledger writes every message down.
const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";

/// Waits until `mqlet explain` says so.
fn wait_for_cause(folder: &HostFolder, target: &str, cause: &str) -> String {
    eventually(&format!("{target} is {cause}"), BOUND, || {
        let output = folder.mqlet(&["explain", target, "--output", "json"]);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.contains(&format!("\"cause\":\"{cause}\""))
            .then_some(text)
    })
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

fn ledger(namesrv_addr: &str) -> HostFolder {
    HostFolder::new(namesrv_addr, "").with_plugin("ledger", &path("ledger"), ALL_LINES)
}

#[test]
fn groups_and_queues_are_listed_and_explained() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["one", "two", "three"]);
    let folder = ledger(broker.namesrv_addr());
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    wait_for_deliveries(&host, 3);
    wait_for_cause(&folder, "ledger-group", "caught-up");

    let groups = folder.printed(&["groups"]);
    let line = groups.lines().nth(1).expect("a group");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words[..5],
        ["ledger-group", "test", "ledger", "running", "1"]
    );
    let queues = folder.printed(&["queues", "ledger-group", "--output", "json"]);
    let fresh = queues
        .lines()
        .filter(|line| line.contains("\"topic\":\"ledger\""));
    let fresh: Vec<&str> = fresh.collect();
    assert!(!fresh.is_empty() && fresh.iter().all(|line| line.contains("\"ours\":true")));
    let text = folder.printed(&["queues"]);
    assert!(text.contains(" us ") && text.contains("QUEUE"), "{text}");
    // By plugin, by topic, by queue.
    let queue = fresh[0].split("\"queue\":\"").nth(1).expect("its name");
    let queue = queue.split('"').next().expect("its name");
    for target in ["ledger", "ledger-group", queue, "%RETRY%ledger-group"] {
        let text = folder.printed(&["explain", target]);
        assert!(text.contains("group ledger-group (tenant test)"), "{text}");
    }
    let error = folder.refused(&["explain", "shop"]);
    assert!(error.contains("its groups are ledger-group"), "{error}");
    let other = &format!("{queue}9");
    let text = folder.printed(&["explain", other]);
    assert!(text.contains("no-such-queue"), "{text}");
}

#[test]
fn paused_topic_is_not_consumed_until_it_is_resumed() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr());
    broker.send("ledger", ["before"]);
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    wait_for_deliveries(&host, 1);

    let reason = "database is down";
    folder.printed(&[
        "pause",
        "ledger-group",
        "--topic",
        "ledger",
        "--reason",
        reason,
    ]);
    folder.printed(&["pause", "ledger-group"]);
    broker.send("ledger", (0..20).map(|number| format!("during{number}")));
    let text = folder.printed(&["explain", "ledger-group"]);
    assert!(
        text.contains("paused") && text.contains("mqlet resume ledger-group"),
        "{text}"
    );
    assert!(folder.printed(&["groups"]).contains(" paused "));

    let text = folder.printed(&["resume", "ledger-group"]);
    assert!(
        text.contains("still paused: topic ledger") && text.contains(reason),
        "{text}"
    );
    let text = folder.printed(&["explain", "ledger"]);
    assert!(text.contains("asked to stop pulling by user"), "{text}");
    assert_eq!(host.delivery_count(), 1, "the topic is still paused");
    folder.printed(&["resume", "ledger-group", "--topic", "ledger"]);
    wait_for_deliveries(&host, 21);
    let error = folder.refused(&["resume", "ledger-group"]);
    assert!(error.contains("the group is not paused"), "{error}");
    let error = folder.refused(&["pause", "shop"]);
    assert!(error.contains("no group \"shop\""), "{error}");
    let error = folder.refused(&["pause", "ledger-group", "--topic", "shop"]);
    assert!(
        error.contains("not subscribed to topic \"shop\""),
        "{error}"
    );
    let error = folder.refused(&["pause", "ledger-group", "--queue", "nonsense"]);
    assert!(error.contains("write topic@broker:id"), "{error}");
}

#[test]
fn drain_waits_for_everything_fetched_and_says_what_it_waits_for() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", (0..200).map(|number| format!("m{number}")));
    broker.send("hung", ["stuck"]);
    let folder = ledger(broker.namesrv_addr()).with_plugin(
        "hung",
        &path("wait_forever"),
        "[consume]\nconsume_timeout = \"1h\"",
    );
    let mut host = folder.run(&["--drain-timeout", "1s"]);
    host.wait_for_line("serving", BOUND);

    let text = folder.printed(&["drain", "ledger-group"]);
    assert!(text.contains("drained group ledger-group"), "{text}");
    let consumed = host.delivery_count();
    broker.send("ledger", ["later"]);
    assert!(wait_for_cause(&folder, "ledger-group", "drained").contains("user"));
    assert_eq!(host.delivery_count(), consumed);
    folder.printed(&["resume", "ledger-group"]);
    wait_for_deliveries(&host, 201);

    wait_for_cause(&folder, "hung-group", "listener-slow");
    let error = folder.refused(&["drain", "hung-group", "--timeout", "1s"]);
    assert!(error.contains("is not drained after 1s"), "{error}");
    assert!(
        error.contains("1 fetched messages are still to be consumed"),
        "{error}"
    );
}

/// The queues of a topic that the host holds, as JSON.
fn queues_of(folder: &HostFolder, group: &str, topic: &str) -> Vec<serde_json::Value> {
    let text = folder.printed(&["queues", group, "--output", "json"]);
    let queues = text.lines().map(serde_json::from_str);
    let queues = queues.map(|queue: Result<serde_json::Value, _>| queue.expect("JSON"));
    queues.filter(|queue| queue["topic"] == topic).collect()
}

#[test]
fn drain_of_a_queue_is_found_however_its_id_is_written() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["one", "two"]);
    let folder = ledger(broker.namesrv_addr());
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    wait_for_deliveries(&host, 2);
    let queues = queues_of(&folder, "ledger-group", "ledger");
    let queue = queues[0]["queue"].as_str().expect("its name");
    let queue = queue.replace(':', ":00");
    let text = folder.printed(&["drain", "ledger-group", "--queue", &queue]);
    assert!(text.contains(&format!("drained queue {queue}")), "{text}");
}

#[test]
fn drain_that_is_turned_into_a_pause_has_no_end_to_wait_for() {
    let broker = EmbeddedBroker::start();
    broker.send("hung", ["stuck"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "hung",
        &path("wait_forever"),
        "[consume]\nconsume_timeout = \"1h\"",
    );
    let mut host = folder.run(&["--drain-timeout", "1s"]);
    host.wait_for_line("serving", BOUND);
    wait_for_cause(&folder, "hung-group", "listener-slow");
    let mut command = Command::new(workspace::mqlet());
    command.args(["drain", "hung-group", "--timeout", "1h"]);
    let mut drain = HostProcess::spawn(command.current_dir(folder.path()));
    drain.wait_for_line("1 messages of the group are left", BOUND);
    folder.printed(&["pause", "hung-group"]);
    assert_eq!(drain.wait(BOUND).code(), Some(1), "{:?}", drain.lines());
    let text = drain.lines().join("\n");
    assert!(text.contains("it is paused now"), "{text}");
}

#[test]
fn seek_goes_back_and_forward_and_skips_only_when_told_to() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr());
    broker.send("ledger", (0..40).map(|number| format!("m{number}")));
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    wait_for_deliveries(&host, 40);
    // Everything is finished, as far as the host knows.
    folder.printed(&["drain", "ledger-group"]);
    folder.printed(&["resume", "ledger-group"]);
    let queues = queues_of(&folder, "ledger-group", "ledger");
    let finished = |queue: &serde_json::Value| queue["finished_offset"].as_u64().expect("begun");
    let queue = queues.iter().max_by_key(|queue| finished(queue));
    let queue = queue.expect("a queue");
    let (end, queue) = (finished(queue), queue["queue"].as_str().expect("its name"));
    assert!(end >= 10, "{end} messages");

    // Back to the oldest: all of the queue comes again, and nothing else.
    let text = folder.printed(&seek(queue, &["--min"]));
    let expected = format!("goes on at 0, from {end}: {end} messages come again");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(&format!("--offset {end} --yes")), "{text}");
    let all = 40 + usize::try_from(end).expect("few");
    wait_for_deliveries(&host, all);

    // Forward over what was not consumed: only with --yes.
    folder.printed(&["drain", "ledger-group"]);
    let text = folder.printed(&seek(queue, &["--offset", "2", "--output", "json"]));
    assert!(text.contains("\"to\":2,\"skipped\":0"), "{text}");
    wait_for_position(&folder, queue, 2);
    let left = end - 2;
    let error = folder.refused(&seek(queue, &["--max"]));
    let expected = format!("skips {left} messages of {queue}, which is at 2");
    assert!(
        error.contains(&expected) && error.contains("--yes"),
        "{error}"
    );
    wait_for_position(&folder, queue, 2);
    let text = folder.printed(&seek(queue, &["--max", "--yes"]));
    assert!(
        text.contains(&format!("{left} messages are skipped")),
        "{text}"
    );
    wait_for_position(&folder, queue, end);
    let text = folder.printed(&seek(queue, &["--timestamp", "2020-01-01T00:00:00Z"]));
    assert!(text.contains("goes on at 0"), "{text}");
    wait_for_position(&folder, queue, 0);
    let forth = end.to_string();
    folder.printed(&seek(queue, &["--offset", &forth, "--yes"]));
    wait_for_position(&folder, queue, end);
    // It stayed paused all the while, and goes on where it was told to.
    assert_eq!(host.delivery_count(), all);
    folder.printed(&["resume", "ledger-group"]);
    broker.send("ledger", (0..8).map(|number| format!("after{number}")));
    wait_for_deliveries(&host, all + 8);
    assert_eq!(host.delivery_count(), all + 8);

    let other = &["seek", "ledger-group", "ledger@mqlet:99", "--min"];
    let error = folder.refused(other);
    assert!(error.contains("is not ours"), "{error}");
    let error = folder.refused(&["seek", "shop", queue, "--min"]);
    assert!(error.contains("no group \"shop\""), "{error}");
    let error = folder.refused(&["seek", "ledger-group", "ledger", "--min"]);
    assert!(error.contains("write topic@broker:id"), "{error}");
    for place in [&["--min", "--max"][..], &[], &["--offset", "-1"]] {
        let output = folder.mqlet(&seek(queue, place));
        assert_eq!(output.status.code(), Some(2), "{place:?}");
    }
}

fn seek<'a>(queue: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["seek", "ledger-group", queue], more].concat()
}

/// Waits until the queue has begun again at this offset.
fn wait_for_position(folder: &HostFolder, queue: &str, offset: u64) {
    eventually(&format!("{queue} is at {offset}"), BOUND, || {
        let queues = queues_of(folder, "ledger-group", "ledger");
        let found = queues.iter().find(|one| one["queue"] == queue)?;
        (found["finished_offset"] == offset).then_some(())
    });
}

#[test]
fn a_default_place_that_is_too_long_costs_the_socket_and_not_the_host() {
    let broker = EmbeddedBroker::start();
    broker.send("ledger", ["one"]);
    let folder = ledger(broker.namesrv_addr());
    let long = "x".repeat(120);
    let mut host = folder.run(&["--state-dir", &long]);
    let line = host.wait_for_line("no command reaches this host", BOUND);
    assert!(line.contains("the system allows 103"), "{line}");
    wait_for_deliveries(&host, 1);
    let socket = format!("{long}/control.sock");
    let error = folder.refused(&["groups", "--socket", &socket]);
    assert!(error.contains("the system allows 103"), "{error}");
}

#[test]
fn what_is_missing_or_down_is_named() {
    let address = free_address();
    let folder = ledger(&address);
    let mut host = folder.run(&[]);
    host.wait_for_line("cannot connect", BOUND);
    wait_for_cause(&folder, "ledger-group", "route-unknown");
    let mut broker = EmbeddedBroker::start_at(&address);
    wait_for_cause(&folder, "ledger-group", "topic-missing");
    broker.send("ledger", ["one"]);
    wait_for_deliveries(&host, 1);
    broker.process.kill();
    let text = wait_for_cause(&folder, "ledger-group", "broker-unreachable");
    assert!(text.contains("is up, and at the network to it"), "{text}");
}

#[test]
fn plugin_that_does_not_load_is_explained() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr()).with_plugin("broken", &path("init_traps"), "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 1 plugin", BOUND);
    let text = wait_for_cause(&folder, "broken-group", "plugin-not-serving");
    assert!(text.contains("init"), "{text}");
    assert!(folder.printed(&["groups"]).contains("not-serving"));
}

#[test]
fn one_host_has_the_socket_and_a_dead_one_loses_it() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr());
    let error = folder.refused(&["groups"]);
    assert!(
        error.contains("no host runs at") && error.contains("control.sock"),
        "{error}"
    );
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    let error = folder.refused(&["run", "mqlet.toml"]);
    assert!(error.contains("another host (process"), "{error}");

    host.kill();
    assert!(folder.path().join("state/control.sock").exists());
    let error = folder.refused(&["groups"]);
    assert!(error.contains("no host runs at"), "{error}");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    wait_for_cause(&folder, "ledger-group", "topic-missing");
    host.interrupt();
    assert!(host.wait(BOUND).success());
    assert!(!folder.path().join("state/control.sock").exists());
}

#[test]
fn what_is_no_request_harms_nobody() {
    let broker = EmbeddedBroker::start();
    let folder = ledger(broker.namesrv_addr());
    let mut host = folder.run(&[]);
    host.wait_for_line("serving", BOUND);
    let socket = folder.path().join("state/control.sock");
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("the host listens");
        stream
            .set_read_timeout(Some(BOUND))
            .expect("a connected socket");
        stream
    };
    let answer = |bytes: &[u8]| {
        let mut stream = connect();
        // A host that has read enough may have closed it.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            Ok(_) => {}
            // It is closed with something of ours unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the host did not close the connection: {error}"),
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    assert!(answer(b"\x00\x01\x02\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(answer(b"GET /nothing HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(answer(b"GET /v1/pause HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let broken = b"POST /v1/pause HTTP/1.1\r\ncontent-length: 3\r\n\r\n{]}";
    assert!(answer(broken).contains("not understood"));
    let huge = b"POST /v1/pause HTTP/1.1\r\ncontent-length: 900000000\r\n\r\n";
    assert!(answer(huge).starts_with("HTTP/1.1 413"));
    // Read no further than a head may be; the answer may be lost with the rest.
    let long = answer(&vec![b'x'; 100_000]);
    assert!(
        long.is_empty() || long.starts_with("HTTP/1.1 413"),
        "{long}"
    );
    assert_eq!(answer(b"GET /v1/groups HT"), "");
    // Silent connections take every place, and lose it in time.
    let silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    eventually("an answer beside silent connections", BOUND, || {
        let output = folder.mqlet(&["groups"]);
        output.status.success().then_some(())
    });
    drop(silent);
}
