//! Where things are in this repository.

use std::path::{Path, PathBuf};

/// The top folder.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// The contract.
pub(crate) fn wit() -> PathBuf {
    root().join("wit")
}

/// Sources of the test guests.
pub(crate) fn guest_sources() -> PathBuf {
    root().join("tests/guests")
}

/// Built test guests; `guest-artifacts` looks here.
pub(crate) fn guest_artifacts() -> PathBuf {
    root().join("target/guests")
}

/// What installs everything beyond Rust.
pub(crate) fn install_script() -> PathBuf {
    root().join("tests/toolchain/install.sh")
}

/// Where that script puts commands.
pub(crate) fn toolchain_commands() -> anyhow::Result<PathBuf> {
    if let Some(prefix) = std::env::var_os("MQLET_TOOLCHAIN") {
        return Ok(PathBuf::from(prefix).join("bin"));
    }
    let home = std::env::home_dir()
        .ok_or_else(|| anyhow::anyhow!("no home folder; set MQLET_TOOLCHAIN to a folder"))?;
    Ok(home.join(".cache/mqlet/toolchain/bin"))
}
