//! What compiles Rust to WebAssembly on this machine.
//!
//! First choice is a toolchain whose standard library for `wasm32-wasip2` is
//! installed (rustup's target). Where toolchains cannot be downloaded, Debian's
//! packages have a compiler together with the sources of its own standard library,
//! which cargo then builds along with the first plugin. Both ways give the same
//! behaviour: standard output, clocks and random numbers come from WASI.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of a toolchain that brings its standard library along.
const INSTALLED_TARGET: &str = "wasm32-wasip2";

/// The target of a toolchain that builds the standard library: a core module, as
/// Debian has no linker for components.
const BUILD_STD_TARGET: &str = "wasm32-wasip1";

/// The packages of the Debian way.
const DEBIAN_PACKAGES: &str = "rustc-web cargo-web rust-web-src lld-19 wasi-libc";

const DEBIAN_LINKER: &str = "/usr/lib/llvm-19/bin/wasm-ld";
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";

/// Set by the cargo that runs us, or meant for it; a plugin's own settings count.
const OUTER_VARIABLES: [&str; 8] = [
    "CARGO",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "LD_LIBRARY_PATH",
    "MAKEFLAGS",
    "RUSTC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// A way to compile Rust to WebAssembly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RustToolchain {
    /// `cargo` with an installed standard library for `wasm32-wasip2`.
    Installed,
    /// Debian's packages, standard library built from source.
    Debian,
}

/// There is no way.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot compile Rust to WebAssembly: {missing}; run `rustup target add {INSTALLED_TARGET}`{}",
    if *.debian { format!(", or as root `apt-get install --no-install-recommends {DEBIAN_PACKAGES}`") } else { String::new() }
)]
pub struct ToolchainError {
    /// What was looked for and not found.
    missing: String,
    /// Whether Debian's packages are a remedy.
    debian: bool,
}

impl RustToolchain {
    /// Finds the toolchain for the crate in `folder`; a `rust-toolchain.toml` there or
    /// above counts.
    ///
    /// # Errors
    /// When no way is installed; the message names the command that installs one.
    pub fn find(folder: &Path) -> Result<Self, ToolchainError> {
        if target_is_installed(folder) {
            return Ok(Self::Installed);
        }
        match debian_missing() {
            None => Ok(Self::Debian),
            Some(missing) => Err(ToolchainError {
                missing: format!(
                    "rustc has no standard library for {INSTALLED_TARGET}, and {missing}"
                ),
                debian: Path::new("/etc/debian_version").exists(),
            }),
        }
    }

    /// `cargo build --target …`, to be extended by the caller.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut command = match self {
            Self::Installed => {
                let mut command = Command::new("cargo");
                command.args(["build", "--target", INSTALLED_TARGET]);
                command
            }
            Self::Debian => {
                let mut command = Command::new("/usr/bin/cargo");
                command.args(["build", "--target", BUILD_STD_TARGET]);
                command.arg("-Zbuild-std=std,panic_abort");
                command
            }
        };
        for variable in OUTER_VARIABLES {
            command.env_remove(variable);
        }
        if *self == Self::Debian {
            command
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTC", "/usr/bin/rustc")
                // Else rustup's proxies come first.
                .env("PATH", path_with_first("/usr/bin"))
                // Unwinding needs what the rebuilt standard library does not have.
                .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
                .env("CARGO_TARGET_WASM32_WASIP1_LINKER", DEBIAN_LINKER)
                .env(
                    "CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS",
                    format!("-Clink-self-contained=no -Lnative={DEBIAN_LIBC}"),
                );
        }
        command
    }

    /// For people: what will be used.
    pub fn describe(&self) -> String {
        match self {
            Self::Installed => format!("the installed target {INSTALLED_TARGET}"),
            Self::Debian => {
                format!("Debian's rustc for {BUILD_STD_TARGET}, standard library from source")
            }
        }
    }
}

/// Asks rustc, not rustup: a toolchain without rustup may have the target too.
fn target_is_installed(folder: &Path) -> bool {
    let mut command = Command::new("rustc");
    for variable in OUTER_VARIABLES {
        command.env_remove(variable);
    }
    let output = command
        .args(["--print", "target-libdir", "--target", INSTALLED_TARGET])
        .current_dir(folder)
        .output();
    let Ok(output) = output else { return false };
    let library = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    output.status.success() && has_standard_library(&library)
}

fn has_standard_library(folder: &Path) -> bool {
    let Ok(entries) = folder.read_dir() else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

/// The first part of the Debian way that is not there.
fn debian_missing() -> Option<String> {
    let files = [
        "/usr/bin/cargo",
        "/usr/bin/rustc",
        DEBIAN_LINKER,
        DEBIAN_LIBC,
    ];
    if let Some(file) = files.iter().find(|file| !Path::new(file).exists()) {
        return Some(format!("{file} does not exist"));
    }
    let output = Command::new("/usr/bin/rustc")
        .env_remove("LD_LIBRARY_PATH")
        .args(["--print", "sysroot"])
        .output();
    let Ok(output) = output else {
        return Some("/usr/bin/rustc does not run".to_owned());
    };
    let sources = Path::new(String::from_utf8_lossy(&output.stdout).trim())
        .join("lib/rustlib/src/rust/library/std");
    (!sources.exists()).then(|| format!("{} does not exist", sources.display()))
}

fn path_with_first(folder: &str) -> std::ffi::OsString {
    let mut path = std::ffi::OsString::from(folder);
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_both_remedies_on_debian_and_one_elsewhere() {
        let mut error = ToolchainError {
            missing: "nothing is installed".to_owned(),
            debian: true,
        };
        assert_eq!(
            error.to_string(),
            "cannot compile Rust to WebAssembly: nothing is installed; run `rustup target add \
             wasm32-wasip2`, or as root `apt-get install --no-install-recommends rustc-web \
             cargo-web rust-web-src lld-19 wasi-libc`"
        );
        error.debian = false;
        assert_eq!(
            error.to_string(),
            "cannot compile Rust to WebAssembly: nothing is installed; run `rustup target add \
             wasm32-wasip2`"
        );
    }

    #[test]
    fn standard_library_counts_only_when_its_file_is_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!has_standard_library(folder.path()));
        assert!(!has_standard_library(&folder.path().join("missing")));
        std::fs::write(folder.path().join("libstd-0123.rlib"), b"").expect("writable");
        assert!(has_standard_library(folder.path()));
    }
}
