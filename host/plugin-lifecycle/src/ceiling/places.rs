//! Where a tenant's plugins may read on the host: folders and variables of the environment.

use std::path::{Component, Path, PathBuf};

use crate::document::Section;
use crate::manifest::grants::named;
use crate::problem::{Place, beside};

/// Folders, with everything in them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Folders(Vec<PathBuf>);

impl Folders {
    /// Relative ones begin at the file.
    pub(super) fn read(section: &Section<'_, '_>, key: &'static str) -> Self {
        let folders = section.or(key, Vec::new(), |value| {
            named(value, "name folders that plugins may read")
        });
        let folders = folders.iter().map(Path::new);
        Self(match section.place(key) {
            Place::File { file, .. } => folders.map(|folder| beside(&file, folder)).collect(),
            _ => folders.map(Path::to_owned).collect(),
        })
    }

    /// Compares where both really are: a link leads nowhere that could not be named.
    pub(super) fn contain(&self, path: &Path) -> bool {
        let Some(path) = real(path) else {
            return false;
        };
        let mut folders = self.0.iter().filter_map(|folder| real(folder));
        folders.any(|folder| path.starts_with(folder))
    }
}

/// Without links and `..`; of what is not there, what is there of it. `None`: nobody can
/// say.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let path = std::path::absolute(path).ok()?;
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    for folder in path.ancestors() {
        if let Ok(real) = folder.canonicalize() {
            return Some(real.join(path.strip_prefix(folder).ok()?));
        }
        if folder.symlink_metadata().is_ok() {
            // A link to what is not there may lead anywhere tomorrow.
            return None;
        }
    }
    None
}

/// Names of variables; one that ends with `*` stands for all that begin so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Variables(Vec<String>);

impl Variables {
    pub(super) fn read(section: &Section<'_, '_>, key: &'static str) -> Self {
        Self(section.or(key, Vec::new(), |value| {
            named(
                value,
                "name variables that secrets may be in, for example SHOP_*",
            )
        }))
    }

    pub(super) fn contain(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_or_begin_so() {
        let variables = Variables(vec!["SHOP_*".to_owned(), "REGION".to_owned()]);
        assert!(variables.contain("SHOP_KEY") && variables.contain("REGION"));
        assert!(!variables.contain("REGION_2") && !variables.contain("BANK_KEY"));
    }

    #[test]
    fn links_and_dots_lead_out_of_no_folder() {
        let all = tempfile::tempdir().unwrap();
        let (shop, bank) = (all.path().join("shop"), all.path().join("bank"));
        for folder in [&shop, &bank] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("key"), "k").unwrap();
        }
        std::os::unix::fs::symlink(&bank, shop.join("link")).unwrap();
        std::os::unix::fs::symlink(&shop, all.path().join("also-shop")).unwrap();
        let folders = Folders(vec![shop.clone()]);
        std::os::unix::fs::symlink("/not/there", shop.join("dangling")).unwrap();
        assert!(!folders.contain(&shop.join("dangling")));
        assert!(folders.contain(&shop));
        assert!(folders.contain(&shop.join("key")));
        assert!(folders.contain(&all.path().join("also-shop/key")));
        assert!(folders.contain(&shop.join("not-there/yet")));
        assert!(!folders.contain(&shop.join("link/key")));
        assert!(!folders.contain(&shop.join("link/not-there")));
        assert!(!folders.contain(&shop.join("../bank/key")));
        assert!(!folders.contain(&shop.join("not-there/../../bank/key")));
        assert!(!folders.contain(&all.path().join("shopping")));
        assert!(!Folders::default().contain(&shop));
    }
}
