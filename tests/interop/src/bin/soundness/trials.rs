//! The trials. Each starts a cluster of its own.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::faulty_link::{Fault, FaultyLink};
use end_to_end::host_process::HostProcess;
use interop::account::{Account, Seen, longest_silence};
use interop::broker::Connection;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::schedule::Schedule;
use interop::stream::{Sent, Stream};
use interop::watch::{History, Watch};

use crate::member::{Kind, Members, TOPIC, bodies, peak_memory, seconds, seen};

const QUEUES: u32 = 8;
/// How long anything is waited for before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A pulled message may lie so long before it is delivered.
const HELD_MAX: Duration = Duration::from_secs(5);
/// Messages a second while nothing else is said.
const RATE: u32 = 400;

fn wait(interval: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return Some(start.elapsed());
        }
        thread::sleep(interval);
    }
    None
}

fn cluster(settings: &[&str]) -> (Cluster, String) {
    let cluster = Cluster::start(settings);
    cluster.create_topic(TOPIC, QUEUES);
    let broker_addr = cluster.broker_addr();
    (cluster, broker_addr)
}

fn watches(broker_addr: &str) -> [Watch; 2] {
    Kind::BOTH.map(|kind| Watch::start(broker_addr, kind.group(), TOPIC, QUEUES))
}

fn wait_for_all(members: &[Vec<HostProcess>; 2], sent: &[Sent]) {
    // Everything is looked through each time.
    wait(Duration::from_secs(1), || {
        members.iter().all(|members| {
            let seen = bodies(members);
            sent.iter().all(|sent| seen.contains(&sent.body))
        })
    });
}

/// Prints an account of each kind.
fn report(
    members: &[Vec<HostProcess>; 2],
    sent: &[Sent],
    histories: &[History; 2],
    more: impl Fn(usize, &[Seen]) -> String,
) {
    println!("{} messages", sent.len());
    for (index, kind) in Kind::BOTH.into_iter().enumerate() {
        let seen = seen(&members[index]);
        let account = Account::of(sent, &seen, &histories[index], HELD_MAX);
        let back: u64 = account
            .steps_back
            .iter()
            .map(|(_, from, to)| from - to)
            .sum();
        println!(
            "{kind:?}: lost {}, again {} (of those committed before: {}), commits back {} \
             (by {back} in all){}",
            account.lost.len(),
            account.repeats,
            account.unexplained.len(),
            account.steps_back.len(),
            more(index, &seen),
        );
    }
}

/// Start-up: a brand-new group, its first message and its first retry.
pub(crate) fn start() {
    let (cluster, broker_addr) = cluster(&[QUICK_LEVELS]);
    let mut connection = Connection::open(&broker_addr);
    connection.send(TOPIC, 0, b"first");
    connection.send(TOPIC, 1, b"fail");
    let mut folders = Members::new();
    // One after the other, so that neither starts beside the other's start.
    let started = Kind::BOTH.map(|kind| {
        let began = Instant::now();
        let member = folders.start(kind, cluster.namesrv_addr());
        let first = wait(LOOK_INTERVAL, || {
            let mut deliveries = member.deliveries().into_iter();
            deliveries.any(|delivery| delivery.body == "first")
        });
        println!(
            "{kind:?}: first message {} after the start of the process",
            seconds(first.map(|_| began.elapsed()))
        );
        member
    });
    for (kind, member) in Kind::BOTH.into_iter().zip(started) {
        let attempts = || -> Vec<Instant> {
            let seen = member.timed_deliveries().into_iter();
            seen.filter(|(_, delivery)| delivery.body == "fail")
                .map(|(at, _)| at)
                .collect()
        };
        wait(LOOK_INTERVAL, || attempts().len() >= 2);
        let times = attempts();
        // Levels of a second: what is beyond is the client.
        let retry = times.get(1).map(|second| *second - times[0]);
        println!("{kind:?}: first retry of the new group {}", seconds(retry));
    }
}

