//! `Revision`: component, settings, limits and grants of a plugin, switched as one.
//!
//! Two revisions are the same when their identities are; a manifest whose `[consume]`
//! alone changed is the same revision with another group configuration.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::manifest::Manifest;

/// A SHA-256 sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// As they stand in a file.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve digits; for people.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// 64 lower-case hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no digest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseDigestError {
    /// Not 64 digits.
    #[error("has {length} characters, and a SHA-256 sum has 64")]
    Length {
        /// Its length.
        length: usize,
    },
    /// No hexadecimal digit.
    #[error("contains {character:?}, which is no hexadecimal digit")]
    Character {
        /// The first of them.
        character: char,
    },
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    /// Upper or lower case; a leading `sha256:` is allowed.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        if let Some(character) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(ParseDigestError::Character { character });
        }
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseDigestError::Length {
                length: digits.len(),
            });
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(Self(bytes))
    }
}

/// Names what runs: the same bytes in the same box with the same settings have the same
/// identity on every host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionId(Digest);

impl RevisionId {
    /// Of a component and the manifest it runs under.
    pub fn new(component: Digest, manifest: &Manifest) -> Self {
        let mut sum = Sha256::new();
        let mut part = |bytes: &[u8]| {
            // The length first, so that no two lists of parts have one sum.
            sum.update((bytes.len() as u64).to_le_bytes());
            sum.update(bytes);
        };
        part(component.bytes());
        part(manifest.kind().name().as_bytes());
        for (key, value) in manifest.settings() {
            part(key.as_bytes());
            part(value.as_bytes());
        }
        // `Debug` of plain data: one text for each value, the same in every process.
        part(format!("{:?}", manifest.limits()).as_bytes());
        part(format!("{:?}", manifest.grants()).as_bytes());
        // Where they are, not what they are.
        part(format!("{:?}", manifest.secrets()).as_bytes());
        Self(Digest(sum.finalize().into()))
    }

    /// As it stands in a file.
    pub fn digest(&self) -> Digest {
        self.0
    }

    /// As it stood in a file.
    pub fn of_digest(digest: Digest) -> Self {
        Self(digest)
    }

    /// Of nothing but a number; for tests of machines that never look inside.
    #[cfg(test)]
    pub(crate) fn numbered(number: u8) -> Self {
        Self(Digest([number; 32]))
    }
}

/// The first twelve digits: what logs, metrics and guests are shown.
impl fmt::Display for RevisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.short())
    }
}

impl fmt::Debug for RevisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PLUGIN: &str = "name = \"a\"\ncomponent = \"a.wasm\"\nconsumer_group = \"g\"\n[[subscription]]\ntopic = \"t\"\n";

    fn revision(component: &[u8], more: &str) -> RevisionId {
        let manifest = Manifest::parse(Path::new("plugin.toml"), &format!("{PLUGIN}{more}"));
        RevisionId::new(Digest::of(component), &manifest.expect("valid"))
    }

    fn of_kind(kind: &str) -> RevisionId {
        let text = PLUGIN.replace("[[", &format!("listener = {kind:?}\n[["));
        let manifest = Manifest::parse(Path::new("plugin.toml"), &text);
        RevisionId::new(Digest::of(b"code"), &manifest.expect("valid"))
    }

    #[test]
    fn digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(
            format!("sha256:{}", text.to_uppercase()).parse(),
            Ok(digest)
        );
        assert_eq!(
            "ab".parse::<Digest>(),
            Err(ParseDigestError::Length { length: 2 })
        );
        assert_eq!(
            "xyz".parse::<Digest>(),
            Err(ParseDigestError::Character { character: 'x' })
        );
    }

    #[test]
    fn code_settings_limits_and_grants_make_a_revision() {
        let base = revision(b"code", "");

        assert_eq!(
            base,
            revision(b"code", "[consume]\nconsume_thread_max = 3\n")
        );
        assert_ne!(base, revision(b"other code", ""));
        assert_ne!(base, of_kind("orderly"));
        assert_eq!(base, of_kind("concurrent"));
        assert_ne!(base, revision(b"code", "[settings]\ngreeting = \"hi\"\n"));
        assert_ne!(base, revision(b"code", "[limits]\nmemory = \"64MiB\"\n"));
        assert_ne!(
            base,
            revision(b"code", "[grants]\nproducer = { topics = [\"o\"] }\n")
        );
    }

    #[test]
    fn settings_cannot_be_moved_into_each_other_unseen() {
        assert_ne!(
            revision(b"code", "[settings]\na = \"bc\"\n"),
            revision(b"code", "[settings]\nab = \"c\"\n")
        );
    }
}
