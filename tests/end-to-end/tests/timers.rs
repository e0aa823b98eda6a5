//! Messages with a time of their own.

use end_to_end::embedded_broker::EmbeddedBroker;
use end_to_end::timer;

#[test]
fn message_that_a_plugin_sends_with_a_delay_comes_in_its_time() {
    let broker = EmbeddedBroker::start();
    let namesrv_addr = broker.namesrv_addr();
    timer::plugin_sends_and_the_message_comes_in_its_time(namesrv_addr, guest_artifacts::path);
}
