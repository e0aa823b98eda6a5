//! The ordered end of a client or of one of its groups, as far as the shell decides
//! it: when to kill, when to give up.
//!
//! What happens in which order is the rules' business (`consumer`: stop pulling, stop
//! calling, wait, commit, unregister); here are only the two deadlines around it.

use std::time::Duration;

use protocol::Instant;

/// After the last call ended or was killed: what commits and unregistering may take.
/// RocketMQ's timeouts of the two (5 s and 3 s), and a little.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(9);

/// What an ordered end came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StopReport {
    /// Calls that did not end in time. Their messages come again elsewhere.
    pub killed_calls: u32,
    /// Everything was committed and told to the brokers, as far as they answered at all.
    pub is_complete: bool,
    /// From the request to the end.
    pub elapsed: Duration,
}

/// An ordered end under way.
#[derive(Debug)]
pub(crate) struct Shutdown {
    began: Instant,
    kill_at: Instant,
    phase: Phase,
    killed_calls: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Draining,
    Leaving,
    GivenUp,
}

/// What its time has come for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// The calls that still run are killed, once.
    Kill,
    /// Nobody waits any longer.
    GiveUp,
}

impl Shutdown {
    pub(crate) fn new(drain_timeout: Duration, now: Instant) -> Self {
        Self {
            began: now,
            kill_at: now + drain_timeout,
            phase: Phase::Draining,
            killed_calls: 0,
        }
    }

    /// Someone asks again: only a shorter wait counts.
    pub(crate) fn shorten(&mut self, drain_timeout: Duration, now: Instant) {
        self.kill_at = self.kill_at.min(now + drain_timeout);
    }

    /// Each step is given once.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Step {
        if self.poll_timeout().is_none_or(|timeout| now < timeout) {
            return Step::Wait;
        }
        let (phase, step) = match self.phase {
            Phase::Draining => (Phase::Leaving, Step::Kill),
            Phase::Leaving | Phase::GivenUp => (Phase::GivenUp, Step::GiveUp),
        };
        self.phase = phase;
        step
    }

    pub(crate) fn handle_killed(&mut self, calls: u32) {
        self.killed_calls = self.killed_calls.saturating_add(calls);
    }

    /// `None` once there is nothing left to wait for.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Draining => Some(self.kill_at),
            Phase::Leaving => Some(self.kill_at + LEAVE_TIMEOUT),
            Phase::GivenUp => None,
        }
    }

    pub(crate) fn report(&self, is_complete: bool, now: Instant) -> StopReport {
        StopReport {
            killed_calls: self.killed_calls,
            is_complete,
            elapsed: now - self.began,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn calls_are_killed_once_and_then_the_rest_has_its_time() {
        let mut shutdown = Shutdown::new(Duration::from_secs(30), at(100));
        assert_eq!(shutdown.handle_timeout(at(129)), Step::Wait);
        assert_eq!(shutdown.handle_timeout(at(130)), Step::Kill);
        shutdown.handle_killed(2);
        assert_eq!(shutdown.handle_timeout(at(131)), Step::Wait);
        assert_eq!(shutdown.poll_timeout(), Some(at(139)));
        assert_eq!(shutdown.handle_timeout(at(139)), Step::GiveUp);
        assert_eq!(shutdown.handle_timeout(at(999)), Step::Wait);
        assert_eq!(shutdown.poll_timeout(), None);
        let report = shutdown.report(false, at(139));
        assert_eq!(
            (report.killed_calls, report.elapsed),
            (2, Duration::from_secs(39))
        );
    }

    #[test]
    fn asking_again_can_only_shorten_the_wait() {
        let mut shutdown = Shutdown::new(Duration::from_secs(30), at(100));
        shutdown.shorten(Duration::from_secs(60), at(101));
        assert_eq!(shutdown.poll_timeout(), Some(at(130)));
        shutdown.shorten(Duration::ZERO, at(102));
        assert_eq!(shutdown.handle_timeout(at(102)), Step::Kill);
    }
}
