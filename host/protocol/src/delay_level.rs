//! Delay levels: what `DELAY = n` on a message means in time.

use std::time::Duration;

/// RocketMQ's levels, 1 to 18. RocketMQ: `MessageStoreConfig#messageDelayLevel`.
pub const DEFAULT_MESSAGE_DELAY_LEVEL: &str =
    "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// The levels of a broker, counted from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelayLevels(Vec<Duration>);

/// A text is no list of levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{level}\" is no delay level; write a number with s, m, h or d, one space between levels, for example \"1s 5s 2h\""
)]
pub struct ParseDelayLevelsError {
    /// The part that is wrong.
    pub level: String,
}

impl DelayLevels {
    /// From the broker's setting. RocketMQ: `ScheduleMessageService#parseDelayLevel`.
    ///
    /// Differs from RocketMQ: it lets times below zero and trailing spaces pass.
    pub fn parse(text: &str) -> Result<Self, ParseDelayLevelsError> {
        text.split(' ')
            .map(|level| {
                parse_level(level).ok_or_else(|| ParseDelayLevelsError {
                    level: level.to_owned(),
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The highest level.
    pub fn level_max(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// How long a message of this level waits; above the highest counts as the highest.
    /// `None` for level 0: it does not wait.
    pub fn delay(&self, level: u32) -> Option<Duration> {
        let index = level.min(self.level_max()).checked_sub(1)?;
        self.0.get(index as usize).copied()
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let seconds = [
            1,
            5,
            10,
            30,
            MINUTE,
            2 * MINUTE,
            3 * MINUTE,
            4 * MINUTE,
            5 * MINUTE,
            6 * MINUTE,
            7 * MINUTE,
            8 * MINUTE,
            9 * MINUTE,
            10 * MINUTE,
            20 * MINUTE,
            30 * MINUTE,
            HOUR,
            2 * HOUR,
        ];
        Self(seconds.map(Duration::from_secs).to_vec())
    }
}

fn parse_level(level: &str) -> Option<Duration> {
    let unit_at = level.len().checked_sub(1)?;
    let (number, unit) = level.split_at_checked(unit_at)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}
