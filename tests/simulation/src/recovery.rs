//! How soon all is well again: [`RECOVERY_MAX`] after the end of the last fault every
//! queue has one live owner and a message sent to it is consumed, or what waited before it
//! is, without a pause.
//!
//! A fault ends with its last effect. Most end when everything is healed. Some last
//! longer, because nobody could know sooner that they are over: an answer that got lost
//! on a connection that lives on is awaited until its deadline (a pull's is 30 s), a
//! broker that listed wrong members and does not say that they have changed is believed
//! until it is asked again, and so is a name server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use embedded_broker::ConnectionId;
use protocol::header::{Header, SendMessageRequestHeader};
use protocol::{Instant, MessageQueue, RemotingCommand, code::request_code};

use crate::cluster::{Cluster, Due, TOPICS};
use crate::in_order::ORDERLY_GROUP;
use crate::invariants::queues_of;
use crate::ledger::{Id, Sent};
use crate::pull_tasks::{TASKS, TASKS_TOPIC};

/// After the end of the last fault.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// So long a message to a queue may take within it.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// How long a wrong list of members is believed: until the next rebalance.
pub(crate) const MEMBERS_BELIEVED: Duration = Duration::from_secs(20);
/// How long a route is believed that grew.
pub(crate) const ROUTE_BELIEVED: Duration = Duration::from_secs(30);
/// How long a route is believed that lacks what was there before.
pub(crate) const SHRUNK_ROUTE_BELIEVED: Duration = Duration::from_secs(5);

/// What is known of the end of the faults.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The last effect of a fault.
    over_at: Option<Instant>,
    /// It is known when all must be well: nothing adds to it any more.
    expected: bool,
    /// Messages sent to see whether queues are consumed.
    probes: Vec<(MessageQueue, Id)>,
    /// How much was done with of the probes' queues when it was last looked at.
    finished: BTreeMap<(&'static str, MessageQueue), usize>,
    /// It was looked at.
    pub(crate) checked: bool,
}

impl Cluster {
    /// Something that has gone wrong has its last effect then.
    pub(crate) fn disturbs_until(&mut self, until: Instant) {
        // What breaks while everything is healed is an effect of the faults, too.
        if !self.recovery.expected {
            self.recovery.over_at = self.recovery.over_at.max(Some(until));
        }
    }

    /// Everything is healed: when must it be well again?
    pub(crate) fn expect_recovery(&mut self) {
        self.recovery.expected = true;
        let over_at = self.recovery.over_at.max(Some(self.now));
        let over_at = over_at.unwrap_or(self.now);
        self.recovery.over_at = Some(over_at);
        let well_at = over_at + RECOVERY_MAX;
        self.agenda
            .at(over_at + (RECOVERY_MAX - PROBE_MAX), Due::Probe);
        self.agenda.at(well_at, Due::WellAgain);
        self.agenda.at(well_at, Due::Look);
    }

    /// A message to every queue, whatever the name servers and the sender think.
    pub(crate) fn probe(&mut self) {
        const INSIDE: ConnectionId = ConnectionId(u64::MAX);
        for broker in 0..self.brokers.len() {
            for (topic, _) in TOPICS {
                for queue_id in 0..queues_of(topic) {
                    let id = self.new_message_id();
                    let header = SendMessageRequestHeader {
                        producer_group: "probe".to_owned(),
                        topic: (*topic).to_owned(),
                        queue_id: i32::try_from(queue_id).unwrap_or(0),
                        properties: Some("TAGS\u{1}A\u{2}".to_owned()),
                        ..SendMessageRequestHeader::default()
                    };
                    let command =
                        RemotingCommand::request(request_code::SEND_MESSAGE, header.encode())
                            .with_body(format!("m{id}").into_bytes());
                    let node = &mut self.brokers[broker];
                    node.broker.handle_request(INSIDE, command, self.now);
                    let queue = MessageQueue::new(topic, &node.name, queue_id);
                    self.recovery.probes.push((queue, id));
                    self.swaps.note_sent(id, topic, Some("A"), self.now);
                    let sent = Sent {
                        topic,
                        tag: Some("A"),
                        acknowledged: true,
                    };
                    self.ledger.sent.insert(id, sent);
                }
            }
            self.drain_broker(broker);
        }
        self.note_finished();
    }

    /// What is done with by now of the probes' queues.
    fn note_finished(&mut self) {
        let mut all = BTreeMap::new();
        for (&group, ledger) in &self.ledger.groups {
            for (queue, _) in &self.recovery.probes {
                let finished = ledger.finished.get(queue).map_or(0, BTreeSet::len);
                all.insert((group, queue.clone()), finished);
            }
        }
        self.recovery.finished = all;
    }

    /// Whether a queue is being consumed, if not up to its probe yet: what waited while
    /// things were wrong comes first, as fast as listeners are.
    fn moves(&self, group: &'static str, queue: &MessageQueue) -> bool {
        let finished = self.ledger.groups[group].finished.get(queue);
        let before = self.recovery.finished.get(&(group, queue.clone()));
        finished.map_or(0, BTreeSet::len) > before.copied().unwrap_or(0)
    }

    /// Probes that no guest of a pull task has had.
    fn probes_without_guest(&self) -> Vec<String> {
        let of_tasks = self.recovery.probes.iter();
        let of_tasks = of_tasks.filter(|(queue, id)| {
            self.has_tasks && *queue.topic == *TASKS_TOPIC && !self.tasks.has_had(*id)
        });
        of_tasks
            .map(|(queue, id)| format!("{TASKS} has not had m{id} of {queue}"))
            .collect()
    }

    /// The time is over.
    pub(crate) fn check_well_again(&mut self) {
        let mut reasons = self.queues_without_one_owner();
        let mut is_behind = false;
        for (&group, ledger) in &self.ledger.groups {
            let open = self.recovery.probes.iter().filter(|(_, id)| {
                let sent = self.ledger.sent.get(id);
                sent.is_some_and(|sent| self.is_wanted(group, *id, sent))
                    && !ledger.done.contains(id)
            });
            for (queue, id) in open {
                if self.moves(group, queue) {
                    is_behind = true;
                } else {
                    reasons.push(format!("{group} has not consumed m{id} of {queue}"));
                }
            }
        }
        reasons.extend(self.probes_without_guest());
        reasons.extend(self.members_that_do_not_stop());
        if reasons.is_empty() && is_behind {
            self.note_finished();
            self.agenda.at(self.now + PROBE_MAX, Due::WellAgain);
            return;
        }
        if !reasons.is_empty() {
            let over_at = self.recovery.over_at.unwrap_or(self.now).since_origin();
            let what = format!(
                "the last fault ended at {:.3} s; {}",
                over_at.as_secs_f64(),
                reasons.join("; ")
            );
            self.violated("ten seconds after the last fault all is well", what);
        } else if self.auto_commit_of(ORDERLY_GROUP).is_some() {
            self.hand_over();
            return;
        }
        self.recovery.checked = true;
    }
}
