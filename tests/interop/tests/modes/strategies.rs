//! Groups of Java's client and mqlet together, for every way of dividing queues that both
//! have: once settled, every queue has one owner, and it is the one that the strategy names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consumer::config::{AllocateMessageQueueStrategy, MachineRoomResolver};
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeRequest, ConsumeResult, MessageListener,
};
use consumer::{ClientConfig, ConsumeFromWhere, GroupConfig};
use driver::{Driver, DriverConfig};
use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::host::{self, Group};
use interop::java;
use interop::joined::Joined;
use protocol::MessageQueue;
use protocol::subscription::SubscriptionData;
use tokio::runtime::Runtime;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
const STRATEGIES: [&str; 3] = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"];
const GROUPS: [&str; 3] = ["divide-avg", "divide-circle", "divide-hash"];
const QUEUES: u32 = 12;
/// Messages to each queue in a round.
const EACH: u32 = 20;

/// Sends a round to every queue of a topic; the bodies name topic and round.
fn send(broker: &mut Connection, topic: &str, queues: u32, round: usize) {
    for number in 0..queues * EACH {
        let body = format!("{topic}-{round}-{number}");
        broker.send(topic, number % queues, body.as_bytes());
    }
}

/// By queue, which members got messages of a round, and how many came in all.
fn owners(
    members: &[&HostProcess],
    topic: &str,
    round: usize,
) -> (BTreeMap<u32, BTreeSet<usize>>, usize) {
    let (mut owners, mut came) = (BTreeMap::<u32, BTreeSet<usize>>::new(), 0);
    let prefix = format!("{topic}-{round}-");
    for (index, member) in members.iter().enumerate() {
        for delivery in member.deliveries() {
            if delivery.body.starts_with(&prefix) {
                owners.entry(delivery.queue_id).or_default().insert(index);
                came += 1;
            }
        }
    }
    (owners, came)
}

/// The queues of each member, in the order of their first queue.
fn shares(owners: &BTreeMap<u32, usize>) -> Vec<Vec<u32>> {
    let mut shares: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (&queue, &owner) in owners {
        shares.entry(owner).or_default().push(queue);
    }
    let mut shares: Vec<Vec<u32>> = shares.into_values().collect();
    shares.sort();
    shares
}

/// Sends rounds until two in a row have the same owners, each queue one, and every message
/// of the last came once; whose each queue is.
fn settled(
    broker: &mut Connection,
    members: &[&HostProcess],
    topic: &str,
    queues: u32,
) -> BTreeMap<u32, usize> {
    let mut before = None;
    let mut round = 0;
    eventually(
        &format!("one owner for each queue of {topic}"),
        BOUND,
        || {
            round += 1;
            send(broker, topic, queues, round);
            let (owners, came) = eventually("every message of a round", BOUND, || {
                let (owners, came) = owners(members, topic, round);
                (came >= (queues * EACH) as usize).then_some((owners, came))
            });
            let single = owners.iter().map(|(&queue, members)| {
                let mut members = members.iter();
                Some((queue, *members.next()?)).filter(|_| members.next().is_none())
            });
            let now: Option<BTreeMap<u32, usize>> = single.collect();
            let is_settled = now.is_some() && now == before && came == (queues * EACH) as usize;
            before = now;
            is_settled.then(|| before.take().expect("compared above"))
        },
    )
}

#[test]
fn java_and_mqlet_divide_alike_whatever_the_strategy() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::shared();
    let namesrv_addr = cluster.namesrv_addr();
    let topics = STRATEGIES.map(|strategy| format!("Divided_{strategy}"));
    let groups: Vec<Group<'_>> = topics
        .iter()
        .zip(GROUPS)
        .zip(STRATEGIES)
        .map(|((topic, consumer_group), strategy)| Group {
            consumer_group,
            topic,
            strategy,
        })
        .collect();
    for topic in &topics {
        cluster.create_topic(topic, QUEUES);
    }
    let mut arguments = vec![namesrv_addr];
    for group in &groups {
        arguments.extend([group.consumer_group, group.topic, group.strategy]);
    }
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let mut java = HostProcess::spawn(&mut java::program("Member", &arguments));
    let mut hosts = folders
        .each_ref()
        .map(|folder| host::start_groups(folder.path(), &component, namesrv_addr, &groups));
    java.wait_for_line("started", BOUND);
    for host in &mut hosts {
        host.wait_for_line("serving 3 plugins", BOUND);
    }

    let mut broker = Connection::open(&cluster.broker_addr());
    let [one, two] = &hosts;
    let members = [&java, one, two];
    for (topic, strategy) in topics.iter().zip(STRATEGIES) {
        let owners = settled(&mut broker, &members, topic, QUEUES);
        let shares = shares(&owners);
        println!("{strategy}: {shares:?}");
        let expected: Option<[Vec<u32>; 3]> = match strategy {
            "AVG" => Some([0, 1, 2].map(|m| (0..QUEUES).filter(|q| q / 4 == m).collect())),
            "AVG_BY_CIRCLE" => {
                Some([0, 1, 2].map(|m| (0..QUEUES).filter(|q| q % 3 == m).collect()))
            }
            // Where the names of the members fall on the ring.
            _ => None,
        };
        if let Some(expected) = expected {
            assert_eq!(shares, expected, "{strategy}");
        }
    }

    // Java leaves: the others have everything, and again one owner for each queue.
    java.close_stdin();
    java.wait_for_line("left the group", BOUND);
    for topic in &topics {
        let owners = settled(&mut broker, &[one, two], topic, QUEUES);
        assert_eq!(owners.len(), QUEUES as usize);
    }
}

