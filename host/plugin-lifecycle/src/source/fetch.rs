//! `Fetcher`: brings the bytes of a component from where its source says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasm::COMPONENT_BYTES_MAX;

use super::oci::{Descriptor, Repository};
use super::web::{Answer, Request, Web, shown};
use super::{Source, SourceError};
use crate::artifact::Artifact;
use crate::revision::Digest;
use crate::signature::{
    Evidence, PROVENANCE_BYTES_MAX, Provenance, SIGNATURE_BYTES_MAX, SIGNATURES_MAX,
};

/// The whole of a fetch: every attempt, redirect, token and byte.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(60);
/// Fetches of a host under way; each may hold a component in memory.
pub const FETCHES_MAX: usize = 4;

/// What cosign calls a signature in a registry.
const COSIGN_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const COSIGN_SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// What a bundle in a registry is called; its version follows.
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle";

/// `[sources]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcesConfig {
    /// PEM; trusted beside the system's authorities.
    pub authorities: Option<Vec<u8>>,
    /// Docker's `config.json`; `None`: we are nobody at registries.
    pub docker_config: Option<PathBuf>,
    /// For one component.
    pub fetch_timeout: Duration,
}

impl Default for SourcesConfig {
    fn default() -> Self {
        Self {
            authorities: None,
            docker_config: None,
            fetch_timeout: FETCH_TIME_MAX,
        }
    }
}

/// Shared by the plugins of a host; opens nothing before it is asked.
pub struct Fetcher {
    config: SourcesConfig,
    web: tokio::sync::OnceCell<Web>,
    permits: Arc<Semaphore>,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new(SourcesConfig::default())
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What was fetched. While it is held, so is one of [`FETCHES_MAX`] permits.
#[derive(Debug)]
pub struct Fetched {
    /// Compared with every digest that is known.
    pub artifact: Artifact,
    /// For people: what a tag led to.
    pub resolved: Option<String>,
    /// Bounds the bytes in memory.
    pub permit: OwnedSemaphorePermit,
}

impl Fetcher {
    /// Nothing is read or opened yet.
    pub fn new(config: SourcesConfig) -> Self {
        Self {
            config,
            web: tokio::sync::OnceCell::new(),
            permits: Arc::new(Semaphore::new(FETCHES_MAX)),
        }
    }

    /// Brings a component, and what was signed of it if that is wanted. Dropping the
    /// future ends it. Of a file only what stands beside it is read; the file itself is
    /// [`crate::artifact::file`]'s.
    ///
    /// # Errors
    /// Why there are no bytes to look at.
    pub async fn fetch(
        &self,
        source: &Source,
        wanted: Option<Digest>,
        with_signatures: bool,
    ) -> Result<Fetched, SourceError> {
        // Never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| SourceError::Settings {
            reason: "the host is stopping".to_owned(),
        })?;
        let limit = self.config.fetch_timeout;
        let fetched = tokio::time::timeout(limit, self.bytes(source, wanted, with_signatures));
        let (artifact, resolved) = fetched.await.map_err(|_| SourceError::TooSlow {
            what: source.to_string(),
            seconds: limit.as_secs(),
        })??;
        Ok(Fetched {
            artifact,
            resolved,
            permit,
        })
    }

    async fn bytes(
        &self,
        source: &Source,
        wanted: Option<Digest>,
        with_signatures: bool,
    ) -> Result<(Artifact, Option<String>), SourceError> {
        let web = self.web().await?;
        match source {
            Source::File(path) => Err(SourceError::Settings {
                reason: format!("{} is a file", path.display()),
            }),
            Source::Web(url) => {
                let request = Request::new((**url).clone(), COMPONENT_BYTES_MAX);
                let bytes = body(web.get(&request).await?, &request)?;
                let mut artifact = checked(bytes, source, wanted)?;
                if with_signatures {
                    artifact.provenance.signatures = beside(&web, &request).await?;
                }
                Ok((artifact, None))
            }
            Source::Oci(reference) => {
                let mut repository = Repository::new(&web, &self.config, reference)?;
                let pulled = repository.component_manifest().await?;
                let layer = repository.component_layer(&pulled)?.clone();
                let bytes = repository.blob(&layer, COMPONENT_BYTES_MAX).await?;
                let mut artifact = checked(bytes, source, wanted)?;
                if with_signatures {
                    artifact.provenance = Provenance {
                        signatures: in_registry(&mut repository, pulled.digest).await?,
                        manifest: Some(pulled.bytes),
                    };
                }
                Ok((artifact, Some(reference.resolved(pulled.digest))))
            }
        }
    }

    /// Certificates are read with the first fetch.
    async fn web(&self) -> Result<Web, SourceError> {
        let made = self.web.get_or_try_init(|| async {
            let authorities = self.config.authorities.clone();
            let made = tokio::task::spawn_blocking(move || Web::new(authorities.as_deref()));
            made.await.unwrap_or_else(|_| {
                Err(SourceError::Settings {
                    reason: "reading certificates ended early".to_owned(),
                })
            })
        });
        made.await.cloned()
    }
}

