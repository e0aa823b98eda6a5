//! The breaker: a plugin whose calls keep failing is held back, so that its topic is not
//! poured into the dead letters.
//!
//! Pure: it hears how calls end, and says whether another one may be made. A row of failed
//! calls without one that came back trips it; after a pause one message is tried, alone;
//! each probe that fails doubles the pause, and the first that comes back ends it. What a
//! call returned is no matter here, only whether it came back: an answer of "again" is the
//! plugin's right, a trap is not.
//!
//! A tripped breaker counts nothing that was begun before its pause was over, however late
//! it ends: calls under way end as they will, and only a probe says anything.

pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use protocol::Instant;

/// `[breaker]` of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BreakerConfig {
    /// Failed calls in a row that trip it; `None`: never. A batch that failed counts, and
    /// so does each of its messages that fails alone afterwards.
    pub failures: Option<u32>,
    /// From tripping to the first probe.
    pub pause: Duration,
    /// Bound of the pause, which doubles with each probe that fails.
    pub pause_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: Some(20),
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
        }
    }
}

/// What became of a breaker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BreakerEvent {
    /// No more calls for a while.
    Tripped {
        /// Calls that failed in a row.
        failures: u32,
        /// Why the last of them did.
        reason: Arc<str>,
        /// Until the first probe.
        pause: Duration,
    },
    /// A probe failed, too.
    ProbeFailed {
        /// Why.
        reason: Arc<str>,
        /// Until the next one.
        pause: Duration,
    },
    /// A probe came back: calls are made as before.
    Closed {
        /// Since it tripped.
        lasted: Duration,
    },
}

/// Whether a call may be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// As many as the group may have.
    Open,
    /// None for so long, and then one at a time.
    Held {
        /// Zero: a probe is due or under way.
        pause: Duration,
        /// Calls that failed in a row.
        failures: u32,
        /// Why the last of them did.
        reason: Arc<str>,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
    event: Option<BreakerEvent>,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        failures: u32,
        reason: Arc<str>,
        since: Instant,
        pause: Duration,
        /// The next probe.
        until: Instant,
    },
}

