//! Components of kept revisions, by their digest: what serves does not need the file it
//! came from, and a file that changes under way is never half used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plugin_lifecycle::Digest;
use plugin_lifecycle::artifact::Artifact;
use plugin_lifecycle::signature::Provenance;

use super::replace;

/// `state_dir/components`. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Components {
    folder: PathBuf,
    /// How many kept revisions have each; what none has is removed.
    users: Arc<Mutex<BTreeMap<Digest, u32>>>,
}

impl Components {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join("components"),
            users: Arc::default(),
        }
    }

    /// Where it is, whether or not it is there.
    pub(crate) fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.wasm"))
    }

    /// Keeps a component and what was found beside it. Blocks.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(&self, artifact: &Artifact) -> anyhow::Result<PathBuf> {
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

    /// A kept revision has it.
    pub(crate) fn hold(&self, digest: Digest) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users.entry(digest).or_default() += 1;
    }

    /// A revision that had it is kept no more.
    pub(crate) fn release(&self, digest: Digest) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = users.get_mut(&digest) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            users.remove(&digest);
            // What stays is found again by the next one with these bytes.
            let _ = std::fs::remove_file(self.path(digest));
            let _ = std::fs::remove_file(self.provenance(digest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
