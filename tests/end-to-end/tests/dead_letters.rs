//! Dead letters of one plugin, read and sent again by another one that subscribes to them.

use std::fs;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, send};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use guest_artifacts::path;

#[test]
fn plugin_reads_the_dead_letters_of_another_group_and_sends_them_again() {
    const MESSAGES: usize = 10;
    let broker = EmbeddedBroker::start();
    // "send" sends each message to the topic in its property "to".
    let to = ["--property", "to=again"];
    let address = ["--namesrv-addr", broker.namesrv_addr()];
    let mut sending = send(&[&["send", "orders"][..], &address, &to].concat());
    for number in 0..MESSAGES {
        sending.write(&format!("order-{number}\n"));
    }
    sending.close_stdin();
    assert!(sending.wait(BOUND).success(), "{:?}", sending.lines());
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("orders", &path("dead_letter"), "")
        .with_plugin("again", &path("ledger"), "");
    let redrive = format!(
        "name = \"redrive\"\ncomponent = {:?}\nconsumer_group = \"redrive-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\n\
         topic = \"%DLQ%orders-group\"\n[grants]\nproducer = {{ topics = [\"again\"] }}\n",
        path("send")
    );
    let file = folder.path().join("plugins/redrive.toml");
    fs::write(file, redrive).expect("a folder of ours");

    let mut host = folder.run(&[]);

    eventually("every dead letter again", BOUND, || {
        (host.delivery_count() >= MESSAGES).then_some(())
    });
    let mut bodies: Vec<String> = host.deliveries().into_iter().map(|one| one.body).collect();
    bodies.sort();
    let sent: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
    assert_eq!(bodies, sent, "each once");
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0), "an ordered end");
}

#[test]
fn dead_letter_of_a_message_that_breaks_its_plugin_says_how() {
    let broker = EmbeddedBroker::start();
    broker.send("told", ["print the last words", "trap"]);
    let folder = HostFolder::new(broker.namesrv_addr(), "").with_plugin(
        "told",
        &path("as_told"),
        "[consume]\nmax_reconsume_times = 1",
    );
    let reader = format!(
        "name = \"reader\"\ncomponent = {:?}\nconsumer_group = \"reader-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\n\
         topic = \"%DLQ%told-group\"\n[settings]\nmisbehave = \"show-properties\"\n",
        path("hostile")
    );
    let file = folder.path().join("plugins/reader.toml");
    fs::write(file, reader).expect("a folder of ours");

    let mut host = folder.run(&[]);

    let line = host.wait_for_line("properties[", BOUND);
    for part in [
        "MQLET_REASON=max_reconsume_times = 1 is reached; the last attempt: trap: ",
        "MQLET_PLUGIN=told;",
        "MQLET_REVISION=",
        "MQLET_COMPONENT=",
        "MQLET_FAILURE=trap;",
        "MQLET_BACKTRACE=",
        "MQLET_LOG=",
        "RECONSUME_TIME=2;",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    host.interrupt();
    assert_eq!(host.wait(BOUND).code(), Some(0));
}