impl Breaker {
    /// A closed one.
    pub fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: State::Closed { failures: 0 },
            event: None,
        }
    }

    /// A call that began then trapped, was killed or broke a limit.
    pub fn handle_failed(&mut self, why: impl FnOnce() -> Arc<str>, began: Instant, now: Instant) {
        match &mut self.state {
            State::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if self.config.failures.is_some_and(|max| *failures >= max) {
                    self.trip(why(), now);
                }
            }
            // No probe.
            State::Open { until, .. } if began < *until => {}
            State::Open {
                failures,
                reason,
                pause,
                until,
                ..
            } => {
                *failures = failures.saturating_add(1);
                *reason = why();
                *pause = pause.saturating_mul(2).min(self.config.pause_max);
                *until = now + *pause;
                self.event = Some(BreakerEvent::ProbeFailed {
                    reason: Arc::clone(reason),
                    pause: *pause,
                });
            }
        }
    }

    /// A call that began then came back.
    pub fn handle_returned(&mut self, began: Instant, now: Instant) {
        match &self.state {
            State::Open { until, .. } if began < *until => return,
            State::Open { since, .. } => {
                self.event = Some(BreakerEvent::Closed {
                    lasted: now.saturating_since(*since),
                });
            }
            State::Closed { .. } => {}
        }
        self.state = State::Closed { failures: 0 };
    }

    /// Whether a call may be made now.
    pub fn admission(&self, now: Instant) -> Admission {
        match &self.state {
            State::Closed { .. } => Admission::Open,
            State::Open {
                failures,
                reason,
                until,
                ..
            } => Admission::Held {
                pause: until.saturating_since(now),
                failures: *failures,
                reason: Arc::clone(reason),
            },
        }
    }

    /// Nothing failed since the last call that came back, so that another one changes
    /// nothing.
    pub fn is_undisturbed(&self) -> bool {
        matches!(self.state, State::Closed { failures: 0 })
    }

    /// What there is to tell; asked for after each input.
    pub fn poll_event(&mut self) -> Option<BreakerEvent> {
        self.event.take()
    }

    fn trip(&mut self, reason: Arc<str>, now: Instant) {
        let State::Closed { failures } = self.state else {
            return;
        };
        let pause = self.config.pause.min(self.config.pause_max);
        self.event = Some(BreakerEvent::Tripped {
            failures,
            reason: Arc::clone(&reason),
            pause,
        });
        self.state = State::Open {
            failures,
            reason,
            since: now,
            pause,
            until: now + pause,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn breaker(failures: Option<u32>) -> Breaker {
        Breaker::new(BreakerConfig {
            failures,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(4),
        })
    }

    fn fail(breaker: &mut Breaker, times: u32, seconds: u64) {
        for _ in 0..times {
            breaker.handle_failed(|| "trap".into(), at(seconds), at(seconds));
        }
    }

    /// How long no call may be made; `None`: any may.
    fn held(breaker: &Breaker, seconds: u64) -> Option<u64> {
        match breaker.admission(at(seconds)) {
            Admission::Open => None,
            Admission::Held { pause, .. } => Some(pause.as_secs()),
        }
    }

    #[test]
    fn a_row_of_failures_trips_it_and_one_that_came_back_begins_another_row() {
        let mut breaker = breaker(Some(3));
        fail(&mut breaker, 2, 0);
        breaker.handle_returned(at(0), at(0));
        assert!(breaker.is_undisturbed());
        fail(&mut breaker, 2, 0);
        assert_eq!(held(&breaker, 0), None);
        assert_eq!(breaker.poll_event(), None);

        fail(&mut breaker, 1, 0);

        assert_eq!(held(&breaker, 0), Some(1));
        let tripped = BreakerEvent::Tripped {
            failures: 3,
            reason: "trap".into(),
            pause: Duration::from_secs(1),
        };
        assert_eq!(breaker.poll_event(), Some(tripped));
        assert_eq!(breaker.poll_event(), None);
    }

    #[test]
    fn calls_that_were_begun_before_it_tripped_change_nothing() {
        let mut breaker = breaker(Some(1));
        fail(&mut breaker, 1, 10);
        breaker.poll_event();
        fail(&mut breaker, 20, 10);
        breaker.handle_returned(at(10), at(10));
        assert_eq!(held(&breaker, 10), Some(1));
        assert_eq!(breaker.poll_event(), None);
        // Nor when they end after its pause.
        for _ in 0..20 {
            breaker.handle_failed(|| "trap".into(), at(10), at(12));
        }
        breaker.handle_returned(at(10), at(12));
        assert_eq!(held(&breaker, 12), Some(0), "a probe is due as before");
        assert_eq!(breaker.poll_event(), None);
    }

    #[test]
    fn probes_that_fail_double_the_pause_up_to_its_bound() {
        let mut breaker = breaker(Some(1));
        let mut now = 0;
        fail(&mut breaker, 1, now);
        let mut pauses = vec![];
        for _ in 0..5 {
            let pause = held(&breaker, now).expect("held");
            pauses.push(pause);
            now += pause;
            assert_eq!(held(&breaker, now), Some(0), "a probe is due");
            fail(&mut breaker, 1, now);
        }
        assert_eq!(pauses, [1, 2, 4, 4, 4]);
    }

    #[test]
    fn a_probe_that_comes_back_closes_it_and_the_next_row_begins_anew() {
        let mut breaker = breaker(Some(2));
        fail(&mut breaker, 2, 0);
        fail(&mut breaker, 1, 1);
        breaker.poll_event();
        breaker.handle_returned(at(3), at(3));
        let lasted = Duration::from_secs(3);
        assert_eq!(breaker.poll_event(), Some(BreakerEvent::Closed { lasted }));
        assert_eq!(held(&breaker, 3), None);
        fail(&mut breaker, 1, 3);
        assert_eq!(held(&breaker, 3), None);
        fail(&mut breaker, 1, 3);
        assert_eq!(held(&breaker, 3), Some(1), "the first pause again");
    }

    #[test]
    fn without_a_threshold_it_never_trips() {
        let mut breaker = breaker(None);
        fail(&mut breaker, 10_000, 0);
        assert_eq!(held(&breaker, 0), None);
    }

    /// Whatever happens, in whatever order: held exactly after a row, never longer than
    /// the bound, and open after any probe that came back.
    #[test]
    fn no_history_holds_for_longer_than_the_bound_or_forgets_a_row() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut breaker = breaker(Some(3));
            let (mut now, mut row) = (0, 0);
            for _ in 0..300 {
                now += random(2);
                let before = held(&breaker, now);
                if random(3) == 0 {
                    breaker.handle_returned(at(now), at(now));
                    match before {
                        None | Some(0) => {
                            row = 0;
                            assert_eq!(held(&breaker, now), None);
                        }
                        paused => assert_eq!(held(&breaker, now), paused),
                    }
                } else {
                    fail(&mut breaker, 1, now);
                    row += u32::from(before.is_none());
                    assert_eq!(held(&breaker, now).is_some(), row >= 3);
                }
                assert!(held(&breaker, now).unwrap_or(0) <= 4);
            }
        }
    }
}
