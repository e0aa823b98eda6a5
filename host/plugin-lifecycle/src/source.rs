//! Where a component's bytes come from: a file, an address on the web, or a registry.
//!
//! What a manifest or a command names is a [`Source`]; a [`Fetcher`] brings the bytes of
//! those that are not here. `web` is one bounded request, `oci` what registries say,
//! `credentials` who we are there. Whatever comes over a network is compared with a digest
//! before anybody looks at it.

mod credentials;
mod error;
mod fetch;
mod oci;
mod reference;
mod web;

use std::fmt;
use std::path::{Path, PathBuf};

pub use error::SourceError;
pub(crate) use fetch::beside_file;
pub use fetch::{FETCH_TIME_MAX, FETCHES_MAX, Fetched, Fetcher, SourcesConfig};
pub(crate) use oci::has_layer;
pub use reference::OciReference;
use reqwest::Url;

use crate::problem::Fault;
use crate::revision::Digest;

/// A longer one is a mistake.
const SOURCE_LENGTH_MAX: usize = 2048;

/// Where the bytes of a component are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A path, as a program can open it.
    File(PathBuf),
    /// An `https://` address (`http://` on this machine), without its fragment.
    Web(Box<Url>),
    /// In a registry.
    Oci(OciReference),
}

impl Source {
    /// Reads what a person wrote; a path is left as it is. The digest is that of the
    /// fragment `#sha256=…` behind an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<(Self, Option<Digest>), Fault> {
        const REMEDY: &str = "write a path, https://HOST/PATH#sha256=… or oci://REGISTRY/REPOSITORY:TAG, for example \"target/mqlet/hello.wasm\"";
        if text.is_empty() {
            return Err(Fault::new(
                "is empty",
                "write the path of the component, for example \"target/mqlet/hello.wasm\"",
            ));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok((Self::File(PathBuf::from(text)), None));
        };
        if text.len() > SOURCE_LENGTH_MAX {
            let what = format!("has more than {SOURCE_LENGTH_MAX} characters");
            return Err(Fault::new(what, REMEDY));
        }
        match scheme {
            "file" => Err(Fault::new(
                "is a URL",
                "write the path alone, without file://",
            )),
            "oci" => Ok((Self::Oci(OciReference::parse(rest)?), None)),
            "http" | "https" => web(text),
            _ => Err(Fault::new("has a scheme nobody knows", REMEDY)),
        }
    }

    /// Over a network.
    pub fn is_remote(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// The path, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Web(_) | Self::Oci(_) => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Web(url) => write!(f, "{url}"),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

fn web(text: &str) -> Result<(Source, Option<Digest>), Fault> {
    let mut url = Url::parse(text).map_err(|error| {
        Fault::new(
            format!("is no address: {error}"),
            "write https://HOST/PATH#sha256=…",
        )
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Fault::new(
            "has a user name or password in it",
            "remove it: manifests and listings are no place for secrets; let the server allow this host by its address, or use a registry",
        ));
    }
    if url.scheme() == "http" && !web::is_loopback_host(&url) {
        return Err(Fault::new(
            "is not encrypted",
            "write https://; http:// is for servers on this machine",
        ));
    }
    let digest = match url.fragment() {
        None => None,
        Some(fragment) => {
            let remedy = "write #sha256= and 64 hexadecimal digits behind the address, as sha256sum prints them";
            let digits = fragment
                .strip_prefix("sha256=")
                .ok_or_else(|| Fault::new("has a fragment nobody knows", remedy))?;
            let digest = digits
                .parse()
                .map_err(|error: crate::revision::ParseDigestError| {
                    Fault::new(format!("has a digest that {error}"), remedy)
                })?;
            Some(digest)
        }
    };
    url.set_fragment(None);
    Ok((Source::Web(Box::new(url)), digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn shown(text: &str) -> String {
        match Source::parse(text) {
            Ok((source, digest)) => {
                format!("{source} {}", digest.map_or("-".to_owned(), |d| d.short()))
            }
            Err(Fault { what, .. }) => format!("refused: {what}"),
        }
    }

    #[test]
    fn what_can_stand_for_a_component() {
        for (text, expected) in [
            ("a/b.wasm", "a/b.wasm -"),
            (
                &format!("https://example.org/a.wasm?x=1#sha256={SUM}"),
                "https://example.org/a.wasm?x=1 ba7816bf8f01",
            ),
            ("https://example.org/a.wasm", "https://example.org/a.wasm -"),
            ("http://127.0.0.1:1/a", "http://127.0.0.1:1/a -"),
            ("http://[::1]:1/a", "http://[::1]:1/a -"),
            ("http://localhost/a", "http://localhost/a -"),
            (
                "oci://r.example/shop/orders",
                "oci://r.example/shop/orders:latest -",
            ),
            ("", "refused: is empty"),
            ("file:///a", "refused: is a URL"),
            ("ftp://a/b", "refused: has a scheme nobody knows"),
            ("http://example.org/a", "refused: is not encrypted"),
            (
                "http://localhost.evil.example/a",
                "refused: is not encrypted",
            ),
            (
                "https://user:secret@example.org/a",
                "refused: has a user name or password in it",
            ),
            (
                "https://example.org/a#x",
                "refused: has a fragment nobody knows",
            ),
            (
                "https://example.org/a#sha256=12",
                "refused: has a digest that has 2 characters, and a SHA-256 sum has 64",
            ),
            ("https://", "refused: is no address: empty host"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