/// Two members of each kind start at the same moment, with a backlog and a stream.
pub(crate) fn join() {
    let (cluster, broker_addr) = cluster(&[]);
    let mut connection = Connection::open(&broker_addr);
    let mut sent: Vec<Sent> = Vec::new();
    for number in 0..10_000_u32 {
        let (body, queue_id) = (format!("before-{number}"), number % QUEUES);
        let queue_offset = connection.send(TOPIC, queue_id, body.as_bytes());
        sent.push(Sent {
            body,
            queue_id,
            queue_offset,
        });
    }
    let watches = watches(&broker_addr);
    let stream = Stream::start(&broker_addr, TOPIC, QUEUES, "m", RATE);
    let mut folders = Members::new();
    let members = Kind::BOTH.map(|kind| {
        (0..2)
            .map(|_| folders.start(kind, cluster.namesrv_addr()))
            .collect::<Vec<_>>()
    });
    thread::sleep(Duration::from_secs(30));
    sent.extend(stream.stop());
    wait_for_all(&members, &sent);
    report(&members, &sent, &watches.map(Watch::stop), |_, _| {
        String::new()
    });
}

/// Cuts, stalls, delays and outages of the link to the broker.
pub(crate) fn faults(duration: Duration, seed: u64) {
    let (cluster, broker_addr) = cluster(&[]);
    let links = [(); 2].map(|()| [(); 2].map(|()| FaultyLink::start(cluster.namesrv_addr())));
    let mut folders = Members::new();
    let mut members: [Vec<HostProcess>; 2] = [Vec::new(), Vec::new()];
    for (index, kind) in Kind::BOTH.into_iter().enumerate() {
        for link in &links[index] {
            members[index].push(folders.start(kind, link.namesrv_addr()));
        }
    }
    let watches = watches(&broker_addr);
    let stream = Stream::start(&broker_addr, TOPIC, QUEUES, "m", RATE);
    wait(LOOK_INTERVAL, || {
        members.iter().flatten().all(|m| m.delivery_count() > 100)
    });
    let all: Vec<&FaultyLink> = links.iter().flatten().collect();
    let (mut schedule, start) = (Schedule::new(seed), Instant::now());
    let mut happened = Vec::new();
    while start.elapsed() < duration {
        thread::sleep(schedule.pause());
        happened.push(schedule.happen(&all));
    }
    thread::sleep(Duration::from_secs(30));
    let end = Instant::now();
    let sent = stream.stop();
    wait_for_all(&members, &sent);
    println!("{} faults in {duration:?}, seed {seed}", happened.len());
    report(&members, &sent, &watches.map(Watch::stop), |index, seen| {
        let after = happened.iter().enumerate().map(|(number, fault)| {
            let next = happened.get(number + 1).map_or(end, |next| next.from);
            longest_silence(seen, QUEUES, fault.to, next)
        });
        let connects = links[index]
            .iter()
            .map(FaultyLink::connects_in_a_second_max);
        format!(
            ", a queue silent for {} while all was well, {} connections of a member in a second",
            seconds(after.max()),
            connects.max().unwrap_or(0)
        )
    });
}

