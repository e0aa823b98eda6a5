//! Peers that do not accept who we are, or what we want to do as that.
//!
//! A refused heartbeat means that nothing else would be accepted either: the address gets
//! heartbeats alone, with growing pauses, and everything that would have gone there waits
//! for the first one that is taken. However many queues there are, a wrong secret costs a
//! broker two requests a minute. A refused pull, offset or list of members, beside
//! heartbeats that are taken, is asked for again with growing pauses too.
//!
//! Differs from RocketMQ: the Java client repeats every refused pull each second or three.

use std::time::Duration;

use protocol::{Address, Instant};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::request::RequestError;

/// After the first refusal; doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whether a peer accepts us.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// Heartbeats refused in a row.
    refusals: u32,
    retry_at: Option<Instant>,
    words: Option<RequestError>,
}

impl Access {
    /// True when it is the first in a row.
    pub(crate) fn refuse(&mut self, error: &RequestError, now: Instant) -> bool {
        self.refusals += 1;
        self.retry_at = Some(now + pause(self.refusals));
        self.words.replace(error.clone()).is_none()
    }

    /// True when it refused before.
    pub(crate) fn accept(&mut self) -> bool {
        std::mem::take(self).words.is_some()
    }

    /// The peer's own words.
    pub(crate) fn refused(&self) -> Option<&RequestError> {
        self.words.as_ref()
    }

    /// When the next heartbeat may go out.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

/// How long to wait after so many refusals in a row.
pub(crate) fn pause(refusals: u32) -> Duration {
    let doublings = refusals.saturating_sub(1).min(5);
    (PAUSE_MIN * (1 << doublings)).min(PAUSE_MAX)
}

impl Client {
    /// Nothing but heartbeats goes to this peer until then, and why.
    pub(crate) fn refused_until(&self, peer: Epoch) -> Option<(Instant, &RequestError)> {
        let access = &self.routes.peers.get(peer)?.access;
        Some((access.retry_at()?, access.refused()?))
    }

    /// A heartbeat was refused for who we are.
    pub(crate) fn access_refused(&mut self, peer: Epoch, error: RequestError, now: Instant) {
        let Some(refusing) = self.routes.peers.get_mut(peer) else {
            return;
        };
        if refusing.access.refuse(&error, now) {
            let address = refusing.address.clone();
            self.events
                .push_back(Event::AccessRefused { address, error });
        }
    }

    /// A peer that refused us takes our heartbeats: what waited for it goes on.
    pub(crate) fn access_granted(&mut self, address: Address, now: Instant) {
        self.events.push_back(Event::AccessGranted { address });
        self.pull_failed_again(now);
        self.ask_for_failed_locks(now);
        let groups: Vec<Epoch> = self.groups.iter().map(|(group, _)| group).collect();
        for group in groups {
            self.rebalance_soon(group, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound() {
        let seconds = |refusals| pause(refusals).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 1000].map(seconds), [1, 1, 2, 16, 30, 30]);
    }
}
