//! Components signed well, badly, by others, and not at all.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;

use super::*;
use crate::signature::Provenance;

const PACKAGE: &[u8] = include_bytes!("../../../testdata/sigstore/package.conda");
const PACKAGE_BUNDLE: &str = include_str!("../../../testdata/sigstore/package.conda.sigstore.json");
const WORKFLOW: &str =
    "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main";
const GITHUB: &str = "https://token.actions.githubusercontent.com";

struct Signer {
    key: EcdsaKeyPair,
    pem: Vec<u8>,
}

impl Signer {
    fn new() -> Self {
        let pair = rcgen::KeyPair::generate().expect("a P-256 key");
        let random = SystemRandom::new();
        let pkcs8 = pair.serialize_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8, &random);
        Self {
            key: key.expect("its own key"),
            pem: pair.public_key_pem().into_bytes(),
        }
    }

    fn sign(&self, message: &[u8]) -> String {
        let signature = self.key.sign(&SystemRandom::new(), message);
        STANDARD.encode(signature.expect("signed"))
    }

    fn policy(&self) -> SignaturePolicy {
        let keys = [("cosign.pub".to_owned(), self.pem.clone())];
        SignaturePolicy::new(SignatureMode::Require, &keys, Vec::new(), None).expect("a policy")
    }

    /// As cosign sign-blob --bundle writes it.
    fn bundle(&self, message: &[u8]) -> String {
        let digest = STANDARD.encode(Digest::of(message).bytes());
        let signature = self.sign(message);
        format!(
            r#"{{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial":{{"publicKey":{{"hint":""}},"tlogEntries":[],
            "timestampVerificationData":{{"rfc3161Timestamps":[]}}}},
            "messageSignature":{{"messageDigest":{{"algorithm":"SHA2_256","digest":"{digest}"}},
            "signature":"{signature}"}}}}"#
        )
    }
}

fn artifact(bytes: &[u8], signatures: Vec<Evidence>) -> Artifact {
    let provenance = Provenance {
        signatures,
        manifest: None,
    };
    let found = Artifact::new(Bytes::copy_from_slice(bytes));
    Artifact {
        provenance,
        ..found
    }
}

fn detached(signature: String) -> Vec<Evidence> {
    vec![Evidence::Detached { signature }]
}

fn bundled(json: &str) -> Vec<Evidence> {
    let json = json.to_owned();
    vec![Evidence::Bundle { json }]
}

#[test]
fn signature_of_a_named_key_counts_and_no_other() {
    let (ours, theirs) = (Signer::new(), Signer::new());
    let policy = ours.policy();
    let signer = |signatures| policy.signer(&artifact(b"component", signatures));

    for good in [
        detached(ours.sign(b"component")),
        bundled(&ours.bundle(b"component")),
        // One that counts is enough.
        [
            detached(theirs.sign(b"component")),
            detached(ours.sign(b"component")),
        ]
        .concat(),
    ] {
        assert_eq!(signer(good), Ok("key cosign.pub".to_owned()));
    }
    for (bad, reason) in [
        (Vec::new(), "it is not signed"),
        (
            detached(theirs.sign(b"component")),
            "none of its signatures counts",
        ),
        (
            detached(ours.sign(b"another one")),
            "none of its signatures counts",
        ),
        (detached("AAAA".to_owned()), "none of its signatures counts"),
        (detached("%".to_owned()), "is not base64"),
        (
            bundled(&theirs.bundle(b"component")),
            "is not by key cosign.pub",
        ),
        (
            bundled(&ours.bundle(b"another one")),
            "is not by key cosign.pub",
        ),
        (bundled("{}"), "is not understood"),
        // Of other bytes, and the digest of these written over theirs.
        (
            bundled(&ours.bundle(b"another one").replace(
                &STANDARD.encode(Digest::of(b"another one").bytes()),
                &STANDARD.encode(Digest::of(b"component").bytes()),
            )),
            "is not by key cosign.pub",
        ),
    ] {
        let refusal = signer(bad).expect_err(reason);
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn more_signatures_than_the_bound_are_not_looked_at() {
    let ours = Signer::new();
    let mut many = vec![
        Evidence::Detached {
            signature: String::new()
        };
        SIGNATURES_MAX
    ];
    many.extend(detached(ours.sign(b"component")));
    let refusal = ours.policy().signer(&artifact(b"component", many));
    assert!(refusal.is_err());
}

/// A registry's manifest, as far as signatures look at it.
fn manifest(component: &[u8]) -> Bytes {
    let digest = Digest::of(component);
    format!(
        r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/wasm","digest":"sha256:{digest}","size":9}}]}}"#
    )
    .into()
}

fn payload(manifest: &[u8]) -> String {
    let digest = Digest::of(manifest);
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"r/a"}},"image":{{"docker-manifest-digest":"sha256:{digest}"}},"type":"{COSIGN_TYPE}"}},"optional":null}}"#
    )
}

