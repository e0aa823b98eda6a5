//! Where manifests lie: a tenant's folder (`DIR/*.toml`, `DIR/*/plugin.toml`) or one
//! plugin's; and what must hold between the plugins of one folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use crate::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::problem::{Fault, Problem, Problems};

/// A plugin's manifest in its own folder.
pub const MANIFEST_FILE_NAME: &str = "plugin.toml";
/// More plugins in one folder are refused.
pub const PLUGINS_MAX: usize = 100_000;

/// All manifests of a tenant's folder, by path, and every problem of them and between
/// them. A manifest with a problem of its own is not in the list.
pub fn load(folder: &Path) -> (Vec<Manifest>, Vec<Problem>) {
    let files = match list(folder) {
        Ok(files) => files,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let mut problems = Vec::new();
    if files.is_empty() {
        problems.push(Problem::of_file(
            folder,
            "holds no manifest",
            format!(
                "put one in it, as NAME.toml or NAME/{MANIFEST_FILE_NAME}, or name another folder"
            ),
        ));
    }
    let mut manifests = Vec::new();
    for file in files {
        match Manifest::load(&file) {
            Ok(manifest) => manifests.push(manifest),
            Err(Problems(of_file)) => problems.extend(of_file),
        }
    }
    problems.extend(conflicts(&manifests));
    (manifests, problems)
}

/// The manifest that a person means by a path: the file itself, or a folder's
/// `plugin.toml`.
///
/// # Errors
/// When there is none.
pub fn find(path: &Path) -> Result<PathBuf, Problem> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let file = path.join(MANIFEST_FILE_NAME);
            if file.is_file() {
                Ok(file)
            } else {
                Err(Problem::of_file(
                    path,
                    format!("has no {MANIFEST_FILE_NAME}"),
                    "name a plugin's folder or its manifest",
                ))
            }
        }
        Ok(_) => Ok(path.to_owned()),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// What must hold between the plugins of one tenant: one name, one group each.
/// RocketMQ registers a group once per client; a second listener would get the
/// messages of the first one's subscription.
pub fn conflicts(manifests: &[Manifest]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut names: BTreeMap<&str, &Manifest> = BTreeMap::new();
    let mut groups: BTreeMap<&str, &Manifest> = BTreeMap::new();
    for manifest in manifests {
        if let Some(first) = names.get(manifest.name().as_str()) {
            problems.push(manifest.name_problem(Fault::new(
                format!(
                    "is the name of another plugin too ({})",
                    first.file().display()
                ),
                "give one of the two another name",
            )));
        } else {
            names.insert(manifest.name().as_str(), manifest);
        }
        if let Some(first) = groups.get(manifest.consumer_group()) {
            problems.push(manifest.consumer_group_problem(shared_group(manifest, first)));
        } else {
            groups.insert(manifest.consumer_group(), manifest);
        }
    }
    problems
}

/// Two plugins on one group of one cluster.
pub fn shared_group(second: &Manifest, first: &Manifest) -> Fault {
    Fault::new(
        format!(
            "plugin \"{}\" is on the group of plugin \"{}\" ({}), and a group has one plugin in a host",
            second.name(),
            first.name(),
            first.file().display()
        ),
        "give one of the two a group of its own, or subscribe to both topics in one plugin",
    )
}

/// The text of a file that a person wrote.
///
/// # Errors
/// Why it cannot be used.
pub fn read(file: &Path) -> Result<String, Problem> {
    let opened = fs::File::open(file).map_err(|error| unreadable(file, &error))?;
    let mut bytes = Vec::new();
    opened
        .take(MANIFEST_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(file, &error))?;
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(Problem::of_file(
            file,
            "is larger than 1 MiB",
            "name a manifest; this looks like another file",
        ));
    }
    if bytes.starts_with(b"\0asm") {
        return Err(Problem::of_file(
            file,
            "is WebAssembly, not a manifest",
            "name the manifest whose component it is",
        ));
    }
    String::from_utf8(bytes).map_err(|_| {
        Problem::of_file(
            file,
            "is not UTF-8 text",
            "save it as UTF-8, or name another file",
        )
    })
}

/// The manifests of a folder, by path. Hidden entries are none: Kubernetes keeps the
/// files of a config map in `..data` and links to them.
///
/// # Errors
/// The folder cannot be read, or holds too many.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(folder, &error))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            let file = path.join(MANIFEST_FILE_NAME);
            if file.is_file() {
                files.push(file);
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
        if files.len() > PLUGINS_MAX {
            return Err(Problem::of_file(
                folder,
                format!("holds more than {PLUGINS_MAX} manifests"),
                "divide them among tenants",
            ));
        }
    }
    files.sort();
    Ok(files)
}

/// Why a file or folder could not be opened, in words.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    let (what, remedy) = match error.kind() {
        ErrorKind::NotFound => ("does not exist", "correct the path, or create it"),
        ErrorKind::PermissionDenied => ("may not be read", "give this user the right to read it"),
        ErrorKind::NotADirectory => ("is not a folder", "name a folder"),
        ErrorKind::IsADirectory => ("is a folder", "name a file"),
        _ => {
            return Problem::of_file(
                path,
                format!("cannot be read: {error}"),
                "correct the path, or look at the disk",
            );
        }
    };
    Problem::of_file(path, what, remedy)
}
