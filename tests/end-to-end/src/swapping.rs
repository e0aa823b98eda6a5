//! Swaps in a row under load, on two hosts of one group: every message comes once, in its
//! order, and nobody rebalances, whatever broker it is.
//!
//! The guests write down what they come to before they answer, so that a message that is
//! repeated stands there twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::eventually::eventually;
use crate::host_folder::HostFolder;
use crate::host_process::HostProcess;
use crate::ledger::Delivery;

const ALL_LINES: &str = "[limits]\nlog_lines_per_second = 1000000\nlog_bytes_per_call = \"1MiB\"";
/// Messages of one send.
const BATCH: usize = 100;

/// Swaps of one plugin, and where they happen.
#[derive(Clone, Copy)]
pub struct Swapping<'a> {
    /// The cluster.
    pub namesrv_addr: &'a str,
    /// A topic of four queues that nobody else uses, and the name of the plugin; its group
    /// is `TOPIC-group`.
    pub topic: &'a str,
    /// The word of the manifest's `listener`.
    pub kind: &'a str,
    /// The component, which writes down what it consumes.
    pub component: &'a Path,
    /// Further tables of the manifest.
    pub more: &'a str,
    /// Of both hosts together.
    pub swaps: usize,
    /// Sends these bodies to one queue of the topic, in their order.
    pub send: &'a (dyn Fn(Vec<String>) + Sync),
    /// How long any one step may take.
    pub bound: Duration,
}

/// One host of the two.
struct Member {
    folder: HostFolder,
    host: HostProcess,
    /// The other revision it swaps to and fro with.
    second: PathBuf,
    /// Lines of its log before the first swap.
    lines_before: usize,
}

impl std::fmt::Debug for Swapping<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Swapping({}, {})", self.kind, self.topic)
    }
}

