//! What would change if a manifest served: against the revision that serves, or served last.

use std::path::Path;

use plugin_lifecycle::preflight::{self, Preflight};
use plugin_lifecycle::{Digest, Manifest, changes};
use serde::Serialize;

use super::book::Book;
use super::components::Components;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Changes {
    /// The number of the revision that serves, or served last.
    pub(crate) revision: u64,
    /// In words; none: it is the same.
    pub(crate) changes: Vec<String>,
}

impl Changes {
    /// `None` when nothing has served, or what did is not understood any more.
    pub(crate) fn against_serving(
        book: &Book,
        manifest: &Manifest,
        component: Digest,
    ) -> Option<Self> {
        let kept = book.serving()?;
        let before = book.manifest_of(kept).ok()?;
        let old_component = kept.component.parse().ok()?;
        Some(Self {
            revision: kept.number,
            changes: changes::between((&before, old_component), (manifest, component)),
        })
    }

    /// The same, and which imports that reach outside are new. Opens the book of the plugin
    /// in this folder, and the component that served. Blocks.
    pub(crate) fn of_checked(
        state_dir: &Path,
        tenant: &str,
        manifest: &Manifest,
        found: &Preflight,
    ) -> Option<Self> {
        let components = Components::new(state_dir);
        let (book, _) = Book::open(state_dir, tenant, manifest.name().as_str(), &components);
        let mut all = Self::against_serving(&book, manifest, found.digest)?;
        let before = book.manifest_of(book.serving()?).ok()?;
        // One that is not kept any more says nothing.
        if let Ok(before) = preflight::check(&before) {
            let had: Vec<&str> = before.component.reaches().collect();
            let new = found.component.reaches();
            let new = new.filter(|import| !had.contains(import));
            let new = new.map(|import| format!("it newly imports {import}"));
            all.changes.splice(0..0, new);
        }
        Some(all)
    }

    /// Some lines.
    pub(crate) fn text(&self) -> String {
        let Self { revision, changes } = self;
        if changes.is_empty() {
            return format!("nothing changes against revision {revision}, which served last");
        }
        let mut text = format!("against revision {revision}, which served last:");
        for change in changes {
            text.push_str(&format!("\n    {change}"));
        }
        text
    }
}
