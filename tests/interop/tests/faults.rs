//! A link to the broker that is cut, held up and slowed down; members that join at once
//! under load; an answer as large as the broker makes them.
//!
//! `cargo xtask bench soundness` does the same for longer and with Java beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use end_to_end::eventually::eventually;
use end_to_end::faulty_link::FaultyLink;
use end_to_end::host_process::HostProcess;
use end_to_end::ledger::{Delivery, counts};
use interop::account::{Account, Seen};
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::host::{self, HostSettings};
use interop::schedule::{Happened, KINDS, Schedule};
use interop::stream::Stream;
use interop::watch::Watch;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const QUEUES: u32 = 8;
const GROUP: &str = "ledger-group";
/// What a fault may cost once it is over.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// Before a recovery can be complete.
const SOON: Duration = Duration::from_millis(700);
/// A pulled message may lie so long before it is delivered.
const HELD_MAX: Duration = Duration::from_secs(5);

fn seen(hosts: &[&HostProcess]) -> Vec<Seen> {
    hosts
        .iter()
        .flat_map(|host| host.timed_deliveries())
        .collect()
}

fn delivered(hosts: &[&HostProcess]) -> BTreeSet<String> {
    seen(hosts).into_iter().map(|(_, d)| d.body).collect()
}

/// Two hosts of one group, each behind a link of its own.
struct Pair {
    cluster: Cluster,
    broker_addr: String,
    links: [FaultyLink; 2],
    folders: [tempfile::TempDir; 2],
    component: std::path::PathBuf,
}

