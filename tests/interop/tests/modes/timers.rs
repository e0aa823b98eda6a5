//! Messages with a time of their own, by RocketMQ's timer.

use end_to_end::timer;
use interop::cluster::Cluster;

#[test]
fn message_that_a_plugin_sends_with_a_delay_comes_in_its_time() {
    let cluster = Cluster::shared();
    cluster.create_topic("timer", 1);
    cluster.create_topic("timer-out", 1);
    let namesrv_addr = cluster.namesrv_addr();
    timer::plugin_sends_and_the_message_comes_in_its_time(namesrv_addr, guest_artifacts::path);
}
