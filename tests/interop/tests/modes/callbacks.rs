//! What a real broker asks of us when somebody uses RocketMQ's own tool: how a group is
//! doing (307), and to consume one message now (309).

use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::cluster::Cluster;
use interop::host::{self, HostSettings};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const GROUP: &str = "ledger-group";
const TOPIC: &str = "Ledger";

/// The value of a text field of one line of JSON.
fn field(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    Some(rest.split('"').next()?.to_owned())
}

fn wait_for_deliveries(host: &HostProcess, count: usize) {
    eventually(&format!("{count} deliveries"), BOUND, || {
        (host.delivery_count() >= count).then_some(())
    });
}

#[test]
fn mqadmin_sees_the_plugin_and_has_one_message_consumed_again() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic(TOPIC, 2);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = HostSettings {
        component: &component,
        namesrv_addr: cluster.namesrv_addr(),
        consumer_group: GROUP,
        topic: TOPIC,
        consume: "",
    };
    let mut host = host::start(folder.path(), &settings);
    host.wait_for_line("serving", BOUND);
    let sent = host::mqlet(
        folder.path(),
        &[
            "send",
            TOPIC,
            "once",
            "--namesrv-addr",
            cluster.namesrv_addr(),
            "--output",
            "json",
        ],
    );
    let message_id = field(&sent, "offset_message_id").expect("an id");
    wait_for_deliveries(&host, 1);
    let groups = host::mqlet(folder.path(), &["groups", "--output", "json"]);
    let client_id = field(&groups, "client_id").expect("our id");

    let status = eventually("a running info", BOUND, || {
        let status = cluster.mqadmin(&["consumerStatus", "-g", GROUP, "-i", &client_id, "-s"]);
        status.contains("mqlet.plugin").then_some(status)
    });
    for told in [
        "mqlet.revision",
        "mqlet.component.sha256",
        "mqlet.limits.memory",
        "CONSUME_PASSIVELY",
        TOPIC,
        "calls under way",
    ] {
        assert!(status.contains(told), "{told} is missing in:\n{status}");
    }

    // The tool gives up within half a second, which a busy machine may need.
    let lag = || {
        eventually("the lag of the group", BOUND, || {
            let text = cluster.mqadmin(&["consumerProgress", "-g", GROUP]);
            let mut lines = text.lines();
            let line = lines.find(|line| line.contains("Consume Diff Total"));
            line.map(str::to_owned)
        })
    };
    let before = lag();
    eventually("the outcome of a message", BOUND, || {
        let again = cluster.mqadmin(&[
            "queryMsgById",
            "-i",
            &message_id,
            "-t",
            TOPIC,
            "-g",
            GROUP,
            "-d",
            &client_id,
        ]);
        again.contains("CR_SUCCESS").then_some(())
    });
    wait_for_deliveries(&host, 2);
    let deliveries = host.deliveries();
    assert!(deliveries.iter().all(|delivery| delivery.body == "once"));
    assert_eq!(lag(), before, "no offset moved");
    host.interrupt();
    assert!(host.wait(BOUND).success());
}
