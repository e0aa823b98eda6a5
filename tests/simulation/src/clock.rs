//! Virtual time: what happens next, in order. Nothing here looks at a real clock.

use std::collections::BTreeMap;

use protocol::Instant;

/// Things that will happen, by time and then in the order they were entered.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    due: BTreeMap<(Instant, u64), T>,
    entered: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            entered: 0,
        }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn at(&mut self, at: Instant, what: T) {
        self.entered += 1;
        self.due.insert((at, self.entered), what);
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
