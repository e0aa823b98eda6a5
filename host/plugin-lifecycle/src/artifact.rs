//! A component's bytes, and how they are read from a file. Whatever the source, the size
//! is bounded before the bytes are taken in, and a pinned digest is compared before
//! anybody looks at them.

pub mod file;

use std::path::PathBuf;

use bytes::Bytes;

use crate::problem::Fault;
use crate::revision::Digest;
use crate::signature::Provenance;
use crate::value::bytes_text;

/// A component as it was found; nobody has looked inside yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Not empty.
    pub bytes: Bytes,
    /// Of the bytes.
    pub digest: Digest,
    /// What was found beside them.
    pub provenance: Provenance,
}

impl Artifact {
    /// Of these bytes, with nothing beside them.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            digest: Digest::of(&bytes),
            bytes,
            provenance: Provenance::default(),
        }
    }
}

impl std::fmt::Debug for Artifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Artifact({} bytes, {})",
            self.bytes.len(),
            self.digest.short()
        )
    }
}

/// Why there are no bytes to look at.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// Nothing has this name.
    #[error("{} does not exist; build the plugin (`mqlet dev` does), or correct component", path.display())]
    NotFound {
        /// Where it should be.
        path: PathBuf,
    },
    /// A folder, a device, a pipe.
    #[error("{} is not a file; name the component", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// No bytes in it.
    #[error("{} is empty; build the plugin again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Over the limit.
    #[error(
        "{} has {bytes} bytes, more than the {bytes_max} allowed; build it with optimisation and without debug information",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size; at least, when it grew meanwhile.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Other bytes than the manifest's `sha256`.
    #[error("{} has the digest {found}, and the manifest wants {wanted}; deploy the component that was meant, or correct sha256", path.display())]
    OtherDigest {
        /// The file.
        path: PathBuf,
        /// Of its bytes.
        found: Digest,
        /// As the manifest has it.
        wanted: Digest,
    },
    /// The system refused.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl ArtifactError {
    /// In two halves, for the problem list; it names the key and the path already.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotFound { .. } => Fault::new(
                "does not exist",
                "build the plugin (\"mqlet dev\" does), or correct the path",
            ),
            Self::NotAFile { .. } => Fault::new("is not a file", "name the component"),
            Self::Empty { .. } => Fault::new("is an empty file", "build the plugin again"),
            Self::TooLarge {
                bytes, bytes_max, ..
            } => Fault::new(
                format!("has {bytes} bytes, more than {}", bytes_text(*bytes_max)),
                "build it with optimisation and without debug information",
            ),
            Self::OtherDigest { found, .. } => Fault::new(
                format!("has the digest {found}, not the one of sha256"),
                "deploy the component that was meant, or correct sha256",
            ),
            Self::Unreadable { source, .. } => Fault::new(
                format!("cannot be read: {source}"),
                "give this user the right to read it, or look at the disk",
            ),
        }
    }
}
