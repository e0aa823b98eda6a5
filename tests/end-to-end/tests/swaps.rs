//! Two hundred swaps in a row under load, for each kind of plugin, on two hosts of one
//! group: every message comes once, in its order, and nobody rebalances.

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::swapping::Swapping;
use guest_artifacts::path;

fn two_hundred_swaps(kind: &str, guest: &str, more: &str) {
    let broker = EmbeddedBroker::start();
    Swapping {
        namesrv_addr: broker.namesrv_addr(),
        topic: "swapped",
        kind,
        component: &path(guest),
        more,
        swaps: 200,
        send: &|bodies| broker.send("swapped", bodies),
        bound: BOUND,
    }
    .run();
}

#[test]
fn two_hundred_swaps_of_a_concurrent_listener_lose_and_repeat_nothing() {
    two_hundred_swaps("concurrent", "ledger", "");
}

#[test]
fn two_hundred_swaps_of_an_orderly_listener_keep_the_order_and_the_locks() {
    two_hundred_swaps("orderly", "orderly_as_told", "");
}

#[test]
fn two_hundred_swaps_of_a_pull_task_lose_and_repeat_nothing() {
    let interval = "[consume]\npull_task_interval = \"20ms\"";
    two_hundred_swaps("scheduled-pull", "pull_as_told", interval);
}
