//! What registries say, as far as a component needs it: manifests and blobs of the OCI
//! distribution protocol, and who may have them.
//!
//! Not a library's client: those take in manifests, tokens and refusals of any size, and
//! follow any redirect.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;

use super::credentials::{self, Login};
use super::web::{self, Answer, Request, Web};
use super::{OciReference, SourceError, SourcesConfig};
use crate::revision::Digest;

/// OCI asks registries to take manifests of 4 MiB; a component's has some hundred bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1 << 20;
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// More layers are no component.
const LAYERS_MAX: usize = 64;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Images of docker's own kind too: the answer to those can then say what they are.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// What a layer that is a component may be called: by the CNCF, and before that.
const COMPONENT_LAYERS: [&str; 3] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];

/// One repository, while something is fetched from it.
pub(super) struct Repository<'a> {
    web: &'a Web,
    config: &'a SourcesConfig,
    reference: &'a OciReference,
    base: Url,
    authorization: Option<HeaderValue>,
}

/// A part of a manifest, or a manifest of an index.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    #[serde(default)]
    pub(super) artifact_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
}

/// A manifest or an index.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

/// A manifest as it was fetched.
pub(super) struct Pulled {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
    pub(super) manifest: Manifest,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Repository<'a> {
    pub(super) fn new(
        web: &'a Web,
        config: &'a SourcesConfig,
        reference: &'a OciReference,
    ) -> Result<Self, SourceError> {
        let unusable = || SourceError::Settings {
            reason: format!("{} is no registry", reference.registry()),
        };
        let url = |scheme: &str| {
            let text = format!(
                "{scheme}://{}/v2/{}/",
                reference.registry(),
                reference.repository()
            );
            Url::parse(&text).map_err(|_| unusable())
        };
        let mut base = url("https")?;
        // As docker does: a registry on this machine speaks plain text.
        if web::is_loopback_host(&base) {
            base = url("http")?;
        }
        Ok(Self {
            web,
            config,
            reference,
            base,
            authorization: None,
        })
    }

    /// The manifest of the component. An index is followed once, to what it has for
    /// WebAssembly.
    pub(super) async fn component_manifest(&mut self) -> Result<Pulled, SourceError> {
        let pulled = self
            .manifest(&self.reference.name(), self.reference.digest())
            .await?;
        if pulled.manifest.manifests.is_empty() {
            return Ok(pulled);
        }
        let mut of_wasm = pulled.manifest.manifests.iter().filter(|one| {
            let platform = one.platform.as_ref();
            platform.is_some_and(|platform| platform.architecture == "wasm")
        });
        match (of_wasm.next(), of_wasm.next()) {
            (Some(one), None) => {
                let digest = self.parsed(&one.digest)?;
                self.manifest(&format!("sha256:{digest}"), Some(digest))
                    .await
            }
            (None, _) => Err(self.no_component("it is an index without an entry for wasm")),
            (Some(_), Some(_)) => Err(self.no_component(
                "it is an index with several entries for wasm; name one by its digest",
            )),
        }
    }

