//! What happened, one line each, for people. Kept only when somebody wants to read it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use protocol::Instant;

/// The lines of a run; clones share them, so that they outlive a panic.
#[derive(Clone, Debug, Default)]
pub struct History(Option<Rc<RefCell<Vec<String>>>>);

impl History {
    /// Keeps its lines.
    pub fn kept() -> Self {
        Self(Some(Rc::default()))
    }

    /// Adds a line; it is not even written when nobody keeps it.
    pub(crate) fn add(&self, now: Instant, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.0 {
            let seconds = now.since_origin().as_secs_f64();
            lines
                .borrow_mut()
                .push(format!("{seconds:>10.4}  {}", line()));
        }
    }

    /// The last lines.
    pub fn last(&self, lines: usize) -> String {
        let Some(all) = &self.0 else {
            return String::new();
        };
        let all = all.borrow();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.last(usize::MAX))
    }
}
