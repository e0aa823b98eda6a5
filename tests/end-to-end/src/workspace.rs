//! Where the tree and the built programs are.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lives two folders below the root")
        .to_path_buf()
}

/// The `mqlet` binary of the profile that this program was built with: a test in
/// `target/PROFILE/deps`, or a program in `target/PROFILE`.
///
/// # Panics
/// When it was not built: a test of the whole workspace builds it first.
pub fn mqlet() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    let folder = program.parent().expect("a program is in a folder");
    let profile = match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().expect("programs live in target/PROFILE"),
        _ => folder,
    };
    let binary = profile.join("mqlet");
    assert!(
        binary.exists(),
        "{} is missing: run `cargo build --workspace` first",
        binary.display()
    );
    binary
}

/// A cache folder for the hosts of all tests, so that a guest is compiled once.
///
/// # Panics
/// As [`mqlet`].
pub fn cache() -> PathBuf {
    mqlet()
        .parent()
        .expect("the binary is in a folder")
        .join("end-to-end-cache")
}
