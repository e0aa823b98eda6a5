//! The cryptography of this process (ring) for the library that verifies bundles.
//!
//! ring verifies messages, not digests of them. The only digest that is ever verified is
//! that of the bytes a bundle is about, which are at hand: [`verifying`] lends them for
//! the time of one verification.

use std::cell::RefCell;

use bytes::Bytes;
use ring::digest;
use ring::signature::{self as algorithms, UnparsedPublicKey, VerificationAlgorithm};
use sigstore_verify::crypto::provider::{CryptoProvider, HashContext, install_default_provider};
use sigstore_verify::crypto::{Error, Result, SigningScheme};
use sigstore_verify::types::HashAlgorithm;

thread_local! {
    static MESSAGE: RefCell<Option<Bytes>> = const { RefCell::new(None) };
}

/// Runs a verification of signatures over these bytes. Blocks for as long as hashing them
/// takes.
pub(super) fn verifying<T>(message: &Bytes, verify: impl FnOnce() -> T) -> T {
    install();
    MESSAGE.set(Some(message.clone()));
    let verified = verify();
    MESSAGE.set(None);
    verified
}

/// For the process; the first call counts.
pub(super) fn install() {
    // It is there already.
    let _ = install_default_provider(&Ring);
}

#[derive(Debug)]
struct Ring;

struct Hash(digest::Context);

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        Ok(Box::new(Hash(digest::Context::new(known(algorithm)?))))
    }

    fn verify_raw(
        &self,
        scheme: SigningScheme,
        public_key: &[u8],
        data: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        UnparsedPublicKey::new(verification(scheme)?, public_key)
            .verify(data, signature)
            .map_err(|_| Error::Verification(format!("{} signature invalid", scheme.name())))
    }

    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        public_key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        let unknown = || Error::Verification("a digest of other bytes is signed".to_owned());
        let message = MESSAGE.with_borrow(Clone::clone).ok_or_else(unknown)?;
        let algorithm = known(scheme.hash_algorithm().ok_or_else(unknown)?)?;
        if digest::digest(algorithm, &message).as_ref() != digest {
            return Err(unknown());
        }
        self.verify_raw(scheme, public_key, &message, signature)
    }
}

fn known(algorithm: HashAlgorithm) -> Result<&'static digest::Algorithm> {
    match algorithm {
        HashAlgorithm::Sha2256 => Ok(&digest::SHA256),
        HashAlgorithm::Sha2384 => Ok(&digest::SHA384),
        HashAlgorithm::Sha2512 => Ok(&digest::SHA512),
        other => Err(Error::UnsupportedAlgorithm(format!("digests by {other}"))),
    }
}

fn verification(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &algorithms::ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &algorithms::ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &algorithms::ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &algorithms::ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &algorithms::ED25519,
        SigningScheme::RsaPssSha256 => &algorithms::RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &algorithms::RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &algorithms::RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &algorithms::RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &algorithms::RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &algorithms::RSA_PKCS1_2048_8192_SHA512,
        other => {
            let what = format!("signatures by {}", other.name());
            return Err(Error::UnsupportedAlgorithm(what));
        }
    })
}