/// The last letter of a broker's name, and of what stands before the `#` or at the end of a
/// client id; `Member.java` has the same rule.
#[derive(Debug)]
struct LastLetter;

impl MachineRoomResolver for LastLetter {
    fn broker_deploy_in(&self, queue: &MessageQueue) -> Option<String> {
        queue.broker_name.chars().last().map(String::from)
    }

    fn consumer_deploy_in(&self, client_id: &str) -> Option<String> {
        client_id.chars().last().map(String::from)
    }
}

/// Broker, queue and body of everything that came.
#[derive(Default)]
struct Recorder(Mutex<Vec<(String, u32, String)>>);

impl MessageListener for Recorder {
    fn consume_message(&self, request: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
        let queue = &request.message_queue;
        let mut came = self.0.lock().expect("no panic");
        came.extend(request.iter().map(|one| {
            let body = String::from_utf8_lossy(one.message.body()).into_owned();
            (queue.broker_name.to_string(), queue.queue_id, body)
        }));
        let status = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
        Box::pin(async { ConsumeResult::Concurrently(status) })
    }
}

#[test]
fn members_of_a_machine_room_have_its_brokers_queues_beside_java() {
    const TOPIC: &str = "Rooms";
    const GROUP: &str = "roommates";
    let cluster = Cluster::start(&[]);
    let first = cluster.broker_addr();
    let second = Joined::start(cluster.namesrv_addr(), "broker-b", &[]);
    let mut brokers = [first, second.addr()].map(|addr| Connection::open(&addr));
    for broker in &mut brokers {
        broker.create_topic(cluster.namesrv_addr(), TOPIC, 4);
    }
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let address: protocol::Address = cluster.namesrv_addr().parse().expect("an address");
    let members = ["a", "b"].map(|room| {
        let client_id = format!("127.0.0.1@mqlet#{room}");
        let config = ClientConfig::new(client_id, vec![address.clone()]);
        let driver = Driver::start(DriverConfig::new(config), Arc::new(|_| {}));
        let group = GroupConfig::builder(GROUP)
            .consume_from_where(ConsumeFromWhere::FirstOffset)
            .subscription(SubscriptionData::all(TOPIC))
            .allocate_message_queue_strategy(AllocateMessageQueueStrategy::MachineRoomNearby {
                inner: Arc::default(),
                resolver: Arc::new(LastLetter),
            })
            .build()
            .expect("valid");
        let recorder = Arc::new(Recorder::default());
        let listener = Arc::clone(&recorder) as Arc<dyn MessageListener>;
        runtime
            .block_on(driver.subscribe(group, listener))
            .expect("subscribed");
        (driver, recorder)
    });
    // In room "a".
    let arguments = [cluster.namesrv_addr(), GROUP, TOPIC, "MACHINE_ROOM_NEARBY"];
    let mut java = HostProcess::spawn(&mut java::program("Member", &arguments));
    java.wait_for_line("queues 2", BOUND);

    let mut round = 0;
    eventually("every queue's messages in its room", BOUND, || {
        round += 1;
        let prefix = format!("{round}-");
        for (broker, name) in brokers.iter_mut().zip(["broker-a", "broker-b"]) {
            for number in 0..4 * EACH {
                let body = format!("{prefix}{name}-{number}");
                broker.send(TOPIC, number % 4, body.as_bytes());
            }
        }
        let of = |room: usize| {
            let came = members[room].1.0.lock().expect("no panic");
            let mut seen: BTreeMap<(String, u32), u32> = BTreeMap::new();
            for (broker, queue, body) in came.iter() {
                if body.starts_with(&prefix) {
                    *seen.entry((broker.clone(), *queue)).or_default() += 1;
                }
            }
            seen
        };
        let of_java = || {
            let mut seen: BTreeMap<(String, u32), u32> = BTreeMap::new();
            for delivery in java.deliveries() {
                let body = delivery.body.strip_prefix(&prefix);
                if let Some((broker, _)) = body.and_then(|body| body.rsplit_once('-')) {
                    let key = (broker.to_owned(), delivery.queue_id);
                    *seen.entry(key).or_default() += 1;
                }
            }
            seen
        };
        let (a, b, java) = eventually("every message of a round", BOUND, || {
            let (a, b, java) = (of(0), of(1), of_java());
            let counts = a.values().chain(b.values()).chain(java.values());
            (counts.sum::<u32>() >= 8 * EACH).then_some((a, b, java))
        });
        let is_once = |count: &u32| *count == EACH;
        let is_settled = (a.len(), b.len(), java.len()) == (2, 4, 2)
            && a.keys()
                .chain(java.keys())
                .all(|(broker, _)| broker == "broker-a")
            && a.keys().all(|queue| !java.contains_key(queue))
            && b.keys().all(|(broker, _)| broker == "broker-b")
            && a.values()
                .chain(b.values())
                .chain(java.values())
                .all(is_once);
        is_settled.then_some(())
    });
    for (driver, _) in &members {
        runtime.block_on(driver.stop(BOUND));
    }
    java.close_stdin();
    java.wait_for_line("left the group", BOUND);
}
