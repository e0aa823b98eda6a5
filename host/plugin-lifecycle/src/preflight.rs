//! Everything that can be known of a plugin before anything is compiled or opened:
//! its component is there, within bounds, pinned, and of a world this host can serve.
//!
//! `mqlet check` shows it; a deployment takes the same way, step by step.

use crate::artifact;
use crate::manifest::Manifest;
use crate::problem::Problem;
use crate::revision::{Digest, RevisionId};

/// A plugin whose component is in order.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// Of the component.
    pub digest: Digest,
    /// Of the component.
    pub bytes: u64,
    /// What would run.
    pub revision: RevisionId,
}

/// Looks at the component of a manifest. Blocks: it reads the file.
///
/// # Errors
/// Every problem of the component.
pub fn check(manifest: &Manifest) -> Result<Preflight, Vec<Problem>> {
    let artifact = artifact::file::read(manifest.component(), manifest.sha256())
        .map_err(|error| vec![manifest.component_problem(error.fault())])?;
    Ok(Preflight {
        digest: artifact.digest,
        bytes: artifact.bytes.len() as u64,
        revision: RevisionId::new(artifact.digest, manifest),
    })
}
