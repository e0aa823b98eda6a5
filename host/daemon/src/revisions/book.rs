//! The revisions of one plugin: numbered, the last ones kept for a rollback, which of them
//! serves, what the folder of manifests said last, and what a command has put in its place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plugin_lifecycle::{Digest, Manifest, RevisionId};
use serde::{Deserialize, Serialize};

use super::components::Components;
use super::{now_ms, replace};

/// Revisions of a plugin that are kept.
pub(crate) const KEPT_MAX: usize = 10;
/// Deployments whose outcome is awaited.
const COMING_MAX: usize = 32;
/// Of this layout; another one is not read.
const VERSION: u32 = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    file: PathBuf,
    components: Components,
    page: Page,
    /// Deployed, and not yet seen to serve: they get their numbers when they do.
    coming: Vec<Coming>,
}

#[derive(Debug)]
struct Coming {
    revision: RevisionId,
    component: Digest,
    manifest: Manifest,
    by: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Page {
    version: u32,
    next_number: u64,
    serving: Option<u64>,
    /// What served before that.
    previous: Option<u64>,
    kept: Vec<Kept>,
    refused: Vec<Refused>,
    /// What the manifest and its component were when they were applied last.
    applied: Option<String>,
    pin: Option<Pin>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            version: VERSION,
            next_number: 1,
            serving: None,
            previous: None,
            kept: Vec::new(),
            refused: Vec::new(),
            applied: None,
            pin: None,
        }
    }
}

/// One revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// From 1; never used twice.
    pub(crate) number: u64,
    /// Its identity, all 64 digits.
    pub(crate) revision: String,
    /// Digest of its component.
    pub(crate) component: String,
    /// Text of its manifest.
    pub(crate) manifest: String,
    /// Where that stood.
    pub(crate) file: PathBuf,
    /// Where its component came from.
    #[serde(default)]
    pub(crate) source: String,
    /// Who or what asked for it first.
    pub(crate) by: String,
    /// When.
    pub(crate) at_ms: u64,
}

/// Taken back by itself, and not to serve again by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) revision: String,
    pub(crate) reason: String,
}

/// What a command has put in the place of the folder's manifest, until that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Pin {
    /// Who asked.
    pub(crate) by: String,
    /// When.
    pub(crate) at_ms: u64,
    /// The plugin does not serve at all.
    #[serde(default)]
    pub(crate) is_removed: bool,
}

impl Book {
    /// Opens the book of a plugin, or begins one. Blocks. The second value says why one
    /// that is there is not used. The components of its revisions are held while it lives.
    pub(crate) fn open(
        state_dir: &Path,
        tenant: &str,
        plugin: &str,
        components: &Components,
    ) -> (Self, Option<anyhow::Error>) {
        let file = state_dir
            .join("revisions")
            .join(tenant)
            .join(format!("{plugin}.json"));
        let (page, damage) = match read(&file) {
            Ok(page) => (page.unwrap_or_default(), None),
            Err(error) => (Page::default(), Some(error)),
        };
        for kept in &page.kept {
            if let Ok(digest) = kept.component.parse() {
                components.hold(digest);
            }
        }
        let book = Self {
            file,
            components: components.clone(),
            page,
            coming: Vec::new(),
        };
        (book, damage)
    }

    /// By number, oldest first.
    pub(crate) fn kept(&self) -> &[Kept] {
        &self.page.kept
    }

    pub(crate) fn refused(&self) -> &[Refused] {
        &self.page.refused
    }

    pub(crate) fn pin(&self) -> Option<&Pin> {
        self.page.pin.as_ref()
    }

    pub(crate) fn applied(&self) -> Option<&str> {
        self.page.applied.as_deref()
    }

    /// What served last.
    pub(crate) fn serving(&self) -> Option<&Kept> {
        self.numbered(self.page.serving?)
    }

    pub(crate) fn numbered(&self, number: u64) -> Option<&Kept> {
        self.page.kept.iter().find(|kept| kept.number == number)
    }

    /// The newest revision that a manifest of a component elsewhere led to: its bytes are
    /// here.
    pub(crate) fn fetched_for(&self, manifest: &Manifest) -> Option<&Kept> {
        let source = manifest.component().to_string();
        let mut kept = self.page.kept.iter().rev();
        kept.find(|kept| kept.source == source && kept.manifest == manifest.text())
    }

