//! Buckets in a Redis that hosts share.

use std::fs;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::redis_server::RedisServer;
use guest_artifacts::path;

const GRANTS: &str = "[grants]\nconfig = true\nhttp = { hosts = [\"api.example.org\"] }\n\
    keyvalue = { buckets = [\"orders\"] }\n";

/// One host with a tenant of this name whose buckets are in Redis. Its plugin answers each
/// message with a line that says what came of it.
fn folder(broker: &EmbeddedBroker, redis: &RedisServer, tenant: &str, plugin: &str) -> HostFolder {
    let folder = HostFolder::new(broker.namesrv_addr(), "")
        .with_plugin("idle", &path("ledger"), "")
        .with_empty_tenant(tenant, broker.namesrv_addr())
        .with_plugin_of(tenant, plugin, &path("reach"), GRANTS);
    let file = folder.path().join("mqlet.toml");
    let config = fs::read_to_string(&file).expect("written above");
    let address = redis.address();
    let table = format!("[tenants.{tenant}.key_value]\nredis = \"redis://{address}/0\"\n");
    fs::write(file, config + &table).expect("a folder of ours");
    folder
}

#[test]
fn hosts_share_the_buckets_of_a_tenant_and_a_redis_that_is_gone_is_an_error_for_the_guest_alone() {
    let Some(mut redis) = RedisServer::start() else {
        return;
    };
    let broker = EmbeddedBroker::start();
    let folders = [
        folder(&broker, &redis, "shop", "one"),
        folder(&broker, &redis, "shop", "two"),
        folder(&broker, &redis, "bank", "three"),
    ];
    let mut hosts = folders.each_ref().map(|folder| folder.run(&[]));
    for host in &mut hosts {
        host.wait_for_line("serving 2 plugins", BOUND);
    }
    broker.send("one", ["add orders count 40"]);
    hosts[0].wait_for_line("reach[40]", BOUND);
    broker.send("two", ["add orders count 2"]);
    hosts[1].wait_for_line("reach[42]", BOUND);
    broker.send("three", ["add orders count 1"]);
    hosts[2].wait_for_line("reach[1]", BOUND);

    redis.kill();
    broker.send("one", ["get orders count"]);
    let line = hosts[0].wait_for_line("the buckets of tenant", BOUND);
    assert!(line.contains(redis.address()), "{line}");
    hosts[0].wait_for_line("reach[error: Error::Other", BOUND);
    // Whoever needs no bucket does not notice.
    broker.send("idle", ["meanwhile"]);
    eventually("a plugin without buckets", BOUND, || {
        (hosts[0].delivery_count() + hosts[1].delivery_count() + hosts[2].delivery_count() == 1)
            .then_some(())
    });

    redis.start_again();
    eventually("an answer from the new Redis", BOUND, || {
        broker.send("two", ["add orders count 5"]);
        let lines = hosts[1].lines();
        lines
            .iter()
            .any(|line| line.contains("reach[5]"))
            .then_some(())
    });
    for host in &mut hosts {
        host.interrupt();
        assert_eq!(host.wait(BOUND).code(), Some(0));
    }
}
