//! A broadcasting group beside the others: every process consumes everything, and keeps
//! its offsets on the disk of its host, which outlives it. Disks are full, slow, unreadable
//! and damaged now and then.
//!
//! What must hold: a stored offset never passes a message that this host has not finished,
//! and goes back only for a reason; what is stored is where the next process begins;
//! nothing is dropped before its attempts are used up; no broker hears of an offset or of
//! a message that failed; in the end every host has finished everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use consumer::config::{BroadcastRetry, ConsumeFromWhere};
use consumer::event::{Event, StartPolicy};
use consumer::listener::{ConsumeRequest, MessageModel};
use consumer::local_offsets::{
    LoadedOffsets, LocalOffsetTable, LocalOffsetsError, LocalOffsetsSource, LocalOffsetsWork,
    PendingLocalOffsets,
};
use consumer::{GroupConfig, Request};
use protocol::subscription::SubscriptionData;
use protocol::{Instant, MessageQueue};

use crate::cluster::{Cluster, Due, MAX_RECONSUME_TIMES};
use crate::ledger::{Id, Place, id_of};
use crate::workload::Outcome;

/// The group.
pub(crate) const BROADCAST: &str = "B1";
/// What it reads.
pub(crate) const BROADCAST_TOPIC: &str = "T1";

/// A machine with a disk; one process at a time.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// The process that runs here, or ran here last.
    member: Option<usize>,
    latest: LocalOffsetTable,
    previous: LocalOffsetTable,
    pub(crate) full_until: Option<Instant>,
    pub(crate) unreadable_until: Option<Instant>,
    /// What the present process was told when it began.
    loaded: LocalOffsetTable,
    /// How often the offset of a queue may go back: once for each reset.
    may_go_back: BTreeMap<MessageQueue, u32>,
    /// Places that some process here is done with.
    finished: BTreeMap<MessageQueue, BTreeSet<u64>>,
    done: BTreeSet<Id>,
    /// Failures of the present process.
    failures: BTreeMap<Place, u32>,
    condemned: BTreeSet<Place>,
}

impl Host {
    fn finish(&mut self, place: &Place, id: Option<Id>) {
        self.finished
            .entry(place.0.clone())
            .or_default()
            .insert(place.1);
        self.done.extend(id);
    }
}

/// As every host has it.
pub(crate) fn config() -> GroupConfig {
    GroupConfig::builder(BROADCAST)
        .message_model(MessageModel::Broadcasting)
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .broadcast_retry(BroadcastRetry::Local)
        .max_reconsume_times(MAX_RECONSUME_TIMES)
        .consume_thread_max(4)
        .consume_message_batch_max_size(4)
        .subscription(SubscriptionData::all(BROADCAST_TOPIC))
        .build()
        .expect("a valid group")
}

impl Cluster {
    /// A new process consumes in broadcast on a host that is free, or a new one.
    pub(crate) fn joins_broadcast(&mut self, member: usize) {
        if !self.broadcasts {
            return;
        }
        let members = &self.members;
        let is_free = |host: &Host| {
            let owner = host.member.and_then(|member| members.get(member));
            owner.is_none_or(|member| member.client.is_none())
        };
        let host = self.hosts.iter().position(is_free);
        let host = host.unwrap_or_else(|| {
            self.hosts.push(Host::default());
            self.hosts.len() - 1
        });
        let this = &mut self.hosts[host];
        this.member = Some(member);
        this.failures.clear();
        self.members[member].host = Some(host);
        let now = self.now;
        if let Some(client) = &mut self.members[member].client {
            let id = client.subscribe(config(), now);
            assert!(id.is_ok(), "{id:?}");
        }
        self.drain(member);
    }

    /// A process asks its disk; the answer takes a while.
    pub(crate) fn asks_disk(&mut self, member: usize, pending: PendingLocalOffsets) {
        let slow = self.random.u32(0..20) == 0 && !self.healed;
        let after = Duration::from_micros(if slow {
            self.random.u64(0..8_000_000)
        } else {
            self.random.u64(50..20_000)
        });
        self.agenda
            .at(self.now + after, Due::Disk { member, pending });
    }

