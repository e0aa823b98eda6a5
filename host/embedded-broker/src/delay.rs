//! Delay levels, and how far each level's queue of delayed messages is delivered.
//!
//! A delayed message is stored in the schedule topic, one queue a level, and stored
//! again under its own topic when its time has come. Within a level messages are due in
//! the order they came, so only the first one matters. RocketMQ: `ScheduleMessageService`.

use std::str::FromStr;
use std::time::Duration;

/// What each level waits: level 1 is the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelayLevels(Vec<Duration>);

/// More levels than anybody needs; each is a queue of the schedule topic.
const LEVELS_MAX: usize = 64;

/// RocketMQ: `MessageStoreConfig#messageDelayLevel`.
const DEFAULT_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// Why a text is no list of delay levels.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseDelayLevelsError {
    /// One item is not a number and a unit.
    #[error(
        "delay level {level} is \"{text}\"; write a whole number and one of ms, s, m, h, d, for example 10s"
    )]
    Level {
        /// Counted from 1.
        level: usize,
        /// The item as given.
        text: String,
    },
    /// None at all, or more than 64.
    #[error(
        "{count} delay levels are given; give 1 to {LEVELS_MAX}, separated by spaces, for example \"1s 5s 10s\""
    )]
    Count {
        /// How many were given.
        count: usize,
    },
}

impl Default for DelayLevels {
    fn default() -> Self {
        DEFAULT_LEVELS
            .parse()
            .unwrap_or(Self(vec![Duration::from_secs(1)]))
    }
}

impl DelayLevels {
    /// The same delay for this many levels (1 to 64): tests of retries in seconds.
    pub fn uniform(levels: usize, delay: Duration) -> Self {
        Self(vec![delay; levels.clamp(1, LEVELS_MAX)])
    }

    /// The highest level.
    pub fn max_level(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// What a level waits; levels above the highest wait like the highest, level 0 not
    /// at all.
    pub fn delay(&self, level: u32) -> Duration {
        let index = level.min(self.max_level()) as usize;
        index
            .checked_sub(1)
            .and_then(|index| self.0.get(index).copied())
            .unwrap_or_default()
    }
}

impl FromStr for DelayLevels {
    type Err = ParseDelayLevelsError;

    /// RocketMQ's form, `1s 5s 10s`, with `ms` added.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let levels = text
            .split_whitespace()
            .enumerate()
            .map(|(index, item)| {
                parse_level(item).ok_or_else(|| ParseDelayLevelsError::Level {
                    level: index + 1,
                    text: item.to_owned(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if levels.is_empty() || levels.len() > LEVELS_MAX {
            return Err(ParseDelayLevelsError::Count {
                count: levels.len(),
            });
        }
        Ok(Self(levels))
    }
}

fn parse_level(item: &str) -> Option<Duration> {
    let digits = item.len() - item.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = item.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_millis(number.checked_mul(unit_ms)?))
}

/// Progress of every level.
#[derive(Debug)]
pub(crate) struct DelayProgress {
    levels: Vec<Progress>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    /// Offset of the next message to deliver.
    next_offset: u64,
    /// When it is due, Unix milliseconds; `None` without one.
    due_ms: Option<u64>,
}

/// A message whose time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) queue_id: u32,
    pub(crate) offset: u64,
}

impl DelayProgress {
    pub(crate) fn new(levels: &DelayLevels) -> Self {
        Self {
            levels: vec![Progress::default(); levels.0.len()],
        }
    }

    /// A message was stored in a level's queue.
    pub(crate) fn stored(&mut self, queue_id: u32, offset: u64, due_ms: u64) {
        if let Some(level) = self.levels.get_mut(queue_id as usize)
            && level.due_ms.is_none()
        {
            *level = Progress {
                next_offset: offset,
                due_ms: Some(due_ms),
            };
        }
    }

    /// The next message that is due at this time, lowest level first.
    pub(crate) fn due(&self, unix_ms: u64) -> Option<Due> {
        self.levels.iter().zip(0..).find_map(|(level, queue_id)| {
            level.due_ms.filter(|due_ms| *due_ms <= unix_ms)?;
            Some(Due {
                queue_id,
                offset: level.next_offset,
            })
        })
    }

    /// The due message was delivered, or is gone; the next of its level is this one.
    pub(crate) fn delivered(&mut self, queue_id: u32, next: Option<(u64, u64)>) {
        if let Some(level) = self.levels.get_mut(queue_id as usize) {
            match next {
                Some((next_offset, due_ms)) => {
                    *level = Progress {
                        next_offset,
                        due_ms: Some(due_ms),
                    };
                }
                None => level.due_ms = None,
            }
        }
    }

    /// When the next message is due, Unix milliseconds.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.levels.iter().filter_map(|level| level.due_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_levels_are_rocketmqs() {
        let levels = DelayLevels::default();
        assert_eq!(levels.max_level(), 18);
        assert_eq!(levels.delay(0), Duration::ZERO);
        assert_eq!(levels.delay(1), Duration::from_secs(1));
        assert_eq!(levels.delay(3), Duration::from_secs(10));
        assert_eq!(levels.delay(18), Duration::from_secs(7200));
        assert_eq!(levels.delay(99), Duration::from_secs(7200));
    }

    #[test]
    fn levels_that_are_none_say_which_and_why() {
        let error = |text: &str| text.parse::<DelayLevels>().unwrap_err().to_string();
        assert!(error("1s 5x").contains("delay level 2 is \"5x\""));
        assert!(error("s").contains("delay level 1"));
        assert!(error("99999999999999999999d").contains("delay level 1"));
        assert!(error("").contains("0 delay levels"));
        assert!(error(&"1s ".repeat(65)).contains("65 delay levels"));
        assert_eq!(
            "200ms".parse(),
            Ok(DelayLevels(vec![Duration::from_millis(200)]))
        );
    }

    #[test]
    fn each_level_delivers_in_its_own_order_and_time() {
        let mut progress = DelayProgress::new(&DelayLevels::default());
        progress.stored(2, 0, 1000);
        progress.stored(2, 1, 1500);
        progress.stored(0, 7, 1200);
        assert_eq!(progress.next_due_ms(), Some(1000));
        assert_eq!(progress.due(999), None);
        assert_eq!(
            progress.due(1100),
            Some(Due {
                queue_id: 2,
                offset: 0
            })
        );
        progress.delivered(2, Some((1, 1500)));
        assert_eq!(progress.next_due_ms(), Some(1200));
        assert_eq!(
            progress.due(1500),
            Some(Due {
                queue_id: 0,
                offset: 7
            })
        );
        progress.delivered(0, None);
        assert_eq!(
            progress.due(1500),
            Some(Due {
                queue_id: 2,
                offset: 1
            })
        );
        progress.delivered(2, None);
        assert_eq!(
            (progress.due(u64::MAX), progress.next_due_ms()),
            (None, None)
        );
    }
}
