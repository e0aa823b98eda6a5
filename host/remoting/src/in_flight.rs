//! Requests that wait for their answer on one connection: found by opaque, expired
//! by deadline, bounded.
//!
//! Pure: time is an argument, and what waits is the caller's type. Who runs the
//! timer, and what is told to whom, is `connection`'s business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::Instant;

/// What waits for an answer, by opaque.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    waiting: BTreeMap<i32, (Instant, T)>,
    deadlines: BTreeSet<(Instant, i32)>,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Adds a waiting request. An opaque that still waits is refused and the value
    /// comes back: after 2³² requests a long poll may still hold its number.
    pub(crate) fn insert(&mut self, opaque: i32, deadline: Instant, value: T) -> Result<(), T> {
        if self.waiting.contains_key(&opaque) {
            return Err(value);
        }
        self.waiting.insert(opaque, (deadline, value));
        self.deadlines.insert((deadline, opaque));
        debug_assert_eq!(self.waiting.len(), self.deadlines.len());
        Ok(())
    }

    pub(crate) fn contains(&self, opaque: i32) -> bool {
        self.waiting.contains_key(&opaque)
    }

    /// Takes the request out. `None` when it was answered, expired or never made.
    pub(crate) fn remove(&mut self, opaque: i32) -> Option<T> {
        let (deadline, value) = self.waiting.remove(&opaque)?;
        self.deadlines.remove(&(deadline, opaque));
        debug_assert_eq!(self.waiting.len(), self.deadlines.len());
        Some(value)
    }

    /// Takes out one request whose deadline has come, the oldest first.
    pub(crate) fn poll_expired(&mut self, now: Instant) -> Option<T> {
        let &(deadline, opaque) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.remove(opaque)
    }

    /// Takes everything out, in order of deadline.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let deadlines = std::mem::take(&mut self.deadlines);
        let mut waiting = std::mem::take(&mut self.waiting);
        deadlines
            .into_iter()
            .filter_map(|(_, opaque)| waiting.remove(&opaque))
            .map(|(_, value)| value)
            .collect()
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Counts the requests in flight of a whole client, over all its connections.
#[derive(Debug)]
pub(crate) struct InFlightBound {
    count: AtomicUsize,
    max: usize,
}

impl InFlightBound {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            max,
        })
    }

    /// A place for one request, or `None` when the client is at its bound.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<InFlightPermit> {
        self.count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < self.max).then_some(count + 1)
            })
            .ok()
            .map(|_| InFlightPermit(Arc::clone(self)))
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }
}

/// One place among the requests in flight; given back when dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit(Arc<InFlightBound>);

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(ms))
    }

    #[test]
    fn an_answer_finds_its_request_once() {
        let mut in_flight = InFlight::new();
        in_flight.insert(7, at(10), "pull").unwrap();

        assert_eq!(in_flight.remove(8), None);
        assert_eq!(in_flight.remove(7), Some("pull"));
        assert_eq!(in_flight.remove(7), None);
        assert!(in_flight.is_empty());
        assert_eq!(in_flight.poll_timeout(), None);
    }

    #[test]
    fn an_opaque_that_still_waits_is_not_given_away() {
        let mut in_flight = InFlight::new();
        in_flight.insert(7, at(10), "first").unwrap();

        assert_eq!(in_flight.insert(7, at(5), "second"), Err("second"));
        assert_eq!(in_flight.poll_timeout(), Some(at(10)));
        assert_eq!(in_flight.remove(7), Some("first"));
    }

    #[test]
    fn requests_expire_at_their_deadline_and_not_before() {
        let mut in_flight = InFlight::new();
        in_flight.insert(1, at(30), "late").unwrap();
        in_flight.insert(2, at(10), "early").unwrap();

        assert_eq!(in_flight.poll_expired(at(9)), None);
        assert_eq!(in_flight.poll_expired(at(10)), Some("early"));
        assert_eq!(in_flight.poll_expired(at(10)), None);
        assert_eq!(in_flight.poll_timeout(), Some(at(30)));
    }

    #[test]
    fn draining_gives_everything_once() {
        let mut in_flight = InFlight::new();
        in_flight.insert(1, at(30), "b").unwrap();
        in_flight.insert(2, at(10), "a").unwrap();

        assert_eq!(in_flight.drain(), ["a", "b"]);
        assert!(in_flight.is_empty());
        assert_eq!(in_flight.remove(1), None);
    }

    #[test]
    fn the_bound_counts_what_is_held() {
        let bound = InFlightBound::new(2);
        let first = bound.try_acquire().unwrap();
        let _second = bound.try_acquire().unwrap();
        assert!(bound.try_acquire().is_none());

        drop(first);

        assert_eq!(bound.count(), 1);
        assert!(bound.try_acquire().is_some());
    }

    proptest! {
        #[test]
        fn every_request_leaves_exactly_once(
            steps in proptest::collection::vec((0..4u8, 0..20i32, 0..100u64), 0..200),
        ) {
            let mut in_flight = InFlight::new();
            let mut model = BTreeMap::new();
            for (step, opaque, ms) in steps {
                match step {
                    0 | 1 => {
                        let inserted = in_flight.insert(opaque, at(ms), opaque).is_ok();
                        prop_assert_eq!(inserted, !model.contains_key(&opaque));
                        if inserted {
                            model.insert(opaque, ms);
                        }
                    }
                    2 => prop_assert_eq!(
                        in_flight.remove(opaque).is_some(),
                        model.remove(&opaque).is_some()
                    ),
                    _ => {
                        while let Some(expired) = in_flight.poll_expired(at(ms)) {
                            let deadline = model.remove(&expired);
                            prop_assert!(deadline.is_some_and(|deadline| deadline <= ms));
                        }
                        prop_assert!(model.values().all(|&deadline| deadline > ms));
                    }
                }
                prop_assert_eq!(
                    in_flight.poll_timeout(),
                    model.values().min().map(|&ms| at(ms))
                );
            }
        }
    }
}
