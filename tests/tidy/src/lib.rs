//! The house rules that a program can check.
//!
//! The rules are the tests in `tests/`; this library only finds files. A rule says in
//! its failure what to do, and where the reason stands.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are nobody's source.
const LEFT_OUT: [&str; 4] = ["target", ".git", "node_modules", "testdata"];

/// The top folder of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Every file below the top folder with one of these extensions, relative to it, in
/// order. Build output, vendored and recorded files are left out.
///
/// # Panics
/// When a folder cannot be read.
pub fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = folder
            .read_dir()
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
            {
                found.push(path.strip_prefix(&root).unwrap_or(&path).to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The text of a file below the top folder.
///
/// # Panics
/// When it cannot be read as text.
pub fn text(file: &Path) -> String {
    fs::read_to_string(root().join(file))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Fails with every violation, one a line.
///
/// # Panics
/// When there is one.
pub fn assert_none(violations: &[String], remedy: &str) {
    assert!(
        violations.is_empty(),
        "\n{}\n{remedy}\n",
        violations.join("\n")
    );
}
