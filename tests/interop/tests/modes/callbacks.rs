//! What a real broker asks of us when somebody uses RocketMQ's own tool: how a group is
//! doing (307), and to consume one message now (309).

use std::path::Path;
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

/// Sends one message; its place in the broker.
fn send(cluster: &Cluster, folder: &Path, body: &str) -> String {
    let address = ["--namesrv-addr", cluster.namesrv_addr()];
    let sent = host::mqlet(
        folder,
        &[&["send", TOPIC, body, "--output", "json"][..], &address].concat(),
    );
    field(&sent, "offset_message_id").expect("an id")
}

fn client_id(folder: &Path) -> String {
    let groups = host::mqlet(folder, &["groups", "--output", "json"]);
    field(&groups, "client_id").expect("our id")
}

/// Has a message consumed until the tool prints this; returns all that it prints.
fn consumed_directly(
    cluster: &Cluster,
    client_id: &str,
    message_id: &str,
    expected: &str,
) -> String {
    eventually(expected, BOUND, || {
        let who = ["-g", GROUP, "-d", client_id];
        let what = ["queryMsgById", "-i", message_id, "-t", TOPIC];
        let printed = cluster.mqadmin(&[&what[..], &who].concat());
        printed.contains(expected).then_some(printed)
    })
}

#[test]
fn a_plugin_that_traps_is_to_mqadmin_a_listener_that_throws() {
    let component = guest_artifacts::path("as_told");
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
    let message_id = send(&cluster, folder.path(), "trap");
    host.wait_for_line("failed in consume-message: trap", BOUND);

    let client_id = client_id(folder.path());
    let printed = consumed_directly(&cluster, &client_id, &message_id, "CR_THROW_EXCEPTION");

    assert!(printed.contains("unreachable"), "{printed}");
    host.interrupt();
    assert!(host.wait(BOUND).success());
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
    let message_id = send(&cluster, folder.path(), "once");
    wait_for_deliveries(&host, 1);
    let client_id = client_id(folder.path());

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
    consumed_directly(&cluster, &client_id, &message_id, "CR_SUCCESS");
    wait_for_deliveries(&host, 2);
    let deliveries = host.deliveries();
    assert!(deliveries.iter().all(|delivery| delivery.body == "once"));
    assert_eq!(lag(), before, "no offset moved");
    host.interrupt();
    assert!(host.wait(BOUND).success());
}
