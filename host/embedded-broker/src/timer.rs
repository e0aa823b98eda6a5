//! Messages that are delivered at a time of their own, to the millisecond.
//!
//! They wait in one queue that is no topic of anybody's, in the order they came; here stands which of
//! them is due next.
//!
//! Differs from RocketMQ, whose wheel (`TimerMessageStore`) rounds down to seconds: nothing
//! is rounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::properties::{self, Properties};

/// Where they wait, which no client needs to know; RocketMQ: `TimerMessageStore#TIMER_TOPIC`.
pub(crate) const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Its one queue.
pub(crate) const TIMER_QUEUE: u32 = 0;
/// RocketMQ: `MessageStoreConfig#timerMaxDelaySec`.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(3 * 24 * 3600);

/// Those that wait.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(u64, u64)>,
    /// When each is due, by its offset.
    by_offset: BTreeMap<u64, u64>,
}

impl Timers {
    /// A message was stored at this offset.
    pub(crate) fn stored(&mut self, offset: u64, due_ms: u64) {
        self.by_time.insert((due_ms, offset));
        self.by_offset.insert(offset, due_ms);
    }

    /// Takes out the offset of the next message that is due at this time.
    pub(crate) fn take_due(&mut self, unix_ms: u64) -> Option<u64> {
        let (due_ms, offset) = *self.by_time.first()?;
        (due_ms <= unix_ms).then(|| {
            self.remove(offset);
            offset
        })
    }

    /// The store begins with this offset: how many that wait are gone.
    pub(crate) fn forget_before(&mut self, min_offset: u64) -> u64 {
        let mut gone = 0;
        while let Some((&offset, _)) = self.by_offset.first_key_value()
            && offset < min_offset
        {
            self.remove(offset);
            gone += 1;
        }
        gone
    }

    /// When the next message is due, Unix milliseconds.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(due_ms, _)| *due_ms)
    }

    fn remove(&mut self, offset: u64) {
        if let Some(due_ms) = self.by_offset.remove(&offset) {
            self.by_time.remove(&(due_ms, offset));
        }
    }
}

/// Why a message can have no time of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IllegalTimer;

/// When a message wants to be delivered, Unix milliseconds; `None` is at once. A delay
/// level, and having been delivered before, go before it. RocketMQ:
/// `HookUtils#checkIfTimerMessage` and `#transformTimerMessage`.
pub(crate) fn delivery_time(
    properties: &mut Properties,
    unix_ms: u64,
) -> Result<Option<u64>, IllegalTimer> {
    let wanted = [
        (properties::TIMER_DELAY_SEC, Some(1000)),
        (properties::TIMER_DELAY_MS, Some(1)),
        (properties::TIMER_DELIVER_MS, None),
    ];
    let has_level = properties
        .get(properties::DELAY_TIME_LEVEL)
        .is_some_and(|level| level.parse::<i32>().is_ok_and(|level| level > 0));
    if has_level {
        for (name, _) in wanted {
            properties.remove(name);
        }
        return Ok(None);
    }
    if properties.get(properties::TIMER_OUT_MS).is_some() {
        return Ok(None);
    }
    let mut found = wanted.into_iter();
    let Some((text, unit)) =
        found.find_map(|(name, unit)| properties.get(name).map(|text| (text, unit)))
    else {
        return Ok(None);
    };
    let number: i64 = text.parse().map_err(|_| IllegalTimer)?;
    // What lies in the past is delivered at once.
    let number = u64::try_from(number).unwrap_or(0);
    let at = match unit {
        Some(unit) => unix_ms.saturating_add(number.saturating_mul(unit)),
        None => number,
    };
    let max = u64::try_from(DELAY_MAX.as_millis()).unwrap_or(u64::MAX);
    if at.saturating_sub(unix_ms) > max {
        return Err(IllegalTimer);
    }
    Ok((at > unix_ms).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(encoded: &str) -> Result<Option<u64>, IllegalTimer> {
        delivery_time(&mut Properties::decode(encoded.as_bytes()), 1_000_000)
    }

    #[test]
    fn each_of_the_three_properties_says_when() {
        assert_eq!(time(""), Ok(None));
        assert_eq!(time("TIMER_DELAY_SEC\x012\x02"), Ok(Some(1_002_000)));
        assert_eq!(time("TIMER_DELAY_MS\x015\x02"), Ok(Some(1_000_005)));
        assert_eq!(time("TIMER_DELIVER_MS\x011000001\x02"), Ok(Some(1_000_001)));
        assert_eq!(time("TIMER_DELIVER_MS\x015\x02"), Ok(None), "long ago");
        assert_eq!(time("TIMER_DELAY_MS\x01-5\x02"), Ok(None));
        assert_eq!(time("TIMER_DELAY_MS\x01soon\x02"), Err(IllegalTimer));
        assert_eq!(time("TIMER_DELAY_SEC\x01259201\x02"), Err(IllegalTimer));
        assert_eq!(
            time("TIMER_DELAY_SEC\x019223372036854775807\x02"),
            Err(IllegalTimer)
        );
        assert_eq!(time("DELAY\x013\x02TIMER_DELAY_MS\x015\x02"), Ok(None));
        assert_eq!(
            time("TIMER_OUT_MS\x015\x02TIMER_DELAY_MS\x015\x02"),
            Ok(None)
        );
    }

    #[test]
    fn what_is_due_first_comes_first_whatever_came_first() {
        let mut timers = Timers::default();
        timers.stored(0, 300);
        timers.stored(1, 100);
        timers.stored(2, 200);
        assert_eq!(timers.next_due_ms(), Some(100));
        assert_eq!(timers.take_due(99), None);
        assert_eq!(timers.take_due(250), Some(1));
        assert_eq!(timers.forget_before(2), 1);
        assert_eq!(timers.take_due(1_000), Some(2));
        assert_eq!((timers.take_due(1_000), timers.next_due_ms()), (None, None));
    }
}
