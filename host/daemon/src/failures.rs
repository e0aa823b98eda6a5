//! The failure records of a tenant's plugins that are kept for `mqlet failures`: the last
//! hundred of each plugin, within a bound of memory for all of them.
//!
//! They are of this process alone: what must outlive it is in the log and in the dead
//! letters.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasm::{Event, FailureRecord, Observer};

/// Records kept of one plugin.
pub(crate) const FAILURES_MAX: usize = 100;
/// What the records of a tenant may hold together; beyond it the plugin with the most
/// loses its oldest.
const FAILURES_BYTES_MAX: usize = 16 << 20;

/// See the module. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    plugins: BTreeMap<Arc<str>, OfPlugin>,
    bytes: usize,
}

#[derive(Default)]
struct OfPlugin {
    /// Oldest first.
    records: VecDeque<Arc<FailureRecord>>,
    bytes: usize,
}

impl Failures {
    /// Keeps what this observer hears of.
    pub(crate) fn keeping(&self, observer: Observer) -> Observer {
        let failures = self.clone();
        Arc::new(move |event| {
            if let Event::CallFailed(record) = event {
                failures.lock().add(record, FAILURES_BYTES_MAX);
            }
            observer(event);
        })
    }

    /// Of one plugin, or of all; oldest first.
    pub(crate) fn records(&self, plugin: Option<&str>) -> Vec<Arc<FailureRecord>> {
        let kept = self.lock();
        let of_plugins = kept.plugins.iter();
        let wanted = of_plugins.filter(|(name, _)| plugin.is_none_or(|plugin| plugin == &***name));
        let mut records: Vec<_> = wanted
            .flat_map(|(_, of_plugin)| of_plugin.records.iter().cloned())
            .collect();
        records.sort_by_key(|record| record.at);
        records
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing under this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failures({} bytes)", self.lock().bytes)
    }
}

impl Kept {
    fn add(&mut self, record: &Arc<FailureRecord>, bytes_max: usize) {
        let bytes = record.bytes();
        let of_plugin = self.plugins.entry(Arc::clone(&record.plugin)).or_default();
        of_plugin.records.push_back(Arc::clone(record));
        of_plugin.bytes += bytes;
        self.bytes += bytes;
        if of_plugin.records.len() > FAILURES_MAX {
            self.bytes -= of_plugin.lose_oldest();
        }
        while self.bytes > bytes_max {
            let most = self.plugins.iter_mut();
            let Some((name, most)) = most.max_by_key(|(_, of_plugin)| of_plugin.bytes) else {
                return;
            };
            self.bytes -= most.lose_oldest();
            if most.records.is_empty() {
                let name = Arc::clone(name);
                self.plugins.remove(&name);
            }
        }
    }
}

impl OfPlugin {
    /// Returns the bytes it held.
    fn lose_oldest(&mut self) -> usize {
        let oldest = self.records.pop_front();
        let bytes = oldest.map_or(0, |oldest| oldest.bytes());
        self.bytes -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use wasm::{FailureKind, Limits, Phase};

    use super::*;

    fn record(plugin: &str, number: u32, frames: usize) -> Arc<FailureRecord> {
        Arc::new(FailureRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(number.into()),
            plugin: plugin.into(),
            revision: "r".into(),
            component: "".into(),
            phase: Phase::Call,
            kind: FailureKind::Trap("t".into()),
            backtrace: vec!["f".repeat(1000); frames],
            last_log_lines: Vec::new(),
            message_queue: None,
            failed_messages: Vec::new(),
            messages: number,
            attempt: 1,
            isolated: false,
            wall: Duration::ZERO,
            computed: Duration::ZERO,
            memory_bytes: 0,
            log_lines_dropped: 0,
            limits: Arc::new(Limits::default()),
            wall_max: Duration::ZERO,
        })
    }

    fn numbers(failures: &Failures, plugin: Option<&str>) -> Vec<u32> {
        let records = failures.records(plugin);
        records.iter().map(|record| record.messages).collect()
    }

    #[test]
    fn the_last_hundred_of_a_plugin_are_kept_in_order() {
        let failures = Failures::default();
        let observer = failures.keeping(Arc::new(|_: &Event| {}));
        for number in 0..150 {
            observer(&Event::CallFailed(record("a", number, 0)));
        }
        observer(&Event::CallFailed(record("b", 75, 0)));

        assert_eq!(numbers(&failures, Some("a")), (50..150).collect::<Vec<_>>());
        assert_eq!(numbers(&failures, Some("b")), [75]);
        assert_eq!(numbers(&failures, None).len(), 101);
        assert!(numbers(&failures, Some("c")).is_empty());
    }

    #[test]
    fn whoever_holds_the_most_loses_its_oldest_and_nobody_else() {
        let failures = Failures::default();
        failures.lock().add(&record("quiet", 0, 1), 40_000);
        for number in 1..60 {
            failures.lock().add(&record("loud", number, 5), 40_000);
        }
        assert_eq!(numbers(&failures, Some("quiet")), [0]);
        let loud = numbers(&failures, Some("loud"));
        assert!((2..10).contains(&loud.len()), "{loud:?}");
        assert_eq!(loud.last(), Some(&59));
        let kept = failures.lock();
        let sum: usize = kept.plugins.values().map(|of_plugin| of_plugin.bytes).sum();
        assert_eq!(kept.bytes, sum);
        assert!(sum <= 40_000);
    }
}
