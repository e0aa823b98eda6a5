//! The filter of a group changes under load, in all its members within moments; and the
//! group stops reading a topic, and reads it again.
//!
//! While it changes, either filter may decide about a message; once every member and
//! broker can know, the new one alone does. A message that every filter wanted which may
//! have decided is never passed over.

use std::collections::BTreeSet;
use std::time::Duration;

use consumer::subscriptions::ChangeSubscriptionError;
use protocol::Instant;
use protocol::subscription::{ExpressionType, SubscriptionData};

use crate::cluster::{Cluster, Due};
use crate::faults::FAULTS_END;
use crate::ledger::Id;

/// Whose filter changes, and of which topic.
pub(crate) const SWAPPED_GROUP: &str = "G1";
pub(crate) const SWAPPED_TOPIC: &str = "T2";
/// What it changes between; it begins with the first.
const FILTERS: [&str; 4] = ["A || C", "A", "*", "B || C"];
/// After the last member was told: what was asked for with the old filter was answered,
/// and every broker was told, by then.
const SETTLES: Duration = Duration::from_secs(60);

/// Which filters may decide.
#[derive(Debug)]
pub(crate) struct Swaps {
    pub(crate) current: &'static str,
    /// Others that may still decide.
    outgoing: BTreeSet<&'static str>,
    /// When they do not any more, if no member is to be told.
    settled_at: Instant,
    /// Members that have not been told.
    untold: usize,
    /// The group does not read the topic for a while.
    pub(crate) lacks_topic: bool,
    /// When everybody reads it again.
    topic_back_at: Option<Instant>,
    /// Messages that some filter did not want.
    unneeded: BTreeSet<Id>,
}

impl Default for Swaps {
    fn default() -> Self {
        Self {
            current: FILTERS[0],
            outgoing: BTreeSet::new(),
            settled_at: Instant::ORIGIN,
            untold: 0,
            lacks_topic: false,
            topic_back_at: None,
            unneeded: BTreeSet::new(),
        }
    }
}

impl Swaps {
    /// A message is sent.
    pub(crate) fn note_sent(&mut self, id: Id, topic: &str, tag: Option<&str>, now: Instant) {
        if self.untold == 0 && self.settled_at <= now {
            self.outgoing.clear();
        }
        let mut all = self.outgoing.iter().chain([&self.current]);
        if topic == SWAPPED_TOPIC && all.any(|filter| !lets_pass(filter, tag)) {
            self.unneeded.insert(id);
        }
    }

    /// Whether the group must have it.
    pub(crate) fn is_needed(&self, id: Id) -> bool {
        !self.unneeded.contains(&id)
    }

    /// As a member subscribes.
    pub(crate) fn subscription(&self) -> SubscriptionData {
        SubscriptionData::build(SWAPPED_TOPIC, self.current, ExpressionType::Tag)
            .expect("a valid expression")
    }
}

impl Cluster {
    /// A new filter; each member is told in a moment.
    pub(crate) fn swap(&mut self) {
        let old = self.swaps.current;
        let new = FILTERS[self.random.usize(..FILTERS.len())];
        self.history
            .add(self.now, || format!("SWAP \"{old}\" becomes \"{new}\""));
        self.swaps.outgoing.insert(old);
        self.swaps.current = new;
        self.swaps.settled_at = self.now + SETTLES;
        self.renew_configs();
        // What is still on its way may meet the new one, also a second copy of what is done.
        for (id, sent) in &self.ledger.sent {
            if sent.topic == SWAPPED_TOPIC && !lets_pass(new, sent.tag) {
                self.swaps.unneeded.insert(*id);
            }
        }
        for member in self.living() {
            let after = Duration::from_millis(self.random.u64(0..3_000));
            self.swaps.untold += 1;
            self.agenda.at(self.now + after, Due::Swaps { member });
        }
    }

    /// The group stops reading a topic, and reads it again after a while: its members
    /// leave and come back with other topics.
    pub(crate) fn swap_topics(&mut self, time: Duration) {
        if self.swaps.lacks_topic {
            return;
        }
        self.swaps.lacks_topic = true;
        self.everybody_comes_back();
        let end = Instant::ORIGIN + FAULTS_END;
        self.agenda
            .at((self.now + time).min(end), Due::ReadsTopicAgain);
    }

    pub(crate) fn reads_topic_again(&mut self) {
        self.swaps.lacks_topic = false;
        self.swaps.topic_back_at = Some(self.now + Duration::from_secs(60));
        self.everybody_comes_back();
    }

    fn everybody_comes_back(&mut self) {
        let lacks = self.swaps.lacks_topic;
        self.history.add(self.now, || {
            let reads = if lacks { "without" } else { "with" };
            format!("SWAP {SWAPPED_GROUP} comes back {reads} {SWAPPED_TOPIC}")
        });
        self.renew_configs();
        for member in self.living() {
            self.leaves_for_a_while(member, SWAPPED_GROUP, Duration::from_secs(3));
        }
    }

    /// A member's group leaves and comes back.
    pub(crate) fn leaves_for_a_while(
        &mut self,
        member: usize,
        group: &'static str,
        at_most: Duration,
    ) {
        if let Some(id) = self.members[member].groups.remove(group) {
            self.give(member, |client, now| client.unsubscribe(id, now));
            let at_most = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
            let after = Duration::from_millis(self.random.u64(1..at_most));
            self.disturbs_until(self.now + after);
            self.agenda
                .at(self.now + after, Due::Subscribe { member, group });
        }
    }

    /// A member is told.
    pub(crate) fn swaps_member(&mut self, member: usize) {
        let stalled_until = self.members[member].stalled_until;
        if stalled_until > self.now {
            self.agenda.at(stalled_until, Due::Swaps { member });
            return;
        }
        self.swaps.untold -= 1;
        self.swaps.settled_at = self.now + SETTLES;
        let subscription = self.swaps.subscription();
        let Some(&id) = self.members[member].groups.get(SWAPPED_GROUP) else {
            // When it comes back, it comes with the new one.
            return;
        };
        let mut changed = Ok(());
        self.give(member, |client, now| {
            changed = client.change_subscription(id, subscription, now);
        });
        self.kinds.filters_changed += u64::from(changed.is_ok());
        let is_unread = matches!(changed, Err(ChangeSubscriptionError::UnknownTopic { .. }));
        let may_be_unread = self.swaps.lacks_topic || self.swaps.topic_back_at > Some(self.now);
        let is_expected = match changed {
            Ok(()) | Err(ChangeSubscriptionError::Leaving) => true,
            Err(_) => is_unread && may_be_unread,
        };
        if !is_expected {
            let what = format!("{changed:?}");
            self.violated("a group changes the filter of a topic that it reads", what);
        }
    }
}

/// Whether a filter lets a tag pass.
pub(crate) fn lets_pass(filter: &str, tag: Option<&str>) -> bool {
    filter == "*" || tag.is_some_and(|tag| filter.split(" || ").any(|t| t == tag))
}