    /// The disk does it.
    pub(crate) fn at_disk(&mut self, member: usize, pending: &PendingLocalOffsets) {
        let Some(host) = self.members[member].host else {
            return;
        };
        // The system is there as long as its process.
        if self.members[member].client.is_none() {
            return;
        }
        let now = self.now;
        match &pending.work {
            LocalOffsetsWork::Load => {
                let result = self.load(host);
                self.history
                    .add(now, || format!("disk of host {host}: {result:?}"));
                self.give(member, |client, now| {
                    client.handle_local_offsets_loaded(pending.id, result, now);
                });
            }
            LocalOffsetsWork::Store(offsets) => {
                let result = self.store(host, offsets);
                self.history.add(now, || {
                    format!("disk of host {host} stores {offsets:?}: {result:?}")
                });
                self.give(member, |client, now| {
                    client.handle_local_offsets_stored(pending.id, result, now);
                });
            }
        }
    }

    fn load(&mut self, host: usize) -> Result<LoadedOffsets, LocalOffsetsError> {
        let damaged = !self.healed && self.random.u32(0..10) == 0;
        let this = &mut self.hosts[host];
        if this.unreadable_until > Some(self.now) {
            return Err(LocalOffsetsError {
                reason: "input/output error".to_owned(),
            });
        }
        if damaged {
            this.latest = std::mem::take(&mut this.previous);
            this.may_go_back = this
                .finished
                .keys()
                .map(|queue| (queue.clone(), 1))
                .collect();
        }
        this.loaded.clone_from(&this.latest);
        let problem = "damaged".to_owned();
        let source = match (damaged, this.latest.is_empty()) {
            (true, true) => LocalOffsetsSource::Lost { problem },
            (true, false) => LocalOffsetsSource::Previous { problem },
            (false, true) => LocalOffsetsSource::Nothing,
            (false, false) => LocalOffsetsSource::Latest,
        };
        Ok(LoadedOffsets {
            offsets: this.latest.clone(),
            source,
        })
    }

    fn store(&mut self, host: usize, offsets: &LocalOffsetTable) -> Result<(), LocalOffsetsError> {
        let now = self.now;
        let this = &mut self.hosts[host];
        if this.full_until > Some(now) {
            return Err(LocalOffsetsError {
                reason: "no space left on device".to_owned(),
            });
        }
        let mut broken = None;
        if let Some(forgotten) = this.latest.keys().find(|q| !offsets.contains_key(*q)) {
            broken = Some((
                "what is stored of a queue is kept",
                format!("host {host} stores nothing of {forgotten}"),
            ));
        }
        for (queue, offset) in offsets {
            let finished = this.finished.get(queue);
            let is_finished = |offset| finished.is_some_and(|f| f.contains(&offset));
            if let Some(open) = (0..offset.0).find(|&open| !is_finished(open)) {
                broken = Some((
                    "no commit passes an unfinished message",
                    format!("host {host} stores {offset} of {queue}, {open} is unfinished"),
                ));
            }
            let before = this.latest.get(queue);
            let may_go_back = this.may_go_back.get_mut(queue).filter(|times| **times > 0);
            if before <= Some(offset) {
                // As it should.
            } else if let Some(times) = may_go_back {
                *times -= 1;
            } else {
                broken = Some((
                    "a committed offset never goes back",
                    format!("host {host} stores {offset} of {queue} after {before:?}"),
                ));
            }
        }
        this.previous = std::mem::replace(&mut this.latest, offsets.clone());
        if let Some((rule, what)) = broken {
            self.violated(rule, what);
        }
        Ok(())
    }

    /// Messages of a broadcasting group were answered for.
    pub(crate) fn answered_in_broadcast(
        &mut self,
        member: usize,
        request: &Arc<ConsumeRequest>,
        outcomes: &[Outcome],
    ) {
        let Some(host) = self.members[member].host else {
            return;
        };
        let this = &mut self.hosts[host];
        for (message, outcome) in request.iter().zip(outcomes) {
            let offset = message.message.queue_offset().0;
            let place = (request.message_queue.clone(), offset);
            match outcome {
                Outcome::Done => this.finish(&place, id_of(message.message.body())),
                Outcome::Failed { dead } => {
                    *this.failures.entry(place.clone()).or_default() += 1;
                    if *dead {
                        this.condemned.insert(place);
                    }
                }
                Outcome::Returned | Outcome::Uncommitted | Outcome::RolledBack => {}
            }
        }
    }

