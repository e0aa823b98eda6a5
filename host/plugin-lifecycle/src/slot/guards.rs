//! How a canary is tried, what was seen of it, and what that says against it.

use std::time::Duration;

use super::record::CallSums;

/// Messages of the revision that serves; fewer say nothing about how long one takes.
const SERVING_SAMPLE_MIN: u64 = 200;
/// Calls of the canary; of fewer one that broke says nothing.
const CALLS_MIN: u64 = 20;
/// What is slower by less is a busy machine.
const SLOWER_MIN: Duration = Duration::from_millis(5);

/// How a revision is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CanaryPlan {
    /// Of the keys, or of the queues, in a thousand; 1 to 999.
    pub per_mille: u16,
    /// After so long it is judged.
    pub length: Duration,
    /// Less is no evidence for it: messages, or runs of a pull task.
    pub sample_min: u64,
    /// More is evidence against it: messages that it failed and the other revision
    /// finished, in a thousand of its messages.
    pub worse_per_mille_max: u16,
    /// More is evidence against it: messages that it wanted among the dead letters and the
    /// other revision did not, in a thousand of its messages.
    pub dead_per_mille_max: u16,
    /// More is evidence against it: calls that trapped, broke a limit or ran out of time, in
    /// a thousand, beyond those of the other revision in the same time.
    pub broken_per_mille_max: u16,
    /// More is evidence against it: by how much longer, in a hundred, 99 of a hundred
    /// messages take than in the other revision in the same time.
    pub slower_percent_max: u32,
}

impl Default for CanaryPlan {
    fn default() -> Self {
        Self {
            per_mille: 100,
            length: Duration::from_secs(60),
            sample_min: 500,
            worse_per_mille_max: 5,
            dead_per_mille_max: 0,
            broken_per_mille_max: 50,
            slower_percent_max: 100,
        }
    }
}

/// What was seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrialCounts {
    /// Messages (runs of a pull task) that the canary had.
    pub sample: u64,
    /// Those that it did not finish.
    pub failed: u64,
    /// Those of them that the other revision finished, and what it failed in order.
    pub worse: u64,
    /// Those that it wanted among the dead letters and the other revision did not.
    pub dead: u64,
    /// Its calls that trapped, broke a limit or ran out of time.
    pub broken: u64,
    /// Of a hundred messages 99 took no longer; `None`: it had none.
    pub p99: Option<Duration>,
    /// The same of the other revision in the same time.
    pub p99_serving: Option<Duration>,
}

impl TrialCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.sample += other.sample;
        self.failed += other.failed;
        self.worse += other.worse;
        self.dead += other.dead;
    }
}

/// What speaks against a canary, for people.
pub(super) fn against(
    plan: &CanaryPlan,
    counts: &TrialCounts,
    tried: &CallSums,
    serving: &CallSums,
) -> Option<String> {
    let of = counts.sample.max(plan.sample_min);
    // Before what it failed: a dead letter is that, too.
    if is_more(counts.dead, of, plan.dead_per_mille_max.into()) {
        return Some(format!(
            "of {} messages it would have made {} dead letters that the revision that serves did not",
            counts.sample, counts.dead
        ));
    }
    if is_more(counts.worse, of, plan.worse_per_mille_max.into()) {
        return Some(format!(
            "of {} messages it failed {}, and {} of those are the revision's own fault",
            counts.sample, counts.failed, counts.worse
        ));
    }
    let usual = per_mille(serving.broken(), serving.calls());
    let most = u64::from(plan.broken_per_mille_max).saturating_add(usual);
    if tried.calls() >= CALLS_MIN && is_more(tried.broken(), tried.calls(), most) {
        return Some(format!(
            "{} of its {} calls trapped, broke a limit or ran out of time, and of those of the revision that serves {} of {}",
            tried.broken(),
            tried.calls(),
            serving.broken(),
            serving.calls()
        ));
    }
    if counts.sample < plan.sample_min || serving.messages() < SERVING_SAMPLE_MIN {
        return None;
    }
    let (p99, usual) = tried.p99().zip(serving.p99())?;
    let most = usual.saturating_mul(plan.slower_percent_max.saturating_add(100)) / 100;
    (p99 > most.max(usual + SLOWER_MIN)).then(|| {
        format!(
            "99 of 100 messages take up to {p99:.1?}, and {usual:.1?} in the revision that serves"
        )
    })
}

fn is_more(count: u64, of: u64, per_mille: u64) -> bool {
    count.saturating_mul(1000) > of.saturating_mul(per_mille)
}

fn per_mille(count: u64, of: u64) -> u64 {
    count.saturating_mul(1000).checked_div(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::record::CallRecord;
    use super::*;

    fn sums(messages: u32, time: Duration, broken: u32) -> CallSums {
        let record = CallRecord::default();
        (0..messages).for_each(|_| record.finished(1, time));
        (0..broken).for_each(|_| record.broke());
        record.sums()
    }

    fn judged(counts: TrialCounts, tried: &CallSums, serving: &CallSums) -> Option<String> {
        against(&CanaryPlan::default(), &counts, tried, serving)
    }

    const SEEN: TrialCounts = TrialCounts {
        sample: 1000,
        failed: 0,
        worse: 0,
        dead: 0,
        broken: 0,
        p99: None,
        p99_serving: None,
    };

    #[test]
    fn canary_like_the_other_has_nothing_against_it() {
        let alike = sums(1000, Duration::from_millis(20), 3);
        assert_eq!(judged(SEEN, &alike, &alike), None);
    }

    #[test]
    fn each_guard_has_its_words() {
        let alike = sums(1000, Duration::from_millis(20), 0);
        let worse = TrialCounts {
            failed: 6,
            worse: 6,
            ..SEEN
        };
        let dead = TrialCounts { dead: 1, ..SEEN };
        for (counts, tried, part) in [
            (worse, &alike, "own fault"),
            (dead, &alike, "dead letters"),
            (SEEN, &sums(1000, Duration::from_millis(20), 60), "trapped"),
            (SEEN, &sums(1000, Duration::from_millis(60), 0), "99 of 100"),
        ] {
            let reason = judged(counts, tried, &alike).expect(part);
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn what_breaks_in_both_and_what_is_little_says_nothing() {
        let breaks = sums(1000, Duration::from_millis(20), 100);
        assert_eq!(judged(SEEN, &breaks, &breaks), None);
        let fast = sums(1000, Duration::from_micros(5), 0);
        let slower = sums(1000, Duration::from_micros(100), 0);
        assert_eq!(judged(SEEN, &slower, &fast), None, "a busy machine");
        let slow = sums(1000, Duration::from_secs(1), 0);
        let few = sums(20, Duration::from_micros(5), 0);
        assert_eq!(judged(SEEN, &slow, &few), None, "the other had too few");
        let early = TrialCounts {
            sample: 100,
            worse: 2,
            ..SEEN
        };
        assert_eq!(judged(early, &slow, &fast), None, "it had too few");
    }
}
