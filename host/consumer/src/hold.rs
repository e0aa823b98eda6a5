//! Calls that are held back because their listener says so.
//!
//! A listener that keeps failing is not called for a while, and then one message at a time
//! until it says that all is well. What was fetched stays where it is: nothing is given
//! back to the broker, no attempt is counted, and nothing more is pulled than the
//! thresholds allow. When that ends is decided by the listener alone, which is asked after
//! each of its calls and when it may have become another; the rules know no more than the
//! time of the next try.
//!
//! Differs from RocketMQ, which goes on calling, and so turns the whole topic into dead
//! letters.

use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;

use crate::client::{Client, GroupId};
use crate::epoch::Epoch;
use crate::group::ConsumerGroup;
use crate::listener::Dispatch;
use crate::planted_bugs::PlantedBug;
use crate::timers::Timer;

/// What a group may be called with.
#[derive(Clone, Debug, Default)]
pub(crate) enum Hold {
    /// Everything.
    #[default]
    None,
    /// Nothing until [`Timer::Hold`].
    Waiting(Arc<str>),
    /// One message, while no other call is under way.
    Probe(Arc<str>),
}

impl Hold {
    /// Why, if it is held back.
    pub(crate) fn reason(&self) -> Option<&Arc<str>> {
        match self {
            Self::None => None,
            Self::Waiting(reason) | Self::Probe(reason) => Some(reason),
        }
    }
}

impl ConsumerGroup {
    /// Whether another call may be made, as far as its listener is concerned.
    pub(crate) fn is_admitted(&self) -> bool {
        match self.hold {
            Hold::None => true,
            Hold::Waiting(_) => false,
            Hold::Probe(_) => self.calls == 0,
        }
    }

    /// At most so many messages in one call.
    pub(crate) fn admitted_messages(&self, wanted: u32) -> u32 {
        match self.hold {
            Hold::Probe(_) => 1,
            Hold::None | Hold::Waiting(_) => wanted,
        }
    }
}

impl Client {
    /// What the group's listener says: after a call, told before the call's result, which may
    /// make the next one, and whenever it may say otherwise. A group that is gone has no listener.
    pub fn handle_dispatch(&mut self, group: GroupId, dispatch: Dispatch, now: Instant) {
        let epoch = group.0;
        if self.has_bug(PlantedBug::CallWhileHeld) {
            return;
        }
        let Some(group) = self.groups.get_mut(epoch) else {
            return;
        };
        match dispatch {
            // After nearly every call of nearly every group.
            Dispatch::Open if matches!(group.hold, Hold::None) => return,
            Dispatch::Open => {
                group.hold = Hold::None;
                self.timers.cancel(Timer::Hold(epoch));
            }
            Dispatch::Held { pause, reason } if pause > Duration::ZERO => {
                group.hold = Hold::Waiting(reason);
                self.timers.set(Timer::Hold(epoch), now + pause);
            }
            Dispatch::Held { reason, .. } => {
                group.hold = Hold::Probe(reason);
                self.timers.cancel(Timer::Hold(epoch));
            }
        }
        self.group_ready(epoch);
    }

    /// The pause is over: a probe is due.
    pub(crate) fn hold_ended(&mut self, epoch: Epoch) {
        if self.has_bug(PlantedBug::HoldNeverEnds) {
            return;
        }
        if let Some(group) = self.groups.get_mut(epoch)
            && let Hold::Waiting(reason) = &group.hold
        {
            group.hold = Hold::Probe(Arc::clone(reason));
            self.group_ready(epoch);
        }
    }
}
