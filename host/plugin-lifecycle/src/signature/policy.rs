//! What a tenant asks of a component's signatures, and whether it is so.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use sigstore_verify::crypto::VerificationKey;
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Bundle, DerPublicKey, SignatureBytes, SignatureContent};
use sigstore_verify::{PublicKeyVerificationPolicy, VerificationPolicy, Verifier};

use super::{Evidence, SIGNATURES_MAX, provider};
use crate::artifact::Artifact;
use crate::revision::Digest;
use crate::source::has_layer;

/// Trusts nobody: bundles of a key are verified by that key alone.
const NO_AUTHORITIES: &str = r#"{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","tlogs":[],"certificateAuthorities":[],"ctlogs":[],"timestampAuthorities":[]}"#;
/// As cosign names what it signs.
const COSIGN_TYPE: &str = "cosign container image signature";

/// How much a signature matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SignatureMode {
    /// Nobody looks.
    #[default]
    None,
    /// What is not signed is used, and an event says so.
    Warn,
    /// What is not signed is not used.
    Require,
}

/// Who may sign without a key of his own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Who vouches for the identity.
    pub issuer: String,
    /// Exactly this address, or URI of a workflow.
    pub subject: String,
}

/// A tenant's policy; the default looks at nothing.
#[derive(Clone, Default)]
pub struct SignaturePolicy {
    mode: SignatureMode,
    keys: Vec<Key>,
    identities: Vec<Identity>,
    /// `None`: there is no keyless signing.
    authorities: Option<Arc<Authorities>>,
}

#[derive(Clone)]
struct Key {
    /// For people.
    name: String,
    der: DerPublicKey,
    key: Arc<VerificationKey>,
}

struct Authorities {
    verifier: Verifier,
    /// A private instance of Sigstore may have no log of certificates.
    has_certificate_log: bool,
}

/// What a policy cannot be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyPart {
    /// The key of this number.
    Key(usize),
    /// The trusted root.
    TrustedRoot,
}

/// A policy that would verify nothing.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct PolicyError {
    /// Of what.
    pub part: PolicyPart,
    /// For people.
    pub reason: String,
}

impl fmt::Debug for SignaturePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignaturePolicy")
            .field("mode", &self.mode)
            .field("keys", &self.keys.len())
            .field("identities", &self.identities)
            .finish_non_exhaustive()
    }
}

impl SignaturePolicy {
    /// `keys`: name and PEM of each; `trusted_root`: JSON.
    ///
    /// # Errors
    /// A key or root that cannot be used.
    pub fn new(
        mode: SignatureMode,
        keys: &[(String, Vec<u8>)],
        identities: Vec<Identity>,
        trusted_root: Option<&str>,
    ) -> Result<Self, PolicyError> {
        provider::install();
        let keys = keys.iter().enumerate().map(|(number, (name, pem))| {
            key(name, pem).map_err(|reason| PolicyError {
                part: PolicyPart::Key(number),
                reason,
            })
        });
        let keys = keys.collect::<Result<_, _>>()?;
        let authorities = trusted_root.map(|json| {
            authorities(json).map_err(|reason| PolicyError {
                part: PolicyPart::TrustedRoot,
                reason,
            })
        });
        Ok(Self {
            mode,
            keys,
            identities,
            authorities: authorities.transpose()?.map(Arc::new),
        })
    }

    /// How much it matters.
    pub fn mode(&self) -> SignatureMode {
        self.mode
    }

    /// Who signed the component, as far as the policy knows them. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// Why none of its signatures counts; for people.
    pub fn signer(&self, artifact: &Artifact) -> Result<String, String> {
        let provenance = &artifact.provenance;
        // What is signed in a registry is the manifest; it counts when the component is in it.
        let manifest = provenance.manifest.clone();
        let manifest = manifest.filter(|manifest| has_layer(manifest, artifact.digest));
        let mut refusals = Vec::new();
        for evidence in provenance.signatures.iter().take(SIGNATURES_MAX) {
            let signer = match evidence {
                Evidence::Detached { signature } => self.by_key(&artifact.bytes, signature),
                Evidence::Payload { payload, signature } => {
                    self.by_payload(manifest.as_ref(), payload, signature)
                }
                Evidence::Bundle { json } => {
                    self.by_bundle(manifest.as_ref().unwrap_or(&artifact.bytes), json)
                }
            };
            match signer {
                Ok(signer) => return Ok(signer),
                Err(refusal) => refusals.push(refusal),
            }
        }
        refusals.dedup();
        Err(match refusals.is_empty() {
            true => "it is not signed; sign it (cosign sign-blob --bundle COMPONENT.sigstore.json, or cosign sign for a registry)".to_owned(),
            false => format!(
                "none of its signatures counts: {}; have it signed by whom [tenants.NAME.signatures] names",
                refusals.join("; ")
            ),
        })
    }

