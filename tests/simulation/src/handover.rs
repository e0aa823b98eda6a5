//! When all is well a member comes or goes, and every queue of the orderly group that it
//! or another gives up for it is locked by its next owner within [`HAND_OVER_MAX`].

use std::time::Duration;

use consumer::{Client, Request};
use protocol::{Instant, MessageQueue};

use crate::cluster::{Cluster, Due, MEMBERS_MAX};
use crate::in_order::ORDERLY_GROUP;

/// From the unlock that reached the broker to the next lock. A member that heard of the
/// change from one broker and asked another that had not yet heard itself looks again
/// three quarters of a second later, the least there is between two rebalances; the rest is
/// for the last calls of whoever leaves and for the answers.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);
/// So long it is looked at.
const DRILL: Duration = Duration::from_secs(5);

/// What is known of the hand-over.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    began_at: Option<Instant>,
}

impl Cluster {
    /// All is well: a member comes or goes.
    pub(crate) fn hand_over(&mut self) {
        let living = self.living();
        self.handover.began_at = Some(self.now);
        if living.len() > 1 && (living.len() >= MEMBERS_MAX || self.random.bool()) {
            let goes = living[self.random.usize(..living.len())];
            self.history.add(self.now, || {
                format!("DRILL {} stops", self.members[goes].name)
            });
            self.members[goes].stopping = true;
            self.give(goes, Client::stop);
        } else {
            self.join();
        }
        self.agenda.at(self.now + DRILL, Due::HandedOver);
    }

    /// A broker has given up locks.
    pub(crate) fn note_unlocked(&mut self, request: &Request) {
        let Request::UnlockBatch {
            consumer_group,
            queues,
            ..
        } = request
        else {
            return;
        };
        if self.handover.began_at.is_none() || **consumer_group != *ORDERLY_GROUP {
            return;
        }
        for queue in queues {
            self.kinds.unlocked_in_drills += 1;
            let unlocked_at = self.now;
            let looks = Due::LooksForLock {
                queue: queue.clone(),
                unlocked_at,
            };
            self.agenda.at(unlocked_at + HAND_OVER_MAX, looks);
        }
    }

    /// The queue was unlocked a while ago.
    pub(crate) fn check_next_owner(&mut self, queue: &MessageQueue, unlocked_at: Instant) {
        let key = (ORDERLY_GROUP.to_owned(), queue.clone());
        let is_locked = self.members.iter().any(|member| {
            let locked_at = member.locks.get(&key);
            member.client.is_some() && locked_at.is_some()
        });
        if !is_locked {
            let what = format!(
                "{queue} was unlocked at {:.3} s and nobody has locked it",
                unlocked_at.since_origin().as_secs_f64()
            );
            self.violated("the next owner has its lock soon", what);
        }
    }
}
