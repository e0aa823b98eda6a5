//! Swaps in a row under load on a real RocketMQ, for each kind of plugin, on two hosts of
//! one group: what the embedded broker shows (`tests/end-to-end/tests/swaps.rs`) is true of
//! the real one. `MQLET_SWAPS=200` makes as many as there.

use std::time::Duration;

use end_to_end::swapping::Swapping;
use guest_artifacts::path;
use interop::cluster::Cluster;
use interop::host;
use interop::watch::Watch;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
/// Of each kind, both hosts together, when nobody asks for more.
const SWAPS: usize = 24;
const QUEUES: u32 = 4;

#[test]
fn swaps_on_a_real_broker_lose_and_repeat_nothing_and_keep_order_and_locks() {
    let swaps = match std::env::var("MQLET_SWAPS") {
        Ok(number) => number.parse().expect("MQLET_SWAPS is a number"),
        Err(_) => SWAPS,
    };
    let cluster = Cluster::start(&[]);
    let interval = "[consume]\npull_task_interval = \"20ms\"";
    for (kind, guest, more) in [
        ("concurrent", "ledger", ""),
        ("orderly", "orderly_as_told", ""),
        ("scheduled-pull", "pull_as_told", interval),
    ] {
        let topic = format!("swapped-{kind}");
        cluster.create_topic(&topic, QUEUES);
        let group = format!("{topic}-group");
        let watch = Watch::start(&cluster.broker_addr(), &group, &topic, QUEUES);
        Swapping {
            namesrv_addr: cluster.namesrv_addr(),
            topic: &topic,
            kind,
            component: &path(guest),
            more,
            swaps,
            send: &|bodies| host::send(cluster.namesrv_addr(), &topic, bodies),
            bound: BOUND,
        }
        .run();
        let history = watch.stop();
        assert_eq!(
            history.steps_back(),
            [],
            "{kind}: a committed offset went back"
        );
        assert!(
            history.queues_committed() > 0,
            "{kind}: nothing was committed"
        );
    }
}
