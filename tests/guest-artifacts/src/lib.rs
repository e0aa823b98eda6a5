//! Paths of the built test guests.
//!
//! This crate builds nothing: guests are built before the tests, by `cargo xtask
//! guests` (a build script would wait for the lock of the cargo that runs it). A guest
//! that is missing or older than its source is a failure that says so, never a skipped
//! test. What each guest does stands at the top of its source in `tests/guests`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Path of a guest's component, named as its source: `path("succeed")`.
///
/// # Panics
/// When there is no such guest, or it is not built, or its source is newer.
pub fn path(name: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let artifact = repository
        .join("target/guests")
        .join(name)
        .with_extension("wasm");
    let source = source(&repository.join("tests/guests"), name);
    match (modified(&artifact), source.as_deref().and_then(modified)) {
        (Some(_), None) if name == CORE_MODULE => artifact,
        (_, None) => panic!("there is no guest \"{name}\" in tests/guests"),
        (Some(built), Some(written)) if built >= written => artifact,
        (built, _) => panic!(
            "guest {name} is {}; run `cargo xtask guests`",
            if built.is_some() {
                "older than its source"
            } else {
                "not built"
            }
        ),
    }
}

/// Bytes of a guest's component.
///
/// # Panics
/// As [`path`], and when the file cannot be read.
pub fn bytes(name: &str) -> Vec<u8> {
    let path = path(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// The one guest without a source of its own: a module that is no component.
const CORE_MODULE: &str = "core_module";

fn source(guests: &Path, name: &str) -> Option<PathBuf> {
    ["examples/NAME.rs", "c/NAME.c", "javascript/NAME.js"]
        .into_iter()
        .map(|file| guests.join(file.replace("NAME", name)))
        .find(|file| file.exists())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_of_every_language_is_there() {
        const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
        for name in ["succeed", "respond", "respond_c", "respond_javascript"] {
            assert!(bytes(name).starts_with(HEADER), "{name} is a component");
        }
        assert!(!bytes(CORE_MODULE).starts_with(HEADER));
    }

    #[test]
    #[should_panic(expected = "there is no guest \"sucseed\"")]
    fn mistyped_name_is_a_failure() {
        path("sucseed");
    }
}