fn body(answer: Answer, request: &Request) -> Result<Bytes, SourceError> {
    match answer {
        Answer::Body(bytes) => Ok(bytes),
        Answer::Challenge(_) => Err(SourceError::Status {
            url: shown(&request.url),
            status: 401,
        }),
    }
}

fn checked(bytes: Bytes, source: &Source, wanted: Option<Digest>) -> Result<Artifact, SourceError> {
    if bytes.is_empty() {
        return Err(SourceError::Empty {
            url: source.to_string(),
        });
    }
    let found = Digest::of(&bytes);
    match wanted {
        Some(wanted) if wanted != found => Err(SourceError::OtherDigest {
            what: source.to_string(),
            found,
            wanted,
        }),
        _ => Ok(Artifact {
            bytes,
            digest: found,
            provenance: Provenance::default(),
        }),
    }
}

/// `ADDRESS.sigstore.json`, or `ADDRESS.sig`.
async fn beside(web: &Web, component: &Request) -> Result<Vec<Evidence>, SourceError> {
    let mut found = Vec::new();
    for (ending, read) in Evidence::BESIDE {
        let mut url = component.url.clone();
        url.set_path(&format!("{}{ending}", url.path()));
        let request = Request::new(url, SIGNATURE_BYTES_MAX);
        match web.get(&request).await {
            Ok(Answer::Body(bytes)) => found.extend(read(&bytes)),
            // Nobody signed it in this way.
            Ok(Answer::Challenge(_))
            | Err(SourceError::Status {
                status: 403 | 404 | 410,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Signatures as cosign keeps them: under a tag, or as what refers to the manifest.
async fn in_registry(
    repository: &mut Repository<'_>,
    manifest: Digest,
) -> Result<Vec<Evidence>, SourceError> {
    let mut found = Vec::new();
    let signed = repository
        .manifest(&format!("sha256-{manifest}.sig"), None)
        .await;
    let layers = match signed {
        Ok(signed) => signed.manifest.layers,
        Err(SourceError::Status { status: 404, .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let of_cosign = |layer: &&Descriptor| layer.media_type == COSIGN_LAYER;
    for layer in layers.iter().filter(of_cosign).take(SIGNATURES_MAX) {
        let payload = repository.blob(layer, SIGNATURE_BYTES_MAX).await?;
        let signature = layer.annotations.get(COSIGN_SIGNATURE);
        let signature = signature.and_then(|signature| Evidence::of_payload(&payload, signature));
        found.extend(signature);
    }
    let is_bundle = |one: &&Descriptor| one.artifact_type.starts_with(BUNDLE_TYPE);
    let referrers = repository.referrers(manifest).await?;
    for referrer in referrers.iter().filter(is_bundle).take(SIGNATURES_MAX) {
        let digest = referrer.digest.strip_prefix("sha256:");
        let Some(digest) = digest.and_then(|digits| digits.parse::<Digest>().ok()) else {
            continue;
        };
        let pulled = repository
            .manifest(&format!("sha256:{digest}"), Some(digest))
            .await?;
        for layer in pulled.manifest.layers.iter().take(1) {
            let bundle = repository.blob(layer, SIGNATURE_BYTES_MAX).await?;
            found.extend(Evidence::of_bundle(&bundle));
        }
    }
    Ok(found)
}

/// What stands beside a component in a file. Blocks; what cannot be read is not there.
pub(crate) fn beside_file(component: &Path) -> Provenance {
    let with = |ending: &str| {
        let mut name = component.as_os_str().to_owned();
        name.push(ending);
        read_bounded(Path::new(&name))
    };
    if let Some(kept) = with(Provenance::ENDING) {
        return Provenance::from_json(&kept);
    }
    let found = Evidence::BESIDE
        .iter()
        .filter_map(|(ending, read)| read(&with(ending)?));
    Provenance {
        signatures: found.collect(),
        manifest: None,
    }
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > PROVENANCE_BYTES_MAX {
        return None;
    }
    std::fs::read(path).ok()
}