    /// The number of a revision that is kept.
    pub(crate) fn number_of(&self, revision: RevisionId) -> Option<u64> {
        let revision = revision.digest().to_string();
        let mut kept = self.page.kept.iter();
        kept.find(|kept| kept.revision == revision)
            .map(|kept| kept.number)
    }

    /// A revision is deployed; it is kept when it gets calls.
    pub(crate) fn announce(
        &mut self,
        revision: RevisionId,
        component: Digest,
        manifest: &Manifest,
        by: &str,
    ) {
        if self.coming.len() == COMING_MAX {
            let oldest = self.coming.remove(0);
            self.components.release(oldest.component);
        }
        self.components.hold(component);
        self.coming.push(Coming {
            revision,
            component,
            manifest: manifest.clone(),
            by: by.to_owned(),
        });
    }

    /// What was announced has failed.
    pub(crate) fn give_up(&mut self, revision: RevisionId) {
        let place = self.coming.iter().rposition(|one| one.revision == revision);
        if let Some(place) = place {
            let failed = self.coming.remove(place);
            self.components.release(failed.component);
        }
    }

    /// A revision gets calls: its number, a new one if it is new. `None`: nobody has
    /// announced it.
    pub(crate) fn keep(&mut self, revision: RevisionId) -> Option<u64> {
        let known = self.number_of(revision);
        let place = self.coming.iter().rposition(|one| one.revision == revision);
        let coming = place.map(|place| self.coming.remove(place));
        if known.is_some() {
            if let Some(coming) = coming {
                self.components.release(coming.component);
            }
            return known;
        }
        // Its component was held when it was announced.
        let Coming {
            component,
            manifest,
            by,
            ..
        } = coming?;
        let number = self.page.next_number;
        self.page.next_number += 1;
        self.page.kept.push(Kept {
            number,
            revision: revision.digest().to_string(),
            component: component.to_string(),
            manifest: manifest.text().to_owned(),
            file: manifest.file().to_owned(),
            source: manifest.component().to_string(),
            by,
            at_ms: now_ms(),
        });
        while self.page.kept.len() > KEPT_MAX {
            // Never the one that serves and the one to go back to, however old they are.
            let in_use = [self.page.serving, self.page.previous];
            let mut kept = self.page.kept.iter();
            let oldest = kept.position(|kept| !in_use.contains(&Some(kept.number)));
            let oldest = self.page.kept.remove(oldest.unwrap_or_default());
            if let Ok(digest) = oldest.component.parse() {
                self.components.release(digest);
            }
        }
        Some(number)
    }

    /// This revision has the calls.
    pub(crate) fn set_serving(&mut self, revision: RevisionId) {
        let number = self.keep(revision);
        if number.is_some() && number != self.page.serving {
            self.page.previous = self.page.serving.take();
            self.page.serving = number;
        }
    }

    /// What served before what serves now.
    pub(crate) fn previous(&self) -> Option<&Kept> {
        self.numbered(self.page.previous?)
    }

    pub(crate) fn refuse(&mut self, revision: RevisionId, reason: &str) {
        self.allow(revision);
        self.page.refused.push(Refused {
            revision: revision.digest().to_string(),
            reason: reason.to_owned(),
        });
        let superfluous = self
            .page
            .refused
            .len()
            .saturating_sub(plugin_lifecycle::lifecycle::REFUSED_MAX);
        self.page.refused.drain(..superfluous);
    }

    pub(crate) fn allow(&mut self, revision: RevisionId) {
        let revision = revision.digest().to_string();
        self.page.refused.retain(|one| one.revision != revision);
    }

    pub(crate) fn set_applied(&mut self, fingerprint: &str) {
        self.page.applied = Some(fingerprint.to_owned());
    }

    pub(crate) fn set_pin(&mut self, pin: Option<Pin>) {
        self.page.pin = pin;
    }

    /// The manifest that runs a kept revision: its text, its component from the store.
    ///
    /// # Errors
    /// It is not understood (any more).
    pub(crate) fn manifest_of(&self, kept: &Kept) -> anyhow::Result<Manifest> {
        let manifest = Manifest::parse(&kept.file, &kept.manifest)
            .with_context(|| format!("revision {} is not understood any more", kept.number))?;
        let digest: Digest = kept.component.parse()?;
        Ok(manifest.kept_at(self.components.path(digest), digest))
    }

    /// What is to be written down.
    pub(super) fn page(&self) -> &Page {
        &self.page
    }