impl Swapping<'_> {
    /// Swaps, half of them cold deployments and half rollbacks, and looks at every delivery;
    /// how many messages were sent.
    ///
    /// # Panics
    /// When a message was lost or repeated, order was not kept, a queue or a lock was lost,
    /// or the hosts' ledgers do not say the same.
    pub fn run(&self) -> usize {
        let sent = AtomicUsize::new(0);
        self.send_batch(&sent);
        let mut members = [self.member(), self.member()];
        self.wait_until_settled(&members);
        let before: usize = all(&members).iter().map(Vec::len).sum();
        for member in &mut members {
            member.lines_before = member.host.lines().len();
        }
        self.swap_under_load(&members, &sent);
        let sent = sent.load(Ordering::Relaxed);
        eventually("every message", self.bound, || {
            let seen: usize = all(&members).iter().map(Vec::len).sum();
            (seen - before >= sent - BATCH).then_some(())
        });
        assert!(sent > self.swaps * 5, "{sent} messages are no load");
        self.assert_each_once(&members, sent);
        for member in &members {
            let lines = member.host.lines().split_off(member.lines_before);
            for bad in ["taken, ", "lost the lock", "killed", "dead letter"] {
                let found = lines.iter().find(|line| line.contains(bad));
                assert_eq!(found, None, "\"{bad}\" while swapping");
            }
        }
        for member in members {
            self.assert_its_ledger_agrees(member);
        }
        sent
    }

    fn manifest(&self, setting: &str) -> String {
        let from = match self.kind {
            "scheduled-pull" => "",
            _ => "consume_from_where = \"first_offset\"\n",
        };
        let Self {
            topic,
            kind,
            component,
            more,
            ..
        } = self;
        format!(
            "name = {topic:?}\nlistener = {kind:?}\ncomponent = {component:?}\n{from}\
             consumer_group = \"{topic}-group\"\n[[subscription]]\ntopic = {topic:?}\n\
             [settings]\nnumber = {setting:?}\n{more}\n{ALL_LINES}\n"
        )
    }

    fn member(&self) -> Member {
        let folder = HostFolder::new(self.namesrv_addr, "");
        let file = folder.path().join("plugins/swapped.toml");
        fs::write(&file, self.manifest("one")).expect("written");
        let second = folder.path().join("second.toml");
        fs::write(&second, self.manifest("two")).expect("written");
        let mut host = folder.run(&[]);
        host.wait_for_line("serving 1 plugin", self.bound);
        Member {
            folder,
            host,
            second,
            lines_before: 0,
        }
    }

    /// Both have queues before anything is swapped, and all there was is consumed.
    fn wait_until_settled(&self, members: &[Member]) {
        let topic = format!("\"topic\":\"{}\"", self.topic);
        eventually("queues at both hosts", self.bound, || {
            let has_queues = |member: &Member| {
                let queues = member.folder.printed(&["queues", "--output", "json"]);
                let ours = |line: &&str| line.contains("\"ours\":true") && line.contains(&topic);
                queues.lines().filter(ours).count() == 2
            };
            members.iter().all(has_queues).then_some(())
        });
        eventually("the first messages", self.bound, || {
            let seen: usize = all(members).iter().map(Vec::len).sum();
            (seen >= BATCH).then_some(())
        });
    }

    fn swap_under_load(&self, members: &[Member], sent: &AtomicUsize) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    self.send_batch(sent);
                }
            });
            let swapping = members
                .iter()
                .map(|member| scope.spawn(move || self.swap(member)));
            let swapping: Vec<_> = swapping.collect();
            let swapped: Vec<_> = swapping.into_iter().map(|one| one.join()).collect();
            // Before anybody panics: the sender ends only when it is told.
            is_over.store(true, Ordering::Relaxed);
            for swapped in swapped {
                swapped.expect("every swap is done");
            }
        });
    }

    fn swap(&self, member: &Member) {
        for swap in 0..self.swaps / 2 {
            // A new revision, cold, and back to the one before, warm.
            if swap % 2 == 1 {
                member.folder.printed(&["rollback", self.topic]);
                continue;
            }
            fs::write(&member.second, self.manifest(&format!("{swap}"))).expect("written");
            let second = member.second.to_str().expect("UTF-8");
            member.folder.printed(&["deploy", self.topic, second]);
        }
    }

    /// Bodies are numbers.
    fn send_batch(&self, sent: &AtomicUsize) {
        let first = sent.fetch_add(BATCH, Ordering::Relaxed);
        (self.send)((first..first + BATCH).map(|n| n.to_string()).collect());
    }

    fn assert_each_once(&self, members: &[Member], sent: usize) {
        // What was there before the group had settled may be repeated by that.
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for delivery in all(members).into_iter().flatten() {
            *counts.entry(delivery.body).or_default() += 1;
        }
        let lost = (0..sent)
            .filter(|n| !counts.contains_key(&n.to_string()))
            .count();
        let repeated = counts
            .iter()
            .filter(|(body, count)| **count > 1 && body.parse().is_ok_and(|n: usize| n >= BATCH))
            .count();
        assert_eq!((lost, repeated), (0, 0), "lost, repeated of {sent}");
        if self.kind != "concurrent" {
            for deliveries in all(members) {
                assert_in_order(&deliveries);
            }
        }
    }

    fn assert_its_ledger_agrees(&self, mut member: Member) {
        member.host.interrupt();
        let status = member.host.wait(self.bound);
        assert_eq!(status.code(), Some(0), "an ordered end");
        let history = member
            .folder
            .printed(&["history", "--verify", "--output", "json"]);
        let switched = history
            .lines()
            .filter(|line| line.contains("\"what\":\"switched\""));
        assert_eq!(switched.count(), self.swaps / 2 + 1, "one entry a switch");
        let repeats =
            |line: &str| line.contains("\"repeats\":") && !line.contains("\"repeats\":0,");
        assert!(!history.lines().any(repeats), "{history}");
    }
}

fn all(members: &[Member]) -> Vec<Vec<Delivery>> {
    members.iter().map(|one| one.host.deliveries()).collect()
}

/// The bodies of one batch went to one queue in their order.
fn assert_in_order(deliveries: &[Delivery]) {
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for delivery in deliveries {
        let number: usize = delivery.body.parse().expect("a number");
        if let Some(before) = last.insert(delivery.queue_id, number)
            && number >= BATCH
        {
            assert!(
                before < number,
                "{number} after {before} in {}",
                delivery.queue_id
            );
        }
    }
}
