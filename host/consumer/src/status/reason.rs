//! What a snapshot means, for somebody who was woken up by it: what is the matter, what
//! comes next by itself, what to do.
//!
//! Every state has exactly one reason; the matches here are exhaustive, so that a new
//! state does not compile without its words. When several things are wrong, the one that
//! has to end first is named: of a queue of ours in `queue_reason`, of all else in
//! `group_reason`.

use std::fmt;
use std::time::Duration;

use super::cause::Cause;
use super::{GroupState, GroupStatus};
use crate::pause::PauseScope;
use crate::request::RequestError;

/// Why something is as it is, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// For programs, and for whoever looks it up in the manual.
    pub cause: Cause,
    /// What is the case.
    pub what: String,
    /// What happens next by itself, with its time when that is known.
    pub next: String,
    /// What a person can do; empty when there is nothing to be done.
    pub remedy: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for part in [&self.next, &self.remedy] {
            if !part.is_empty() {
                write!(f, "; {part}")?;
            }
        }
        Ok(())
    }
}

/// Of a queue that nobody has looked at.
impl Default for Reason {
    fn default() -> Self {
        Self::new(Cause::Starting, "not known yet", "", "")
    }
}

impl Reason {
    /// From its parts.
    pub fn new(
        cause: Cause,
        what: impl Into<String>,
        next: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            cause,
            what: what.into(),
            next: next.into(),
            remedy: remedy.into(),
        }
    }
}

pub(super) fn stopping(group: &GroupStatus) -> Reason {
    match group.state {
        GroupState::Leaving => Reason::new(
            Cause::Stopping,
            "the group is leaving: its offsets are being stored, the brokers are being told",
            "it is gone when they have answered",
            "",
        ),
        GroupState::Stopping | GroupState::Running | GroupState::Paused => Reason::new(
            Cause::Stopping,
            format!(
                "the group is stopping: {} calls and {} messages on their way back are under way",
                group.calls, group.send_backs
            ),
            "what still runs at drain_timeout is killed",
            "",
        ),
    }
}

pub(super) fn unreachable(
    broker: &str,
    what: &str,
    error: &RequestError,
    again_in: Option<Duration>,
) -> Reason {
    Reason::new(
        Cause::BrokerUnreachable,
        format!("{what} does not answer: {error}"),
        again(again_in),
        format!("look whether broker \"{broker}\" is up, and at the network to it"),
    )
}

pub(super) fn resume_command(scope: &PauseScope, group: &GroupStatus) -> String {
    let group = &group.consumer_group;
    match scope {
        PauseScope::Group => format!("mqlet resume {group}"),
        PauseScope::Topic(topic) => format!("mqlet resume {group} --topic {topic}"),
        PauseScope::Queue(queue) => format!("mqlet resume {group} --queue {queue}"),
    }
}

pub(super) fn again(again_in: Option<Duration>) -> String {
    match again_in {
        Some(time) => format!("it is tried again in {}", approximately(time)),
        None => "it is being tried again now".to_owned(),
    }
}

pub(super) fn within(time: Option<Duration>) -> String {
    match time {
        Some(time) => format!("in {}", approximately(time)),
        None => "now".to_owned(),
    }
}

/// A time as people say it: `0.2s`, `12s`, `3m 5s`, `2h 10m`.
pub(super) fn approximately(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 if time.subsec_millis() > 0 => format!("{:.1}s", time.as_secs_f64()),
        0..60 => format!("{seconds}s"),
        60..3600 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}
