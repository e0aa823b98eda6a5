//! Who signed a component, and whether that is enough: the policy of a tenant, checked
//! before anything of the component is looked at, without a network.
//!
//! What was found beside a component (a [`Provenance`]) proves nothing by itself, whoever
//! wrote it: each piece is verified against keys and identities that the operator has
//! named. It is kept with the component, so that a restart verifies again, under the
//! policy of then.
//!
//! Read are what cosign writes: a signature over the bytes (`X.wasm.sig`), a signature
//! over a payload that names a registry's manifest, and Sigstore bundles, of a key or
//! keyless (`X.wasm.sigstore.json`, or what refers to a manifest). `provider` lends the
//! library that knows bundles our cryptography.

mod policy;
mod provider;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
pub use policy::{Identity, PolicyError, PolicyPart, SignatureMode, SignaturePolicy};
use serde::{Deserialize, Serialize};

/// Of one signature, payload or bundle.
pub const SIGNATURE_BYTES_MAX: u64 = 256 << 10;
/// More signatures of a component are not looked at.
pub const SIGNATURES_MAX: usize = 16;
/// Of all that is kept beside a component.
pub(crate) const PROVENANCE_BYTES_MAX: u64 = 16 << 20;

/// What was found beside a component.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// Any of them may do.
    pub signatures: Vec<Evidence>,
    /// The registry's manifest that has the component as its layer: what is signed there.
    pub manifest: Option<Bytes>,
}

/// One signature, verified by nobody yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Over the bytes of the component.
    Detached {
        /// Base64, as cosign writes it.
        signature: String,
    },
    /// Over a payload that names the digest of a manifest.
    Payload {
        /// Base64.
        payload: String,
        /// Base64.
        signature: String,
    },
    /// A Sigstore bundle.
    Bundle {
        /// As it was found.
        json: String,
    },
}

/// Reads what stands beside a component.
type ReadEvidence = fn(&[u8]) -> Option<Evidence>;

impl Evidence {
    /// What may stand beside a component, by its name's ending.
    pub(crate) const BESIDE: [(&'static str, ReadEvidence); 2] = [
        (".sigstore.json", Self::of_bundle),
        (".sig", Self::of_detached),
    ];

    pub(crate) fn of_bundle(bytes: &[u8]) -> Option<Self> {
        let json = std::str::from_utf8(bytes).ok()?.to_owned();
        Some(Self::Bundle { json })
    }

    fn of_detached(bytes: &[u8]) -> Option<Self> {
        let signature = std::str::from_utf8(bytes).ok()?.trim().to_owned();
        Some(Self::Detached { signature })
    }

    pub(crate) fn of_payload(payload: &[u8], signature: &str) -> Option<Self> {
        Some(Self::Payload {
            payload: STANDARD.encode(payload),
            signature: signature.to_owned(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Kept {
    signatures: Vec<Evidence>,
    manifest: Option<String>,
}

impl Provenance {
    /// Of the file's name beside a component that a host keeps.
    pub const ENDING: &'static str = ".provenance.json";

    /// Nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.signatures.is_empty()
    }

    /// As it is kept.
    pub fn to_json(&self) -> Vec<u8> {
        let kept = Kept {
            signatures: self.signatures.clone(),
            manifest: self.manifest.as_ref().map(|bytes| STANDARD.encode(bytes)),
        };
        // Texts alone: they are always JSON.
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// As it was kept; what is damaged has no signature in it.
    pub fn from_json(bytes: &[u8]) -> Self {
        let Ok(kept) = serde_json::from_slice::<Kept>(bytes) else {
            return Self::default();
        };
        let manifest = kept.manifest.and_then(|text| STANDARD.decode(text).ok());
        Self {
            signatures: kept.signatures,
            manifest: manifest.map(Bytes::from),
        }
    }
}
