//! What became of a stream: lost, repeated, and whether each repeat has a reason.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use end_to_end::ledger::Delivery;

use crate::stream::Sent;
use crate::watch::History;

/// A delivery of any member, with the time it was seen.
pub type Seen = (Instant, Delivery);

/// A queue that is silent for less is idle between two messages.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// The reckoning.
#[derive(Clone, Debug)]
pub struct Account {
    /// Bodies that nobody consumed.
    pub lost: Vec<String>,
    /// Deliveries beyond the first of each message.
    pub repeats: usize,
    /// Repeats of messages that had been committed before they can have been pulled again.
    pub unexplained: Vec<String>,
    /// Times that a committed offset went back.
    pub steps_back: Vec<(u32, u64, u64)>,
    /// Queues of which a commit was seen.
    pub queues_committed: usize,
}

impl Account {
    /// `held_max`: how long a message may lie between its pull and its delivery. A repeat
    /// is explained when the message was not committed so long before.
    ///
    /// # Panics
    /// When nothing was sent: an account of nothing shows nothing.
    pub fn of(sent: &[Sent], seen: &[Seen], history: &History, held_max: Duration) -> Self {
        assert!(!sent.is_empty(), "nothing was sent");
        let mut times: BTreeMap<&str, Vec<Instant>> = BTreeMap::new();
        for (at, delivery) in seen {
            times.entry(&delivery.body).or_default().push(*at);
        }
        let mut account = Self {
            lost: Vec::new(),
            repeats: 0,
            unexplained: Vec::new(),
            steps_back: history.steps_back(),
            queues_committed: history.queues_committed(),
        };
        for message in sent {
            let Some(times) = times.get_mut(message.body.as_str()) else {
                account.lost.push(message.body.clone());
                continue;
            };
            times.sort();
            for &again in &times[1..] {
                account.repeats += 1;
                let pulled = again.checked_sub(held_max).unwrap_or(again);
                let committed = history.furthest_before(message.queue_id, pulled);
                if committed > message.queue_offset {
                    account.unexplained.push(format!(
                        "{} of queue {} at {}, committed up to {committed} by then",
                        message.body, message.queue_id, message.queue_offset
                    ));
                }
            }
        }
        account
    }
}

/// The longest time within `from..to` in which a queue of `queues` delivered nothing.
pub fn longest_silence(seen: &[Seen], queues: u32, from: Instant, to: Instant) -> Duration {
    let silence_of = |queue_id: u32| {
        let mut last = from;
        let mut longest = Duration::ZERO;
        let mut times: Vec<Instant> = seen
            .iter()
            .filter(|(at, delivery)| delivery.queue_id == queue_id && (from..to).contains(at))
            .map(|(at, _)| *at)
            .collect();
        times.sort();
        times.push(to);
        for at in times {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    };
    let longest = (0..queues).map(silence_of).max().unwrap_or_default();
    if longest < SILENCE_MIN {
        Duration::ZERO
    } else {
        longest
    }
}
