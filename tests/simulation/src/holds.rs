//! Listeners that keep failing and are not called for a while.

use std::sync::Arc;
use std::time::Duration;

use consumer::listener::{ConsumeRequest, Dispatch};
use protocol::Instant;

use crate::cluster::Cluster;

/// Bounds of one pause.
const PAUSE_MS: std::ops::Range<u64> = 200..5_000;

/// A group of a member that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Until then its listener fails.
    fails_until: Instant,
    /// Until then it is not called; from then on with one message at a time.
    waits_until: Instant,
}

impl Cluster {
    /// A listener of a member asks for a pause.
    pub(crate) fn hold(&mut self, member: usize, group: &'static str, time: Duration) {
        let fails_until = self.now + time;
        self.held_on(member, group, fails_until);
    }

    fn held_on(&mut self, member: usize, group: &'static str, fails_until: Instant) {
        let Some(&id) = self.members[member].groups.get(group) else {
            return;
        };
        let pause = Duration::from_millis(self.random.u64(PAUSE_MS));
        let held = Held {
            fails_until,
            waits_until: self.now + pause,
        };
        self.members[member].holds.insert(group, held);
        self.disturbs_until(held.waits_until);
        let reason = Arc::from("the simulation");
        let dispatch = Dispatch::Held { pause, reason };
        self.give(member, |client, now| {
            client.handle_dispatch(id, dispatch, now);
        });
    }

    /// A call of a listener has ended: whether it wants to be called again is known before
    /// what came of the call.
    pub(crate) fn dispatch_after_call(&mut self, member: usize, group: &str) {
        let held = self.members[member].holds.iter();
        let held = held.map(|(&name, &held)| (name, held));
        let Some((group, held)) = held.into_iter().find(|(name, _)| *name == group) else {
            return;
        };
        if held.fails_until > self.now && !self.healed {
            self.held_on(member, group, held.fails_until);
            return;
        }
        self.members[member].holds.remove(group);
        if let Some(&id) = self.members[member].groups.get(group) {
            self.give(member, |client, now| {
                client.handle_dispatch(id, Dispatch::Open, now);
            });
        }
    }

    /// A listener is called: not before its pause is over, and then with one message.
    pub(crate) fn check_held(&mut self, member: usize, request: &ConsumeRequest) {
        let this = &self.members[member];
        let Some(held) = this.holds.get(&*request.consumer_group) else {
            return;
        };
        let calls = this.calls.values();
        let of_group = calls.filter(|(call, _)| call.consumer_group == request.consumer_group);
        let (calls, messages) = (of_group.count(), request.len());
        if held.waits_until > self.now || calls > 0 || messages > 1 {
            let what = format!(
                "{} calls the listener of {} with {messages} messages, {calls} calls under way",
                this.name, request.consumer_group
            );
            self.violated("who is held is tried with one message at a time", what);
        }
    }
}
