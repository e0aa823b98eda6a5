//! Brokers that are not there, or not what they should be.

use std::collections::BTreeSet;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, EmbeddedBroker};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use end_to_end::hostile_peer::{HostilePeer, Manner, name_server_routing_to, route};
use end_to_end::hostile_proxy::{HostileProxy, Treatment};
use end_to_end::remoting_frame::{Frame, PULL_MESSAGE};
use guest_artifacts::path;

use crate::{MEMORY_MAX_KIB, assert_no_panic, lines_of, peak_memory_kib, stop};

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

/// Answers whose bytes changed on their way are believed or not; they end nothing, and
/// what is sent afterwards arrives.
#[test]
fn answers_with_flipped_bytes_end_nothing() {
    const TENANTS: u64 = 12;
    const FLIPPED: usize = 80;
    let seed: u64 = std::env::var("MQLET_TEST_SEED")
        .map_or(1, |seed| seed.parse().expect("MQLET_TEST_SEED is a number"));
    let broker = EmbeddedBroker::start();
    let mut folder =
        HostFolder::new(broker.namesrv_addr(), "").with_plugin("good", &path("ledger"), "");
    let mut proxies = Vec::new();
    for tenant in 0..TENANTS {
        let name = format!("flipped{tenant}");
        broker.send(&name, (0..200).map(|number| format!("{name}-{number}")));
        let mut random = Random(seed * 1000 + tenant);
        let mut answers = 0;
        let treat = move |_, mut answer: Frame| {
            answers += 1;
            // Some pass, so that it gets far enough for all kinds of answers.
            if answers <= FLIPPED && random.below(3) == 0 {
                let bytes = answer.bytes_mut();
                for _ in 0..=random.below(4) {
                    let at = random.below(bytes.len() as u64);
                    let at = usize::try_from(at).expect("small");
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            Treatment::Right(answer)
        };
        let proxy = HostileProxy::start(broker.namesrv_addr(), Box::new(treat));
        folder = folder.with_tenant(&name, proxy.namesrv_addr(), &path("ledger"));
        proxies.push((name, proxy));
    }
    let host = folder.run(&[]);

    let mut sent = 0;
    eventually("messages of every tenant", 2 * BOUND, || {
        assert_no_panic(&host);
        let deliveries = host.deliveries();
        let arrived = |name: &str| {
            let prefix = format!("{name}-after");
            deliveries.iter().any(|one| one.body.starts_with(&prefix))
        };
        let missing: Vec<_> = proxies.iter().filter(|(name, _)| !arrived(name)).collect();
        for (name, _) in &missing {
            broker.send(name, [format!("{name}-after{sent}")]);
        }
        sent += 1;
        missing.is_empty().then_some(())
    });
    let memory = peak_memory_kib(&host);
    assert!(memory < MEMORY_MAX_KIB, "{memory} KiB");
    stop(host);
}

/// The same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
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
