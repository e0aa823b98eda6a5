//! Name servers that are not there, or not what they should be.

use std::net::TcpListener;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker, free_address};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::hostile_peer::{HostilePeer, Manner};
use guest_artifacts::path;

use crate::{MEMORY_MAX_KIB, lines_of, peak_memory_kib, stop};

/// So many bad answers show that it is asked again and again.
const REQUESTS_MIN: usize = 3;
/// What may be said about one fault, however long it lasts.
const LINES_MAX: usize = 4;

#[test]
fn hostile_name_servers_are_told_once_each_and_harm_nobody() {
    let broker = EmbeddedBroker::start();
    broker.send("good", ["before"]);
    let peers: Vec<_> = Manner::ALL.map(|m| (m, HostilePeer::start(m))).into();
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    for (manner, peer) in &peers {
        folder = folder.with_tenant(&manner.name(), peer.address(), &path("ledger"));
    }
    let host = folder.run(&[]);

    for (manner, peer) in &peers {
        eventually(&format!("questions to {manner:?}"), BOUND, || {
            (peer.requests() >= REQUESTS_MIN).then_some(())
        });
    }

    broker.send("good", ["after"]);
    eventually("the good tenant's messages", BOUND, || {
        (host.delivery_count() == 2).then_some(())
    });
    for (manner, peer) in &peers {
        let lines = lines_of(&host, &manner.name());
        let warnings: Vec<_> = lines
            .iter()
            .filter(|line| line.contains(&format!("name server {}", peer.address())))
            .collect();
        assert_eq!(warnings.len(), 1, "{manner:?}: {lines:#?}");
        assert!(warnings[0].contains("WARN"), "{warnings:?}");
        // Of its plugin's start nothing is said of the name server.
        let more = lines.iter().filter(|line| line.contains(peer.address()));
        assert!(more.count() <= LINES_MAX, "{manner:?}: {lines:#?}");
    }
    let memory = peak_memory_kib(&host);
    assert!(memory < MEMORY_MAX_KIB, "{memory} KiB");
    stop(host);
}

#[test]
fn name_servers_that_cannot_be_reached_are_told_once_each() {
    let broker = EmbeddedBroker::start();
    // Bound and never accepting: connections wait until the system refuses them.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addresses = [
        ("refusing", free_address()),
        ("nowhere", "no-such-host.invalid:9876".to_owned()),
        ("deaf", deaf.local_addr().expect("bound").to_string()),
        // Nobody is there; packets may vanish or be refused at once.
        ("unreachable", "192.0.2.1:9876".to_owned()),
    ];
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    for (tenant, address) in &addresses {
        folder = folder.with_tenant(tenant, address, &path("ledger"));
    }
    let host = folder.run(&[]);

    for (tenant, address) in &addresses {
        eventually(&format!("a line about {address}"), BOUND, || {
            let lines = lines_of(&host, tenant);
            let told = |line: &String| line.contains("WARN") && line.contains(address);
            lines.iter().any(told).then_some(())
        });
    }

    broker.send("good", ["m"]);
    eventually("the good tenant's message", BOUND, || {
        (host.delivery_count() == 1).then_some(())
    });
    for (tenant, address) in &addresses {
        let lines = lines_of(&host, tenant);
        let told = lines.iter().filter(|line| line.contains(address));
        assert!(told.count() <= LINES_MAX, "{tenant}: {lines:#?}");
    }
    stop(host);
}
