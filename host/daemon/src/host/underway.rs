//! Whose changes are under way: one plugin begins, is changed by its file, or leaves, and
//! a look at the folder starts nothing else for it until that is over. What it left out so
//! is looked at again then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The changes of one tenant's plugins. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Underway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How many by name: a command may take away what begins. Held for an entry.
    counts: Mutex<BTreeMap<String, u32>>,
    has_left_out: AtomicBool,
    look_again: Arc<Notify>,
}

/// A change that is under way while this lives.
#[derive(Debug)]
pub(super) struct ChangeUnderway {
    of: Underway,
    name: String,
}

impl Underway {
    /// `look_again` is told when something ends for which a plugin was left out.
    pub(super) fn new(look_again: &Arc<Notify>) -> Self {
        Self(Arc::new(Shared {
            counts: Mutex::default(),
            has_left_out: AtomicBool::new(false),
            look_again: Arc::clone(look_again),
        }))
    }

    /// A change of this plugin begins.
    pub(super) fn begin(&self, name: &str) -> ChangeUnderway {
        *self.counts().entry(name.to_owned()).or_default() += 1;
        ChangeUnderway {
            of: self.clone(),
            name: name.to_owned(),
        }
    }

    /// There is one already: whoever asks leaves the plugin out, until it is told to look
    /// again.
    pub(super) fn leaves_out(&self, name: &str) -> bool {
        let counts = self.counts();
        let is_underway = counts.contains_key(name);
        if is_underway {
            self.0.has_left_out.store(true, Ordering::Release);
        }
        is_underway
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChangeUnderway {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        let Some(count) = counts.get_mut(&self.name) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.name);
            if self.of.0.has_left_out.swap(false, Ordering::AcqRel) {
                self.of.0.look_again.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_left_out_is_looked_at_when_the_last_change_of_it_ends() {
        let look_again = Arc::new(Notify::new());
        let underway = Underway::new(&look_again);
        let begins = underway.begin("a");
        let leaves = underway.begin("a");
        assert!(!underway.leaves_out("b"));
        drop(begins);
        assert!(underway.leaves_out("a"));
        drop(leaves);
        look_again.notified().await;
        assert!(!underway.leaves_out("a"));
    }
}