    fn by_key(&self, message: &[u8], signature: &str) -> Result<String, String> {
        let signature = STANDARD.decode(signature.trim());
        let signature = signature.map_err(|_| "a signature is not base64".to_owned())?;
        self.by_key_of(message, &SignatureBytes::new(signature))
    }

    fn by_key_of(&self, message: &[u8], signature: &SignatureBytes) -> Result<String, String> {
        let mut keys = self.keys.iter();
        match keys.find(|key| key.key.verify(message, signature).is_ok()) {
            Some(key) => Ok(format!("key {}", key.name)),
            None => Err("a signature is of other bytes, or by a key that is not named".to_owned()),
        }
    }

    fn by_payload(
        &self,
        manifest: Option<&Bytes>,
        payload: &str,
        signature: &str,
    ) -> Result<String, String> {
        let payload = STANDARD.decode(payload);
        let payload = payload.map_err(|_| "a payload is not base64".to_owned())?;
        let signer = self.by_key(&payload, signature)?;
        let named: Payload = serde_json::from_slice(&payload)
            .map_err(|_| "a payload that is signed is not understood".to_owned())?;
        let manifest = manifest.ok_or("a signature is of a manifest without this component")?;
        let wanted = format!("sha256:{}", Digest::of(manifest));
        if named.critical.kind != COSIGN_TYPE || named.critical.image.digest != wanted {
            return Err("a signature is of another manifest".to_owned());
        }
        Ok(signer)
    }

    fn by_bundle(&self, message: &Bytes, json: &str) -> Result<String, String> {
        let bundle = Bundle::from_json(json)
            .map_err(|error| format!("a bundle is not understood: {error}"))?;
        // The key is what is trusted; when it signed, and where that was logged, says no more.
        if let SignatureContent::MessageSignature(signed) = &bundle.content
            && let Ok(signer) = self.by_key_of(message, &signed.signature)
        {
            return Ok(signer);
        }
        let mut refusal = "a bundle is by nobody who is named".to_owned();
        let nobody = authorities(NO_AUTHORITIES)?;
        for key in &self.keys {
            let policy = PublicKeyVerificationPolicy::new(key.der.clone()).skip_tlog_unsafe();
            let verified = provider::verifying(message, || {
                nobody.verifier.verify(&message[..], &bundle, &policy)
            });
            match verified {
                Ok(_) => return Ok(format!("key {}", key.name)),
                Err(error) => refusal = format!("a bundle is not by key {}: {error}", key.name),
            }
        }
        let Some(authorities) = &self.authorities else {
            return Err(refusal);
        };
        for Identity { issuer, subject } in &self.identities {
            let mut policy = VerificationPolicy::new(subject.as_str(), issuer.as_str());
            if !authorities.has_certificate_log {
                policy = policy.skip_sct();
            }
            let verified = provider::verifying(message, || {
                authorities.verifier.verify(&message[..], &bundle, &policy)
            });
            match verified {
                Ok(_) => return Ok(format!("{subject} ({issuer})")),
                Err(error) => refusal = format!("a bundle is not by {subject}: {error}"),
            }
        }
        Err(refusal)
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

fn key(name: &str, pem: &[u8]) -> Result<Key, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "is no text".to_owned())?;
    let der = DerPublicKey::from_pem(text).map_err(|error| error.to_string())?;
    let key = VerificationKey::from_spki(&der).map_err(|error| error.to_string())?;
    Ok(Key {
        name: name.to_owned(),
        der,
        key: Arc::new(key),
    })
}

fn authorities(json: &str) -> Result<Authorities, String> {
    provider::install();
    let root = TrustedRoot::from_json(json).map_err(|error| error.to_string())?;
    let has_certificate_log = !root.ctlogs.is_empty();
    let verifier = Verifier::new(&root).map_err(|error| error.to_string())?;
    Ok(Authorities {
        verifier,
        has_certificate_log,
    })
}

#[cfg(test)]
mod tests;
