//! Components that were brought over the API and are to be deployed by their path: the
//! last few, until others come. What is deployed is kept by [`super::components`].

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plugin_lifecycle::Digest;

use super::replace;

/// Each has at most the size of a component.
const UPLOADS_MAX: usize = 8;

/// `state_dir/uploads`.
#[derive(Clone, Debug)]
pub(crate) struct Uploads(PathBuf);

impl Uploads {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("uploads"))
    }

    /// Keeps bytes; returns their path, which is absolute. Blocks.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn put(&self, digest: Digest, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = std::path::absolute(self.0.join(format!("{digest}.wasm")))?;
        replace(&path, bytes)?;
        self.remove_oldest();
        Ok(path)
    }

    /// What cannot be looked at or removed is left.
    fn remove_oldest(&self) {
        let Ok(entries) = std::fs::read_dir(&self.0) else {
            return;
        };
        let mut kept: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        kept.sort();
        let superfluous = kept.len().saturating_sub(UPLOADS_MAX);
        for (_, path) in kept.drain(..superfluous) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let uploads = Uploads::new(folder.path());
        let mut last = PathBuf::new();
        for number in 0..20_u8 {
            last = uploads
                .put(Digest::of(&[number]), &[number])
                .expect("written");
        }
        let files = std::fs::read_dir(folder.path().join("uploads")).expect("a folder");
        assert_eq!(files.count(), UPLOADS_MAX);
        assert_eq!(std::fs::read(last).expect("the last one"), [19]);
    }
}
