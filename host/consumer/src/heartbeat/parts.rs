//! A heartbeat that goes out in parts, because its broker refuses some of the groups.
//!
//! A heartbeat names all groups, and a broker with access control refuses it whole for one
//! that is not allowed to read what it reads. So a refused heartbeat is halved until the
//! groups that are refused alone are known; the others go on without them. A refused group
//! is asked for again by itself, with growing pauses. When nothing at all is taken it is
//! the access key that is refused (`access`).
//!
//! Differs from RocketMQ, where one group without rights keeps its whole client out.

use std::sync::Arc;

use protocol::Instant;

use crate::access;
use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::request::RequestError;
use crate::timers::{PULL_DELAY_WHEN_ERROR, Timer};

/// So many refusals without anything that is taken mean that nothing is: enough to find
/// the first of 4,096 groups that is taken beside a dozen that are not.
const REFUSALS_MAX: u32 = 32;

/// The groups of one heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Part {
    /// Every one that is announced.
    #[default]
    All,
    Some(Vec<Epoch>),
}

/// How far a heartbeat is that goes out in parts.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    under_way: Part,
    waiting: Vec<Part>,
    refused: Vec<(Epoch, RequestError)>,
    refusals: u32,
    taken: Vec<Part>,
}

/// A group that a broker refuses to hear of, beside others that it takes.
#[derive(Debug)]
pub(crate) struct RefusedGroup {
    /// The broker's words.
    pub(crate) words: RequestError,
    /// When it is asked again.
    pub(crate) retry_at: Instant,
    refusals: u32,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum After {
    /// Another part is to be sent.
    Next,
    /// The broker knows all groups but those that it refuses.
    Taken,
    /// It takes none.
    Refused(RequestError),
}

impl Parts {
    /// The next one to be sent.
    pub(super) fn next(&mut self) -> Option<Part> {
        let part = self.waiting.pop()?;
        self.under_way = part.clone();
        Some(part)
    }
}

impl Client {
    /// Begins a heartbeat. What its first part names.
    pub(super) fn begin_parts(&mut self, epoch: Epoch, now: Instant) -> Part {
        let announced = self.announced();
        let groups = &self.groups;
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return Part::All;
        };
        peer.parts = Parts::default();
        peer.refused_groups
            .retain(|&group, _| groups.contains(group));
        if peer.refused_groups.is_empty() {
            return Part::All;
        }
        let refused = &peer.refused_groups;
        let (out, taken): (Vec<Epoch>, Vec<Epoch>) = announced
            .into_iter()
            .partition(|group| refused.contains_key(group));
        let due = out.into_iter().filter(|group| {
            let refused = refused.get(group);
            refused.is_some_and(|refused| refused.retry_at <= now)
        });
        let mut waiting: Vec<Part> = due.map(|group| Part::Some(vec![group])).collect();
        if !taken.is_empty() {
            waiting.push(Part::Some(taken));
        }
        peer.parts.waiting = waiting;
        // Nobody is left but those that wait: everybody tries.
        peer.parts.next().unwrap_or_default()
    }

    /// A part was taken.
    pub(super) fn part_taken(&mut self, epoch: Epoch) -> After {
        if let Some(peer) = self.routes.peers.get_mut(epoch) {
            let part = std::mem::take(&mut peer.parts.under_way);
            peer.parts.taken.push(part);
            if !peer.parts.waiting.is_empty() {
                return After::Next;
            }
        }
        After::Taken
    }

    /// A part was refused for what it names, or for who we are.
    pub(super) fn part_refused(&mut self, epoch: Epoch, error: RequestError) -> After {
        let announced = self.announced();
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return After::Refused(error);
        };
        let parts = &mut peer.parts;
        parts.refusals += 1;
        let mut first = match std::mem::take(&mut parts.under_way) {
            Part::All => announced,
            Part::Some(groups) => groups,
        };
        let gives_up = parts.taken.is_empty() && parts.refusals > REFUSALS_MAX;
        if gives_up {
            return After::Refused(error);
        }
        if first.len() > 1 {
            let second = first.split_off(first.len() / 2);
            parts.waiting.push(Part::Some(second));
            parts.waiting.push(Part::Some(first));
        } else {
            let one = first.into_iter().next();
            parts
                .refused
                .extend(one.map(|group| (group, error.clone())));
        }
        if !parts.waiting.is_empty() {
            return After::Next;
        }
        if parts.taken.is_empty() {
            return After::Refused(error);
        }
        After::Taken
    }

    /// All parts were answered, and some taken: notes who is refused, and who is not any
    /// more.
    pub(super) fn end_parts(&mut self, epoch: Epoch, now: Instant) {
        let Some(peer) = self.routes.peers.get_mut(epoch) else {
            return;
        };
        let parts = std::mem::take(&mut peer.parts);
        let address = peer.address.clone();
        let mut accepted = Vec::new();
        for part in parts.taken {
            match part {
                Part::All => accepted.extend(std::mem::take(&mut peer.refused_groups).into_keys()),
                Part::Some(groups) => accepted.extend(
                    groups
                        .into_iter()
                        .filter(|group| peer.refused_groups.remove(group).is_some()),
                ),
            }
        }
        let mut told = Vec::new();
        for (group, words) in parts.refused {
            let before = peer
                .refused_groups
                .get(&group)
                .map(|before| before.refusals);
            let refusals = before.unwrap_or(0) + 1;
            let retry_at = now + access::pause(refusals);
            self.timers.set_earliest(Timer::Heartbeat(epoch), retry_at);
            if before.is_none() {
                told.push((group, words.clone()));
            }
            peer.refused_groups.insert(
                group,
                RefusedGroup {
                    words,
                    retry_at,
                    refusals,
                },
            );
        }
        for (group, error) in told {
            if let Some(group) = self.groups.get(group) {
                self.events.push_back(Event::GroupRefused {
                    address: address.clone(),
                    consumer_group: Arc::clone(&group.name),
                    error,
                });
            }
        }
        for group_epoch in accepted {
            let Some(group) = self.groups.get(group_epoch) else {
                continue;
            };
            let (consumer_group, retry_topic) = (Arc::clone(&group.name), group.retry_topic());
            self.events.push_back(Event::GroupAccepted {
                address: address.clone(),
                consumer_group,
            });
            if let Some(topic) = retry_topic {
                self.ask_retry_route(topic);
            }
            self.rebalance_when_known(group_epoch, now);
            self.pull_failed_again(now);
        }
    }

    /// When a broker that refuses the group is asked again, and why it does.
    pub(crate) fn group_refused_until(
        &self,
        peer: Epoch,
        group: Epoch,
        now: Instant,
    ) -> Option<(Instant, &RequestError)> {
        let refused = self.routes.peers.get(peer)?.refused_groups.get(&group)?;
        let at = refused.retry_at.max(now + PULL_DELAY_WHEN_ERROR);
        Some((at, &refused.words))
    }

    fn announced(&self) -> Vec<Epoch> {
        let announced = self.groups.iter();
        let announced = announced.filter(|(_, group)| group.is_announced());
        announced.map(|(epoch, _)| epoch).collect()
    }
}
