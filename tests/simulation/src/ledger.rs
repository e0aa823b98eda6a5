//! Every send, delivery, outcome, commit and send-back, seen from outside: at the brokers
//! and at the listeners. [`Ledger`] only writes down; `invariants` judges.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Instant, MessageQueue};

/// Number of a message; its body is `m` and this number.
pub(crate) type Id = u32;

/// A place in a queue of a broker.
pub(crate) type Place = (MessageQueue, u64);

/// A message that somebody sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) topic: &'static str,
    pub(crate) tag: Option<&'static str>,
    /// The broker said it has it.
    pub(crate) acknowledged: bool,
}

/// All that is known of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sent: BTreeMap<Id, Sent>,
    pub(crate) groups: BTreeMap<&'static str, GroupLedger>,
    /// A broker has forgotten commits.
    pub(crate) rolled_back: bool,
    /// When a broker has last forgotten its locks.
    pub(crate) locks_forgotten: Option<Instant>,
    pub(crate) deliveries: u64,
    pub(crate) repeats: u64,
}

/// What is known of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupLedger {
    /// A listener has done with it.
    pub(crate) done: BTreeSet<Id>,
    /// It is among the dead letters.
    pub(crate) dead: BTreeSet<Id>,
    /// Dead letters looked at, by broker.
    pub(crate) dead_seen: BTreeMap<usize, u64>,
    /// A listener said that it should be.
    pub(crate) said_dead: BTreeSet<Id>,
    /// How often it failed.
    pub(crate) failures: BTreeMap<Id, u32>,
    /// Places whose message was done with, or of which the broker has a copy for later.
    pub(crate) finished: BTreeMap<MessageQueue, BTreeSet<u64>>,
    /// Where a message lies, by broker name and place in its log.
    pub(crate) logged: BTreeMap<(String, u64), Place>,
    /// Places at which a message failed and is not finished.
    pub(crate) failed: BTreeMap<Id, Vec<Place>>,
    /// Everything before is done with, of queues that are consumed in order.
    pub(crate) in_order: BTreeMap<MessageQueue, u64>,
    /// What was committed, all of it looked at.
    pub(crate) checked: BTreeMap<MessageQueue, u64>,
    /// What was committed, in order; the last one is valid.
    pub(crate) commits: BTreeMap<MessageQueue, Vec<i64>>,
}

impl Ledger {
    pub(crate) fn group(&mut self, group: &str) -> Option<&mut GroupLedger> {
        self.groups.get_mut(group)
    }
}

impl GroupLedger {
    pub(crate) fn finish(&mut self, place: &Place) {
        self.finished
            .entry(place.0.clone())
            .or_default()
            .insert(place.1);
    }

    pub(crate) fn is_finished(&self, queue: &MessageQueue, offset: u64) -> bool {
        let finished = self.finished.get(queue);
        finished.is_some_and(|offsets| offsets.contains(&offset))
    }

    /// The broker has a copy of what failed.
    pub(crate) fn copied(&mut self, id: Id) {
        for place in self.failed.remove(&id).unwrap_or_default() {
            self.finish(&place);
        }
    }
}

/// The message of a body.
pub(crate) fn id_of(body: &[u8]) -> Option<Id> {
    std::str::from_utf8(body)
        .ok()?
        .strip_prefix('m')?
        .parse()
        .ok()
}
