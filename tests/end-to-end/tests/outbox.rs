//! What a plugin sends leaves with its success, and what cannot leave is not done.

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, send};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::host_process::HostProcess;
use guest_artifacts::path;

const GRANT: &str = "[consume]\nmax_reconsume_times = 1\n\
    [grants.producer]\ntopics = [\"send-out\"]\n";

/// A host with a plugin that sends on what it gets, and one that reads that.
fn start(broker: &EmbeddedBroker, grant: &str) -> (HostFolder, HostProcess) {
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("send", &path("send"), grant)
        .with_plugin("send-out", &path("ledger"), "");
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 2 plugins", BOUND);
    (folder, host)
}

fn send_with(broker: &EmbeddedBroker, body: &str, property: &str) {
    let address = broker.namesrv_addr();
    let mut process = send(&[
        "send",
        "send",
        body,
        "--property",
        property,
        "--namesrv-addr",
        address,
    ]);
    let status = process.wait(BOUND);
    assert!(status.success(), "{status}: {:?}", process.lines());
}

fn delivered(host: &HostProcess) -> Vec<String> {
    let deliveries = host.deliveries().into_iter();
    deliveries.map(|delivery| delivery.body).collect()
}

#[test]
fn trap_after_a_send_sends_nothing_and_what_the_broker_refuses_is_not_done() {
    let mut broker = EmbeddedBroker::start();
    let (_folder, mut host) = start(&broker, GRANT);
    send_with(&broker, "of-a-trap", "then=trap");
    broker.process.wait_for_line("is a dead letter now", BOUND);
    // Four days are more than a broker keeps: it refuses the message that is sent on.
    send_with(&broker, "refused", "delay=345600000");
    host.wait_for_line("its outbox could not leave: 0 of 1 messages", BOUND);
    eventually(
        "the refused one is a dead letter after its two attempts",
        BOUND,
        || {
            let lines = broker.process.lines();
            let dead = lines
                .iter()
                .filter(|line| line.contains("is a dead letter now"));
            (dead.count() == 2).then_some(())
        },
    );
    send_with(&broker, "good", "then=success");
    eventually("what was sent on", BOUND, || {
        (host.delivery_count() > 0).then_some(())
    });
    assert_eq!(delivered(&host), ["good"]);
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}

#[test]
fn immediate_sends_do_not_wait_for_the_call() {
    let broker = EmbeddedBroker::start();
    let (_folder, mut host) = start(&broker, &format!("{GRANT}mode = \"immediate\"\n"));
    send_with(&broker, "of-a-trap", "then=trap");
    eventually("one for each attempt", BOUND, || {
        (host.delivery_count() == 2).then_some(())
    });
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}