impl Pair {
    fn new() -> Self {
        let cluster = Cluster::start(&[]);
        let broker_addr = cluster.broker_addr();
        Connection::open(&broker_addr).create_topic(cluster.namesrv_addr(), "Ledger", QUEUES);
        Self {
            links: [(); 2].map(|()| FaultyLink::start(cluster.namesrv_addr())),
            folders: [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder")),
            component: guest_artifacts::path("ledger"),
            broker_addr,
            cluster,
        }
    }

    fn host(&self, index: usize) -> HostProcess {
        let settings = HostSettings {
            component: &self.component,
            namesrv_addr: self.links[index].namesrv_addr(),
            consumer_group: GROUP,
            topic: "Ledger",
            consume: "",
        };
        host::start(self.folders[index].path(), &settings)
    }

    fn stream(&self, prefix: &str, per_second: u32) -> Stream {
        Stream::start(&self.broker_addr, "Ledger", QUEUES, prefix, per_second)
    }

    fn watch(&self) -> Watch {
        Watch::start(&self.broker_addr, GROUP, "Ledger", QUEUES)
    }
}

/// Nothing lost, no offset back, and only what was not committed comes again.
fn assert_sound(account: &Account) {
    assert_eq!(
        account.queues_committed, QUEUES as usize,
        "without commits nothing can be seen to go back"
    );
    assert!(account.lost.is_empty(), "lost: {:?}", account.lost);
    assert!(
        account.steps_back.is_empty(),
        "commits went back: {:?}",
        account.steps_back
    );
    assert!(
        account.unexplained.is_empty(),
        "committed and yet delivered again: {:#?}",
        account.unexplained
    );
}

/// Waits until every queue has delivered something that was sent after a fault, and
/// judges how long that took.
fn recovers(hosts: [&HostProcess; 2], stream: &Stream, fault: Happened) {
    let sent = stream.count();
    let is_later = |delivery: &Delivery| {
        let number = delivery.body.strip_prefix("m-");
        number.is_some_and(|number| number.parse::<usize>().expect("a number") > sent)
    };
    let recovered = eventually("a later message of every queue", BOUND, || {
        let mut first: BTreeMap<u32, Instant> = BTreeMap::new();
        for (at, delivery) in seen(&hosts) {
            if at > fault.to && is_later(&delivery) {
                let first = first.entry(delivery.queue_id).or_insert(at);
                *first = (*first).min(at);
            }
        }
        (first.len() == QUEUES as usize).then(|| first.into_values().max())
    });
    let took = recovered.expect("there are queues") - fault.to;
    assert!(took < RECOVERY_MAX, "{:?}: {took:?}", fault.fault);
}

#[test]
fn members_that_join_at_once_under_load_step_no_offset_back() {
    let pair = Pair::new();
    // What both find when they come.
    let mut connection = Connection::open(&pair.broker_addr);
    let mut sent = Vec::new();
    for number in 0..2_000_u32 {
        let body = format!("before-{number}");
        let queue_id = number % QUEUES;
        let queue_offset = connection.send("Ledger", queue_id, body.as_bytes());
        sent.push(interop::stream::Sent {
            body,
            queue_id,
            queue_offset,
        });
    }
    let watch = pair.watch();
    let stream = pair.stream("m", 800);
    let (mut one, mut two) = (pair.host(0), pair.host(1));
    one.wait_for_line("serving", BOUND);
    two.wait_for_line("serving", BOUND);
    // Both have a share once each has got something that was sent after both were there.
    let share = |host: &HostProcess, mark: Instant| -> BTreeSet<u32> {
        let seen = host.timed_deliveries();
        seen.iter()
            .filter(|(at, _)| *at > mark)
            .map(|(_, delivery)| delivery.queue_id)
            .collect()
    };
    eventually("half of the queues at each", BOUND, || {
        let mark = Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        let (first, second) = (share(&one, mark), share(&two, mark));
        (first.len() == 4 && second.len() == 4 && first.is_disjoint(&second)).then_some(())
    });
    let settled = stream.count();
    eventually("more of the stream", BOUND, || {
        (stream.count() > settled + 2_000).then_some(())
    });
    sent.extend(stream.stop());
    eventually("every message", BOUND, || {
        let seen = delivered(&[&one, &two]);
        sent.iter()
            .all(|sent| seen.contains(&sent.body))
            .then_some(())
    });
    let account = Account::of(&sent, &seen(&[&one, &two]), &watch.stop(), HELD_MAX);
    assert_sound(&account);
    // Until both know of each other, both may have a queue; from then on nothing repeats.
    let seen = seen(&[&one, &two]);
    let later = seen.iter().filter(|(_, delivery)| {
        let number = delivery.body.strip_prefix("m-");
        number.is_some_and(|number| number.parse::<usize>().expect("a number") > settled)
    });
    let later = counts(later.map(|(_, delivery)| delivery));
    assert!(later.len() > 1_000, "{} after the settling", later.len());
    let again: Vec<_> = later.iter().filter(|(_, times)| **times > 1).collect();
    assert!(again.is_empty(), "{again:?}");
    println!("{} messages, {} repeats", sent.len(), account.repeats);
}

#[test]
fn cuts_stalls_and_delays_lose_nothing_and_end_within_seconds() {
    let pair = Pair::new();
    let (mut one, mut two) = (pair.host(0), pair.host(1));
    one.wait_for_line("serving", BOUND);
    two.wait_for_line("serving", BOUND);
    let watch = pair.watch();
    let stream = pair.stream("m", 160);
    eventually("a stream under way", BOUND, || {
        (one.delivery_count() > 100 && two.delivery_count() > 100).then_some(())
    });
    let links: Vec<&FaultyLink> = pair.links.iter().collect();
    let mut schedule = Schedule::new(7);
    // Every kind twice, each with its recovery; then one soon after the other.
    for _ in 0..2 * KINDS {
        let fault = schedule.happen(&links);
        recovers([&one, &two], &stream, fault);
    }
    for number in 1..=KINDS {
        let fault = schedule.happen(&links);
        if number < KINDS {
            std::thread::sleep(SOON);
        } else {
            recovers([&one, &two], &stream, fault);
        }
    }
    let sent = stream.stop();
    eventually("every message", BOUND, || {
        let seen = delivered(&[&one, &two]);
        sent.iter()
            .all(|sent| seen.contains(&sent.body))
            .then_some(())
    });
    let account = Account::of(&sent, &seen(&[&one, &two]), &watch.stop(), HELD_MAX);
    println!("{} messages, {} repeats", sent.len(), account.repeats);
    assert_sound(&account);
    for link in &pair.links {
        let most = link.connects_in_a_second_max();
        assert!(most <= 10, "{most} connections within a second");
    }
    drop(pair.cluster);
}
