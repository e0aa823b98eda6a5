//! A plugin's book, for those who look into it while messages are served, and for those who
//! write it down. Looks and entries take no disk: what is written is a copy of the page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::book::{Book, Page};

/// See the module. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedBook(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Held for a look or an entry.
    book: Mutex<Book>,
    /// What the file says; `None`: nobody knows. Held over a write, and so by blocking
    /// threads alone.
    written: Mutex<Option<Page>>,
}

impl SharedBook {
    pub(crate) fn new(book: Book) -> Self {
        Self(Arc::new(Shared {
            book: Mutex::new(book),
            written: Mutex::default(),
        }))
    }

    /// For a look or an entry; not across a wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Book> {
        let book = self.0.book.lock();
        book.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes its newest page down, unless somebody has done that already, and removes
    /// the components that it has no more. Blocks.
    ///
    /// # Errors
    /// It cannot be written; what is known stays known until the host ends.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let written = self.0.written.lock();
        let mut written = written.unwrap_or_else(PoisonError::into_inner);
        let (file, page, components) = {
            let book = self.lock();
            let components = book.components().clone();
            (book.file().to_owned(), book.page().clone(), components)
        };
        if written.as_ref() != Some(&page) {
            // After an error nobody knows what the file says.
            *written = None;
            page.write(&file)?;
            *written = Some(page);
        }
        // Only what no page names any more, not even the one on the disk.
        components.sweep();
        Ok(())
    }
}

impl SharedBook {
    /// The same; what does not work is said. Blocks.
    pub(crate) fn write_or_warn(&self, tenant: &str, plugin: &str) {
        if let Err(error) = self.write() {
            warn!(target: "mqlet", tenant, plugin, "a restart will not know what serves now: {error:#}");
        }
    }

    /// The same, for whoever must not block. Returns when it is done.
    pub(crate) async fn save(&self, tenant: &str, plugin: &str) {
        let (book, of_tenant, name) = (self.clone(), tenant.to_owned(), plugin.to_owned());
        let saved = tokio::task::spawn_blocking(move || book.write_or_warn(&of_tenant, &name));
        if let Err(error) = saved.await {
            warn!(target: "mqlet", tenant, plugin, "a restart will not know what serves now: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revisions::components::Components;

    #[test]
    fn newest_page_is_written_once_and_no_look_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let components = Components::new(folder.path());
        let (book, _) = Book::open(folder.path(), "t", "p", &components);
        let file = book.file().to_owned();
        let book = SharedBook::new(book);
        book.lock().set_applied("one");
        book.write().expect("written");
        std::fs::remove_file(&file).expect("there");
        book.write().expect("nothing to do");
        assert!(!file.exists(), "it was written already");

        book.lock().set_applied("two");
        // Somebody who writes and does not come to an end.
        let writing = book.0.written.lock().expect("no panic");
        assert_eq!(book.lock().applied(), Some("two"), "a look");
        drop(writing);
        book.write().expect("written");
        let text = std::fs::read_to_string(&file).expect("there");
        assert!(text.contains("two"), "{text}");
    }
}
