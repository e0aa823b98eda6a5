//! Brokers that are not there, or not what they should be.

use std::collections::BTreeSet;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::hostile_peer::{HostilePeer, Manner, name_server_routing_to, route};
use end_to_end::hostile_proxy::HostileProxy;
use end_to_end::remoting_frame::PULL_MESSAGE;
use guest_artifacts::path;

use crate::{MEMORY_MAX_KIB, lines_of, peak_memory_kib, stop};

/// So many bad answers show that it is asked again and again.
const REQUESTS_MIN: usize = 3;
/// What may be said about one fault, however long it lasts.
const LINES_MAX: usize = 8;
/// From the first right answer to the last message.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// The same where only the patience with a pull, 30 s as in RocketMQ, tells that an
/// answer got lost.
const LOST_PULL_RECOVERY_MAX: Duration = Duration::from_secs(45);

#[test]
fn hostile_brokers_are_told_of_and_harm_nobody() {
    let broker = EmbeddedBroker::start();
    let peers: Vec<_> = Manner::ALL.map(|m| (m, HostilePeer::start(m))).into();
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    for (manner, peer) in &peers {
        let name_server = name_server_routing_to(route(peer.address(), 4, 1));
        folder = folder.with_tenant(&manner.name(), &name_server, &path("ledger"));
    }
    let host = folder.run(&[]);

    for (manner, peer) in &peers {
        eventually(&format!("questions to {manner:?}"), BOUND, || {
            (peer.requests() >= REQUESTS_MIN).then_some(())
        });
    }

    broker.send("good", ["m"]);
    eventually("the good tenant's message", BOUND, || {
        (host.delivery_count() == 1).then_some(())
    });
    for (manner, _) in &peers {
        let lines = lines_of(&host, &manner.name());
        let warnings: Vec<_> = lines.iter().filter(|l| l.contains("WARN")).collect();
        assert!(!warnings.is_empty(), "{manner:?}: {lines:#?}");
        assert!(warnings.len() <= LINES_MAX, "{manner:?}: {warnings:#?}");
    }
    let memory = peak_memory_kib(&host);
    assert!(memory < MEMORY_MAX_KIB, "{memory} KiB");
    stop(host);
}

#[test]
fn nothing_is_lost_when_a_broker_behaves_again() {
    recovers(&Manner::ALL, 3, None, |_| RECOVERY_MAX);
}

#[test]
fn nothing_is_lost_when_pull_answers_are_spoilt() {
    let mut manners = Manner::ALL.to_vec();
    // These keep a connection busy for as long as a pull is waited for.
    manners.retain(|manner| !matches!(manner, Manner::Floods | Manner::AsksWithoutEnd));
    recovers(&manners, 1, Some(PULL_MESSAGE), |manner| match manner {
        Manner::Silent | Manner::WrongOpaque => LOST_PULL_RECOVERY_MAX,
        _ => RECOVERY_MAX,
    });
}

/// A tenant for each manner of spoiling so many first answers; all get their messages.
fn recovers(
    manners: &[Manner],
    spoilt: usize,
    of_code: Option<i32>,
    bound: fn(Manner) -> Duration,
) {
    let broker = EmbeddedBroker::start();
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    let mut proxies = Vec::new();
    for &manner in manners {
        let name = manner.name();
        broker.send(&name, (0..50).map(|number| format!("{name}-{number}")));
        let proxy = HostileProxy::spoiling_first(broker.namesrv_addr(), manner, spoilt, of_code);
        folder = folder.with_tenant(&name, proxy.namesrv_addr(), &path("ledger"));
        proxies.push((manner, proxy));
    }
    let host = folder.run(&[]);

    eventually("all messages", 2 * BOUND, || {
        let deliveries = host.deliveries();
        let mut recovered = 0;
        for (manner, proxy) in &proxies {
            let prefix = format!("{}-", manner.name());
            let bodies = deliveries.iter().map(|one| one.body.as_str());
            let seen: BTreeSet<_> = bodies.filter(|body| body.starts_with(&prefix)).collect();
            if seen.len() == 50 {
                recovered += 1;
            } else if let Some(since) = proxy.behaves_since() {
                assert!(
                    since.elapsed() < bound(*manner),
                    "{manner:?}: {} of 50 messages: {:#?}",
                    seen.len(),
                    lines_of(&host, &manner.name())
                );
            }
        }
        (recovered == proxies.len()).then_some(())
    });
    stop(host);
}

#[test]
fn route_of_impossible_size_costs_nothing() {
    let broker = EmbeddedBroker::start();
    let queues = i32::MAX.unsigned_abs();
    let many = name_server_routing_to(route("127.0.0.1:9", queues, 100));
    let too_many = name_server_routing_to(route("127.0.0.1:9", queues, 20_000));
    let none = name_server_routing_to(route("127.0.0.1:9", queues, 0));
    let tenants = [("many", many), ("too-many", too_many), ("none", none)];
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    for (tenant, name_server) in &tenants {
        folder = folder.with_tenant(tenant, name_server, &path("ledger"));
    }
    let mut host = folder.run(&[]);
    host.wait_for_line("serving 4 plugins", BOUND);
    for (tenant, _) in &tenants {
        eventually(&format!("a warning of {tenant}"), BOUND, || {
            let lines = lines_of(&host, tenant);
            eprintln!("{lines:#?}");
            lines.iter().any(|l| l.contains("WARN")).then_some(())
        });
    }
    broker.send("good", ["m"]);
    eventually("the good tenant's message", BOUND, || {
        (host.delivery_count() == 1).then_some(())
    });
    let memory = peak_memory_kib(&host);
    assert!(memory < MEMORY_MAX_KIB, "{memory} KiB");
    stop(host);
}
