//! `[build]` of a manifest: run it, so that `component` is there.
//!
//! How a language is built is `plugin-build`'s knowledge; here is only which way a
//! manifest asks for. Compilers write to standard error themselves.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use plugin_build::{BuildError, RustToolchain};
use plugin_lifecycle::Manifest;
use plugin_lifecycle::manifest::build::{Build, BuildKind};

/// The component was not built; the one from before is still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginBuildError {
    /// A language's own tool.
    #[error(transparent)]
    Language(#[from] BuildError),
    /// `command` does not start.
    #[error(
        "cannot run \"{program}\" in {}; install it, or correct command in [build]",
        folder.display()
    )]
    Start {
        program: String,
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// `command` says it failed.
    #[error("\"{program}\" failed ({status}); its messages are above")]
    Failed { program: String, status: ExitStatus },
    /// `command` says it worked.
    #[error(
        "\"{program}\" did not write {}; let it write there, or correct component",
        component.display()
    )]
    NoComponent { program: String, component: PathBuf },
}

/// For people, before a build that takes longer than they expect: the standard library
/// is not there and is built too.
pub(crate) fn slow_toolchain(manifest: &Manifest) -> Option<String> {
    if manifest.build()?.how != BuildKind::Rust {
        return None;
    }
    let toolchain = RustToolchain::find(folder(manifest)).ok()?;
    (toolchain == RustToolchain::Debian).then(|| toolchain.describe())
}

/// Builds the component of a manifest that says how. Blocks until it is built.
///
/// # Errors
/// See [`PluginBuildError`].
pub(crate) fn build(manifest: &Manifest, build: &Build) -> Result<(), PluginBuildError> {
    let folder = folder(manifest);
    match &build.how {
        BuildKind::Rust => {
            // Cargo runs in the folder; paths of ours start here.
            let component = std::path::absolute(component_file(manifest))
                .unwrap_or_else(|_| component_file(manifest).to_owned());
            Ok(plugin_build::build_rust_plugin(folder, &component)?)
        }
        BuildKind::Command(words) => run(words, folder, component_file(manifest)),
    }
}

/// What is built; a manifest with [build] and a component elsewhere is refused.
fn component_file(manifest: &Manifest) -> &Path {
    manifest.component().file().unwrap_or(Path::new(""))
}

/// Where a manifest's sources are.
fn folder(manifest: &Manifest) -> &Path {
    match manifest.file().parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn run(words: &[String], folder: &Path, component: &Path) -> Result<(), PluginBuildError> {
    let (program, arguments) = words
        .split_first()
        .map_or(("", words), |(program, rest)| (program.as_str(), rest));
    let status = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        // Standard output is for results.
        .stdout(Stdio::from(io::stderr()))
        .status()
        .map_err(|source| PluginBuildError::Start {
            program: program.to_owned(),
            folder: folder.to_owned(),
            source,
        })?;
    let program = program.to_owned();
    if !status.success() {
        return Err(PluginBuildError::Failed { program, status });
    }
    if !component.is_file() {
        let component = component.to_owned();
        return Err(PluginBuildError::NoComponent { program, component });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in_temp(script: &str) -> Result<(), PluginBuildError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let words = ["sh", "-c", script].map(str::to_owned);
        run(&words, folder.path(), &folder.path().join("out.wasm"))
    }

    #[test]
    fn command_runs_in_the_folder_and_has_to_write_the_component() {
        assert!(run_in_temp("echo built; touch out.wasm").is_ok());
        let error = run_in_temp("true").expect_err("nothing written");
        assert!(error.to_string().contains("did not write"), "{error}");
        let error = run_in_temp("exit 3").expect_err("failed");
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[test]
    fn command_that_is_not_installed_is_named() {
        let words = ["no-such-program-of-mqlet".to_owned()];
        let error = run(&words, Path::new("."), Path::new("x")).expect_err("not there");
        assert!(
            error.to_string().contains("no-such-program-of-mqlet"),
            "{error}"
        );
    }
}
