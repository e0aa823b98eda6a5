//! A component in a file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use wasm::COMPONENT_BYTES_MAX;

use crate::artifact::{Artifact, ArtifactError};
use crate::revision::Digest;
use crate::signature::Provenance;

/// Reads a component. Blocks; a file over the limit is not read at all.
///
/// # Errors
/// Why it is not taken.
pub fn read(path: &Path, pinned: Option<Digest>) -> Result<Artifact, ArtifactError> {
    let artifact = read_bounded(path, COMPONENT_BYTES_MAX)?;
    match pinned {
        Some(wanted) if wanted != artifact.digest => Err(ArtifactError::OtherDigest {
            path: path.to_owned(),
            found: artifact.digest,
            wanted,
        }),
        _ => Ok(artifact),
    }
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<Artifact, ArtifactError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => ArtifactError::NotFound {
            path: path.to_owned(),
        },
        _ => ArtifactError::Unreadable {
            path: path.to_owned(),
            source,
        },
    };
    let too_large = |bytes| ArtifactError::TooLarge {
        path: path.to_owned(),
        bytes,
        bytes_max,
    };
    // Before it is opened: opening a pipe would wait for its writer.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ArtifactError::NotAFile {
            path: path.to_owned(),
        });
    }
    if metadata.len() > bytes_max {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // It may grow while it is read.
    File::open(path)
        .map_err(failed)?
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let length = bytes.len() as u64;
    if length > bytes_max {
        return Err(too_large(length));
    }
    if bytes.is_empty() {
        return Err(ArtifactError::Empty {
            path: path.to_owned(),
        });
    }
    let digest = Digest::of(&bytes);
    Ok(Artifact {
        bytes: bytes.into(),
        digest,
        provenance: Provenance::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file for the test");
        (folder, path)
    }

    #[test]
    fn file_is_read_with_its_digest() {
        let (_folder, path) = folder_with("a.wasm", b"abc");
        let artifact = read(&path, Some(Digest::of(b"abc"))).expect("readable");
        assert_eq!(&artifact.bytes[..], b"abc");
        assert_eq!(artifact.digest, Digest::of(b"abc"));
    }

    #[test]
    fn other_bytes_than_pinned_are_refused() {
        let (_folder, path) = folder_with("a.wasm", b"abc");
        let error = read(&path, Some(Digest::of(b"abd"))).expect_err("another digest");
        assert!(
            matches!(error, ArtifactError::OtherDigest { .. }),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_file_with_content_is_refused() {
        let (folder, path) = folder_with("a.wasm", b"");
        assert!(matches!(
            read(&path, None),
            Err(ArtifactError::Empty { .. })
        ));
        assert!(matches!(
            read(folder.path(), None),
            Err(ArtifactError::NotAFile { .. })
        ));
        assert!(matches!(
            read(&folder.path().join("b.wasm"), None),
            Err(ArtifactError::NotFound { .. })
        ));
    }

    #[test]
    fn large_file_is_refused_by_its_size_alone() {
        let (_folder, path) = folder_with("a.wasm", b"");
        let file = File::options()
            .write(true)
            .open(&path)
            .expect("its own file");
        // Sparse: it takes no room on the disk.
        file.set_len(100 << 20).expect("a sparse file");
        let error = read(&path, None).expect_err("100 MiB");
        assert!(
            matches!(error, ArtifactError::TooLarge { bytes, .. } if bytes == 100 << 20),
            "{error}"
        );
    }
}
