//! TLS towards name servers and brokers: verified unless somebody says otherwise.
//!
//! A client begins with TLS right after connecting; servers tell it from plain text by
//! its first byte, on one port. Differs from RocketMQ: the Java client trusts any
//! certificate unless told otherwise (`tls.test.mode.enable`) and never looks at the
//! name in it (`TlsHelper#buildSslContext`).

use std::fmt;
use std::io;
use std::sync::Arc;

use protocol::Address;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError,
    RootCertStore, SignatureScheme,
};

use crate::error::ConnectError;

/// What TLS is told; PEM texts, not paths.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// Trusted in place of the system's authorities.
    pub ca: Option<Vec<u8>>,
    /// Certificate chain and private key, for servers that ask who we are.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that certificates must be for, where it is not the host that is dialled:
    /// routes name brokers by IP address.
    pub server_name: Option<String>,
    /// Trust anybody. What is sent can be read and changed by whoever is in between.
    pub insecure: bool,
}

/// A way to speak TLS, checked. Clones share it, sessions included.
#[derive(Clone)]
pub struct TlsConfig {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

/// Why TLS cannot be spoken so.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// Not PEM, or nothing of the kind in it.
    #[error("the {part} cannot be read")]
    Pem {
        /// Which text.
        part: TlsPart,
        /// What is wrong with it.
        #[source]
        source: PemError,
    },
    /// PEM, and no certificate in it.
    #[error("the {part} has no certificate in it")]
    NoCertificate {
        /// Which text.
        part: TlsPart,
    },
    /// A certificate that cannot be trusted.
    #[error("a certificate authority cannot be used")]
    Authority(#[source] RustlsError),
    /// The machine has none, or they cannot be read.
    #[error(
        "the system has no certificate authorities that can be read; install them, or name a file with your own"
    )]
    NoSystemAuthorities,
    /// Certificate and key do not belong together, or are of a kind nobody knows.
    #[error("client certificate and private key cannot be used together")]
    ClientCertificate(#[source] RustlsError),
    /// Neither a DNS name nor an IP address.
    #[error("\"{0}\" is no server name")]
    ServerName(String),
}

/// One of the texts that TLS is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPart {
    /// Whom we trust.
    Authorities,
    /// Who we are.
    ClientCertificate,
    /// Its key.
    PrivateKey,
}

impl fmt::Display for TlsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authorities => "file of certificate authorities",
            Self::ClientCertificate => "client certificate",
            Self::PrivateKey => "private key",
        })
    }
}

impl TlsConfig {
    /// Checks everything that can be checked without a connection.
    ///
    /// # Errors
    /// A text is no PEM, or its content cannot be used.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has suites for both versions");
        let builder = if options.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
        } else {
            builder.with_root_certificates(match &options.ca {
                Some(pem) => own_authorities(pem)?,
                None => system_authorities()?,
            })
        };
        let config = match &options.client_certificate {
            Some((chain, key)) => {
                let chain = certificates(TlsPart::ClientCertificate, chain)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| {
                    let part = TlsPart::PrivateKey;
                    TlsConfigError::Pem { part, source }
                })?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(TlsConfigError::ClientCertificate)?
            }
            None => builder.with_no_client_auth(),
        };
        let server_name = options.server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| TlsConfigError::ServerName(name.clone()))
        });
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            server_name: server_name.transpose()?,
        })
    }

    /// The handshake, over a socket that is connected to the address.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let failed = |error: io::Error| ConnectError::Tls {
            address: address.clone(),
            remedy: remedy(&error),
            source: Arc::new(error),
        };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(address.host().to_owned())
                .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?,
        };
        self.connector.connect(name, stream).await.map_err(failed)
    }
}

/// What a person can do about it.
fn remedy(error: &io::Error) -> &'static str {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<RustlsError>());
    match cause {
        Some(RustlsError::InvalidCertificate(error)) => match error {
            // An authority made anew under its old name shows as a bad signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "nobody we trust has signed its certificate: name the authority's file (ca_file)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name: give the name in it (server_name)"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: renew it"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: check the clocks"
            }
            _ => "its certificate cannot be accepted: replace it",
        },
        Some(RustlsError::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure,
        )) => {
            "it does not accept us: check the client certificate (certificate_file, private_key_file)"
        }
        _ => "check that it speaks TLS there",
    }
}

fn certificates(part: TlsPart, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| TlsConfigError::Pem { part, source })?;
    if certificates.is_empty() {
        return Err(TlsConfigError::NoCertificate { part });
    }
    Ok(certificates)
}

fn own_authorities(pem: &[u8]) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(TlsPart::Authorities, pem)? {
        roots.add(certificate).map_err(TlsConfigError::Authority)?;
    }
    Ok(roots)
}

/// The system's store; single certificates in it that nobody can read do not matter.
fn system_authorities() -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsConfigError::NoSystemAuthorities);
    }
    Ok(roots)
}

/// For `insecure`: any certificate will do, as long as the peer holds its key.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Says nothing of what is in the texts: one is a private key.
impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca", &self.ca.is_some())
            .field("client_certificate", &self.client_certificate.is_some())
            .field("server_name", &self.server_name)
            .field("insecure", &self.insecure)
            .finish()
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
