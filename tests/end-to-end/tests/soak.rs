//! The soak of `cargo xtask soak`, small and short.

use std::time::Duration;

use end_to_end::embedded_broker::EmbeddedBroker;
use end_to_end::soak::Soak;
use guest_artifacts::path;

#[test]
fn healthy_tenants_lose_nothing_beside_hostile_ones() {
    let broker = EmbeddedBroker::start();
    let soak = Soak {
        namesrv_addr: broker.namesrv_addr().to_owned(),
        healthy_tenants: 3,
        plugins_each: 2,
        duration: Duration::from_secs(15),
    };
    let soaked = soak.run(path);
    assert_eq!((soaked.lost, soaked.repeated), (0, 0), "{soaked:?}");
    assert!(soaked.sent >= 100 && soaked.kills > 0, "{soaked:?}");
}