    /// False when the event is about another group.
    pub(crate) fn check_broadcast_event(&mut self, member: usize, event: &Event) -> bool {
        let Some(host) = self.members[member].host else {
            return false;
        };
        match event {
            Event::MessageDropped {
                consumer_group,
                queue,
                offset,
                ..
            } if **consumer_group == *BROADCAST => {
                let place = (queue.clone(), offset.0);
                let this = &mut self.hosts[host];
                let failures = this.failures.get(&place).copied().unwrap_or(0);
                let explained = failures > MAX_RECONSUME_TIMES || this.condemned.contains(&place);
                let broker = self.broker_named(&queue.broker_name);
                let stored = broker.and_then(|broker| {
                    let node = &self.brokers[broker];
                    node.broker
                        .message_in_queue(&queue.topic, queue.queue_id, offset.0)
                });
                let id = stored.and_then(|message| id_of(&message.body));
                self.hosts[host].finish(&place, id);
                if !explained {
                    let what =
                        format!("host {host} drops {queue} {offset} after {failures} failures");
                    self.violated("nothing is dropped before its attempts are used up", what);
                }
            }
            Event::QueueStarted {
                consumer_group,
                queue,
                offset,
                policy,
            } if **consumer_group == *BROADCAST => {
                let this = &mut self.hosts[host];
                let stored = this.loaded.remove(queue);
                let wrong = match policy {
                    StartPolicy::Committed => stored.is_some_and(|stored| stored != *offset),
                    StartPolicy::Corrected | StartPolicy::Reset => false,
                    _ => stored.is_some(),
                };
                if wrong {
                    let what = format!(
                        "host {host} begins {queue} at {offset} ({policy:?}), {stored:?} is stored"
                    );
                    self.violated("a process goes on where its host was", what);
                }
            }
            Event::OffsetReset {
                consumer_group,
                queue,
                ..
            }
            | Event::OffsetCorrected {
                consumer_group,
                queue,
                ..
            } if **consumer_group == *BROADCAST => {
                let this = &mut self.hosts[host];
                *this.may_go_back.entry(queue.clone()).or_default() += 1;
                this.loaded.remove(queue);
            }
            Event::Rebalanced { consumer_group, .. } | Event::GroupLeft { consumer_group }
                if **consumer_group == *BROADCAST => {}
            _ => return false,
        }
        true
    }

    /// Brokers keep neither offsets nor failed messages of a broadcasting group.
    pub(crate) fn check_broadcast_request(&mut self, request: &Request) {
        let told = match request {
            Request::UpdateConsumerOffset { consumer_group, .. }
            | Request::QueryConsumerOffset { consumer_group, .. }
            | Request::GetConsumerListByGroup { consumer_group } => **consumer_group == *BROADCAST,
            Request::PullMessage(pull) => pull.commit && *pull.consumer_group == *BROADCAST,
            Request::SendMessageBack(back) => *back.consumer_group == *BROADCAST,
            _ => false,
        };
        if told {
            self.violated(
                "brokers keep nothing of a broadcasting group",
                format!("{request:?}"),
            );
        }
    }

    /// Queues of the broadcasting group and what every host has stored of them: a reset
    /// goes to all, and must move nobody forward.
    pub(crate) fn broadcast_offsets(&self) -> Vec<(MessageQueue, u64)> {
        let queues: BTreeSet<&MessageQueue> = self
            .hosts
            .iter()
            .flat_map(|host| host.latest.keys())
            .collect();
        let stored = |queue| {
            let offsets = self.hosts.iter();
            let offsets = offsets.map(|host| host.latest.get(queue).map_or(0, |offset| offset.0));
            offsets.min().unwrap_or(0)
        };
        let offsets = queues
            .into_iter()
            .map(|queue| (queue.clone(), stored(queue)));
        offsets.collect()
    }

    /// What keeps the hosts from having finished everything.
    pub(crate) fn unsettled_broadcast(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for (number, host) in self.hosts.iter().enumerate() {
            let lives = host.member.is_some_and(|member| {
                let member = &self.members[member];
                member.client.is_some() && !member.stopping
            });
            if !lives {
                continue;
            }
            let open = self.ledger.sent.iter().filter(|(id, sent)| {
                sent.acknowledged && sent.topic == BROADCAST_TOPIC && !host.done.contains(id)
            });
            for (id, _) in open.take(2) {
                reasons.push(format!("host {number} has not consumed m{id}"));
            }
        }
        reasons
    }

    /// Disks are well again.
    pub(crate) fn heal_disks(&mut self) {
        for host in &mut self.hosts {
            host.full_until = None;
            host.unreadable_until = None;
        }
    }
}
