//! When an address may be dialled again: a jittered, doubling wait.
//!
//! Pure: time is an argument and randomness comes from a seed. Dialling never goes
//! faster than [`BackoffConfig::min`] allows, whatever the peer does: one that
//! accepts and hangs up at once is as bad as one that refuses.

use std::time::Duration;

use protocol::Instant;

/// Bounds of the wait.
#[derive(Clone, Copy, Debug)]
pub struct BackoffConfig {
    /// The first wait, and the least time between two attempts.
    pub min: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
}

/// Share of a wait that is left to chance, so that clients which lost one broker
/// together do not come back together.
const JITTER: f64 = 0.2;

/// 2³⁰ times any sensible `min` is past any sensible `max`.
const DOUBLINGS_MAX: u32 = 30;

impl Default for BackoffConfig {
    /// 100 ms doubling to 2 s: a broker that is back is found within seconds, and the
    /// members of a group return about together.
    fn default() -> Self {
        Self {
            min: Duration::from_millis(100),
            max: Duration::from_secs(2),
        }
    }
}

/// The state of one address.
#[derive(Debug)]
pub(crate) struct Backoff {
    config: BackoffConfig,
    random: fastrand::Rng,
    failures: u32,
    next_attempt: Instant,
}

impl Backoff {
    pub(crate) fn new(config: BackoffConfig, seed: u64) -> Self {
        Self {
            config,
            random: fastrand::Rng::with_seed(seed),
            failures: 0,
            next_attempt: Instant::ORIGIN,
        }
    }

    /// An attempt begins.
    pub(crate) fn handle_attempt(&mut self, now: Instant) {
        debug_assert!(self.next_attempt <= now);
        self.next_attempt = now + self.config.min;
    }

    /// The attempt failed, or its connection was lost before the peer said anything.
    pub(crate) fn handle_failure(&mut self, now: Instant) {
        let factor = 1u32 << self.failures.min(DOUBLINGS_MAX);
        let wait = self
            .config
            .min
            .saturating_mul(factor)
            .min(self.config.max)
            .mul_f64(1.0 - JITTER + 2.0 * JITTER * self.random.f64());
        self.failures = self.failures.saturating_add(1);
        self.next_attempt = self.next_attempt.max(now + wait);
    }

    /// The peer answered: the next loss starts again with the shortest wait.
    pub(crate) fn handle_success(&mut self) {
        self.failures = 0;
    }

    /// The instant from which an attempt is allowed.
    pub(crate) fn next_attempt(&self) -> Instant {
        self.next_attempt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(ms))
    }

    #[test]
    fn waits_double_to_the_longest_and_jitter_by_a_fifth() {
        for seed in 0..50 {
            let mut backoff = Backoff::new(BackoffConfig::default(), seed);
            for expected_ms in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
                let now = backoff.next_attempt();
                backoff.handle_attempt(now);
                backoff.handle_failure(now);
                let wait = backoff.next_attempt() - now;
                let expected = Duration::from_millis(expected_ms);
                assert!(wait >= expected.mul_f64(0.799), "{wait:?}");
                assert!(wait <= expected.mul_f64(1.201), "{wait:?}");
            }
        }
    }

    #[test]
    fn two_seeds_do_not_wait_alike() {
        let wait = |seed| {
            let mut backoff = Backoff::new(BackoffConfig::default(), seed);
            backoff.handle_failure(at(0));
            backoff.handle_failure(at(0));
            backoff.next_attempt()
        };
        assert_ne!(wait(1), wait(2));
    }

    #[test]
    fn attempts_are_never_closer_than_the_shortest_wait() {
        let mut backoff = Backoff::new(BackoffConfig::default(), 1);
        let mut attempts = 0;
        for ms in 0..1_000 {
            if backoff.next_attempt() <= at(ms) {
                backoff.handle_attempt(at(ms));
                // The worst peer: talks, then hangs up at once.
                backoff.handle_success();
                attempts += 1;
            }
        }
        assert_eq!(attempts, 10);
    }

    #[test]
    fn an_answer_resets_the_wait() {
        let mut backoff = Backoff::new(BackoffConfig::default(), 1);
        for _ in 0..10 {
            backoff.handle_failure(at(0));
        }
        assert!(backoff.next_attempt() > at(1_000));

        backoff.handle_success();
        let later = at(60_000);
        backoff.handle_attempt(later);
        backoff.handle_failure(later);

        assert!(backoff.next_attempt() - later <= Duration::from_millis(120));
    }
}