#[test]
fn signature_over_a_manifest_counts_for_its_own_layer_alone() {
    let ours = Signer::new();
    let signer = |manifest: Option<Bytes>, payload: String| {
        let signature = ours.sign(payload.as_bytes());
        let evidence = Evidence::of_payload(payload.as_bytes(), &signature).expect("evidence");
        let mut artifact = artifact(b"component", vec![evidence]);
        artifact.provenance.manifest = manifest;
        ours.policy().signer(&artifact)
    };
    let (own, other) = (manifest(b"component"), manifest(b"another one"));
    assert!(signer(Some(own.clone()), payload(&own)).is_ok());
    for (manifest, payload, reason) in [
        (Some(own.clone()), payload(&other), "of another manifest"),
        // The signature is good, and of a manifest with another component.
        (
            Some(other.clone()),
            payload(&other),
            "without this component",
        ),
        (None, payload(&own), "without this component"),
        (Some(own.clone()), "{}".to_owned(), "is not understood"),
        (
            Some(own.clone()),
            payload(&own).replace(COSIGN_TYPE, "else"),
            "of another manifest",
        ),
    ] {
        let refusal = signer(manifest, payload).expect_err(reason);
        assert!(refusal.contains(reason), "{refusal}");
    }
}

fn keyless(issuer: &str, subject: &str) -> SignaturePolicy {
    let identity = Identity {
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
    };
    let root = Some(SIGSTORE_PRODUCTION_TRUSTED_ROOT);
    SignaturePolicy::new(SignatureMode::Require, &[], vec![identity], root).expect("a policy")
}

#[test]
fn keyless_bundle_counts_for_the_identity_that_is_named() {
    let signed = artifact(PACKAGE, bundled(PACKAGE_BUNDLE));
    let signer = keyless(GITHUB, WORKFLOW).signer(&signed);
    assert_eq!(signer, Ok(format!("{WORKFLOW} ({GITHUB})")));

    let other_branch = WORKFLOW.replace("main", "other");
    for (issuer, subject) in [
        (GITHUB, other_branch.as_str()),
        ("https://accounts.google.com", WORKFLOW),
        (GITHUB, ""),
    ] {
        let refusal = keyless(issuer, subject).signer(&signed);
        assert!(refusal.is_err(), "{issuer} {subject}: {refusal:?}");
    }
}

#[test]
fn keyless_bundle_of_other_bytes_or_without_its_proofs_does_not_count() {
    let policy = keyless(GITHUB, WORKFLOW);
    let other = artifact(b"another one", bundled(PACKAGE_BUNDLE));
    assert!(policy.signer(&other).is_err());

    // Without the log's entry nothing says that the certificate was good when it signed:
    // it has expired since.
    let mut bundle: serde_json::Value = serde_json::from_str(PACKAGE_BUNDLE).expect("JSON");
    bundle["verificationMaterial"]["tlogEntries"] = serde_json::json!([]);
    let stripped = artifact(PACKAGE, bundled(&bundle.to_string()));
    let refusal = policy.signer(&stripped);
    assert!(refusal.is_err(), "{refusal:?}");

    // An entry that is not in the log.
    let mut bundle: serde_json::Value = serde_json::from_str(PACKAGE_BUNDLE).expect("JSON");
    let entry = &mut bundle["verificationMaterial"]["tlogEntries"][0];
    entry["inclusionProof"]["hashes"] = serde_json::json!([]);
    let forged = artifact(PACKAGE, bundled(&bundle.to_string()));
    assert!(policy.signer(&forged).is_err());
}

#[test]
fn key_policy_does_not_take_a_keyless_bundle_and_the_other_way_round() {
    let ours = Signer::new();
    let refusal = ours
        .policy()
        .signer(&artifact(PACKAGE, bundled(PACKAGE_BUNDLE)));
    assert!(refusal.is_err());
    let refusal = keyless(GITHUB, WORKFLOW).signer(&artifact(b"c", bundled(&ours.bundle(b"c"))));
    assert!(refusal.is_err());
}

#[test]
fn what_is_no_key_or_root_is_said() {
    let keys = [("a.pub".to_owned(), b"secret".to_vec())];
    let error = SignaturePolicy::new(SignatureMode::Warn, &keys, Vec::new(), None);
    let error = error.expect_err("no key");
    assert_eq!(error.part, PolicyPart::Key(0));
    let error = SignaturePolicy::new(SignatureMode::Warn, &[], Vec::new(), Some("{"));
    assert_eq!(error.expect_err("no root").part, PolicyPart::TrustedRoot);
}

#[test]
fn provenance_is_kept_and_read_again_and_damage_is_no_signature() {
    let ours = Signer::new();
    let own = manifest(b"component");
    let text = payload(&own);
    let signature = ours.sign(text.as_bytes());
    let kept = Provenance {
        signatures: vec![Evidence::of_payload(text.as_bytes(), &signature).expect("evidence")],
        manifest: Some(own),
    };
    let again = Provenance::from_json(&kept.to_json());
    assert_eq!(again, kept);
    let found = Artifact {
        provenance: again,
        ..Artifact::new(Bytes::from_static(b"component"))
    };
    assert!(ours.policy().signer(&found).is_ok());
    assert!(Provenance::from_json(b"{").is_empty());
}