/// The broker cannot be reached for half a minute: how fast is it tried, how soon is it
/// found again.
pub(crate) fn down() {
    let (cluster, broker_addr) = cluster(&[]);
    let links = [(); 2].map(|()| FaultyLink::start(cluster.namesrv_addr()));
    let mut folders = Members::new();
    let members = [0, 1].map(|index| {
        let kind = Kind::BOTH[index];
        vec![folders.start(kind, links[index].namesrv_addr())]
    });
    let stream = Stream::start(&broker_addr, TOPIC, QUEUES, "m", RATE);
    wait(LOOK_INTERVAL, || {
        members.iter().flatten().all(|m| m.delivery_count() > 100)
    });
    let before: Vec<usize> = links.iter().map(|link| link.connects().len()).collect();
    links.iter().for_each(|link| link.set(Fault::Down));
    thread::sleep(Duration::from_secs(30));
    let tried: Vec<usize> = links.iter().map(|link| link.connects().len()).collect();
    links.iter().for_each(|link| link.set(Fault::None));
    let (up, mark) = (Instant::now(), Instant::now());
    let served = |members: &[HostProcess]| -> BTreeSet<u32> {
        let seen = seen(members).into_iter();
        seen.filter(|(at, _)| *at > mark)
            .map(|(_, delivery)| delivery.queue_id)
            .collect()
    };
    let mut recovered = [None; 2];
    wait(LOOK_INTERVAL, || {
        for (index, recovered) in recovered.iter_mut().enumerate() {
            if recovered.is_none() && served(&members[index]).len() == QUEUES as usize {
                *recovered = Some(up.elapsed());
            }
        }
        recovered.iter().all(Option::is_some)
    });
    drop(stream);
    for (index, kind) in Kind::BOTH.into_iter().enumerate() {
        println!(
            "{kind:?}: {} attempts in 30 s, at most {} within a second; all queues served {} after its return",
            tried[index] - before[index],
            links[index].connects_in_a_second_max(),
            seconds(recovered[index])
        );
    }
}

/// The broker crashes and starts again.
pub(crate) fn restart() {
    let (cluster, broker_addr) = cluster(&[]);
    let mut folders = Members::new();
    let members = Kind::BOTH.map(|kind| vec![folders.start(kind, cluster.namesrv_addr())]);
    let stream = Stream::start(&broker_addr, TOPIC, QUEUES, "before", RATE);
    wait(LOOK_INTERVAL, || {
        members.iter().flatten().all(|m| m.delivery_count() > 100)
    });
    stream.stop();
    cluster.kill_broker();
    cluster.restart();
    let up = Instant::now();
    let mut connection = Connection::open(&broker_addr);
    for queue_id in 0..QUEUES {
        connection.send(TOPIC, queue_id, format!("after-{queue_id}").as_bytes());
    }
    let served = |members: &[HostProcess]| {
        let after = bodies(members).into_iter();
        after.filter(|body| body.starts_with("after-")).count()
    };
    let mut recovered = [None; 2];
    wait(LOOK_INTERVAL, || {
        for (index, recovered) in recovered.iter_mut().enumerate() {
            if recovered.is_none() && served(&members[index]) == QUEUES as usize {
                *recovered = Some(up.elapsed());
            }
        }
        recovered.iter().all(Option::is_some)
    });
    for (index, kind) in Kind::BOTH.into_iter().enumerate() {
        let recovered = seconds(recovered[index]);
        println!("{kind:?}: all queues served {recovered} after the broker was registered again");
    }
}

/// A broker that is set to give a thousand messages at once, with as many of 64 KiB in a
/// queue.
pub(crate) fn huge() {
    let (cluster, broker_addr) = cluster(&[
        "maxTransferCountOnMessageInMemory=1024",
        "maxTransferBytesOnMessageInMemory=67108864",
    ]);
    let mut connection = Connection::open(&broker_addr);
    let filler = "x".repeat(64 << 10);
    for number in 0..1_000 {
        connection.send(TOPIC, 0, format!("big-{number}-{filler}").as_bytes());
    }
    for kind in Kind::BOTH {
        let mut folders = Members::new();
        let member = folders.start(kind, cluster.namesrv_addr());
        // Lines with such bodies are cut: what counts is what the group has committed.
        let took = wait(LOOK_INTERVAL, || {
            connection.committed(kind.group(), TOPIC, 0) == Some(1_000)
        });
        println!(
            "{kind:?}: all 1,000 committed after {}, peak memory {} MiB",
            seconds(took),
            peak_memory(&member)
        );
    }
}
