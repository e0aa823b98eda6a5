//! Everything that can be known of a plugin before anything is compiled or opened: its
//! component is there, within bounds, pinned, of a world this host serves, and imports
//! nothing it may not.
//!
//! `mqlet check` shows it; a deployment takes the same way, step by step.

use wasm::{CheckedComponent, ListenerKind};

use crate::artifact::{self, Artifact, ArtifactError};
use crate::manifest::Manifest;
use crate::manifest::build::BuildKind;
use crate::problem::{Fault, Problem};
use crate::revision::{Digest, RevisionId};

/// A plugin whose component is in order.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// Of the component.
    pub digest: Digest,
    /// What would run.
    pub revision: RevisionId,
    /// Which listener would be called.
    pub listener: ListenerKind,
    /// The component.
    pub component: CheckedComponent,
}

/// Reads and checks the component of a manifest. Blocks.
///
/// # Errors
/// Every problem of the component.
pub fn check(manifest: &Manifest) -> Result<Preflight, Vec<Problem>> {
    let artifact = fetch(manifest)?;
    let digest = artifact.digest;
    let (component, listener) = check_component(manifest, artifact)?;
    Ok(Preflight {
        digest,
        revision: RevisionId::new(digest, manifest),
        listener,
        component,
    })
}

/// Reads the component of a manifest and compares its digest. Blocks.
///
/// # Errors
/// Why there are no bytes to look at.
pub fn fetch(manifest: &Manifest) -> Result<Artifact, Vec<Problem>> {
    let Some(path) = manifest.component_bytes_at() else {
        return Err(vec![manifest.component_problem(Fault::new(
            "is not on this machine",
            "deploy it to a running host, which fetches it; or download it and write its path",
        ))]);
    };
    artifact::file::read(path, manifest.sha256()).map_err(|error| {
        let mut fault = error.fault();
        if let ArtifactError::NotFound { .. } = error
            && let Some(command) = build_command(manifest)
        {
            fault.remedy = format!("build it: {command}");
        }
        vec![manifest.component_problem(fault)]
    })
}

/// What makes the component, as a person would type it.
fn build_command(manifest: &Manifest) -> Option<String> {
    match &manifest.build()?.how {
        BuildKind::Rust => Some(format!("mqlet dev {}", manifest.file().display())),
        BuildKind::Command(words) => Some(words.join(" ")),
    }
}

/// Looks at world, imports, kind of listener and the granted folder. Takes milliseconds a
/// megabyte.
///
/// # Errors
/// Every problem of the component.
pub fn check_component(
    manifest: &Manifest,
    artifact: Artifact,
) -> Result<(CheckedComponent, ListenerKind), Vec<Problem>> {
    if let Some(folder) = &manifest.grants().folder
        && !folder.is_dir()
    {
        let value = format!("\"{}\"", folder.display());
        let remedy = "name a folder; its files can be read at /, and nothing written";
        let fault = Fault::new("is no folder", remedy);
        return Err(vec![manifest.grants_problem(
            "grants.folder",
            &value,
            fault,
        )]);
    }
    let component =
        CheckedComponent::check_granted(artifact.bytes, manifest.grants()).map_err(|problems| {
            problems
                .iter()
                .map(|problem| {
                    manifest.component_problem(Fault::new(problem.to_string(), problem.remedy()))
                })
                .collect::<Vec<_>>()
        })?;
    let listener = listener(manifest, component.listeners())
        .map_err(|fault| vec![manifest.component_problem(fault)])?;
    Ok((component, listener))
}

fn listener(manifest: &Manifest, exported: &[ListenerKind]) -> Result<ListenerKind, Fault> {
    let names: Vec<&str> = exported.iter().map(|kind| kind.name()).collect();
    let names = names.join(", ");
    match (manifest.listener(), exported) {
        (Some(wanted), _) if exported.contains(&wanted) => Ok(wanted),
        (Some(wanted), _) => Err(Fault::new(
            format!("it exports {names}, and listener is \"{}\"", wanted.name()),
            "correct listener, or build the component for that world",
        )),
        (None, [ListenerKind::Concurrent]) => Ok(ListenerKind::Concurrent),
        (None, [only]) => Err(Fault::new(
            format!(
                "it is a plugin of kind {}, and the manifest does not say so",
                only.name()
            ),
            format!("add listener = \"{}\"", only.name()),
        )),
        (None, _) => Err(Fault::new(
            format!("it exports several kinds of listener: {names}"),
            "add listener = with one of these, for example listener = \"concurrent\"",
        )),
    }
}