    /// A manifest by tag or digest.
    pub(super) async fn manifest(
        &mut self,
        name: &str,
        wanted: Option<Digest>,
    ) -> Result<Pulled, SourceError> {
        let path = format!("manifests/{name}");
        let bytes = self.get(&path, Some(MANIFESTS), MANIFEST_BYTES_MAX).await?;
        let digest = Digest::of(&bytes);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            return Err(SourceError::OtherDigest {
                what: format!("the manifest of oci://{}", self.reference),
                found: digest,
                wanted,
            });
        }
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| {
            self.no_component(&format!("its manifest is not understood: {error}"))
        })?;
        if manifest.layers.len() + manifest.manifests.len() > LAYERS_MAX {
            return Err(self.no_component(&format!("it has more than {LAYERS_MAX} parts")));
        }
        Ok(Pulled {
            bytes,
            digest,
            manifest,
        })
    }

    /// What refers to a manifest: by the registry's own list, else by the tag that stands
    /// in for it where a registry has none.
    pub(super) async fn referrers(
        &mut self,
        digest: Digest,
    ) -> Result<Vec<Descriptor>, SourceError> {
        let list = format!("referrers/sha256:{digest}");
        let found = self.get(&list, Some(OCI_INDEX), MANIFEST_BYTES_MAX).await;
        let bytes = match found {
            Err(SourceError::Status { status: 404, .. }) => {
                let tag = format!("manifests/sha256-{digest}");
                match self.get(&tag, Some(OCI_INDEX), MANIFEST_BYTES_MAX).await {
                    Err(SourceError::Status { status: 404, .. }) => return Ok(Vec::new()),
                    found => found?,
                }
            }
            found => found?,
        };
        let index: Manifest = serde_json::from_slice(&bytes).map_err(|error| {
            self.no_component(&format!("its list of referrers is not understood: {error}"))
        })?;
        Ok(index.manifests)
    }

    /// A blob, compared with its digest.
    pub(super) async fn blob(
        &mut self,
        of: &Descriptor,
        bytes_max: u64,
    ) -> Result<Bytes, SourceError> {
        let wanted = self.parsed(&of.digest)?;
        let path = format!("blobs/sha256:{wanted}");
        if of.size > bytes_max {
            return Err(SourceError::TooLarge {
                url: format!("oci://{}", self.reference),
                bytes_max,
            });
        }
        let bytes = self.get(&path, None, bytes_max).await?;
        let found = Digest::of(&bytes);
        if found != wanted {
            return Err(SourceError::OtherDigest {
                what: format!("a layer of oci://{}", self.reference),
                found,
                wanted,
            });
        }
        Ok(bytes)
    }

    /// The one layer that is the component.
    pub(super) fn component_layer<'p>(
        &self,
        pulled: &'p Pulled,
    ) -> Result<&'p Descriptor, SourceError> {
        let mut layers = pulled.manifest.layers.iter();
        let found: Vec<_> = layers
            .by_ref()
            .filter(|layer| COMPONENT_LAYERS.contains(&layer.media_type.as_str()))
            .collect();
        match found[..] {
            [one] => Ok(one),
            [] => {
                let types = pulled.manifest.layers.iter().take(3);
                let types: Vec<_> = types.map(|layer| layer.media_type.as_str()).collect();
                Err(self.no_component(&match types.is_empty() {
                    true => "it has no layers".to_owned(),
                    false => format!("its layers are {}", types.join(", ")),
                }))
            }
            _ => Err(self.no_component("it has several layers that are components")),
        }
    }

    fn no_component(&self, reason: &str) -> SourceError {
        SourceError::NoComponent {
            what: format!("oci://{}", self.reference),
            reason: reason.to_owned(),
        }
    }

    fn parsed(&self, digest: &str) -> Result<Digest, SourceError> {
        let digits = digest.strip_prefix("sha256:");
        let parsed = digits.and_then(|digits| digits.parse().ok());
        parsed.ok_or_else(|| self.no_component("a digest in its manifest is not sha256:…"))
    }

    async fn get(
        &mut self,
        path: &str,
        accept: Option<&'static str>,
        bytes_max: u64,
    ) -> Result<Bytes, SourceError> {
        let url = self.base.join(path).map_err(|_| SourceError::Settings {
            reason: format!("{path} is no path"),
        })?;
        let mut request = Request {
            accept,
            authorization: self.authorization.clone(),
            ..Request::new(url, bytes_max)
        };
        let challenge = match self.web.get(&request).await? {
            Answer::Body(bytes) => return Ok(bytes),
            Answer::Challenge(challenge) => challenge,
        };
        let registry = self.reference.registry();
        let login = credentials::login(self.config.docker_config.as_deref(), registry).await?;
        let denied = SourceError::Denied {
            registry: registry.to_owned(),
            had_credentials: login.is_some(),
        };
        let Some(authorization) = self.authorization(&challenge, login.as_ref()).await? else {
            return Err(denied);
        };
        self.authorization = Some(authorization.clone());
        request.authorization = Some(authorization);
        match self.web.get(&request).await? {
            Answer::Body(bytes) => Ok(bytes),
            Answer::Challenge(_) => Err(denied),
        }
    }

    /// What a challenge asks for; `None`: we have nothing to show.
    async fn authorization(
        &self,
        challenge: &str,
        login: Option<&Login>,
    ) -> Result<Option<HeaderValue>, SourceError> {
        let refused = |reason: &str| SourceError::Credentials {
            registry: self.reference.registry().to_owned(),
            reason: reason.to_owned(),
        };
        let challenges = http_auth::parser::ChallengeParser::new(challenge);
        for challenge in challenges.flatten() {
            let parameter = |name: &str| {
                let mut all = challenge.params.iter();
                let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            if challenge.scheme.eq_ignore_ascii_case("basic") {
                return Ok(login.map(basic));
            }
            if !challenge.scheme.eq_ignore_ascii_case("bearer") {
                continue;
            }
            let realm = parameter("realm").and_then(|realm| Url::parse(&realm).ok());
            let mut realm = realm
                .ok_or_else(|| refused("it names no server for tokens; look at the registry"))?;
            let is_plain = realm.scheme() == "http" && self.base.scheme() == "http";
            if realm.scheme() != "https" && !(is_plain && web::is_loopback_host(&realm)) {
                return Err(refused(
                    "its server for tokens is not encrypted; look at the registry",
                ));
            }
            let scope = format!("repository:{}:pull", self.reference.repository());
            if let Some(service) = parameter("service") {
                realm.query_pairs_mut().append_pair("service", &service);
            }
            realm.query_pairs_mut().append_pair("scope", &scope);
            let request = Request {
                authorization: login.map(basic),
                ..Request::new(realm, TOKEN_BYTES_MAX)
            };
            let body = match self.web.get(&request).await {
                Ok(Answer::Body(body)) => body,
                Ok(Answer::Challenge(_))
                | Err(SourceError::Status {
                    status: 401 | 403, ..
                }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let token = serde_json::from_slice::<Token>(&body).ok();
            let token = token.and_then(|token| token.token.or(token.access_token));
            let token = token.and_then(|token| sensitive(&format!("Bearer {token}")));
            return match token {
                Some(token) => Ok(Some(token)),
                None => Err(refused(
                    "its server for tokens gives none; look at the registry",
                )),
            };
        }
        Err(refused(
            "it asks for a kind of login that is not known; look at the registry",
        ))
    }
}

fn basic(login: &Login) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{}:{}", login.user, login.password));
    // Base64 is always a header's value.
    sensitive(&format!("Basic {encoded}")).unwrap_or_else(|| HeaderValue::from_static(""))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether a manifest has this component as its layer: what is signed is the manifest.
pub(crate) fn has_layer(manifest: &[u8], component: Digest) -> bool {
    let wanted = format!("sha256:{component}");
    serde_json::from_slice::<Manifest>(manifest).is_ok_and(|manifest| {
        let mut layers = manifest.layers.iter();
        layers.any(|layer| {
            layer.digest == wanted && COMPONENT_LAYERS.contains(&layer.media_type.as_str())
        })
    })
}