    /// Where.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn components(&self) -> &Components {
        &self.components
    }
}

/// Its revisions are still kept, on the disk.
impl Drop for Book {
    fn drop(&mut self) {
        for kept in &self.page.kept {
            if let Ok(digest) = kept.component.parse() {
                self.components.let_go(digest);
            }
        }
        for coming in &self.coming {
            self.components.release(coming.component);
        }
    }
}

impl Page {
    /// Replaces what was written before. Blocks.
    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        replace(file, &serde_json::to_vec_pretty(self)?)
    }
}

/// The components of all revisions that are kept, whether or not their plugins are still
/// there. Blocks.
///
/// # Errors
/// A book cannot be read: it may name more.
pub(super) fn named_in_books(state_dir: &Path) -> anyhow::Result<BTreeSet<Digest>> {
    let mut named = BTreeSet::new();
    let tenants = match std::fs::read_dir(state_dir.join("revisions")) {
        Ok(tenants) => tenants,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(named),
        Err(error) => return Err(error.into()),
    };
    for tenant in tenants {
        for book in std::fs::read_dir(tenant?.path())? {
            let book = book?.path();
            // What a crash has left of a book that was being written is none.
            if book.extension().is_some_and(|end| end == "json")
                && let Some(page) = read(&book)?
            {
                let components = page
                    .kept
                    .iter()
                    .map(|kept| kept.component.parse::<Digest>());
                named.extend(components.flatten());
            }
        }
    }
    Ok(named)
}

fn read(file: &Path) -> anyhow::Result<Option<Page>> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let page: Page =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", file.display()))?;
    anyhow::ensure!(
        page.version == VERSION,
        "{} has version {}, and this mqlet reads version {VERSION}",
        file.display(),
        page.version
    );
    Ok(Some(page))
}

#[cfg(test)]
mod tests {
    use plugin_lifecycle::artifact::Artifact;

    use super::*;

    fn manifest(settings: &str) -> Manifest {
        let text = format!(
            "name = \"p\"\ncomponent = \"p.wasm\"\nconsumer_group = \"g\"\n[[subscription]]\ntopic = \"t\"\n[settings]\na = {settings:?}\n"
        );
        Manifest::parse(Path::new("p.toml"), &text).expect("valid")
    }

    fn keep(book: &mut Book, settings: &str) -> (u64, RevisionId) {
        let manifest = manifest(settings);
        let component = Digest::of(b"code");
        let revision = RevisionId::new(component, &manifest);
        book.announce(revision, component, &manifest, "test");
        (book.keep(revision).expect("announced"), revision)
    }

    #[test]
    fn revisions_are_numbered_kept_and_found_again_by_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let components = Components::new(folder.path());
        let path = components
            .put(&Artifact::new(b"code".as_slice().into()))
            .expect("written");
        let (mut book, damage) = Book::open(folder.path(), "t", "p", &components);
        assert!(damage.is_none());
        let (first, revision) = keep(&mut book, "one");
        assert_eq!((first, keep(&mut book, "two").0), (1, 2));
        assert_eq!(
            keep(&mut book, "one").0,
            1,
            "the same one has the same number"
        );
        book.set_serving(revision);
        for number in 3..20 {
            assert_eq!(keep(&mut book, &number.to_string()).0, number);
        }
        assert_eq!(book.kept().len(), KEPT_MAX);
        assert_eq!(book.kept()[0].number, 1, "it serves");
        book.refuse(revision, "trouble");
        book.page().write(book.file()).expect("written");

        let (again, damage) = Book::open(folder.path(), "t", "p", &components);

        assert!(damage.is_none());
        assert_eq!(again.page, book.page);
        let serving = again.serving().expect("the first one");
        let runs = again.manifest_of(serving).expect("understood");
        assert_eq!(runs.component_bytes_at(), Some(&*path));
        assert_eq!(RevisionId::new(Digest::of(b"code"), &runs), revision);
    }

    #[test]
    fn damaged_book_is_said_and_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("revisions/t/p.json");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        let components = Components::new(folder.path());
        for text in ["{", "{\"version\": 9}"] {
            std::fs::write(&file, text).expect("written");
            let (book, damage) = Book::open(folder.path(), "t", "p", &components);
            assert!(book.kept().is_empty());
            let damage = format!("{:#}", damage.expect("said"));
            assert!(damage.contains("p.json"), "{damage}");
        }
    }
}
