//! `oci://REGISTRY/REPOSITORY[:TAG][@sha256:DIGEST]`.

use std::fmt;

use crate::problem::Fault;
use crate::revision::Digest;

/// Of a repository and of a tag, as registries have them.
const REPOSITORY_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;
const TAG_DEFAULT: &str = "latest";

/// A component in a registry. The registry is always named: there is no default one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OciReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl OciReference {
    /// Reads what stands behind `oci://`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = |what: &str| {
            Fault::new(
                what,
                "write oci://REGISTRY/REPOSITORY:TAG, or …@sha256:DIGEST, for example \"oci://ghcr.io/shop/orders:1.2\"",
            )
        };
        let (rest, digest) = match text.split_once('@') {
            None => (text, None),
            Some((rest, digest)) => {
                let digits = digest
                    .strip_prefix("sha256:")
                    .ok_or_else(|| wrong("has a digest that is not sha256:…"))?;
                let digest =
                    digits
                        .parse()
                        .map_err(|error: crate::revision::ParseDigestError| {
                            wrong(&format!("has a digest that {error}"))
                        })?;
                (rest, Some(digest))
            }
        };
        let (registry, path) = rest
            .split_once('/')
            .ok_or_else(|| wrong("names no repository"))?;
        let (repository, tag) = match path.split_once(':') {
            None => (path, None),
            Some((repository, tag)) => (repository, Some(tag)),
        };
        if registry.is_empty() || reqwest::Url::parse(&format!("https://{registry}/")).is_err() {
            return Err(wrong("names no registry"));
        }
        if registry.contains(|c: char| !(c.is_ascii_alphanumeric() || ".-:[]".contains(c))) {
            return Err(wrong("names no registry"));
        }
        let is_name = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
        };
        if repository.len() > REPOSITORY_LENGTH_MAX || !repository.split('/').all(is_name) {
            return Err(wrong(
                "has a repository that is no name: a-z 0-9 . _ - and /",
            ));
        }
        let is_tag = |tag: &str| {
            (1..=TAG_LENGTH_MAX).contains(&tag.len())
                && tag
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
                && !tag.starts_with(['.', '-'])
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("has a tag that is none"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// Host, and port where it has one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Without the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Of its manifest; other ones are refused.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// What manifests are asked for by: the digest, where there is one, else the tag.
    pub(super) fn name(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, Some(tag)) => tag.clone(),
            (None, None) => TAG_DEFAULT.to_owned(),
        }
    }

    /// The same repository at this digest.
    pub(super) fn resolved(&self, digest: Digest) -> String {
        format!("{}/{}@sha256:{digest}", self.registry, self.repository)
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match (&self.tag, &self.digest) {
            (Some(tag), None) => write!(f, ":{tag}"),
            (None, None) => write!(f, ":{TAG_DEFAULT}"),
            (None, Some(digest)) => write!(f, "@sha256:{digest}"),
            (Some(tag), Some(digest)) => write!(f, ":{tag}@sha256:{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn reference_is_shown_as_it_is_written() {
        for text in [
            "ghcr.io/shop/orders:1.2".to_owned(),
            format!("127.0.0.1:5000/orders@sha256:{SUM}"),
            format!("[::1]:5000/a/b/c:v1@sha256:{SUM}"),
        ] {
            let reference = OciReference::parse(&text).expect("a reference");
            assert_eq!(reference.to_string(), text);
        }
        let reference = OciReference::parse("localhost:5000/a").expect("a reference");
        assert_eq!(reference.registry(), "localhost:5000");
        assert_eq!(reference.name(), "latest");
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for (text, expected) in [
            ("ghcr.io", "names no repository"),
            ("/orders", "names no registry"),
            ("user:pw@host/orders", "has a digest that is not sha256:…"),
            ("host:99999/orders", "names no registry"),
            (
                "ghcr.io/Orders",
                "has a repository that is no name: a-z 0-9 . _ - and /",
            ),
            (
                "ghcr.io/../orders",
                "has a repository that is no name: a-z 0-9 . _ - and /",
            ),
            ("ghcr.io/a:b/c", "has a tag that is none"),
            ("ghcr.io/a:", "has a tag that is none"),
            (
                "ghcr.io/a?x=1:b",
                "has a repository that is no name: a-z 0-9 . _ - and /",
            ),
            ("ghcr.io/a@sha512:12", "has a digest that is not sha256:…"),
            (
                "ghcr.io/a@sha256:12",
                "has a digest that has 2 characters, and a SHA-256 sum has 64",
            ),
        ] {
            let fault = OciReference::parse(text).expect_err(text);
            assert_eq!(fault.what, expected, "{text}");
        }
    }
}
