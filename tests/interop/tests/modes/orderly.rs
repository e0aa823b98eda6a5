//! An orderly group shared with Java's client on a real RocketMQ 5.5.0: every queue is
//! consumed in order whoever owns it, nothing is lost, and nobody waits for a lock that its
//! owner has given back.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::cluster::Cluster;
use interop::host;
use interop::java;

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
/// Brokers keep a lock for a minute whose owner says nothing: whoever goes on sooner was
/// told. On a quiet machine it takes 0.3 s from Java to mqlet.
const HANDED_OVER: Duration = Duration::from_secs(20);
/// From mqlet to Java it takes 1 to 1.5 s, and now and then 30 s more: when Java rebalances
/// while its first heartbeat is under way, it sends none for the new version of its
/// subscription ("lock heartBeat, but failed"), and brokers refuse its pulls as not the
/// latest until the next.
const HANDED_TO_JAVA: Duration = Duration::from_secs(45);
const QUEUES: u32 = 4;
const COUNT: u32 = 4_000;

/// The owner whose host is mqlet.
const MQLET: usize = 0;

/// One delivery; they sort by time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Consumed {
    at: Instant,
    owner: usize,
    number: u32,
}

fn manifest() -> String {
    let component = guest_artifacts::path("orderly_as_told");
    format!(
        "name = \"walker\"\ncomponent = {component:?}\nlistener = \"orderly\"\n\
         consumer_group = \"walkers\"\nconsume_from_where = \"first_offset\"\n\n\
         [[subscription]]\ntopic = \"Steps\"\n\n\
         [consume]\nconsume_message_batch_max_size = 1\n\n\
         [limits]\nlog_lines_per_second = 1000000\n"
    )
}

#[test]
fn java_and_mqlet_share_an_orderly_group_and_every_queue_stays_in_order() {
    let cluster = Cluster::shared();
    cluster.create_topic("Steps", QUEUES);
    let namesrv_addr = cluster.namesrv_addr();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plugins = folder.path().join("plugins");
    fs::create_dir_all(&plugins).expect("a folder of ours");
    fs::write(plugins.join("walker.toml"), manifest()).expect("a folder of ours");
    let mut host = host::run(folder.path(), namesrv_addr);
    host.wait_for_line("serving", BOUND);
    let member = || {
        let mut member = HostProcess::spawn(&mut java::program(
            "OrderlyMember",
            &[namesrv_addr, "walkers", "Steps"],
        ));
        member.wait_for_line("started", BOUND);
        member
    };
    let (queues, count) = (QUEUES.to_string(), COUNT.to_string());
    let feed = [namesrv_addr, "--feed", "Steps", &queues, &count, "20"];
    let mut feeder = HostProcess::spawn(&mut java::program("OrderlyMember", &feed));
    eventually("mqlet consumes", BOUND, || {
        (host.delivery_count() > 0).then_some(())
    });

    // Java joins, consumes its share, and leaves.
    let mut first = member();
    eventually("Java has a share", BOUND, || {
        (first.delivery_count() > 20).then_some(())
    });
    first.close_stdin();
    first.wait_for_line("left the group", BOUND);
    first.wait(BOUND);
    // Java comes again, and mqlet leaves.
    let mut second = member();
    eventually("Java has a share again", BOUND, || {
        (second.delivery_count() > 20).then_some(())
    });
    host.interrupt();
    assert!(host.wait(BOUND).success());
    feeder.wait_for_line("fed", BOUND);
    let members = [&host, &first, &second];
    let consumed = || -> usize { members.iter().map(|m| m.delivery_count()).sum() };
    eventually("all messages", BOUND, || {
        (consumed() >= COUNT as usize).then_some(())
    });

    let mut by_queue: BTreeMap<u32, Vec<Consumed>> = BTreeMap::new();
    for (owner, member) in members.iter().enumerate() {
        for (at, delivery) in member.timed_deliveries() {
            let number: u32 = delivery.body.parse().expect("a number");
            let queue = by_queue.entry(delivery.queue_id).or_default();
            queue.push(Consumed { at, owner, number });
        }
    }
    assert_eq!(by_queue.len(), QUEUES as usize);
    let mut handed_over = 0;
    for (queue, mut deliveries) in by_queue {
        deliveries.sort_unstable();
        // Java may have a call under way when it leaves, which nobody waits for: the next
        // owner has that message again. Everything else comes once.
        let is_again = |before: &Consumed, after: &Consumed| {
            before.number == after.number && before.owner != MQLET && after.owner != before.owner
        };
        let mut numbers: Vec<u32> = deliveries.iter().map(|one| one.number).collect();
        for index in (1..deliveries.len()).rev() {
            if is_again(&deliveries[index - 1], &deliveries[index]) {
                numbers.remove(index);
            }
        }
        let expected: Vec<u32> = (0..COUNT).filter(|n| n % QUEUES == queue).collect();
        assert_eq!(numbers, expected, "queue {queue}: in order, and all");
        for pair in deliveries.windows(2) {
            if pair[0].owner != pair[1].owner {
                handed_over += 1;
                let waited = pair[1].at - pair[0].at;
                let bound = match pair[1].owner {
                    MQLET => HANDED_OVER,
                    _ => HANDED_TO_JAVA,
                };
                assert!(waited < bound, "queue {queue} waited for {waited:?}");
            }
        }
    }
    assert!(
        handed_over >= 4,
        "queues changed owners {handed_over} times"
    );
    second.close_stdin();
    second.wait(BOUND);
}
