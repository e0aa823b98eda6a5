//! What a folder of manifests says, and by what it is known that it says something else.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plugin_lifecycle::Manifest;
use plugin_lifecycle::manifest::folder;
use plugin_lifecycle::problem::{Problem, Problems};
use plugin_lifecycle::{Digest, preflight};

/// A look at a folder.
#[derive(Debug, Default)]
pub(super) struct Desired {
    /// Everything that is a manifest by its name, readable or not.
    pub(super) files: Vec<PathBuf>,
    /// Those that are in order, and their fingerprints.
    pub(super) manifests: Vec<(Manifest, String)>,
    /// Of the others, by file.
    pub(super) problems: Vec<(PathBuf, String)>,
}

/// What was read before, by manifest: files that are the same are not read again.
pub(super) type Seen = BTreeMap<PathBuf, (Option<Stamp>, Option<Stamp>, Manifest, String)>;

/// By what a file that was written is known, without reading it.
type Stamp = (SystemTime, u64, u64);

fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// `None` too for one that is not on this machine: it does not change under its name.
fn stamp_of_component(manifest: &Manifest) -> Option<Stamp> {
    stamp(manifest.component().file()?)
}

/// Looks at a folder. Blocks.
///
/// # Errors
/// The folder cannot be read: nothing is known.
pub(super) fn look(of: &Path, seen: &mut Seen) -> Result<Desired, Problem> {
    let mut desired = Desired {
        files: folder::list(of)?,
        ..Desired::default()
    };
    for file in &desired.files {
        // A file that somebody has just begun to write.
        if std::fs::metadata(file).is_ok_and(|file| file.len() == 0) {
            let reason = format!("{}: is empty", file.display());
            desired.problems.push((file.clone(), reason));
            continue;
        }
        let stamp_of_file = stamp(file);
        if let Some((of_file, of_component, manifest, fingerprint)) = seen.get(file)
            && of_file.is_some()
            && *of_file == stamp_of_file
            && *of_component == stamp_of_component(manifest)
        {
            let known = (manifest.clone(), fingerprint.clone());
            desired.manifests.push(known);
            continue;
        }
        match Manifest::load(file) {
            Ok(manifest) => {
                // Before it is read: what changes meanwhile is read again.
                let of_component = stamp_of_component(&manifest);
                let fingerprint = fingerprint_of(&manifest);
                let read = (
                    stamp_of_file,
                    of_component,
                    manifest.clone(),
                    fingerprint.clone(),
                );
                seen.insert(file.clone(), read);
                desired.manifests.push((manifest, fingerprint));
            }
            Err(Problems(problems)) => {
                let reason = Problems(problems).to_string();
                desired.problems.push((file.clone(), reason));
            }
        }
    }
    seen.retain(|file, _| desired.files.binary_search(file).is_ok());
    Ok(desired)
}

/// Of a manifest and the component that it names. Blocks.
pub(super) fn fingerprint_of(manifest: &Manifest) -> String {
    let component = match preflight::fetch(manifest) {
        Ok(artifact) => artifact.digest.to_string(),
        // Whatever is wrong with it is said when it is deployed.
        Err(_) => "none".to_owned(),
    };
    Digest::of(format!("{component} {}", manifest.text()).as_bytes()).to_string()
}
