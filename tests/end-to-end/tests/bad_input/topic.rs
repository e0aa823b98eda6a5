//! Topics and groups that do not exist yet.

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use guest_artifacts::path;

use crate::stop;

#[test]
fn plugins_start_by_themselves_when_their_topics_appear() {
    let broker = EmbeddedBroker::start();
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("there", &path("ledger"), "")
        .with_plugin("later", &path("ledger"), "");
    broker.send("there", ["first"]);
    let mut host = folder.run(&[]);

    let told = host.wait_for_line("topic \\\"later\\\" does not exist yet", BOUND);
    assert!(told.contains("consuming starts when it appears"), "{told}");
    eventually("the topic that is there", BOUND, || {
        (host.delivery_count() == 1).then_some(())
    });
    broker.send("later", ["second", "third"]);

    eventually("the topic that came later", BOUND, || {
        (host.delivery_count() == 3).then_some(())
    });
    let lines = host.lines();
    let told = lines.iter().filter(|line| line.contains("does not exist"));
    assert_eq!(
        told.count(),
        1,
        "told once, and nothing of the retry topics"
    );
    stop(host);
}
