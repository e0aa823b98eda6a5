//! Rates of one topic of a group, for people: RocketMQ's `ConsumeStatus`.
//!
//! Counted once a pull answer and once a call, in slices of time that are overwritten
//! when their turn comes again. RocketMQ: `ConsumerStatsManager`, which keeps the last
//! minute and, for failures, the last hour.

use std::time::Duration;

use protocol::Instant;
use protocol::body::ConsumeStatus;

const SLICE: Duration = Duration::from_secs(10);
/// The last minute, and the slice that is being filled.
const SLICES: usize = 7;
const LONG_SLICE: Duration = Duration::from_secs(600);
/// The last hour, and the slice that is being filled.
const LONG_SLICES: usize = 7;
/// What a rate is over, beside the slice that is being filled.
const WINDOW: Duration = SLICE.saturating_mul(SLICES as u32 - 1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    slices: [Slice; SLICES],
    failed: [LongSlice; LONG_SLICES],
}

/// One line of the processor's caches: with thousands of groups it has to be read from
/// memory for each pull and each call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Slice {
    /// Its number since the origin, from 1.
    number: u64,
    pulls: u32,
    calls: u32,
    pulled: u64,
    done: u64,
    failed: u64,
    pull_nanos: u64,
    call_nanos: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LongSlice {
    number: u64,
    failed: u64,
}

/// The number of a slice, from 1.
fn number(now: Instant, slice: Duration) -> u64 {
    now.since_origin().as_secs() / slice.as_secs() + 1
}

fn nanos(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

fn place(number: u64, slices: usize) -> usize {
    usize::try_from(number % slices as u64).unwrap_or(0)
}

impl Statistics {
    /// An answer with messages.
    pub(crate) fn add_pull(&mut self, messages: u64, elapsed: Duration, now: Instant) {
        let slice = self.slice(now);
        slice.pulls += 1;
        slice.pulled += messages;
        slice.pull_nanos = slice.pull_nanos.saturating_add(nanos(elapsed));
    }

    /// A result of a listener.
    pub(crate) fn add_call(&mut self, done: u32, failed: u32, elapsed: Duration, now: Instant) {
        let slice = self.slice(now);
        slice.calls += 1;
        slice.done += u64::from(done);
        slice.failed += u64::from(failed);
        slice.call_nanos = slice.call_nanos.saturating_add(nanos(elapsed));
        if failed > 0 {
            let number = number(now, LONG_SLICE);
            let long = &mut self.failed[place(number, LONG_SLICES)];
            if long.number != number {
                *long = LongSlice { number, failed: 0 };
            }
            long.failed += u64::from(failed);
        }
    }

    fn slice(&mut self, now: Instant) -> &mut Slice {
        let number = number(now, SLICE);
        let slice = &mut self.slices[place(number, SLICES)];
        if slice.number != number {
            *slice = Slice {
                number,
                ..Slice::default()
            };
        }
        slice
    }

    /// The last minute, and the failures of the last hour.
    pub(crate) fn status(&self, now: Instant) -> ConsumeStatus {
        let newest = number(now, SLICE);
        let slices = self.slices.iter();
        let recent: Vec<&Slice> = slices
            .filter(|slice| slice.number > 0 && slice.number + SLICES as u64 > newest)
            .collect();
        let sum = |of: fn(&Slice) -> u64| recent.iter().map(|slice| of(slice)).sum::<u64>();
        let milliseconds = |nanos: fn(&Slice) -> u64, count: u64| {
            if count == 0 {
                0.0
            } else {
                sum(nanos) as f64 / 1_000_000.0 / count as f64
            }
        };
        let filled = now.since_origin().as_secs_f64() % SLICE.as_secs_f64();
        let seconds = WINDOW.as_secs_f64() + filled;
        let per_second = |count: u64| count as f64 / seconds;
        let hour = number(now, LONG_SLICE);
        let failed = self.failed.iter();
        let failed = failed
            .filter(|slice| slice.number > 0 && slice.number + LONG_SLICES as u64 > hour)
            .map(|slice| slice.failed)
            .sum::<u64>();
        ConsumeStatus {
            consume_failed_msgs: i64::try_from(failed).unwrap_or(i64::MAX),
            consume_failed_tps: per_second(sum(|slice| slice.failed)),
            consume_ok_tps: per_second(sum(|slice| slice.done)),
            consume_rt: milliseconds(|slice| slice.call_nanos, sum(|slice| slice.calls.into())),
            pull_rt: milliseconds(|slice| slice.pull_nanos, sum(|slice| slice.pulls.into())),
            pull_tps: per_second(sum(|slice| slice.pulled)),
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
    fn rates_are_of_the_last_minute_and_failures_of_the_last_hour() {
        let mut statistics = Statistics::default();
        assert_eq!(statistics.status(at(0)), ConsumeStatus::default());
        for second in 0..30 {
            statistics.add_pull(12, Duration::from_millis(4), at(second));
            statistics.add_call(10, 2, Duration::from_millis(20), at(second));
        }
        let status = statistics.status(at(30));
        assert_eq!(
            status,
            ConsumeStatus {
                consume_failed_msgs: 60,
                consume_failed_tps: 1.0,
                consume_ok_tps: 5.0,
                consume_rt: 20.0,
                pull_rt: 4.0,
                pull_tps: 6.0,
            }
        );
        let steady = |until: u64| {
            let mut statistics = Statistics::default();
            for second in 0..until {
                statistics.add_call(6, 0, Duration::ZERO, at(second));
            }
            statistics.status(at(until)).consume_ok_tps
        };
        assert_eq!(steady(120), 6.0);
        assert_eq!(steady(129), 6.0, "also late in a slice");
        let later = statistics.status(at(200));
        let hour_only = ConsumeStatus {
            consume_failed_msgs: 60,
            ..ConsumeStatus::default()
        };
        assert_eq!(later, hour_only);
        assert_eq!(statistics.status(at(5000)), ConsumeStatus::default());
    }
}
