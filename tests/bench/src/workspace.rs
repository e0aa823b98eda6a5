//! Where things are: the tree, the guests, the other programs of this build.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The top folder of the repository that this was built from.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Where `cargo xtask guests` puts this guest.
pub(crate) fn guest(name: &str) -> PathBuf {
    root()
        .join("target/guests")
        .join(name)
        .with_extension("wasm")
}

/// The `mqlet` of the same build.
///
/// # Errors
/// When it was not built.
pub(crate) fn mqlet() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program has no path")?;
    let mqlet = this.with_file_name("mqlet");
    ensure!(
        mqlet.exists(),
        "{} is missing; `cargo xtask bench` builds it",
        mqlet.display()
    );
    Ok(mqlet)
}
