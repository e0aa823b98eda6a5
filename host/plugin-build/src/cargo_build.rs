//! One run of `cargo build` for WebAssembly.
//!
//! Cargo says in its JSON messages which file it made, so nobody guesses target
//! folders or names. Its progress and the compiler's diagnostics go to our standard
//! error as they come.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use cargo_metadata::Message;

use crate::componentize::{ComponentizeError, write_component};
use crate::rust_toolchain::{RustToolchain, ToolchainError};

/// What to build.
#[derive(Clone, Debug)]
pub struct CargoBuild {
    /// Folder of the `Cargo.toml`.
    pub folder: PathBuf,
    /// Further arguments of `cargo build`, such as `--locked` or `--examples`.
    pub arguments: Vec<OsString>,
}

/// Nothing was built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No toolchain.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// Cargo does not start, or its output cannot be read.
    #[error("cannot run cargo in {}; is it installed and on PATH?", folder.display())]
    Run {
        /// Where.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Cargo said what is wrong.
    #[error("cargo build in {} failed ({status}); its messages are above", folder.display())]
    Failed {
        /// Where.
        folder: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
    /// The crate builds, but into no WebAssembly file.
    #[error("cargo build in {} made no .wasm file; add `crate-type = [\"cdylib\"]` to the [lib] of its Cargo.toml", folder.display())]
    NoArtifact {
        /// Where.
        folder: PathBuf,
    },
    /// More than one crate of the folder is a plugin.
    #[error("cargo build in {} made several .wasm files ({}); build the wanted one by a `command` in [build]", folder.display(), names.join(", "))]
    SeveralArtifacts {
        /// Where.
        folder: PathBuf,
        /// Cargo's names of what was built.
        names: Vec<String>,
    },
    /// It builds, but into something else than a listener.
    #[error(transparent)]
    Componentize(#[from] ComponentizeError),
}

/// Builds the one Rust plugin in `folder` and writes its component to `component`, by
/// rename: all of `language = "rust"`.
///
/// Blocks until cargo ends; cargo's progress and messages go to standard error.
///
/// # Errors
/// See [`BuildError`]. The previous component stays then.
pub fn build_rust_plugin(folder: &Path, component: &Path) -> Result<(), BuildError> {
    let toolchain = RustToolchain::find(folder)?;
    let build = CargoBuild {
        folder: folder.to_owned(),
        arguments: Vec::new(),
    };
    let mut artifacts = build.run(&toolchain)?;
    match artifacts.pop() {
        Some((_, module)) if artifacts.is_empty() => Ok(write_component(&module, component)?),
        last => {
            let names = artifacts.into_iter().chain(last).map(|(name, _)| name);
            Err(BuildError::SeveralArtifacts {
                folder: build.folder,
                names: names.collect(),
            })
        }
    }
}

impl CargoBuild {
    /// Builds in release mode with the toolchain that there is and returns every
    /// WebAssembly file, cargo's name of its target first. Fresh files are returned
    /// too.
    ///
    /// Blocks until cargo ends.
    ///
    /// # Errors
    /// See [`BuildError`]; the compiler's messages have been shown by then.
    pub fn run(&self, toolchain: &RustToolchain) -> Result<Vec<(String, PathBuf)>, BuildError> {
        let run_error = |source| BuildError::Run {
            folder: self.folder.clone(),
            source,
        };
        let mut child = toolchain
            .cargo_build()
            .args(["--release", "--message-format=json-render-diagnostics"])
            .args(&self.arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(run_error)?;
        let mut artifacts = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            for message in Message::parse_stream(BufReader::new(stdout)) {
                if let Message::CompilerArtifact(artifact) = message.map_err(run_error)? {
                    let name = artifact.target.name;
                    let files = artifact.filenames.into_iter();
                    let modules = files.filter(|file| file.extension() == Some("wasm"));
                    artifacts.extend(modules.map(|file| (name.clone(), file.into_std_path_buf())));
                }
            }
        }
        let status = child.wait().map_err(run_error)?;
        let folder = self.folder.clone();
        if !status.success() {
            return Err(BuildError::Failed { folder, status });
        }
        if artifacts.is_empty() {
            return Err(BuildError::NoArtifact { folder });
        }
        Ok(artifacts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_without_a_crate_fails_as_cargo_does() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let build = CargoBuild {
            folder: folder.path().to_owned(),
            arguments: vec!["--offline".into()],
        };

        let error = build
            .run(&RustToolchain::Installed)
            .expect_err("there is no Cargo.toml");

        assert!(matches!(error, BuildError::Failed { .. }), "{error}");
    }
}
