//! The statuses of an orderly listener on a real RocketMQ 5.5.0: suspension, commit and
//! rollback without auto-commit, and the dead letter after a number of attempts.

use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::tenant::{Plugin, Tenant};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);
/// One message a call, so that the answers are for single messages.
const ONE_BY_ONE: &str =
    "consume_message_batch_max_size = 1\nsuspend_current_queue_time = \"100ms\"";

/// A group of its own on a topic of its own with two queues.
struct Walkers<'a> {
    name: &'a str,
    tenant: Tenant,
    broker: Connection,
}

impl<'a> Walkers<'a> {
    fn new(cluster: &Cluster, name: &'a str, consume: &str) -> Self {
        let component = guest_artifacts::path("orderly_as_told");
        cluster.create_topic(name, 2);
        let consume = format!("{ONE_BY_ONE}\n{consume}");
        let plugin = Plugin {
            listener: "orderly",
            consume: &consume,
            ..Plugin::of(&component, name, name)
        };
        let connection = format!("namesrv_addr = [{:?}]", cluster.namesrv_addr());
        Self {
            name,
            tenant: Tenant::new(&connection, &[plugin]),
            broker: Connection::open(&cluster.broker_addr()),
        }
    }

    fn run(&self) -> HostProcess {
        let mut host = self.tenant.run();
        host.wait_for_line("serving", BOUND);
        host
    }

    /// Stores these in the first queue, in order.
    fn send(&mut self, bodies: &[&str]) {
        for body in bodies {
            self.broker.send(self.name, 0, body.as_bytes());
        }
    }

    fn wait_for_commit(&mut self, offset: u64) {
        eventually(&format!("offset {offset}"), BOUND, || {
            let committed = self.broker.committed(self.name, self.name, 0);
            (committed == Some(offset)).then_some(())
        });
    }

    /// What the group has committed of the first queue when no member is left.
    fn committed_after(&mut self, mut host: HostProcess) -> Option<u64> {
        host.interrupt();
        assert!(host.wait(BOUND).success());
        self.broker.committed(self.name, self.name, 0)
    }
}

/// Bodies of a queue with their attempts, in order.
fn walked(host: &HostProcess, queue_id: u32) -> Vec<(String, u32)> {
    let deliveries = host.deliveries().into_iter();
    deliveries
        .filter(|delivery| delivery.queue_id == queue_id)
        .map(|delivery| (delivery.body, delivery.reconsume_times))
        .collect()
}

fn wait_for(host: &HostProcess, queue_id: u32, expected: &[(&str, u32)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(b, n)| ((*b).to_owned(), *n))
        .collect();
    let seen = eventually("the deliveries", BOUND, || {
        let seen = walked(host, queue_id);
        (seen.len() >= expected.len()).then_some(seen)
    });
    assert_eq!(seen, expected);
}

#[test]
fn a_suspended_message_stays_first_and_its_queue_alone_waits() {
    let cluster = Cluster::shared();
    let mut walkers = Walkers::new(&cluster, "suspended", "");
    let host = walkers.run();
    walkers.send(&["a", "suspend-until=3", "b"]);
    let expected = [
        ("a", 0),
        ("suspend-until=3", 0),
        ("suspend-until=3", 1),
        ("suspend-until=3", 2),
        ("suspend-until=3", 3),
        ("b", 0),
    ];
    wait_for(&host, 0, &expected);
    walkers.wait_for_commit(3);

    // For ever, unless a number is given: the other queue goes on.
    walkers.send(&["suspend=50", "never"]);
    walkers.broker.send("suspended", 1, b"other");
    eventually("many attempts, and the other queue", BOUND, || {
        let attempts = walked(&host, 0);
        let last = attempts.last().expect("walked above");
        (last.1 >= 20 && walked(&host, 1) == [("other".to_owned(), 0)]).then_some(())
    });
    let seen = walked(&host, 0);
    assert!(
        seen[6..].iter().all(|(body, _)| body == "suspend=50"),
        "{seen:?}"
    );
    assert_eq!(walkers.committed_after(host), Some(3));
}

#[test]
fn without_auto_commit_only_a_commit_moves_the_offset_and_a_rollback_begins_behind_it() {
    let cluster = Cluster::shared();
    let mut walkers = Walkers::new(&cluster, "committed", "auto_commit = false");
    let host = walkers.run();
    walkers.send(&["a", "b"]);
    wait_for(&host, 0, &[("a", 0), ("b", 0)]);
    // Success alone is no commit: the next owner begins before it.
    assert_eq!(walkers.committed_after(host), Some(0));
    let host = walkers.run();
    wait_for(&host, 0, &[("a", 0), ("b", 0)]);
    walkers.send(&["commit"]);
    walkers.wait_for_commit(3);
    walkers.send(&["c", "rollback-once", "d"]);
    eventually("what comes behind the rollback", BOUND, || {
        let seen = walked(&host, 0);
        seen.iter().any(|(body, _)| body == "d").then_some(())
    });
    walkers.wait_for_commit(5);
    let bodies: Vec<String> = walked(&host, 0).into_iter().map(|(body, _)| body).collect();
    assert_eq!(
        bodies,
        [
            "a",
            "b",
            "commit",
            "c",
            "rollback-once",
            "c",
            "rollback-once",
            "d"
        ]
    );
    // "d" is not committed.
    assert_eq!(walkers.committed_after(host), Some(5));
    let host = walkers.run();
    wait_for(&host, 0, &[("d", 0)]);
}

#[test]
fn a_message_that_failed_so_often_is_a_dead_letter_and_its_queue_goes_on_in_order() {
    let cluster = Cluster::shared();
    let mut walkers = Walkers::new(&cluster, "dead", "max_reconsume_times = 2");
    let host = walkers.run();
    walkers.send(&["a", "fail=always", "b", "c"]);
    let expected = [
        ("a", 0),
        ("fail=always", 0),
        ("fail=always", 1),
        ("fail=always", 2),
        ("b", 0),
        ("c", 0),
    ];
    wait_for(&host, 0, &expected);
    walkers.wait_for_commit(4);
    let ledger = guest_artifacts::path("ledger");
    let connection = format!("namesrv_addr = [{:?}]", cluster.namesrv_addr());
    let grave = Plugin::of(&ledger, "undertakers", "%DLQ%dead");
    let grave = Tenant::new(&connection, &[grave]);
    let undertaker = grave.run();
    eventually("the dead letter", BOUND, || {
        (undertaker.delivery_count() >= 1).then_some(())
    });
    let dead = undertaker.deliveries();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].body, "fail=always");
    // It is gone from the group: nobody gets it again.
    assert_eq!(walkers.committed_after(host), Some(4));
    let host = walkers.run();
    walkers.send(&["d"]);
    wait_for(&host, 0, &[("d", 0)]);
    drop(undertaker);
}
