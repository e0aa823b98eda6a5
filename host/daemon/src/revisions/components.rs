//! Components of kept revisions, by their digest: what serves does not need the file it
//! came from, and a file that changes under way is never half used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use plugin_lifecycle::Digest;
use plugin_lifecycle::artifact::Artifact;
use plugin_lifecycle::signature::Provenance;

use super::book::named_in_books;
use super::replace;

/// `state_dir/components`. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Components {
    folder: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held for an entry.
    users: Mutex<Users>,
    /// Files are written under a read lock, by many at once, and removed under the write
    /// lock: what somebody has just found there is not removed. Held over files' writes,
    /// and so by blocking threads alone.
    files: RwLock<()>,
}

#[derive(Debug, Default)]
struct Users {
    /// How many revisions, kept or on their way, have each.
    counts: BTreeMap<Digest, u32>,
    /// Those that the last user gave up since the last sweep.
    unused: BTreeSet<Digest>,
}

impl Components {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join("components"),
            shared: Arc::default(),
        }
    }

    /// Where it is, whether or not it is there.
    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.wasm"))
    }

    /// Keeps a component, which somebody must hold already, and what was found beside it.
    /// Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(&self, artifact: &Artifact) -> anyhow::Result<PathBuf> {
        let files = self.shared.files.read();
        let _files = files.unwrap_or_else(PoisonError::into_inner);
        let path = self.path(artifact.digest);
        if !artifact.provenance.is_empty() {
            let beside = self.provenance(artifact.digest);
            replace(&beside, &artifact.provenance.to_json())?;
        }
        let bytes = &artifact.bytes;
        let is_there = std::fs::metadata(&path).is_ok_and(|file| file.len() == bytes.len() as u64);
        if !is_there {
            replace(&path, bytes)?;
        }
        Ok(path)
    }

    fn provenance(&self, digest: Digest) -> PathBuf {
        let ending = Provenance::ENDING;
        self.folder.join(format!("{digest}.wasm{ending}"))
    }

    /// A revision has it, until it is released or let go.
    pub(crate) fn hold(&self, digest: Digest) {
        *self.users().counts.entry(digest).or_default() += 1;
    }

    /// A revision that had it is no more. Without a user it goes with the next sweep.
    pub(crate) fn release(&self, digest: Digest) {
        let mut users = self.users();
        if users.is_last(digest) {
            users.unused.insert(digest);
        }
    }

    /// Whoever had it ends, and its revision is kept all the same.
    pub(crate) fn let_go(&self, digest: Digest) {
        self.users().is_last(digest);
    }

    /// Removes what was released and has no user. Blocks.
    pub(crate) fn sweep(&self) {
        if self.users().unused.is_empty() {
            return;
        }
        let files = self.shared.files.write();
        let _files = files.unwrap_or_else(PoisonError::into_inner);
        let unused = std::mem::take(&mut self.users().unused);
        for digest in unused {
            if !self.users().counts.contains_key(&digest) {
                // What stays is found again by the next one with these bytes.
                let _ = std::fs::remove_file(self.path(digest));
                let _ = std::fs::remove_file(self.provenance(digest));
            }
        }
    }

    /// Removes what no book names and nobody has, halves of files that a crash has left
    /// among it; how many files. Blocks. When a book cannot be read, all stays.
    pub(crate) fn sweep_all(&self, state_dir: &Path) -> usize {
        let files = self.shared.files.write();
        let _files = files.unwrap_or_else(PoisonError::into_inner);
        let (Ok(named), Ok(entries)) = (named_in_books(state_dir), std::fs::read_dir(&self.folder))
        else {
            return 0;
        };
        let is_wanted = |path: &Path| {
            // `DIGEST.wasm`, and what was found beside it.
            let name = path.file_name().and_then(|name| name.to_str());
            let digest = name.and_then(|name| name.split('.').next());
            let digest = digest.and_then(|digest| digest.parse::<Digest>().ok());
            digest.is_some_and(|digest| {
                named.contains(&digest) || self.users().counts.contains_key(&digest)
            })
        };
        let unwanted = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| !is_wanted(path));
        unwanted
            .filter(|path| std::fs::remove_file(path).is_ok())
            .count()
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        let users = self.shared.users.lock();
        users.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Users {
    /// One less.
    fn is_last(&mut self, digest: Digest) -> bool {
        let Some(count) = self.counts.get_mut(&digest) else {
            return false;
        };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(&digest);
        }
        is_last
    }
}

/// A component that a deployment has, to its end.
#[derive(Debug)]
pub(crate) struct HeldComponent {
    components: Components,
    digest: Digest,
}

impl HeldComponent {
    pub(crate) fn new(components: &Components, digest: Digest) -> Self {
        components.hold(digest);
        Self {
            components: components.clone(),
            digest,
        }
    }
}

impl Drop for HeldComponent {
    fn drop(&mut self) {
        self.components.release(self.digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(bytes: &'static [u8]) -> Artifact {
        Artifact::new(bytes.into())
    }

    #[test]
    fn many_plugins_keep_one_component_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let components = Components::new(folder.path());
        let bytes = vec![7; 1 << 20];
        let artifact = Artifact::new(bytes.clone().into());
        std::thread::scope(|scope| {
            let put = || components.put(&artifact);
            let all: Vec<_> = (0..16).map(|_| scope.spawn(put)).collect();
            for one in all {
                let path = one.join().expect("no panic").expect("written");
                assert_eq!(std::fs::read(path).expect("there"), bytes);
            }
        });
        let files = std::fs::read_dir(folder.path().join("components"));
        assert_eq!(
            files.expect("a folder").count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn component_without_a_kept_revision_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let components = Components::new(folder.path());
        let digest = Digest::of(b"x");
        components.hold(digest);
        let path = components.put(&artifact(b"x")).expect("written");
        let held = HeldComponent::new(&components, digest);
        components.release(digest);
        components.sweep();
        assert!(path.exists(), "a deployment has it");
        drop(held);
        components.hold(digest);
        components.sweep();
        assert!(path.exists(), "somebody has it again");
        components.release(digest);
        components.sweep();
        assert!(!path.exists());
    }

    #[test]
    fn what_no_book_names_and_nobody_has_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let components = Components::new(folder.path());
        let put = |bytes: &'static [u8]| {
            let written = components.put(&artifact(bytes));
            written.expect("written")
        };
        let (left, held, let_go) = (put(b"left"), put(b"held"), put(b"let go"));
        let half = folder.path().join("components/.tmpAbC");
        std::fs::write(&half, "ha").expect("written");
        let _held = HeldComponent::new(&components, Digest::of(b"held"));
        let book = folder.path().join("revisions/t/p.json");
        std::fs::create_dir_all(book.parent().expect("a folder")).expect("made");
        std::fs::write(&book, "{").expect("written");
        assert_eq!(components.sweep_all(folder.path()), 0, "a book is damaged");
        let page = format!(
            "{{\"version\":1,\"next_number\":2,\"kept\":[{{\"number\":1,\"revision\":\"\",\"component\":\"{}\",\"manifest\":\"\",\"file\":\"\",\"by\":\"\",\"at_ms\":0}}],\"refused\":[]}}",
            Digest::of(b"let go")
        );
        std::fs::write(&book, page).expect("written");

        assert_eq!(components.sweep_all(folder.path()), 2);

        assert!(!left.exists() && !half.exists());
        assert!(held.exists() && let_go.exists());
    }
}
